"""What is measured of FedQHD's Theorem 1, Lemma 1 and Theorem 2."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="FedQHD needs the extra classic")

from fedrl.algorithms.qhd import encoders as rff
from reproductions.fedqhd import theory
from reproductions.fedqhd.theorem_claims import largest, theorem_claims


class Found:
    """What the claims read of results."""

    def __init__(self, records: list[dict], draws: int) -> None:
        self.theorems = records
        self.plan = type("Plan", (), {"sizes": type("Sizes", (), {"draws": draws})})


@pytest.fixture(scope="module")
def records() -> list[dict]:
    return [{"values": theory.measure(one), "cell": one.name} for one in theory.draws(1)]


@pytest.mark.slow
def test_the_bound_forgets_what_no_anchor_sees_and_the_repaired_one_does_not(records):
    found = Found(records, 1)
    few, many = theory.ANCHORS
    assert largest(found, "theorem", few) > 1000
    assert largest(found, "theorem", many) < 1
    assert largest(found, "repaired") <= 1 + 1e-6
    assert largest(found, "residual") < 1e-9
    assert 0 < largest(found, "lemma") < 1
    said = dict(theorem_claims(found))
    assert said["Theorem 2: three terms bound the federation gap"].startswith("**does not hold**")
    assert "aligned encoders, λ = 1e-09" in said["Theorem 2: three terms bound the federation gap"]
    assert all(
        text.startswith("**holds**") for name, text in said.items() if "Theorem 2" not in name
    )


@pytest.mark.slow
def test_nothing_is_said_while_a_draw_is_missing(records):
    assert all(text is None for _, text in theorem_claims(Found(records[1:], 1)))


def test_an_oracle_is_the_best_fit_in_its_features():
    """Its error is orthogonal to every feature, real parts and imaginary ones."""
    rng = np.random.default_rng(0)
    states, encoder = rng.uniform(-1, 1, (40, 3)), rff.draw(3, 8, 0.5, 1, complex=True)
    reference = rng.standard_normal((40, 2))
    left = reference - theory.fitted(encoder, states, reference)
    assert np.abs(rff.design(encoder, states).conj().T @ left).max() < 1e-9
