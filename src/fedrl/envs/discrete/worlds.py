"""CartPole-v1, Acrobot-v1, MountainCar-v0 and LunarLander-v3: the worlds of the FedQHD paper.

Few actions, a continuous state, Gymnasium's own numbers. All clients play the same world and differ
only in their random numbers. The first three are compiled (`classic_kernels`) so that a learner's
whole loop can be; LunarLander is simulated on the host (`lunarlander`).

Features of a state see (s - shift) / scale, which brings its parts to a similar size. The paper
does not say how it scales. The defaults divide by what an episode can reach: CartPole's limits of
position and angle, MountainCar's half width and top speed; speeds without a limit by usual ones.
LunarLander's states come scaled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from fedrl.core import seeding
from fedrl.core.types import UserError
from fedrl.envs.discrete import classic_kernels as classic
from fedrl.envs.discrete import lunarlander
from fedrl.envs.interfaces import DiscreteWorld, Scaling

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
    simulator: lunarlander.Simulator = "auto"

    def __post_init__(self) -> None:
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


class World:
    """One world for all clients: its sizes, its scaling, and who computes it."""

    def __init__(self, settings: Settings, clients: int, seed: int) -> None:
        task = TASKS[settings.name]
        self.settings = settings
        self.clients = clients
        self.name = settings.name
        self.kernel = task.kernel
        self.dimension = task.dimension
        self.actions = task.actions
        self.limit = task.limit
        self.scaling = Scaling(
            np.array(settings.shift or task.shift), np.array(settings.scale or task.scale)
        )
        # Asked here, so that a missing package stops a run before its first round.
        on_host = self.kernel is None
        self.simulator = lunarlander.choose_simulator(settings.simulator) if on_host else "compiled"

    def landers(self, count: int) -> lunarlander.Lunar:
        """LunarLander's host side; compiled worlds have none."""
        if self.kernel is not None:
            raise ValueError(f"{self.name} is compiled: step it with classic_kernels")
        return lunarlander.Lunar(count, self.simulator)  # type: ignore[arg-type]


def random_states(world: DiscreteWorld, count: int, seed: int) -> np.ndarray:
    """`count` states [count, dimension] float32 of random rollouts, not scaled: S_ref, the anchors.

    A draw without replacement from POOL times as many visited ones, none of them terminal.
    """
    steps = POOL * count
    random = seeding.generator(seed, "world.anchors")
    actions = random.integers(world.actions, size=steps)
    visited = np.empty((steps, world.dimension), np.float32)
    if world.kernel is None:
        _wander(world.landers(1), actions, seeding.derive(seed, "world.anchors.episodes"), visited)
    else:
        uniforms = random.random((steps, classic.DRAWS[world.kernel]))
        classic.wander(world.kernel, actions, uniforms, visited)
    return visited[random.choice(steps, count, replace=False)]


def _wander(lander: lunarlander.Lunar, actions: np.ndarray, seed: int, out: np.ndarray) -> None:
    only = np.zeros(1, np.int64)
    observation = lander.reset([seed])[0]
    for i in range(len(actions)):
        out[i] = observation
        after = lander.step(actions[i : i + 1])
        over = after.terminated[0] or after.truncated[0]
        observation = lander.restart(only)[0] if over else after.observations[0]
