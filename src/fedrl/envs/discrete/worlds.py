"""CartPole-v1, Acrobot-v1, MountainCar-v0 and LunarLander-v3: the worlds of the FedQHD paper.

Few actions, a continuous state, Gymnasium's own numbers. All clients play the same world and differ
only in their random numbers. The first three are compiled (`classic_kernels`) so that a Q-learner's
whole loop can be; LunarLander is simulated on the host (`lunarlander`). Policy gradients play all
four, a batch of episodes at a time, and see states as they are.

Features of a state see (s - shift) / scale, which brings its parts to a similar size. The paper
does not say how it scales. The defaults divide by what an episode can reach: CartPole's limits of
position and angle, MountainCar's half width and top speed; speeds without a limit by usual ones.
LunarLander's states come scaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from fedrl.core import seeding
from fedrl.core.types import UserError
from fedrl.envs.discrete import classic_kernels as classic
from fedrl.envs.discrete import lunarlander
from fedrl.envs.discrete.compiled import Compiled
from fedrl.envs.interfaces import DiscreteWorld, Scaling, Simulator
from fedrl.envs.rendering import RenderedEnvironment, twin
from fedrl.envs.simulated import ONE, SimulatedWorld

POOL = 20
"""Visited states per anchor that is drawn of them: neighbours in an episode say the same twice."""


class Task(NamedTuple):
    kernel: int | None  # in `classic_kernels`; None of a world that is simulated on the host
    dimension: int
    actions: int
    limit: int
    shift: tuple[float, ...]
    scale: tuple[float, ...]


def _compiled(kernel: int, shift: tuple[float, ...], scale: tuple[float, ...]) -> Task:
    sizes = classic.OBSERVATION[kernel], classic.ACTIONS[kernel], classic.LIMIT[kernel]
    return Task(kernel, *sizes, shift, scale)


TASKS = {
    "cartpole-v1": _compiled(classic.CARTPOLE, (0.0,) * 4, (2.4, 3.0, 0.21, 3.0)),
    "acrobot-v1": _compiled(classic.ACROBOT, (0.0,) * 6, (1.0, 1.0, 1.0, 1.0, 3.0, 6.0)),
    "mountaincar-v0": _compiled(classic.MOUNTAINCAR, (-0.3, 0.0), (0.9, 0.07)),
    "lunarlander-v3": Task(
        None, lunarlander.DIMENSION, lunarlander.ACTIONS, lunarlander.LIMIT, (0.0,) * 8, (1.0,) * 8
    ),
}


TWINS = {
    "cartpole-v1": "CartPole-v1",
    "acrobot-v1": "Acrobot-v1",
    "mountaincar-v0": "MountainCar-v0",
    "lunarlander-v3": "LunarLander-v3",
}
"""Gymnasium's names of the same worlds."""


@dataclass(frozen=True)
class Settings:
    """Which world, and how features see its states."""

    # Which world: Gymnasium's of the same name and version.
    name: Literal["cartpole-v1", "acrobot-v1", "mountaincar-v0", "lunarlander-v3"] = "cartpole-v1"
    # What is subtracted from a state before features see it, a number per part; [] is the world's.
    shift: tuple[float, ...] = ()
    # What it is divided by then, a number per part; [] is the world's own.
    scale: tuple[float, ...] = ()
    # Who simulates LunarLander; auto is Gymnasium where it has Box2D, else envpool.
    simulator: lunarlander.Backend = "auto"
    # Discount factor of policy gradients' returns; Q-learners have their own.
    gamma: float = 0.99

    def __post_init__(self) -> None:
        if not 0 < self.gamma <= 1:
            raise UserError(f"world.gamma is {self.gamma}; it must lie in (0, 1]")
        if self.name not in TASKS:
            raise UserError(f"world.name is {self.name!r}; it must be one of {', '.join(TASKS)}")
        dimension = TASKS[self.name].dimension
        for key in ("shift", "scale"):
            if len(getattr(self, key)) not in (0, dimension):
                raise UserError(
                    f"world.{key} has {len(getattr(self, key))} numbers; "
                    f"a state of {self.name} has {dimension}"
                )
        if min(self.scale, default=1.0) <= 0:
            raise UserError(f"world.scale is {list(self.scale)}; every number must be above 0")
        if self.simulator != "auto" and self.name != "lunarlander-v3":
            raise UserError(
                f"world.simulator is {self.simulator!r}; {self.name} is compiled, leave it out"
            )


class World(SimulatedWorld):
    """One world for all clients: its sizes, its scaling, and who computes it."""

    alike = True

    def __init__(self, settings: Settings, clients: int, seed: int) -> None:
        task = TASKS[settings.name]
        scaling = Scaling(
            np.array(settings.shift or task.shift), np.array(settings.scale or task.scale)
        )
        super().__init__(
            settings.name, clients, task.dimension, task.actions, task.limit, settings.gamma,
            scaling=scaling,
        )  # fmt: skip
        self.settings = settings
        self.kernel = task.kernel
        # Asked here, so that a missing package stops a run before its first round.
        on_host = self.kernel is None
        self.backend = lunarlander.choose_simulator(settings.simulator) if on_host else "compiled"

    def simulator(self, pools: Sequence[Sequence[int]] | np.ndarray) -> Simulator:
        if self.kernel is not None:
            return Compiled(self.kernel, pools)
        return lunarlander.Lunar(len(pools), self.backend)  # type: ignore[arg-type]

    def rendered(self, client: int) -> RenderedEnvironment:
        return twin(TWINS[self.name])


def random_states(world: DiscreteWorld, count: int, seed: int) -> np.ndarray:
    """`count` states [count, dimension] float32 of random rollouts, not scaled: S_ref, the anchors.

    A draw without replacement from POOL times as many visited ones, none of them terminal.
    """
    steps = POOL * count
    random = seeding.generator(seed, "world.anchors")
    actions = random.integers(world.actions, size=steps)
    visited = np.empty((steps, world.dimension), np.float32)
    if world.kernel is None:
        simulator = world.simulator([world.own])
        _wander(simulator, actions, seeding.derive(seed, "world.anchors.episodes"), visited)
    else:
        uniforms = random.random((steps, classic.DRAWS[world.kernel]))
        classic.wander(world.kernel, actions, uniforms, visited)
    return visited[random.choice(steps, count, replace=False)]


def _wander(simulator: Simulator, actions: np.ndarray, seed: int, out: np.ndarray) -> None:
    observation = simulator.reset([seed])[0]
    for i in range(len(actions)):
        out[i] = observation
        after = simulator.step(actions[i : i + 1])
        over = after.terminated[0] or after.truncated[0]
        observation = simulator.restart(ONE)[0] if over else after.observations[0]
