"""The learning rate over a run."""

from __future__ import annotations

import math

import pytest

from fedrl.llm.rl.lr_schedule import LearningRates


def shares(rates: LearningRates) -> list[float]:
    return [rates.share(r, e) for r in range(1, rates.rounds + 1) for e in range(rates.epochs)]


def test_constant_is_one_everywhere():
    assert shares(LearningRates("constant", 3, 2)) == [1.0] * 6


def test_linear_falls_by_equal_steps_towards_nothing():
    assert shares(LearningRates("linear", 5, 1)) == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])


def test_cosine_falls_to_half_in_the_middle():
    rates = LearningRates("cosine", 4, 1)
    assert shares(rates) == pytest.approx([(1 + math.cos(math.pi * n / 4)) / 2 for n in range(4)])
    assert rates.share(3, 0) == pytest.approx(0.5)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_it_rises_first_and_then_begins_at_its_highest(schedule):
    found = shares(LearningRates(schedule, 6, 2, warmup=2))
    assert found[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert found[4] == 1.0


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_rounds_of_several_epochs_are_cut_out_of_the_same_curve(schedule):
    assert shares(LearningRates(schedule, 2, 6)) == shares(LearningRates(schedule, 12, 1))
