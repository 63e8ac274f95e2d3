"""Worlds that are stepped on the host, for policy gradients and for Q-learners alike.

    EnvironmentWorld   made of one client's environment, any object with Gymnasium's `reset` and
                       `step`: `environment(client)` is all that a world of one's own must write
    SimulatedWorld     made of a `Simulator`, which steps many episodes in one call: for vectorised
                       arithmetic

An episode depends on its seed and its client's environment, and on nothing else: not on what is
played beside it or was played before. Of a row's seed s come the action noise (the stream of s that
is set apart for it) and, from another stream, for every episode the client and the environment's
own seed.

Environments are stepped one after the other by a plain loop. Gymnasium's SyncVectorEnv does the
same with more ceremony: half as fast with one environment, nine tenths with ten or more; and it
restarts by itself, which loses who plays what. So the environment's own `step` is the limit.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, SupportsFloat, TypeVar

import numpy as np

from fedrl.core.types import Shareable, Tensors, UserError
from fedrl.envs import environment_checks as checks
from fedrl.envs.interfaces import Act, Scaling, Simulator, Step, Trajectories

ONE = np.zeros(1, np.int64)
"""The rows of a simulator with one environment."""

World = TypeVar("World", bound="SimulatedWorld")


class Environment(Protocol):
    """One client's environment as Gymnasium has it; `seed` decides the whole episode."""

    def reset(self, *, seed: int) -> tuple[Any, Mapping[str, Any]]:
        """Begin an episode; (observation, info)."""

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, Mapping[str, Any]]:
        """(observation, reward, terminated, truncated, info)."""


class EpisodeSeeds:
    """Which client's environment a row's next episode plays, and from which seed."""

    def __init__(self, pools: Sequence[Sequence[int]] | np.ndarray) -> None:
        self._pools = pools
        self._streams: list[np.random.Generator] = []

    def reset(self, seeds: Sequence[int] | np.ndarray) -> None:
        if len(seeds) != len(self._pools):
            raise ValueError(f"{len(seeds)} seeds for {len(self._pools)} environments")
        self._streams = [np.random.default_rng(int(seed)) for seed in seeds]

    def next(self, row: int) -> tuple[int, int]:
        if not self._streams:
            raise ValueError("the first episodes begin with reset")
        stream, pool = self._streams[row], self._pools[row]
        return int(pool[int(stream.integers(len(pool)))]), int(stream.integers(2**31))


class SimulatedWorld:
    """A control and a discrete world in one. Give `simulator`; the rest follows.

    `actions` that are continuous reach the simulator as the policy has them: bounds are its own.
    """

    kinds: ClassVar[tuple[str, ...]] = ("control", "discrete")
    kernel: int | None = None
    alike = False
    """All clients have the same environment."""
    shown: Scaling | None = None
    """How policy networks see observations; as they are by default. (Q-learners use `scaling`.)"""

    def __init__(
        self,
        name: str,
        clients: int,
        observation_size: int,
        action_size: int,
        horizon: int,
        gamma: float = 0.99,
        continuous: bool = False,
        scaling: Scaling | None = None,
    ) -> None:
        self.name = name
        self.clients = clients
        self.observation_size = self.dimension = observation_size
        self.action_size = action_size
        self.actions = 0 if continuous else action_size
        self.horizon = self.limit = horizon
        self.gamma = gamma
        self.continuous = continuous
        self.scaling = scaling or Scaling(np.zeros(observation_size), np.ones(observation_size))
        self.own: Sequence[int] = range(clients)

    def simulator(self, pools: Sequence[Sequence[int]] | np.ndarray) -> Simulator:
        """An environment for each of `pools`: every episode plays one of that row's clients'."""
        raise NotImplementedError

    def played(self, actions: np.ndarray) -> np.ndarray:
        """What the simulator gets of a policy's actions."""
        return actions

    def of_clients(self: World, clients: Sequence[int]) -> World:
        """The environments of these clients alone; the world itself where all are alike."""
        if self.alike:
            return self
        other = copy.copy(self)
        other.own = tuple(clients)
        return other

    def params(self, clients: Sequence[int]) -> Tensors:
        """The environments of these clients; of several, every trajectory draws one uniformly."""
        return {"client": np.array(clients, np.int64)}

    def require_finite(
        self, client: Any, step: int, action: Any, observation: Any, reward: Any = 0.0
    ) -> None:
        """Blame the world for what is no number, unless the policy's action was none before.

        Step 0 is the reset. The text quotes nothing: it may leave a client.
        """
        for what, values in (("an observation", observation), ("a reward", reward)):
            if not np.isfinite(values).all() and np.isfinite(action).all():
                who = ", ".join(map(str, np.ravel(client)))
                line = f"the world {self.name} gives {what} that is None, NaN or infinite"
                raise UserError(Shareable(f"{line}: client {who}, step {step} of an episode"))

    def rollout(self, act: Act, params: Tensors, seeds: np.ndarray) -> Trajectories[np.ndarray]:
        """`params["client"]` [B, n] and `seeds` [B] give B episodes, whose rows are independent."""
        batch, steps = len(seeds), self.horizon
        width = (self.action_size,) if self.continuous else ()
        record = Trajectories(
            np.zeros((batch, steps, self.observation_size), np.float32),
            np.zeros((batch, steps, *width), np.float32 if self.continuous else np.int32),
            np.zeros((batch, steps), np.float32),
            np.zeros((batch, steps), np.float32),
        )
        noise = np.empty((batch, steps, *width), np.float32)
        for row, seed in enumerate(seeds):
            apart = np.random.default_rng(np.random.SeedSequence(int(seed), spawn_key=(1,)))
            draw = apart.standard_normal if self.continuous else apart.random
            noise[row] = draw((steps, *width), np.float32)

        simulator = self.simulator(params["client"])
        alive, now = np.arange(batch), simulator.reset(seeds)
        for step in range(steps):
            at = alive if len(alive) < batch else slice(None)  # a view is cheaper than a choice
            seen = now if self.shown is None else self.shown(now).astype(np.float32)
            actions = act(seen, noise[at, step], alive)
            record.observations[at, step] = seen
            record.actions[at, step] = actions
            played = self.played(actions)
            after = simulator.step(played, alive)
            if not (np.isfinite(after.rewards).all() and np.isfinite(after.observations).all()):
                for i, pool in enumerate(params["client"][alive]):
                    given = after.observations[i], after.rewards[i]
                    self.require_finite(pool, step + 1, played[i], *given)
            record.rewards[at, step] = after.rewards
            record.mask[at, step] = 1
            over, now = after.terminated | after.truncated, after.observations
            if over.any():
                alive, now = alive[~over], now[~over]
                if not len(alive):
                    break
        return record


class EnvironmentWorld(SimulatedWorld):
    """A world of environments that are stepped one by one. Give `environment`."""

    def __init__(self, *sizes: Any, **more: Any) -> None:
        super().__init__(*sizes, **more)
        self._idle: dict[int, list[Environment]] = {}

    def environment(self, client: int) -> Environment:
        """A new environment of this client."""
        raise UserError(f"{type(self).__name__} must say environment(client)")

    def simulator(self, pools: Sequence[Sequence[int]] | np.ndarray) -> Environments:
        return Environments(self, pools)

    def take(self, client: int) -> Environment:
        """An environment for one episode: a new one only if all that there are, are in use."""
        idle = self._idle.get(0 if self.alike else client)
        if idle:
            return idle.pop()
        made = self.environment(client)
        checks.require_methods(self.name, made)
        return made

    def give_back(self, client: int, environment: Environment) -> None:
        self._idle.setdefault(0 if self.alike else client, []).append(environment)


class Environments:
    """A `Simulator` of single environments. The limit of steps is counted here.

    An environment is held for an episode and given back at its end: as many are made as are played
    at once, whatever the number of simulators.
    """

    def __init__(
        self, world: EnvironmentWorld, pools: Sequence[Sequence[int]] | np.ndarray
    ) -> None:
        self.count = len(pools)
        self._world = world
        self._seeds = EpisodeSeeds(pools)
        self._all = np.arange(self.count)
        self._held: dict[int, tuple[int, Environment]] = {}  # by row: the client, its environment
        self._steps = np.zeros(self.count, np.int64)

    def reset(self, seeds: Sequence[int] | np.ndarray) -> np.ndarray:
        self._seeds.reset(seeds)
        return self.restart(self._all)

    def restart(self, rows: np.ndarray) -> np.ndarray:
        first = np.empty((len(rows), self._world.observation_size), np.float32)
        self._steps[rows] = 0
        for i, row in enumerate(rows.tolist()):
            self._release(row)
            client, seed = self._seeds.next(row)
            environment = self._world.take(client)
            self._held[row] = client, environment
            seen = checks.begun(self._world.name, environment, seed)
            checks.require_numbers(self._world, "reset", seen)
            first[i] = seen
            if not np.isfinite(first[i]).all():
                self._world.require_finite(client, 0, 0, first[i])
        return first

    def step(self, actions: np.ndarray, rows: np.ndarray | None = None) -> Step:
        rows = self._all if rows is None else rows
        count, numbers = len(rows), rows.tolist()
        size = self._world.observation_size
        observations, rewards = np.empty((count, size), np.float32), np.empty(count)
        terminated, truncated = np.empty(count, bool), np.empty(count, bool)
        held = self._held
        # Whole numbers as Python's own: many environments ask what they are given.
        each = actions if self._world.continuous else actions.tolist()
        for i, (row, action) in enumerate(zip(numbers, each, strict=True)):
            if row not in held:
                raise ValueError("an episode that is over must be restarted first")
            given = held[row][1].step(action)
            try:
                seen, reward, ended, cut, _ = given
            except (TypeError, ValueError):
                raise checks.unlike(self._world.name, given) from None
            try:
                observations[i], rewards[i], terminated[i], truncated[i] = seen, reward, ended, cut
            except (TypeError, ValueError):
                checks.require_numbers(self._world, "step", seen, reward)
                raise
            if (seen.size if type(seen) is np.ndarray else np.size(seen)) != size:
                checks.require_numbers(self._world, "step", seen)  # one number was broadcast
        self._steps[rows] += 1
        if not (np.isfinite(rewards).all() and np.isfinite(observations).all()):
            for i, row in enumerate(numbers):
                at = held[row][0], int(self._steps[row])
                self._world.require_finite(*at, each[i], observations[i], rewards[i])
        truncated |= self._steps[rows] >= self._world.horizon
        for i in np.flatnonzero(terminated | truncated).tolist():
            self._release(numbers[i])
        return Step(observations, rewards, terminated, truncated)

    def step_alone(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        if self.count != 1 or 0 not in self._held:
            raise ValueError("one environment whose episode is not over is needed")
        given = self._held[0][1].step(action)
        try:
            shown, reward, terminated, truncated, _ = given
        except (TypeError, ValueError):
            raise checks.unlike(self._world.name, given) from None
        self._steps[0] += 1
        try:
            seen = np.asarray(shown, np.float32)
            paid = math.nan if reward is None else float(reward)
        except (TypeError, ValueError):
            checks.require_numbers(self._world, "step", shown, reward)
            raise
        if seen.size != self._world.observation_size:
            checks.require_numbers(self._world, "step", shown)
        # A sum of squares is the quickest sign of a number that is none.
        if not math.isfinite(paid + np.vdot(seen, seen)):
            client, step = self._held[0][0], int(self._steps[0])
            self._world.require_finite(client, step, action, seen, paid)
        cut = bool(truncated) or bool(self._steps[0] >= self._world.horizon)
        if terminated or cut:
            self._release(0)
        return seen, paid, bool(terminated), cut

    def _release(self, row: int) -> None:
        held = self._held.pop(row, None)
        if held is not None:
            self._world.give_back(*held)


def random_play(
    world: SimulatedWorld, simulator: Simulator, steps: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Observations [steps, O] that uniformly random actions met, and the rewards [steps] of these.

    `simulator` has one environment.
    """
    random = np.random.default_rng(seed)
    visited, rewards = np.empty((steps, world.observation_size), np.float32), np.empty(steps)
    now = simulator.reset([seed])
    for i in range(steps):
        visited[i] = now[0]
        if world.continuous:
            action = world.played(random.uniform(-1, 1, (1, world.action_size)))
        else:
            action = random.integers(world.action_size, size=1)
        after = simulator.step(action)
        rewards[i] = after.rewards[0]
        over = after.terminated[0] or after.truncated[0]
        now = simulator.restart(ONE) if over else after.observations
    return visited, rewards


def repeats(world: SimulatedWorld, seed: int, steps: int = 30) -> bool:
    """Whether client 0's episodes come again from their seed, with another one in between."""
    simulator = world.simulator([[0]])
    once, _, again = (random_play(world, simulator, steps, seed + i % 2) for i in range(3))
    return all(np.array_equal(*pair, equal_nan=True) for pair in zip(once, again))


def require_repeats(world: SimulatedWorld, seed: int) -> None:
    """Refuse a world of one's own whose episodes do not come again: no run of it could."""
    if not repeats(world, seed):
        raise UserError(
            f"an episode of the world {world.name} does not come again from its seed, so no run "
            "could be resumed: draw all that is random from the seed that reset is given"
        )
