"""Any Gymnasium environment as a world: `world.name = "gymnasium"`, `id = "Pendulum-v1"`.

    observations   Box of any shape in one row, Discrete as one of n, Dict and Tuple of these, by
                   Gymnasium's own `flatten`; no images and no texts
    actions        Discrete: policy gradients and Q-learners; Box: policy gradients (Gaussian)

The environment is Gymnasium's, stepped in Python: where a built-in world computes the same
(cartpole-v1, acrobot-v1, halfcheetah, …), nothing is swapped for it. What `gymnasium.make` puts
around an environment to check its user is left off: the step limit is counted here, and episodes
are never stepped beyond their end.

Episodes come from their own seeds (`fedrl.envs.simulated`), and environments serve one after the
other. That an episode does come again is tried out at the start.
"""

from __future__ import annotations

import difflib
import functools
import importlib
from types import ModuleType
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from fedrl.core import seeding
from fedrl.core.policies import ActionBox
from fedrl.core.registry import code, suggestion
from fedrl.core.types import UserError
from fedrl.envs.gymnasium import missing_packages
from fedrl.envs.gymnasium.attributes import set_attribute
from fedrl.envs.gymnasium.settings import (
    Keyword,
    Settings,
    Value,
    Wrapper,
    parse_keyword,
    parse_wrapper,
)
from fedrl.envs.interfaces import Scaling
from fedrl.envs.rendering import RenderedEnvironment
from fedrl.envs.simulated import Environment, EnvironmentWorld, random_play, repeats

__all__ = ["Settings", "World"]

Env = gymnasium.Env[Any, Any]
CHECKS = (
    gymnasium.wrappers.OrderEnforcing,
    gymnasium.wrappers.PassiveEnvChecker,
    gymnasium.wrappers.TimeLimit,
)
"""What `gymnasium.make` adds, which is done here or not needed."""
MEASURED = 1000
"""Steps of random play behind a measured scaling."""
HUGE = 1e6
"""A bound beyond it is no bound: some spaces say the largest float for "any number"."""


class Bounds(NamedTuple):
    """Of continuous actions in one row [A]; without both, the middle is 0 and the reach 1."""

    low: np.ndarray
    high: np.ndarray
    middle: np.ndarray
    reach: np.ndarray
    shape: tuple[int, ...]


class World(EnvironmentWorld):
    """An environment per client; `kwargs` and `attributes` with a range make them differ."""

    def __init__(self, settings: Settings, clients: int, seed: int) -> None:
        self.settings = settings
        self._seed = seed
        self._kwargs = [parse_keyword(text, "world.kwargs") for text in settings.kwargs]
        self._attributes = [parse_keyword(text, "world.attributes") for text in settings.attributes]
        self._wrappers = [_imported(parse_wrapper(text)) for text in settings.wrappers]
        self.alike = all(word.high is None for word in (*self._kwargs, *self._attributes))
        self._spec = _registered(settings.id)
        first = self._make(0)
        if not (horizon := settings.horizon or self._spec.max_episode_steps):
            raise UserError(f"{settings.id} has no limit of steps: set world.horizon, to 200 say")
        space = first.action_space
        self._box = _bounds(space) if isinstance(space, spaces.Box) else None
        if self._box is not None:
            actions = len(self._box.low)
        elif isinstance(space, spaces.Discrete):
            actions = int(space.n)
        else:
            raise UserError(
                f"{settings.id} has {type(space).__name__} actions; worlds have Discrete or Box "
                "ones: name a wrapper in world.wrappers that makes one of these"
            )
        super().__init__(
            settings.id, clients, first.observation_space.shape[0],  # type: ignore[index]
            actions, horizon, settings.gamma, continuous=self._box is not None,
        )  # fmt: skip
        self.give_back(0, first)
        if not repeats(self, seeding.derive(seed, "gymnasium/repeats")):
            raise UserError(
                f"an episode of {settings.id} does not come again from its seed, so no run could "
                "be repeated or resumed"
                + ("" if settings.renew else ": set world.renew = true for wrappers that remember")
            )
        if settings.scaled or not self.continuous:
            self.scaling = self._scaling(first.observation_space)
            self.shown = self.scaling if settings.scaled else None

    def environment(self, client: int) -> Environment:
        return self._make(client)

    def give_back(self, client: int, environment: Environment) -> None:
        if not self.settings.renew:
            super().give_back(client, environment)

    def played(self, actions: np.ndarray) -> np.ndarray:
        """Actions [b, A] within the bounds, in the space's shape; numbers of actions as they are.

        A policy that diverges says NaN: its update is refused for it, and no simulator is asked
        what it makes of that.
        """
        if self._box is None:
            return actions
        box, how = self._box, self.settings.action_bounds
        actions = np.nan_to_num(actions)
        if how == "rescale":
            actions = box.middle + box.reach * actions
        if how != "ignore":
            actions = np.clip(actions, box.low, box.high)
        return actions.astype(np.float32).reshape(-1, *box.shape)

    def action_box(self) -> ActionBox | None:
        """The same for a policy that is used without this world."""
        box, how = self._box, self.settings.action_bounds
        if box is None or how == "ignore":
            return None
        rescaled = how == "rescale"
        middle = box.middle if rescaled else np.zeros_like(box.low)
        reach = box.reach if rescaled else np.ones_like(box.low)
        return ActionBox(*(x.reshape(box.shape) for x in (middle, reach, box.low, box.high)))

    def rendered(self, client: int) -> RenderedEnvironment:
        return self._make(client, render_mode="rgb_array")

    def _values(self, words: list[Keyword], client: int) -> dict[str, Value]:
        return {word.name: word.of_client(client, self._seed) for word in words}

    def _make(self, client: int, **more: Value) -> Env:
        """The client's environment, bare but for the wrappers that were asked for."""
        env = _created(self._spec, self._values(self._kwargs, client) | more)
        for name, value in self._values(self._attributes, client).items():
            set_attribute(env.unwrapped, name, value, self.settings.id)
        for wrap, text in zip(self._wrappers, self.settings.wrappers):
            try:
                env = wrap(env)
            except (gymnasium.error.Error, TypeError, ValueError, AssertionError) as error:
                raise UserError(
                    f"world.wrappers: {text} cannot be used: {_first_line(error)}"
                ) from error
        if isinstance(env.action_space, spaces.Discrete) and env.action_space.start:
            first, count = int(env.action_space.start), int(env.action_space.n)
            env = gymnasium.wrappers.TransformAction(
                env, lambda action: action + first, spaces.Discrete(count)
            )
        return _flat(env, self.settings.id)

    def _scaling(self, space: spaces.Space[Any]) -> Scaling:
        """(s - shift) / scale: the middle and half the width of each number's bounds.

        Of numbers without bounds, of what random play in client 0's environment met, on either
        side of 0 alike if it met both; to three digits: another processor's last bits change
        nothing.
        """
        assert isinstance(space, spaces.Box)
        for key in ("shift", "scale"):
            if len(getattr(self.settings, key)) not in (0, self.dimension):
                raise UserError(
                    f"world.{key} has {len(getattr(self.settings, key))} numbers; "
                    f"a state of {self.name} has {self.dimension}"
                )
        low, high = (bound.astype(np.float64) for bound in (space.low, space.high))
        if self.settings.shift and self.settings.scale:
            return Scaling(np.array(self.settings.shift), np.array(self.settings.scale))
        open_ends = (np.abs(low) > HUGE) | (np.abs(high) > HUGE)
        if open_ends.any():
            seed = seeding.derive(self._seed, "gymnasium/scaling")
            visited, _ = random_play(self, self.simulator([[0]]), MEASURED, seed)
            for i in np.flatnonzero(open_ends):
                least, most = (float(f"{end(visited[:, i]):.3g}") for end in (np.min, np.max))
                reach = max(-least, most)
                low[i], high[i] = (-reach, reach) if least < 0 < most else (least, most)
        middle, width = (low + high) / 2, (high - low) / 2
        return Scaling(
            np.array(self.settings.shift or middle),
            np.array(self.settings.scale or np.where(width > 0, width, 1.0)),
        )


def _registered(id: str) -> EnvSpec:
    """The registered environment, or in one line why there is none."""
    module, _, name = id.rpartition(":")
    try:
        if module:
            code(id, "world.id")  # a node's owner has a say in what is imported
            importlib.import_module(module)
        found = gymnasium.spec(name)
    except ModuleNotFoundError as error:
        raise _missing(f"world.id = {id!r}", error) from error
    except gymnasium.error.NamespaceNotFound as error:
        raise UserError(
            f"world.id is {id!r}, which is not registered: {missing_packages.of_namespace(name)}"
        ) from error
    except gymnasium.error.Error as error:
        near = suggestion(name, list(gymnasium.registry))
        if not near.startswith("did"):  # the whole choice is hundreds of names
            near = '"package:Name-v0" imports the package that registers it'
        raise UserError(f"world.id is {id!r}, which is not registered; {near}") from error
    if isinstance(found.entry_point, str):
        code(found.entry_point, "world.id")
    elif found.entry_point is not None:  # a class or function that a package has registered
        code(f"{found.entry_point.__module__}:_", "world.id")
    return found


def _created(spec: EnvSpec, kwargs: dict[str, Value]) -> Env:
    id = spec.id
    if isinstance(spec.entry_point, str) and spec.entry_point.startswith("gymnasium.envs.mujoco"):
        _quiet_mujoco(id)
    try:
        env = gymnasium.make(spec, max_episode_steps=-1, disable_env_checker=True, **kwargs)
    except (ModuleNotFoundError, gymnasium.error.DependencyNotInstalled) as error:
        if command := missing_packages.of_environment(spec):
            raise UserError(f"world.id = {id!r} needs another package: {command}") from error
        if isinstance(error, ModuleNotFoundError):
            raise _missing(f"world.id = {id!r}", error) from error
        said = _first_line(error)
        raise UserError(f"world.id = {id!r} needs another package: {said}") from error
    except (gymnasium.error.Error, ImportError, TypeError, ValueError, OSError) as error:
        said = f" with world.kwargs {', '.join(kwargs)}" if kwargs else ""
        raise UserError(f"world.id = {id!r} cannot be made{said}: {_first_line(error)}") from error
    while isinstance(env, CHECKS):
        env = env.env
    bare = env.unwrapped
    space = vars(bare).get("action_space")
    if isinstance(space, spaces.Discrete) and type(space) is spaces.Discrete:
        bare.action_space = _Discrete(space)
    return env


class _Discrete(spaces.Discrete):
    """The same space with a quick answer for Python's integers.

    Many environments ask their space about every action: two fifths of a step of CartPole.
    """

    def __init__(self, space: spaces.Discrete) -> None:
        super().__init__(space.n, start=space.start)
        self._end = int(space.start + space.n)
        self._first = int(space.start)

    def contains(self, x: Any) -> bool:
        return self._first <= x < self._end if type(x) is int else super().contains(x)


def _quiet_mujoco(id: str) -> None:
    """MuJoCo would print a line for every model that it builds."""
    try:
        mujoco = importlib.import_module("mujoco")
    except ModuleNotFoundError:
        raise UserError(f'world.id = {id!r} needs MuJoCo: pip install "fedrl[mujoco]"') from None
    mujoco.set_mju_user_warning(_silent)


def _silent(message: str) -> None:
    pass


def _flat(env: Env, id: str) -> Env:
    """Observations as one row of numbers."""
    space = env.observation_space
    if isinstance(space, spaces.Text):
        raise UserError(
            f"{id} shows texts, which language agents read: see world.name household and webshop"
        )
    if isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) > 1:
        raise UserError(
            f"{id} shows images {space.shape}, and networks here read rows of numbers: choose a "
            'version that shows numbers, or add "gymnasium.wrappers:FlattenObservation" to '
            "world.wrappers to read pixels as such"
        )
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return env
    if not space.is_np_flattenable:
        raise UserError(
            f"{id} shows {type(space).__name__} observations, which have no fixed number of parts: "
            "name a wrapper in world.wrappers that gives a Box"
        )
    return gymnasium.wrappers.FlattenObservation(env)


def _bounds(space: spaces.Box) -> Bounds:
    low, high = (bound.astype(np.float64).reshape(-1) for bound in (space.low, space.high))
    both = np.isfinite(low) & np.isfinite(high)
    ends = np.where(both, low, -1.0), np.where(both, high, 1.0)
    return Bounds(low, high, (ends[0] + ends[1]) / 2, (ends[1] - ends[0]) / 2, space.shape)


def _imported(wrapper: Wrapper) -> Any:
    """A function of an environment."""
    path = f"world.wrappers: {wrapper.module}:{wrapper.name}"
    try:
        module: ModuleType = importlib.import_module(wrapper.module)
    except ModuleNotFoundError as error:
        raise _missing(path, error) from error
    found = getattr(module, wrapper.name, None)
    if found is None:
        near = difflib.get_close_matches(wrapper.name, dir(module), n=1)
        raise UserError(f"{path} is not there" + (f"; did you mean {near[0]!r}?" if near else ""))
    return functools.partial(_wrapped, found, wrapper)


def _wrapped(found: Any, wrapper: Wrapper, env: Env) -> Env:
    return found(env, *wrapper.args, **wrapper.kwargs)


def _missing(what: str, error: ModuleNotFoundError) -> UserError:
    return UserError(f"{what} needs the package {error.name}, which is not installed here")


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
