"""Any Gymnasium id as a world: its own numbers, episodes by seed, clients that differ, errors."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium", reason="the world is Gymnasium's")
from support import gym_environments as toys

from fedrl.core.types import UserError
from fedrl.envs.gymnasium.settings import parse_keyword, parse_wrapper
from fedrl.envs.gymnasium.world import Settings, World
from fedrl.envs.interfaces import HostWorld
from fedrl.envs.simulated import EpisodeSeeds

TOY = "support.gym_environments:Toy-v0"
MUJOCO = pytest.param(
    "HalfCheetah-v5",
    marks=pytest.mark.skipif(not importlib.util.find_spec("mujoco"), reason="needs mujoco"),
)


def world(clients: int = 1, seed: int = 0, **settings) -> World:
    return World(Settings(**settings), clients, seed)


def toy(clients: int = 1, **words) -> World:
    more = {key: words.pop(key) for key in list(words) if key in Settings.__dataclass_fields__}
    told = tuple(f"{key}={value}" for key, value in words.items())
    return world(clients, id=TOY, kwargs=told, **more)


def erratic(world: World):
    """A policy without memory: what it does follows from what it sees and its noise."""

    def act(observations, noise, alive):
        if world.continuous:
            return (np.sin(5 * observations[:, :1]) + noise).astype(np.float32)
        mixed = noise + np.abs(np.sin(7 * observations.sum(1)))
        return (mixed * 1000).astype(np.int64) % world.action_size

    return act


def rolled(world: World, seeds, clients=None):
    pools = np.zeros((len(seeds), 1), np.int64) if clients is None else np.asarray(clients)
    return world.rollout(erratic(world), {"client": pools}, np.asarray(seeds, np.uint64))


@pytest.mark.parametrize("id", ["CartPole-v1", "Acrobot-v1", "Pendulum-v1", MUJOCO])
def test_a_rollout_is_gymnasiums_own_episode(id):
    """With `gymnasium.make` as it is, its checks and its step limit: the same from the seed on."""
    mine = world(id=id, horizon=60)
    assert isinstance(mine, HostWorld)
    seeds = [3, 2**63 + 5]
    played = rolled(mine, seeds)
    env = gymnasium.make(id, max_episode_steps=60)
    for row, seed in enumerate(seeds):
        stream = EpisodeSeeds([[0]])
        stream.reset([seed])
        now, _ = env.reset(seed=stream.next(0)[1])
        over, step = False, 0
        while not over:
            assert played.mask[row, step] == 1
            np.testing.assert_array_equal(played.observations[row, step], now.astype(np.float32))
            action = played.actions[row, step]
            if mine.continuous:
                high = env.action_space.high
                action = np.clip(action.astype(np.float64) * high, -high, high).astype(np.float32)
            now, reward, terminated, truncated, _ = env.step(
                action if mine.continuous else int(action)
            )
            assert played.rewards[row, step] == np.float32(reward)
            over, step = terminated or truncated, step + 1
        assert not played.mask[row, step:].any()
        assert not played.observations[row, step:].any()


@pytest.mark.slow
@pytest.mark.parametrize("id", ["CartPole-v1", "MountainCar-v0", "Acrobot-v1"])
def test_the_compiled_world_plays_the_same_episodes(id):
    pytest.importorskip("numba", reason="the classic worlds are compiled by numba")
    from fedrl.envs.discrete import worlds as discrete

    built_in = discrete.World(discrete.Settings(name=id.lower()), 3, 0)
    theirs, seeds = world(3, id=id), [5, 6, 2**64 - 1, 8]
    assert isinstance(built_in, HostWorld)
    one, other = rolled(theirs, seeds), rolled(built_in, seeds)
    if id == "Acrobot-v1":  # a square's last bit, after which it is chaotic
        one, other = (type(one)(*(part[:, :15] for part in record)) for record in (one, other))
    for mine, its in zip(one, other):
        np.testing.assert_array_equal(mine, its)
    assert one.mask.sum() > 30
    if id != "Acrobot-v1":
        assert (one.mask.sum(1) < theirs.horizon).any() == (id == "CartPole-v1")
    assert (theirs.horizon, theirs.actions, theirs.dimension) == (
        built_in.horizon,
        built_in.actions,
        built_in.dimension,
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"id": "CartPole-v1", "attributes": ("masspole=0.05:0.5", "force_mag=5.0:15.0")},
        {"id": "Pendulum-v1", "kwargs": ("g=5.0:15.0",), "horizon": 30},
    ],
    ids=["discrete", "continuous"],
)
def test_a_trajectory_depends_on_its_seed_and_client_alone(settings):
    """Whatever is played beside it, before it, in which order, and of how many clients."""
    few, many = world(3, **settings), world(8, **settings)
    seeds, clients = np.arange(9), np.arange(9)[:, None] % 3
    together = rolled(few, seeds, clients)
    order = np.random.default_rng(0).permutation(9)
    shuffled = rolled(many, seeds[order], clients[order])
    for mine, its in zip(together, shuffled):
        np.testing.assert_array_equal(mine[order], its)
    for row in (0, 4, 8):
        for mine, its in zip(together, rolled(few, seeds[row : row + 1], clients[row : row + 1])):
            np.testing.assert_array_equal(mine[row], its[0])
    others = rolled(few, seeds, (clients + 1) % 3)
    assert not np.array_equal(others.observations, together.observations)


def test_a_pooled_trajectory_is_one_of_its_clients():
    spread = world(4, id="CartPole-v1", attributes=("gravity=5.0:40.0",))
    seeds = np.arange(40)
    pooled = rolled(spread, seeds, np.tile([1, 3], (40, 1)))
    taken = set()
    for row in range(40):
        stream = EpisodeSeeds([[1, 3]])
        stream.reset([row])
        client, seed = stream.next(0)
        env = spread.environment(client)
        first, _ = env.reset(seed=seed)
        np.testing.assert_array_equal(pooled.observations[row, 0], first)
        second, *_ = env.step(int(pooled.actions[row, 0]))
        np.testing.assert_array_equal(pooled.observations[row, 1], second)
        taken.add(client)
    assert taken == {1, 3}


@pytest.mark.slow
def test_clients_keywords_are_drawn_by_the_seed():
    kwargs = ("g=8.0:12.0", "render_mode=rgb_array")
    values = [world(n, id="Pendulum-v1", kwargs=kwargs).environment(2).g for n in (3, 30)]
    assert (
        values[0] == values[1] != world(3, seed=1, id="Pendulum-v1", kwargs=kwargs).environment(2).g
    )
    assert 8 < values[0] < 12
    assert world(id="Pendulum-v1", kwargs=kwargs).environment(0).render_mode == "rgb_array"
    spread = toy(9, length="3:6")
    lengths = [spread.environment(client).unwrapped.length for client in range(9)]
    assert all(isinstance(length, int) for length in lengths)
    assert set(lengths) <= {3, 4, 5, 6}
    assert len(set(lengths)) > 1
    steps = rolled(spread, np.arange(9), np.arange(9)[:, None]).mask.sum(1)
    assert steps.tolist() == lengths


def test_as_many_environments_are_made_as_play_at_once(monkeypatch):
    one, made = world(id="CartPole-v1"), []
    make = World.environment
    monkeypatch.setattr(World, "environment", lambda self, c: made.append(c) or make(self, c))
    for _ in range(3):
        rolled(one, np.arange(6))
    assert len(made) <= 6
    rolled(one, np.arange(4))
    assert len(made) <= 6


@pytest.mark.slow
@pytest.mark.parametrize(("observed", "size"), [("box", 3), ("table", 4), ("dict", 5), ("open", 2)])
def test_observations_are_flattened_as_gymnasium_does(observed, size):
    from gymnasium.spaces import flatten

    mine = toy(observed=observed)
    assert mine.observation_size == size
    env = toys.Toy(observed)
    stream = EpisodeSeeds([[0]])
    stream.reset([4])
    first, _ = env.reset(seed=stream.next(0)[1])
    expected = flatten(env.observation_space, first)
    np.testing.assert_array_equal(rolled(mine, [4]).observations[0, 0], expected)


@pytest.mark.slow
def test_actions_that_do_not_count_from_zero():
    mine = toy(chosen="from5")
    rolled(mine, [0])
    told = mine.take(0).unwrapped.told
    assert mine.action_size == 3
    assert set(told) <= {5, 6, 7}
    assert len(set(told)) > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ("rescale", [[-4.0, 0.75], [2.0, 1.0], [0.0, 0.5]]),
        ("clip", [[-3.0, 0.5], [0.5, 1.0], [0.0, 0.0]]),
        ("ignore", [[-3.0, 0.5], [0.5, 7.0], [0.0, 0.0]]),
    ],
)
def test_continuous_actions_meet_their_bounds(bounds, expected):
    """[-4, 4] and [0, 1]; what is no number is never played."""
    mine = toy(chosen="box", action_bounds=bounds)
    assert mine.continuous
    assert mine.actions == 0
    played = mine.played(np.array([[-3.0, 0.5], [0.5, 7.0], [np.nan, np.nan]]))
    np.testing.assert_array_equal(played, np.array(expected, np.float32))


@pytest.mark.slow
def test_open_bounds_are_left_and_tables_get_their_shape():
    np.testing.assert_array_equal(toy(chosen="open").played(np.array([[9.0]])), [[9.0]])
    mine = toy(chosen="table")
    assert mine.action_size == 4
    rolled(mine, [0])
    assert mine.take(0).unwrapped.told[-1].shape == (2, 2)


@pytest.mark.slow
def test_scaling_is_of_the_bounds_or_of_random_play_or_the_users():
    bounded = toy().scaling
    np.testing.assert_allclose(bounded(np.array([-2.0, 6.0, 2.0])), [-1, 1, 0])
    mine = world(id="CartPole-v1")
    np.testing.assert_allclose(mine.scaling.scale[[0, 2]], [4.8, 0.41887903])
    assert mine.scaling.shift.tolist() == [0, 0, 0, 0]
    assert (mine.scaling.scale[[1, 3]] > 1).all()
    assert (mine.scaling.scale[[1, 3]] < 5).all()
    np.testing.assert_array_equal(mine.scaling.scale, world(7, id="CartPole-v1").scaling.scale)
    theirs = world(id="CartPole-v1", scale=(1.0, 2.0, 3.0, 4.0), shift=(0.5,) * 4).scaling
    np.testing.assert_allclose(theirs(np.full(4, 2.5)), [2, 1, 2 / 3, 0.5])


@pytest.mark.slow
def test_policy_networks_see_scaled_states_if_asked():
    plain, scaled = (toy(scaled=scaled) for scaled in (False, True))
    first = [rolled(one, [5]).observations[0, 0] for one in (plain, scaled)]
    np.testing.assert_array_equal(plain.scaling(first[0]).astype(np.float32), first[1])
    assert plain.shown is None


@pytest.mark.slow
def test_wrappers_that_remember_are_found_out():
    words = {"id": "CartPole-v1", "wrappers": ("gymnasium.wrappers:NormalizeObservation",)}
    with pytest.raises(UserError, match=r"does not come again from its seed.*world.renew = true"):
        world(**words)
    mine = world(**words, renew=True)
    once = rolled(mine, [1, 2])
    for one, again in zip(once, rolled(mine, [1, 2])):
        np.testing.assert_array_equal(one, again)
    with pytest.raises(UserError, match="does not come again"):
        toy(forgetful="false")  # its rewards grow with its age


def test_wrappers_are_put_on_in_order_and_with_arguments():
    clip = "gymnasium.wrappers:ClipReward(min_reward=-0.25, max_reward=0.25)"
    stack = "gymnasium.wrappers:FrameStackObservation(stack_size=3)"
    mine = world(id="CartPole-v1", wrappers=(clip, stack))
    assert mine.observation_size == 12
    played = rolled(mine, [0])
    assert set(played.rewards[played.mask > 0]) == {0.25}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"id": "Cartpole-v1"}, "not registered; did you mean 'CartPole-v1'"),
        ({"id": "Nonesuch-v7"}, '"package:Name-v0" imports the package'),
        ({"id": "ALE/Pong-v5"}, 'pip install ale-py, and say "ale_py:ALE/Pong-v5"'),
        ({"id": "Nobody/Pong-v5"}, 'say its package, too: "package:Nobody/Pong-v5"'),
        ({"id": "no_such_package:Thing-v0"}, "needs the package no_such_package"),
        ({"id": ""}, "world.id is empty"),
        ({"id": "not a module:Thing-v0"}, "no name of a Python module"),
        ({"id": TOY, "kwargs": ("observed=image",)}, "shows images.*FlattenObservation"),
        ({"id": TOY, "kwargs": ("observed=sequence",)}, "shows Sequence observations"),
        ({"id": TOY, "kwargs": ("chosen=many",)}, "has MultiDiscrete actions"),
        ({"id": "fedrl/Household-v0"}, "shows texts"),
        ({"id": TOY.replace("Toy", "Endless")}, "set world.horizon"),
        (
            {"kwargs": ("length=2",)},
            "cannot be made with world.kwargs length: .*unexpected keyword",
        ),
        ({"kwargs": ("length",)}, 'say "name=value" or "name=low:high"'),
        ({"kwargs": ("a=1", "a=2")}, "says a twice"),
        ({"kwargs": ("a=2:1",)}, "must go upwards"),
        ({"attributes": ("lenght=1.0",)}, "has no 'lenght'; did you mean 'length'"),
        (
            {"id": "Acrobot-v1", "attributes": ("LINK_LENGHT_1=1.0",)},
            "has no 'LINK_LENGHT_1'; did you mean 'LINK_LENGTH_1'",
        ),
        (
            {"id": "Acrobot-v1", "attributes": ("LINK_LENGTH_1=0.7-1.3",)},
            "'0.7-1.3' is no number, .*; a draw per client is LINK_LENGTH_1=0.7:1.3",
        ),
        ({"attributes": ("length=long",)}, "'long' is no number, .* is length=LOW:HIGH"),
        ({"wrappers": ("gymnasium.wrappers:ClipRewards",)}, "did you mean 'ClipReward'"),
        ({"wrappers": ("gymnasium.wrappers.ClipReward",)}, "package.module:Name"),
        ({"wrappers": ("no_such_package:Thing",)}, "needs the package no_such_package"),
        ({"wrappers": ("a:B(__import__('os'))",)}, "with plain values"),
        ({"wrappers": ("gymnasium.wrappers:FrameStackObservation",)}, "cannot be used: "),
        ({"scale": (1.0, 2.0)}, "world.scale has 2 numbers; a state of CartPole-v1 has 4"),
        ({"scale": (1.0, 0.0)}, "above 0"),
        ({"gamma": 0.0}, "world.gamma"),
        ({"horizon": -1}, "world.horizon"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_wrong_settings_are_one_line(settings, message):
    with pytest.raises(UserError, match=message) as error:
        world(**settings)
    assert "\n" not in str(error.value)


def test_texts_say_values():
    texts = ("1", "1.5", "true", "8x8", "1:3", "1:2.5", "-1e-3:.5")
    found = [parse_keyword(f"a={text}", "k")[1:] for text in texts]
    assert found == [
        (1, None), (1.5, None), (True, None), ("8x8", None), (1, 3), (1.0, 2.5), (-0.001, 0.5),
    ]  # fmt: skip
    assert parse_wrapper("a.b:C((8, 8), key='x')") == ("a.b", "C", ((8, 8),), {"key": "x"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kwargs", "xml_file=/etc/passwd"),
        ("attributes", "path=../x"),
        ("wrappers", "os:system"),
        ("wrappers", "gymnasium.wrappers:RecordVideo('videos')"),
    ],
)
def test_a_node_takes_texts_of_a_recipe_only_if_its_owner_says_so(key, value, tmp_path):
    from fedrl.config.loading import resolve
    from fedrl.engines.flower.node_plan import Refused
    from fedrl.engines.flower.policy import Policy
    from fedrl.engines.flower.policy_check import Node, check

    said = value if key == "id" else [value]
    config = resolve({"world": {"name": "gymnasium", key: said}})
    with pytest.raises(Refused, match=rf"world\.{key}: .*--allow world\.{key}"):
        check(config, Policy(), Node(tmp_path))
    check(config, Policy(allow=(f"world.{key}",)), Node(tmp_path))


def test_a_node_takes_gymnasium_s_own_environments_and_numbers(tmp_path):
    from fedrl.config.loading import resolve
    from fedrl.engines.flower.policy import Policy
    from fedrl.engines.flower.policy_check import Node, check

    plain = {"id": "Pendulum-v1", "kwargs": ["g=2.0:4.0"], "attributes": ["max_speed=-8.5"]}
    check(resolve({"world": {"name": "gymnasium", **plain}}), Policy(), Node(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("id", ["os:CartPole-v1", "support.gym_environments:Toy-v0"])
def test_a_node_imports_no_package_for_an_id_that_its_owner_has_not_allowed(id):
    from fedrl.engines.flower.node_recipes import configuration

    recipe = f'[world]\nname = "gymnasium"\nid = "{id}"'
    with pytest.raises(UserError, match=r"world\.id is .*: no package that is installed here"):
        configuration(recipe, ())


@pytest.mark.slow
def test_an_id_that_another_package_registered_is_that_package_s_code(monkeypatch):
    """Gymnasium loads what packages register by themselves; on a node they need to be allowed."""
    import gymnasium

    from fedrl.core.registry import only_packages

    gymnasium.register("Foreign-v0", entry_point="numpy.testing:assert_equal")
    monkeypatch.setitem(gymnasium.registry, "Foreign-v0", gymnasium.registry["Foreign-v0"])
    try:
        with only_packages([]), pytest.raises(UserError, match="package numpy, which this node"):
            world(id="Foreign-v0")
    finally:
        del gymnasium.registry["Foreign-v0"]


@pytest.mark.slow
def test_an_id_whose_class_was_registered_is_asked_for_as_well():
    """`entry_point` may be the class itself, which no text names."""
    from fractions import Fraction

    from fedrl.core.registry import only_packages

    gymnasium.register("ForeignClass-v0", entry_point=Fraction)
    try:
        with only_packages([]), pytest.raises(UserError, match="no package that is installed here"):
            world(id="ForeignClass-v0")
    finally:
        del gymnasium.registry["ForeignClass-v0"]


@pytest.mark.parametrize("key", ["kwargs", "attributes"])
def test_no_recipe_opens_a_window(key):
    """With render_mode=human every step of CartPole draws on somebody's screen."""
    with pytest.raises(UserError, match=rf"world\.{key} says render_mode=human: training opens"):
        Settings(**{key: ("render_mode=human",)})


@pytest.mark.parametrize("name", ["__class__", "__dict__", "step", "reset"])
def test_an_attribute_is_a_number_of_the_environment_and_none_of_its_methods(name):
    with pytest.raises(UserError, match=rf"world\.attributes: CartPole-v1 has no '{name}'"):
        world(attributes=(f"{name}=3",))


def test_an_environment_that_needs_a_package_by_its_own_words_is_one_line():
    with pytest.raises(
        UserError, match=r"world\.id = 'GymV21Environment-v0' cannot be made: To use"
    ):
        world(id="GymV21Environment-v0")
