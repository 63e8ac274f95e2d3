"""The examples of docs/extend/q_learning.md, from files outside the tree, as a reader runs them."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="Q-learning needs the extra classic")
pytest.importorskip("jax", reason="Q-learning needs the extra classic")

from support.page_examples import saved_examples
from support.rounds import play

import fedrl
from fedrl.algorithms.q_learning import QLearning
from fedrl.config import parts
from fedrl.core.types import Job
from fedrl.envs.control import random_mdp

pytestmark = pytest.mark.slow

PAGE = "extend/q_learning.md"
POLE = {"episodes": 2, "hidden": (8, 8), "batch": 4, "replay": 100, "eval_episodes": 2}
MDPS = {"states": 3, "actions": 2}


@pytest.mark.parametrize("recipe", ["fedqhd/cartpole", "classics/qavg"])
@pytest.mark.parametrize("name", ["FedCQL", "ScaffoldQ"])
def test_it_runs_goes_on_and_is_evaluated(name, recipe, tmp_path):
    how = {"name": saved_examples(PAGE, tmp_path)[name]} | (POLE if "cartpole" in recipe else {})
    more = {"world": MDPS} if "qavg" in recipe else {}
    same = {"rounds": 3, "federation": {"clients": 2}, "algorithm": how} | more
    whole = fedrl.run(recipe, out=str(tmp_path / "a"), **same)
    half = fedrl.run(
        recipe, out=str(tmp_path / "b"), callbacks=[lambda done: done.round < 1], **same
    )
    assert half.round == 1
    fedrl.resume(half.path)
    assert (half.path / "metrics.jsonl").read_bytes() == (whole.path / "metrics.jsonl").read_bytes()
    assert np.isfinite(whole.evaluate(episodes=2).by_client).all()


def test_a_penalty_of_nothing_is_the_base(tmp_path):
    found = parts.method(saved_examples(PAGE, tmp_path)["FedCQL"])
    world = random_mdp.World(random_mdp.Settings(**MDPS), 1, 0)
    changes = []
    for cls, settings in (
        (found.maker, found.settings(alpha=0.0)),
        (QLearning, QLearning.Settings()),
        (found.maker, found.settings(alpha=0.5)),
    ):
        algorithm = cls(settings, world, 1, [[0]])
        sent = algorithm.broadcast(algorithm.init(0), 1)
        changes.append(algorithm.local(Job(0, sent, None, 0)).update["table"])
    np.testing.assert_allclose(changes[0], changes[1], atol=1e-14)
    assert np.abs(changes[2] - changes[1]).max() > 1e-3


def test_control_variates_take_away_what_local_updates_cost(tmp_path):
    """With E = 8 plain averaging ends away from Q* of the mean environment; with SCAFFOLD's
    corrections each client's updates are the mean one's at the fixed point, which is Q* then."""
    found = parts.method(saved_examples(PAGE, tmp_path)["ScaffoldQ"])
    mdps = random_mdp.Settings(states=4, actions=3, kappa=1.0, kernel="bernoulli")
    world = random_mdp.World(mdps, 3, 1)
    errors = []
    for cls in (QLearning, found.maker):
        algorithm = cls(found.settings(lr=0.2, local_steps=8), world, 1, [[0], [1], [2]])
        errors.append(play(algorithm, rounds=150, clients=3).rounds[-1].metrics["eval/q_error"])
    assert errors[0] > 0.05
    assert errors[1] < 1e-6
