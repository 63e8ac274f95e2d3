"""Q-learners where clients' environments differ: each trains in its own, evaluation is in all."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="Q-learners are compiled by numba")
from support.gridworld import Gridworld
from support.gridworld import Settings as GridSettings

from fedrl.algorithms.qhd import anchors as anchoring
from fedrl.algorithms.qhd.dqn import distillation, feddqn
from fedrl.algorithms.qhd.fedqhd import FedQHD, Settings
from fedrl.core.types import Job, UserError

POOLS = [[0], [1], [2]]
FEW = {"episodes": 4, "eval_episodes": 30, "batch": 4}


class Watched(Gridworld):
    """Remembers whose environments were played."""

    def __init__(self, clients: int = 3) -> None:
        super().__init__(GridSettings(size=3), clients, 0)
        self.seen: list[int] = []

    def take(self, client: int):
        self.seen.append(client)
        return super().take(client)


def methods(world, pools):
    return {
        "shared": FedQHD(Settings(features=32, **FEW), world, pools),
        "own": FedQHD(Settings(encoders="own", sizes=(32, 16), anchors=8, **FEW), world, pools),
        "feddqn": feddqn.FedDQN(feddqn.Settings(hidden=(8, 8), **FEW), world, pools),
        "distill": distillation.Distillation(
            distillation.Settings(hidden=(8, 8), anchors=8, **FEW), world, pools
        ),
    }


KINDS = pytest.mark.parametrize("kind", ["shared", "own", "feddqn", "distill"])


@pytest.mark.slow
@KINDS
def test_a_client_plays_its_own_environment(kind):
    world = Watched()
    method = methods(world, POOLS)[kind]
    state = method.init(0)
    for client in (2, 0):
        world.seen.clear()
        method.local(Job(client, method.broadcast(state, 1), None, 5))
        assert set(world.seen) == {client}
        assert len(world.seen) >= 4


@KINDS
def test_a_centralized_client_plays_everybodys(kind):
    world = Watched()
    method = methods(world, [[0, 1, 2]])[kind]
    world.seen.clear()
    method.local(Job(0, method.broadcast(method.init(0), 1), None, 5))
    assert set(world.seen) == {0, 1, 2}


@KINDS
def test_evaluation_is_in_every_clients_environment(kind):
    world = Watched()
    method = methods(world, POOLS)[kind]
    state = method.init(0)
    world.seen.clear()
    method.evaluate([state], [[0, 1, 2]], 0, 1)
    assert set(world.seen) == {0, 1, 2}
    world.seen.clear()
    returns = method.evaluate_clients(state, 1, 5)
    assert returns.shape == (3,)
    assert [world.seen[i] for i in (0, 5, 10)] == [0, 1, 2]


def test_where_all_are_alike_one_mean_stands_for_all():
    world = Watched(4)
    world.alike = True
    method = methods(world, [[0], [1], [2], [3]])["feddqn"]
    state = method.init(0)
    world.seen.clear()
    returns = method.evaluate_clients(state, 1, 5)
    assert len(world.seen) == 5
    assert returns.shape == (4,)
    assert len(set(returns)) == 1


def test_anchors_of_a_host_world_come_from_play_or_a_file(tmp_path):
    world = Watched()
    states = anchoring.draw(world, 6, "rollouts", "", 3)
    assert states.shape == (6, 2)
    np.testing.assert_array_equal(states, anchoring.draw(world, 6, "rollouts", "", 3))
    with pytest.raises(UserError, match='gridworld are plausible: use "rollouts" or "file"'):
        anchoring.draw(world, 6, "box", "", 3)
    np.save(tmp_path / "states.npy", states)
    named = anchoring.draw(world, 6, "file", str(tmp_path / "states.npy"), 3)
    np.testing.assert_array_equal(named, states)
