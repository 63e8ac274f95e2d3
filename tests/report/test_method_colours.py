"""Colours of methods: in reports, in the live view and on result pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.pages import write_run

from fedrl.algorithms import METHODS as RECIPE_NAMES
from fedrl.report import page as report
from fedrl.report import plots
from fedrl.report.method_colours import ALONE, IN_RECIPES, METHODS, method_style, styles
from fedrl.report.panels import group_styles, main_panels
from fedrl.report.run_groups import group_runs
from fedrl.runs.read import load


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


def test_names_of_recipes_have_the_colours_of_result_pages():
    assert method_style("fedsvrpg-m") == styles(["FedSVRPG-M"])["FedSVRPG-M"]
    assert method_style("feddqn") == METHODS.index("FedAvg-DQN")
    assert method_style("mine.py:Mine") is None
    own = ("fedprox-dqn", "fedrlhf-text")  # beside what they are of: a free one
    assert [name for name in RECIPE_NAMES.builtin if name not in (*IN_RECIPES, *own)] == []


def test_a_report_gives_a_method_its_colour_in_any_order(tmp_path: Path):
    names = ("fedprox", "pavg", "fedsvrpg-m", "own")
    runs = [load(write_run(tmp_path / one, algorithm=f'name = "{one}"')) for one in names]
    for order in (runs, runs[::-1], runs[1:]):
        groups = group_runs(order)
        found = main_panels(groups, "eval/return")[0].styles
        assert found == group_styles(groups)
        assert found["pavg"] == METHODS.index("PAvg")
        assert found["fedsvrpg-m"] == METHODS.index("FedSVRPG-M")
        assert len(set(found.values())) == len(groups)


@pytest.mark.slow
def test_the_pages_legend_has_the_lines_colours(tmp_path: Path):
    folders = [write_run(tmp_path / one, algorithm=f'name = "{one}"') for one in ("pavg", "qavg")]
    text = report.build(folders, tmp_path / "page.html").read_text()
    for name in ("pavg", "qavg"):
        at = method_style(name)
        assert at is not None
        entry = re.search(rf'data-group="{name}".*?var\(--c(\d)\)', text, re.DOTALL)
        assert entry is not None
        assert int(entry[1]) == at % len(plots.PALETTE)
        assert f'"name":"{name}","style":{at}' in text
