"""Result pages: verdicts are computed as they say, and the theory's constants are the paper's."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reproductions.markdown import number, verdict
from reproductions.momentum.cells import PARTS, SCALES, chosen, tasks
from reproductions.momentum.theory import Constants, slope


def test_verdicts_are_paired():
    base = np.array([1.0, 5.0, 9.0, 13.0])  # seeds differ far more than methods do
    assert verdict(base + 0.5 + 0.01 * np.arange(4), base).startswith("better (+0.5")
    assert verdict(base - 0.5 - 0.01 * np.arange(4), base).startswith("worse (-0.5")
    assert verdict(base + np.array([1, -1, 1, -1]), base).startswith("undecided")
    assert verdict(np.array([2.0]), np.array([1.0])) == "+1.00 (one seed)"


def test_numbers_carry_their_interval():
    assert number(np.array([1.0, 1.0, 1.0])) == "1.000 ± 0.000"
    assert number(np.array([1.0])) == "1.000"


def test_the_bound_falls_with_agents_and_rounds():
    constants = Constants(horizon=20, gamma=0.9, variance=4.0, weight_variance=0.1, gap=5.0)
    bounds = [constants.bound(n, 8, 40) for n in (1, 2, 4)]
    assert bounds == sorted(bounds, reverse=True)
    noise = [b - constants.smoothness * 5.0 / 40 for b in bounds]
    assert noise[0] / noise[1] == pytest.approx(2 ** (2 / 3))


def test_smoothness_is_the_largest_of_the_lemmas():
    """L = H R_max (M + H G²)/(1-γ) with G² = 2, M = 1/2, and L̃_1 above it."""
    constants = Constants(horizon=3, gamma=0.5, variance=1.0, weight_variance=0.0, gap=1.0)
    smooth = 3 * (0.5 + 3 * 2) / 0.5
    bound, lipschitz, weight = 3 * math.sqrt(2) / 0.5, 3 * 0.5 / 0.5, 3 * (2 * 3 * 2 + 0.5)
    first = math.sqrt(smooth**2 + 24 * weight * bound**2 + 6 * lipschitz**2)
    assert constants.smoothness == pytest.approx(first)


def test_slope_of_a_power_law():
    x = np.array([1.0, 2, 4, 8])
    assert slope(x, 3 / x) == pytest.approx(-1)


@pytest.mark.parametrize("scale", SCALES)
def test_cells_of_a_scale_have_names_and_settings_of_their_own(scale):
    for part, cells in PARTS.items():
        made = cells(SCALES[scale])
        assert len({cell.name for cell in made}) == len(made), part
        assert len({cell.digest for cell in made}) == len(made), part


def test_tuning_prefers_the_best_and_never_a_diverged_run():
    class Fake:
        def __init__(self, score):
            self.score = score

        def area(self):
            return np.array([self.score])

    task = tasks(SCALES["full"])["cartpole"]
    scores = dict(zip(task.rates, (float("nan"), 3.0, 5.0, float("nan"))))
    tuned = {f"pavg,rate={rate}": Fake(score) for rate, score in scores.items()}
    assert chosen(tuned, task, [("pavg", 1.0)]) == {("pavg", 1.0): task.rates[2]}
