"""Anchors: where they come from, that they are possible states, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="the worlds of FedQHD need the extra classic")

from fedrl.algorithms.qhd import anchors, fedqhd
from fedrl.algorithms.qhd.dqn import distillation
from fedrl.config.loading import resolve
from fedrl.core.types import UserError
from fedrl.envs.discrete.worlds import Settings as WorldSettings
from fedrl.envs.discrete.worlds import World, random_states

WORLDS = list(anchors.BOXES)


class Bare:
    """A world's name and dimension: all that a box may need."""

    def __init__(self, name: str) -> None:
        self.name, self.dimension = name, {"cartpole-v1": 4, "acrobot-v1": 6}.get(name, 2)


def world(name: str = "cartpole-v1") -> World:
    return World(WorldSettings(name), 1, 0)  # type: ignore[arg-type]


def method(**settings) -> fedqhd.FedQHD:
    chosen = fedqhd.Settings(encoders="own", sizes=(16,), episodes=1, **settings)
    return fedqhd.FedQHD(chosen, world(), [[0]])


def test_the_default_is_what_it_was():
    """Random play, from the run's own seed."""
    expected = random_states(world(), 200, 7)
    assert np.array_equal(method().init(7)["anchors"], expected)
    other = distillation.Distillation(distillation.Settings(), world(), [[0]])
    assert np.array_equal(other.init(7)["anchors"], expected)


def test_both_methods_read_the_source():
    box = anchors.box_states(world(), 30, 7)
    assert np.array_equal(method(anchors=30, anchor_source="box").init(7)["anchors"], box)
    settings = distillation.Settings(anchors=30, anchor_source="box")
    state = distillation.Distillation(settings, world(), [[0]]).init(7)
    assert np.array_equal(state["anchors"], box)
    assert state["teacher"].shape == (30, 2)


@pytest.mark.parametrize("name", ["cartpole-v1", "acrobot-v1", "mountaincar-v0"])
def test_a_box_needs_no_simulator(name):
    drawn = anchors.box_states(Bare(name), 500, 0)  # type: ignore[arg-type]
    assert drawn.shape == (500, world(name).dimension)
    assert drawn.dtype == np.float32
    assert np.array_equal(drawn, anchors.box_states(Bare(name), 500, 0))  # type: ignore[arg-type]
    assert not np.array_equal(drawn, anchors.box_states(Bare(name), 500, 1))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["cartpole-v1", "mountaincar-v0"])
def test_a_box_is_filled_evenly_and_not_left(name):
    low, high = (np.array(end) for end in anchors.BOXES[name])
    share = (anchors.box_states(Bare(name), 4000, 0) - low) / (high - low)  # type: ignore[arg-type]
    assert share.min() > -1e-6
    assert share.max() < 1 + 1e-6
    np.testing.assert_allclose(share.mean(0), 0.5, atol=0.03)
    np.testing.assert_allclose(share.std(0), 12**-0.5, atol=0.02)


def test_acrobots_angles_lie_on_circles():
    drawn = anchors.box_states(Bare("acrobot-v1"), 2000, 3)  # type: ignore[arg-type]
    for i in (0, 2):
        np.testing.assert_allclose((drawn[:, i : i + 2] ** 2).sum(1), 1, atol=1e-6)
        assert np.abs(drawn[:, i : i + 2].mean(0)).max() < 0.05  # all the way round
    assert np.abs(drawn[:, 4:]).max(0) == pytest.approx([6, 12], rel=0.02)


def test_landers_fly_or_stand():
    class Moon(Bare):
        dimension = 8

    drawn = anchors.box_states(Moon("lunarlander-v3"), 2000, 0)  # type: ignore[arg-type]
    assert drawn.shape == (2000, 8)
    legs = drawn[:, 6:]
    assert set(np.unique(legs)) == {0, 1}
    stands = legs.any(1)
    assert stands.mean() == pytest.approx(anchors.STANDING, abs=0.03)
    assert np.abs(drawn[stands, 1]).max() <= 0.05
    assert drawn[~stands, 1].max() > 1.4
    assert np.abs(drawn[stands, 2:6]).max() < np.abs(drawn[~stands, 2:6]).max() / 4


def test_every_box_is_of_a_world():
    from fedrl.envs.discrete.worlds import TASKS

    assert set(WORLDS) == set(TASKS)


@pytest.mark.parametrize("ending", [".npy", ".csv"])
def test_a_file_gives_the_states_and_their_number(tmp_path, ending):
    states = random_states(world(), 37, 1)
    path = tmp_path / f"states{ending}"
    if ending == ".npy":
        np.save(path, states.astype(np.float64))
    else:
        np.savetxt(path, states, delimiter=",", fmt="%.9g")
    state = method(anchor_source="file", anchor_file=str(path)).init(7)
    assert np.array_equal(state["anchors"], states)
    assert state["teacher"].shape == (37, 2)
    same = method(anchors=37, anchor_source="file", anchor_file=str(path))
    assert len(same.init(7)["anchors"]) == 37
    with pytest.raises(UserError, match=r"anchors is 50, but .* holds 37 states"):
        method(anchors=50, anchor_source="file", anchor_file=str(path)).init(7)


BAD = {
    "1,2,3\n4,5,6\n": "has 3 columns; a state of cartpole-v1 has 4",
    "1,2,3,4\n1,2,3\n": "line 2 has 3 columns",
    "1,2,3,4\n1,2,nan,4\n": "row 2 has a number that is not finite",
    "1,2,3,1e39\n": "row 1 has a number that is not finite",
    "a,b,c,d\n1,2,3,4\n": "line 1 is not numbers",
    "\n": "holds no state",
}


@pytest.mark.parametrize("text", BAD)
def test_bad_tables_are_said_in_one_line(tmp_path, text):
    path = tmp_path / "states.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=BAD[text]) as error:
        anchors.read_states(path, world())
    assert "algorithm.anchor_file" in str(error.value)
    assert "\n" not in str(error.value)


def test_bad_arrays_are_said_in_one_line(tmp_path):
    path = tmp_path / "states.npy"
    with pytest.raises(UserError, match="cannot be read"):
        anchors.read_states(path, world())
    path.write_bytes(b"no array")
    with pytest.raises(UserError, match=r"is no \.npy file of numbers"):
        anchors.read_states(path, world())
    for array in (np.zeros(4), np.array([["a", "b", "c", "d"]]), np.zeros((2, 4), complex)):
        np.save(path, array)
        with pytest.raises(UserError, match="table of numbers"):
            anchors.read_states(path, world())
    np.save(path, np.array([[{}] * 4]), allow_pickle=True)
    with pytest.raises(UserError, match=r"is no \.npy file of numbers"):
        anchors.read_states(path, world())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"anchors": 0}, "anchors is 0"),
        ({"anchor_source": "file"}, "name it"),
        ({"anchor_file": "x.npy"}, 'anchor_source is "rollouts"'),
        ({"anchor_source": "file", "anchor_file": "x.txt"}, r"\.npy or \.csv"),
        ({"anchor_source": "box", "encoders": "shared"}, "agree on values"),
        ({"anchor_source": "box", "agree": "truncate"}, "agree on values"),
    ],
)
def test_what_nothing_would_read_is_refused(settings, words):
    with pytest.raises(UserError, match=words):
        fedqhd.Settings(**({"encoders": "own"} | settings))
    if "encoders" not in settings and "agree" not in settings:
        with pytest.raises(UserError, match=words):
            distillation.Settings(**settings)


def test_an_unknown_source_names_the_choice():
    data = {"algorithm": {"name": "distill-dqn"}, "world": {"name": "cartpole-v1"}}
    with pytest.raises(UserError, match="anchor_source"):
        resolve(data, ["--algorithm.anchor-source", "dreams"])
