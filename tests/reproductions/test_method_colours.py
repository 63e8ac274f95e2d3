"""Colours of methods on result pages."""

from __future__ import annotations

from fedrl.report import plots
from reproductions.method_colours import ALONE, METHODS, styles


def test_a_method_looks_the_same_whatever_stands_beside_it():
    assert styles(["PAvg", "FedSVRPG-M"])["PAvg"] == styles(["SCAFFOLD", "PAvg"])["PAvg"]
    assert len({plots.line_style(at) for at in range(len(METHODS))}) == len(METHODS)
    assert len(set(styles([*METHODS]).values())) == len(METHODS)


def test_bands_of_methods_that_are_drawn_together_have_colours_of_their_own():
    """A band has its line's colour and no dashes."""
    for names in (
        ("PAvg", "FedSVRPG-M", "SCAFFOLD", "FedQHD", "FedAvg-DQN"),
        ("PAvg", "FedSVRPG-M", "FedPG-BR (mean)"),
    ):
        colours = [plots.line_style(at)[0] for at in styles(names).values()]
        assert len({*colours}) == len(names)


def test_a_longer_name_counts_and_part_of_a_word_does_not():
    found = styles(["FedQHD", "FedQHD, corrections (ours)", "FedQHD-2"])
    assert found["FedQHD"] == METHODS.index("FedQHD")
    assert found["FedQHD, corrections (ours)"] == METHODS.index("FedQHD, corrections")
    assert found["FedQHD-2"] not in (found["FedQHD"], found["FedQHD, corrections (ours)"])


def test_what_is_no_method_takes_what_is_free():
    found = styles(["PAvg", "β = 0.2", "β = 0.5", "PAvg, λ = 2ηK"])
    assert found["PAvg"] == METHODS.index("PAvg")
    assert len(set(found.values())) == 4
    assert set(ALONE.values()) <= set(range(len(METHODS)))
