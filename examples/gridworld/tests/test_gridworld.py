"""The grid's rules by hand, and every sort of method in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fedrl_gridworld import Grid, GridSettings, WindyGrid

import fedrl

UP, DOWN, RIGHT, LEFT = range(4)


def test_the_shortest_way_pays_what_it_should():
    grid = Grid(3, wind=0.0)
    seen, _ = grid.reset(seed=0)
    np.testing.assert_array_equal(seen, (-1, -1))
    total = 0.0
    for action in (DOWN, UP, UP, RIGHT, RIGHT):  # the first is against the wall
        seen, reward, over, _, _ = grid.step(action)
        total += reward
    np.testing.assert_array_equal(seen, (1, 1))
    assert over
    assert total == pytest.approx(1 - 5 * 0.5 / 3)


def test_a_full_wind_keeps_everybody_down():
    grid = Grid(4, wind=1.0)
    grid.reset(seed=0)
    assert all(grid.step(UP)[0][1] == -1 for _ in range(20))


def test_a_further_client_changes_no_other_s_wind():
    few, many = (WindyGrid(GridSettings(), clients, 7) for clients in (2, 5))
    assert [few.environment(c).wind for c in (0, 1)] == [many.environment(c).wind for c in (0, 1)]
    assert len({many.environment(c).wind for c in range(5)}) == 5


@pytest.mark.parametrize("method", ["pavg", "fedsvrpg-m", "fedqhd", "feddqn"])
def test_policy_gradients_and_q_learners_play_it(method: str, tmp_path: Path):
    small = {"fedqhd": {"features": 50, "episodes": 2}, "feddqn": {"episodes": 2}}
    recipe = {
        "rounds": 2,
        "federation": {"clients": 2},
        "algorithm": {"name": method, **small.get(method, {})},
        "world": {"name": "windy-grid", "size": 3, "horizon": 12},
    }
    run = fedrl.run(recipe, out=tmp_path)
    assert run.round == 2
    assert -2.0 <= run.rounds[2]["eval/return"] < 1.0
