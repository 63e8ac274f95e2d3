"""Mistakes in a world of one's own: one line that blames the world, before a run has a folder."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="Q-learners are compiled by numba")
pytest.importorskip("jax", reason="policy gradients are compiled by JAX")
from support import gridworld
from support.gridworld import Grid, Gridworld, Settings
from support.policy_gradients import Plain

import fedrl
from fedrl.core.types import Job, Shareable, UserError
from fedrl.engines.in_process import attempt
from fedrl.envs.simulated import require_repeats

GRID = Path(gridworld.__file__).read_text()


class Broken(Grid):
    """From the third step on, or at once, something is wrong."""

    def __init__(self, size, goal, reward=0.0, seen=0.0, first=0.0):
        super().__init__(size, goal + size)  # nowhere: no episode ends by itself
        self.broken, self.first = (reward, seen), first
        self.steps = 0

    def reset(self, *, seed):
        self.steps = 0
        seen, info = super().reset(seed=seed)
        return (None if self.first is None else seen + self.first), info

    def step(self, action):
        seen, reward, ended, cut, info = super().step(action)
        self.steps += 1
        if self.steps < 3:
            return seen, reward, ended, cut, info
        paid, shown = self.broken
        reward = None if paid is None else reward + paid
        return (None if shown is None else seen + shown), reward, ended, cut, info


def world_of(make):
    class Own(Gridworld):
        def environment(self, client):
            return make(self.size, self.goals[client])

    return Own(Settings(), 3, 0)


def played(world, actions=0, alone=False):
    if alone:
        simulator = world.simulator([[2]])
        simulator.reset([0])
        return [simulator.step_alone(actions) for _ in range(5)]

    def act(observations, noise, alive):
        return np.full(len(observations), actions)

    return world.rollout(act, {"client": np.array([[0], [2]])}, np.arange(2, dtype=np.uint64))


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("bad", [None, math.nan, math.inf])
def test_what_is_no_number_is_the_world_s_fault(bad, alone):
    client = 2 if alone else 0
    for what, keys in (("a reward", {"reward": bad}), ("an observation", {"seen": bad})):
        with pytest.raises(UserError) as told:
            played(world_of(lambda *a, k=keys: Broken(*a, **k)), alone=alone)
        assert str(told.value) == (
            f"the world gridworld gives {what} that is None, NaN or infinite: client {client}, "
            "step 3 of an episode"
        )
        assert isinstance(
            told.value.args[0], Shareable
        )  # the server may know it: nothing is quoted


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_first_observation_that_is_no_number(bad):
    with pytest.raises(UserError, match=r"an observation that is None, .*: client 0, step 0"):
        played(world_of(lambda *a: Broken(*a, first=bad)))


def test_a_policy_that_diverged_is_not_the_world_s_fault():
    """Its action was no number before the world's answer was none."""
    world = world_of(Grid)
    world.require_finite(0, 1, math.nan, np.array([math.nan]), math.nan)
    with pytest.raises(UserError, match="the world"):
        world.require_finite(0, 1, 0.5, np.array([math.nan]), 1.0)


def test_a_client_s_record_has_the_line():
    """Of another error only its kind would be there."""
    world = world_of(lambda *a: Broken(*a, reward=math.nan))
    algorithm = Plain(Plain.Settings(local_steps=1), world, 1, [[0], [1], [2]])
    job = Job(1, algorithm.broadcast(algorithm.init(0), 1), None, 0)
    failure = attempt(algorithm, job)
    assert failure.reason.endswith("NaN or infinite: client 1, step 3 of an episode")


class OldGym(Grid):
    def step(self, action):
        seen, reward, ended, _, info = super().step(action)
        return seen, reward, ended, info


class StepsNothing(Grid):
    def step(self, action):
        super().step(action)


class OldReset(Grid):
    def reset(self, *, seed):
        return super().reset(seed=seed)[0]


class Seedless(Grid):
    def reset(self):
        return super().reset(seed=0)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(
    ("make", "line"),
    [
        (OldGym, "step of the world gridworld returns 4 values; return five: (observation, "),
        (StepsNothing, "step of the world gridworld returns NoneType; return five: (observation, "),
        (OldReset, "reset of the world gridworld must return (observation, info), as Gymnasium's"),
        (Seedless, "reset of the world gridworld must take a seed: def reset(self, *, seed, opt"),
    ],
)
def test_an_interface_of_another_time_is_one_line(make, line, alone):
    with pytest.raises(UserError) as told:
        played(world_of(make), alone=alone)
    assert str(told.value).startswith(line)
    assert "\n" not in str(told.value)


class OneNumber(Grid):
    """Two are said; NumPy would put one in both places."""

    def step(self, action):
        seen, *others = super().step(action)
        return float(seen[0]), *others


class Column(Grid):
    def step(self, action):
        seen, *others = super().step(action)
        return seen[:, None], *others


class InWords(Grid):
    def step(self, action):
        return "here", *super().step(action)[1:]


class PaysInWords(Grid):
    def step(self, action):
        seen, _, *others = super().step(action)
        return seen, "much", *others


class ShortReset(Grid):
    def reset(self, *, seed):
        seen, info = super().reset(seed=seed)
        return seen[:1], info


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(
    ("make", "line"),
    [
        (OneNumber, "step of the world gridworld gives an observation of shape (); its "),
        (InWords, "step of the world gridworld gives an observation that is no row of numbers"),
        (PaysInWords, "step of the world gridworld gives a reward that is no number"),
        (ShortReset, "reset of the world gridworld gives an observation of shape (1,); its obs"),
        (lambda *_: None, "environment(client) of the world gridworld gives a NoneType without r"),
    ],
)
def test_numbers_of_another_count_are_one_line(make, line, alone):
    with pytest.raises(UserError) as told:
        played(world_of(make), alone=alone)
    assert str(told.value).startswith(line)
    assert isinstance(told.value.args[0], Shareable)


def test_a_column_is_no_row():
    with pytest.raises(UserError, match=r"of shape \(2, 1\); its observation_size is 2"):
        played(world_of(Column))


def test_an_error_that_is_not_about_numbers_stays_one():
    class Undecided(Grid):
        def step(self, action):
            seen, reward, _, cut, info = super().step(action)
            return seen, reward, np.zeros(2), cut, info

    with pytest.raises(ValueError, match=r"setting an array element|truth value"):
        played(world_of(Undecided))


def test_a_type_error_of_the_world_s_own_stays_one():
    class Mistaken(Grid):
        def reset(self, *, seed):
            return seed + "1"

    with pytest.raises(TypeError, match="unsupported operand"):
        played(world_of(Mistaken))


def test_a_reset_that_ignores_its_seed_is_refused_before_there_is_a_folder(tmp_path: Path):
    """A killed run would not end as a whole one."""
    file = tmp_path / "mine.py"
    careless = GRID.replace("np.random.default_rng(seed).integers(self.size", "np.random.randint(9")
    assert careless != GRID
    file.write_text(careless)
    recipe = {
        "world": {"name": f"{file}:Gridworld"},
        "federation": {"clients": 2},
        "algorithm": {"name": "pavg", "local_steps": 1},
        "rounds": 1,
        "out": str(tmp_path / "runs"),
    }
    for begin in (fedrl.run, fedrl.dry_run):
        with pytest.raises(UserError, match="the world gridworld does not come again from its see"):
            begin(recipe)
    assert not (tmp_path / "runs").exists()
    require_repeats(world_of(Grid), 0)
