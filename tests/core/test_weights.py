"""What a client weighs in each method, and how heavy it can be at most."""

from __future__ import annotations

import numpy as np
import pytest

from fedrl.aggregation import rules
from fedrl.config import schema as configs
from fedrl.config.build import build_algorithm, build_clients
from fedrl.config.loading import resolve
from fedrl.core.types import Job
from fedrl.envs.household.game import Game

SMALL = {"federation": {"clients": 3}}
Q = {"episodes": 2, "eval_episodes": 1}
METHODS = {
    "fedqhd": Q | {"features": 16},
    "feddqn": Q | {"hidden": [8, 8]},
    "distill-dqn": Q | {"hidden": [8, 8], "anchors": 8},
}


def results(config: configs.Config):
    algorithm = build_algorithm(config)
    start = algorithm.broadcast(algorithm.init(0), 1)
    return algorithm, [algorithm.local(Job(c, start, None, c)) for c in range(3)]


@pytest.mark.parametrize("name", METHODS)
def test_q_learners_weigh_by_the_rounds_steps(name):
    pytest.importorskip("numba", reason="Q-learners need the extra classic")
    data = SMALL | {"world": {"name": "cartpole-v1"}}
    algorithm, found = results(resolve(data | {"algorithm": METHODS[name] | {"name": name}}))
    weights = [result.weight for result in found]
    assert weights == [result.metrics["env/steps"] for result in found]
    assert len(set(weights)) > 1
    assert algorithm.heaviest == 2 * 500  # episodes of CartPole to their limit


def test_a_centralized_q_learner_may_take_everybodys_steps():
    pytest.importorskip("numba", reason="Q-learners need the extra classic")
    data = {"federation": {"clients": 3, "kind": "centralized"}, "world": {"name": "cartpole-v1"}}
    config = resolve(data | {"algorithm": METHODS["fedqhd"] | {"name": "fedqhd"}})
    assert build_algorithm(config).heaviest == 3 * 2 * 500


def test_raters_weigh_by_the_ratings_that_they_train_on():
    pytest.importorskip("numba", reason="ratings need the extra classic")
    data = SMALL | {
        "algorithm": {"name": "fedrlhf", "local_epochs": 1, "feedback": "none"},
        "world": {"name": "movielens", "users": 30, "movies": 60, "ratings": 30, "least": 10},
    }
    algorithm, found = results(resolve(data))
    held = [len(shelf.train) for shelf in algorithm.world.ratings]
    assert [result.weight for result in found] == held
    assert algorithm.heaviest == max(held)
    assert len(set(held)) > 1


def test_policy_gradients_weigh_the_same():
    data = SMALL | {
        "algorithm": {"name": "pavg", "local_steps": 2},
        "world": {"name": "random_mdp"},
    }
    algorithm, found = results(resolve(data))
    assert {result.weight for result in found} == {algorithm.heaviest} == {1.0}


def test_the_heaviest_is_known_through_attacks_faults_and_privacy():
    data = SMALL | {
        "algorithm": {"name": "pavg", "local_steps": 2},
        "world": {"name": "random_mdp"},
    }
    more = {
        "attack": {"clients": [0]}, "faults": {"clients": [1]}, "privacy": {"clip": 1.0},
    }  # fmt: skip
    wrapped = build_clients(resolve(data | more))
    assert wrapped.heaviest == 1.0


# Language agents, by the tasks that they hold


@pytest.fixture(scope="module")
def agents(tmp_path_factory):
    """Clients with many tasks and with few."""
    pytest.importorskip("torch", reason="FedAgent needs the extra llm")
    pytest.importorskip("transformers", reason="FedAgent needs the extra llm")
    from support.agent_runs import make_model, recipe, won_by_walking

    model = make_model(tmp_path_factory.mktemp("models") / "tiny")
    config = recipe(
        model,
        federation={"clients": 3, "cohort": 0},
        partition={"strategy": "coverage", "size": 8, "xi": 1.0},
        aggregate={"name": "weighted"},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Game, "_goal_holds", won_by_walking)
        return config, *results(config)


@pytest.mark.slow
def test_agents_weigh_by_the_tasks_that_they_hold(agents):
    _, algorithm, found = agents
    held = [len(share) for share in algorithm.shares]
    assert len(set(held)) > 1
    assert [result.weight for result in found] == held
    assert algorithm.heaviest == max(held)


@pytest.mark.slow
def test_a_weighted_mean_of_agents_is_fedavgs(agents):
    """θ ← θ + Σ n_i / n Δ_i, which is not the plain mean."""
    config, algorithm, found = agents
    updates = [(result.update, result.weight) for result in found]
    state = algorithm.init(0)
    after = algorithm.step(state, rules.build(config.rule, 3, algorithm)(updates), 1)
    share = np.array([len(s) for s in algorithm.shares]) / sum(map(len, algorithm.shares))
    name = "model.embed_tokens.weight"
    changes = [result.update[name].astype(np.float64) for result in found]
    expected = sum(n * change for n, change in zip(share, changes, strict=True))
    moved = after["theta"][name].astype(np.float64) - state["theta"][name]
    np.testing.assert_allclose(moved, expected, atol=1e-6)
    assert not np.allclose(moved, np.mean(changes, axis=0), atol=1e-5)
