"""The FedQHD paper's worlds: Gymnasium's numbers, ends told apart, anchors by seed."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

pytest.importorskip("numba", reason="the classic worlds are compiled by numba")

from support.discrete_worlds import EACH, IDS, KINDS, any_state, installed

from fedrl.config.flag_parsing import checked, fields
from fedrl.core.types import UserError
from fedrl.envs.discrete import classic_kernels as classic
from fedrl.envs.discrete import lunarlander
from fedrl.envs.discrete import worlds as discrete
from fedrl.envs.interfaces import HostWorld, Trajectories


def test_the_left_wall_stops_the_car():
    state = np.array([-1.19, -0.07])
    classic.step(classic.MOUNTAINCAR, state, 0)
    assert state.tolist() == [-1.2, 0.0]


@KINDS
def test_observations_have_single_precision_in_either_type(kind):
    state = any_state(kind, np.random.default_rng(5))
    single = np.empty(classic.OBSERVATION[kind], np.float32)
    double = np.empty(classic.OBSERVATION[kind], np.float64)
    classic.observe(kind, state, single)
    classic.observe(kind, state, double)
    np.testing.assert_array_equal(single.astype(np.float64), double)


# LunarLander


ANY = pytest.mark.skipif(
    not any(map(installed, lunarlander.NEEDS)), reason="no simulator of LunarLander is installed"
)


def play(landers: lunarlander.Lunar, actions: np.ndarray) -> list[list[tuple]]:
    """Every lander's own story under actions [T, N]: outcomes and first observations."""
    stories: list[list[tuple]] = [[] for _ in range(landers.count)]
    for chosen in actions:
        after = landers.step(chosen)
        over = np.flatnonzero(after.terminated | after.truncated)
        starts = dict(zip(over, landers.restart(over))) if len(over) else {}
        for i, story in enumerate(stories):
            outcome = [after.observations[i].tolist(), after.rewards[i], after.terminated[i]]
            story.append((*outcome, after.truncated[i], starts[i].tolist() if i in starts else []))
    return stories


@pytest.mark.skipif(not installed("gymnasium"), reason=lunarlander.INSTALL["gymnasium"])
def test_landers_of_gymnasium_are_gymnasiums(monkeypatch):
    import gymnasium

    monkeypatch.setattr(lunarlander, "LIMIT", 90)
    actions = np.random.default_rng(0).integers(4, size=(600, 1))
    landers = lunarlander.Lunar(1, "gymnasium")
    env = gymnasium.make("LunarLander-v3", max_episode_steps=90)
    np.testing.assert_array_equal(landers.reset([12])[0], env.reset(seed=12)[0])
    expected = []
    for action in actions[:, 0]:
        observation, reward, terminated, truncated, _ = env.step(action)
        start = env.reset()[0].tolist() if terminated or truncated else []
        expected.append((observation.tolist(), reward, terminated, truncated, start))
    assert play(landers, actions)[0] == expected
    assert {(e[2], e[3]) for e in expected} == {(False, False), (True, False), (False, True)}


@EACH
def test_an_end_is_told_as_it_was(simulator, monkeypatch):
    """Without thrust a lander crashes after n steps: the limit is put before, on and after it."""
    landers = lunarlander.Lunar(1, simulator)
    nothing = np.zeros(1, np.int64)

    def fall() -> tuple[list[lunarlander.Step], np.ndarray]:
        landers.reset([3])
        steps = [landers.step(nothing)]
        while not (steps[-1].terminated[0] or steps[-1].truncated[0]):
            steps.append(landers.step(nothing))
        return steps, landers.restart(nothing)[0]

    free, start = fall()
    crash = free[-1]
    assert abs(crash.observations[0, 1]) < 0.6, "the crash is near the ground"
    assert crash.rewards[0] == -100
    assert abs(start[1] - 1.41) < 0.03, "and the next episode begins at the top"
    for limit, flags in [
        (len(free) - 1, (False, True)),
        (len(free), (True, True)),
        (len(free) + 1, (True, False)),
    ]:
        monkeypatch.setattr(lunarlander, "LIMIT", limit)
        steps, _ = fall()
        assert (steps[-1].terminated[0], steps[-1].truncated[0]) == flags
        for mine, its in zip(steps, free):
            np.testing.assert_array_equal(mine.observations, its.observations)


@EACH
def test_a_lander_does_not_depend_on_its_neighbours(simulator):
    """Alone, or beside others that are stepped in another order and less often: the same story."""
    random = np.random.default_rng(4)
    actions = random.integers(4, size=(300, 3))
    seeds = [7, 2**62 + 1, 9]
    alone = []
    for i in range(3):
        one = lunarlander.Lunar(1, simulator)
        alone.append(
            [one.reset(seeds[i : i + 1])[0].tolist(), *play(one, actions[:, i : i + 1])[0]]
        )
    assert alone[0] != alone[1]
    assert sum(bool(moment[4]) for moment in alone[1][1:]) >= 2, "several episodes"

    together = lunarlander.Lunar(3, simulator)
    stories = [[first.tolist()] for first in together.reset(seeds)]
    while any(len(story) <= 300 for story in stories):
        going = np.array([i for i in range(3) if len(stories[i]) <= 300])
        rows = random.permutation(going)[: random.integers(1, len(going) + 1)]
        chosen = np.array([actions[len(stories[i]) - 1, i] for i in rows])
        after = together.step(chosen, rows)
        over = rows[after.terminated | after.truncated]
        starts = dict(zip(over, together.restart(over))) if len(over) else {}
        for at, i in enumerate(rows):
            outcome = [after.observations[at].tolist(), after.rewards[at], after.terminated[at]]
            start = starts[i].tolist() if i in starts else []
            stories[i].append((*outcome, after.truncated[at], start))
    assert stories == alone
    assert [first.tolist() for first in together.reset(seeds)] == [story[0] for story in alone]


@EACH
def test_a_lander_alone_is_stepped_alike(simulator, monkeypatch):
    """With plain numbers instead of arrays of one: the same story, to both kinds of end."""
    monkeypatch.setattr(lunarlander, "LIMIT", 80)
    actions = np.random.default_rng(0).integers(4, size=400)
    expected = lunarlander.Lunar(1, simulator)
    first = expected.reset([5])[0].tolist()
    story = play(expected, actions[:, None])[0]
    alone = lunarlander.Lunar(1, simulator)
    assert alone.reset([5])[0].tolist() == first
    for action, moment in zip(actions.tolist(), story, strict=True):
        observation, reward, terminated, truncated = alone.step_alone(action)
        assert (observation.tolist(), reward, terminated, truncated) == moment[:4]
        assert [type(x) for x in (reward, terminated, truncated)] == [float, bool, bool]
        if terminated or truncated:
            assert alone.restart(np.zeros(1, np.int64))[0].tolist() == moment[4]
    assert {moment[2:4] for moment in story} == {(False, False), (True, False), (False, True)}


@EACH
def test_only_one_lander_that_flies_is_stepped_alone(simulator):
    for landers in (lunarlander.Lunar(1, simulator), lunarlander.Lunar(2, simulator)):
        with pytest.raises(ValueError, match="alone whose episode is not over"):
            landers.step_alone(0)
        landers.reset(range(landers.count))
        if landers.count == 2:
            with pytest.raises(ValueError, match="alone whose episode is not over"):
                landers.step_alone(0)


@pytest.mark.skipif(not installed("gymnasium"), reason=lunarlander.INSTALL["gymnasium"])
@pytest.mark.parametrize("action", [4, -1, 1.0])
def test_what_is_no_action_is_refused(action):
    """A float would go through silently as doing nothing or as an engine."""
    landers = lunarlander.Lunar(1, "gymnasium")
    landers.reset([0])
    with pytest.raises(AssertionError, match="invalid"):
        landers.step_alone(action)


def test_a_lander_alone_is_left_to_gymnasium(monkeypatch):
    """Alone it is twice as fast there; envpool where only that is installed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert lunarlander.choose_simulator("auto") == "gymnasium"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name != "Box2D" or None)
    assert lunarlander.choose_simulator("auto") == "envpool"


@EACH
def test_an_ended_episode_cannot_go_on(simulator, monkeypatch):
    monkeypatch.setattr(lunarlander, "LIMIT", 2)
    landers = lunarlander.Lunar(2, simulator)
    with pytest.raises(ValueError, match="restarted first"):
        landers.step(np.zeros(2, np.int64))
    landers.reset([0, 1])
    one = np.array([1])
    landers.step(np.array([0]), one)
    landers.step(np.array([0]), one)
    with pytest.raises(ValueError, match="restarted first"):
        landers.step(np.zeros(2, np.int64))
    landers.restart(one)
    assert not landers.step(np.zeros(2, np.int64)).truncated.any()


def test_a_missing_simulator_is_a_sentence(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    settings = discrete.Settings(name="lunarlander-v3")
    with pytest.raises(UserError, match=r'needs a simulator: .*"fedrl\[box2d\]'):
        discrete.World(settings, 5, 0)


# Policy gradients


@pytest.mark.parametrize("name", [pytest.param("lunarlander-v3", marks=ANY), "acrobot-v1"])
def test_policy_gradients_play_trajectories_that_are_their_own(name):
    """Beside others or alone, in any order; ends are marked, and nothing follows them."""
    world = discrete.World(discrete.Settings(name=name), 2, 0)
    assert isinstance(world, HostWorld)

    def act(observations: np.ndarray, noise: np.ndarray, alive: np.ndarray) -> np.ndarray:
        assert observations.dtype == np.float32
        return (noise * world.action_size).astype(np.int32)

    def roll(seeds: list[int]) -> Trajectories:
        pools = {"client": np.zeros((len(seeds), 1), np.int64)}
        return world.rollout(act, pools, np.array(seeds, np.uint64))

    together, alone, turned = roll([7, 2**63 + 1, 9]), roll([2**63 + 1]), roll([9, 7])
    for three, one, two in zip(together, alone, turned):
        np.testing.assert_array_equal(three[1:2], one)
        np.testing.assert_array_equal(three[[2, 0]], two)
    lengths = together.mask.sum(1).astype(int)
    assert (np.diff(together.mask, axis=1) <= 0).all()
    assert lengths.min() > 40
    if name == "lunarlander-v3":
        assert lengths.max() < world.horizon
        assert (together.rewards[[0, 1, 2], lengths - 1] == -100).any(), "somebody crashes"
    assert not (together.observations * (1 - together.mask[..., None])).any()


# Settings, scaling, anchors

WORLDS = [
    pytest.param(name, marks=ANY) if name == "lunarlander-v3" else name for name in discrete.TASKS
]


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_anchors_are_states_of_random_play(name):
    world = discrete.World(discrete.Settings(name=name), 5, 0)
    anchors = discrete.random_states(world, 200, 11)
    assert anchors.shape == (200, world.dimension)
    assert anchors.dtype == np.float32
    np.testing.assert_array_equal(anchors, discrete.random_states(world, 200, 11))
    assert not np.array_equal(anchors, discrete.random_states(world, 200, 12))
    assert len(np.unique(anchors, axis=0)) == 200
    # Scaled, random play spreads over a good part of a unit range and leaves it seldom.
    scaled = world.scaling(anchors)
    assert 0.05 < np.abs(scaled).mean() < 1
    assert (scaled[:, :6].std(axis=0) > 0.01).all(), "but for legs, which seldom touch the ground"


def test_anchors_are_no_terminal_states():
    world = discrete.World(discrete.Settings(name="cartpole-v1"), 5, 0)
    anchors = discrete.random_states(world, 1000, 0)
    assert np.abs(anchors[:, 2]).max() < 12 * 2 * np.pi / 360
    assert np.abs(anchors[:, 2]).max() > 0.15, "though states shortly before the fall are there"


@pytest.mark.parametrize("kind", range(3), ids=IDS)
def test_a_world_has_gymnasiums_sizes(kind):
    gymnasium = pytest.importorskip("gymnasium", reason="compares with Gymnasium's own worlds")
    env = gymnasium.make(IDS[kind])
    world = discrete.World(discrete.Settings(name=IDS[kind].lower()), 5, 0)
    assert world.kernel == kind
    assert (world.dimension,) == env.observation_space.shape
    assert world.actions == env.action_space.n
    assert world.limit == env.spec.max_episode_steps


def test_scaling_is_the_worlds_or_the_users():
    own = discrete.World(discrete.Settings(name="mountaincar-v0"), 5, 0).scaling
    np.testing.assert_allclose(own(np.array([[0.6, 0.07], [-1.2, -0.07]])), [[1, 1], [-1, -1]])
    settings = discrete.Settings(name="mountaincar-v0", scale=(2.0, 4.0))
    theirs = discrete.World(settings, 5, 0).scaling
    np.testing.assert_allclose(theirs(np.array([1.7, 8.0])), [1.0, 2.0])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"name": "cartpole"}, "world.name"),
        ({"scale": (1.0, 2.0)}, "world.scale has 2 numbers; a state of cartpole-v1 has 4"),
        ({"shift": (1.0,)}, "world.shift has 1 numbers"),
        ({"scale": (1.0, 1.0, 0.0, 1.0)}, "above 0"),
        ({"simulator": "gymnasium"}, "cartpole-v1 is compiled"),
    ],
)
def test_wrong_settings_are_sentences(words, message):
    with pytest.raises(UserError, match=message):
        discrete.Settings(**words)


def test_recipes_can_say_the_settings():
    hints = fields(discrete.Settings)
    assert checked([1, 2.5], hints["scale"], "world.scale") == (1.0, 2.5)
    assert checked("envpool", hints["simulator"], "world.simulator") == "envpool"
