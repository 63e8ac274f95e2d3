"""What an algorithm may ask of a world, by kind of world. A world is any class with these names.

The momentum methods play control worlds, of which there are three sorts, told apart by what they
offer: `rollout_jax`, `rollout` on the host, or tables. Q-learners play discrete worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from fedrl.core.policies import ActionBox
from fedrl.core.policies import Scaling as SavedScaling
from fedrl.core.types import Tensors

if TYPE_CHECKING:
    import jax

    from fedrl.envs.discrete.lunarlander import Lunar

JaxSample = Callable[["jax.Array", "jax.Array"], "jax.Array"]
"""`sample(observations [O, B], noise […, B]) -> actions […, B]`, traced."""

Act = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""`act(observations [b, O], noise [b, …], alive [b]) -> actions`; `alive` are the rows that still
play. With continuous actions the world draws standard normal noise [b, A] and gets actions [b, A],
else uniform noise of [0, 1) [b] and numbers of actions [b]."""


Array = TypeVar("Array", np.ndarray, "jax.Array")


class Trajectories(NamedTuple, Generic[Array]):
    """B trajectories of at most T steps, zero after their end; actions unclipped."""

    observations: Array  # [B, T, O] float32
    actions: Array  # [B, T, A] float32, or [B, T] numbers of actions
    rewards: Array  # [B, T] float32
    mask: Array  # [B, T] float32, 1 on real steps


class ControlWorld(Protocol):
    """An environment per client; all have the same spaces, horizon and discount."""

    clients: int
    horizon: int
    gamma: float

    def params(self, clients: Sequence[int]) -> Tensors:
        """What makes these clients' environments, [n, …]; a trajectory draws one of the n."""


class SampledWorld(ControlWorld, Protocol):
    """A world whose policies are networks."""

    continuous: bool
    observation_size: int
    action_size: int


@runtime_checkable
class JaxWorld(SampledWorld, Protocol):
    """A world whose episodes JAX compiles together with the learner."""

    def rollout_jax(
        self, sample: JaxSample, noise: jax.Array, params: Tensors, keys: jax.Array
    ) -> Trajectories[jax.Array]:
        """B episodes, of noise [B, T, …], environments `params` [B, n] and keys [B]."""


@runtime_checkable
class HostWorld(SampledWorld, Protocol):
    """A world that plays its episodes itself, outside JAX."""

    def rollout(self, act: Act, params: Tensors, seeds: np.ndarray) -> Trajectories[np.ndarray]:
        """B episodes, each of its own `params` [B, n] and seed [B]."""


@runtime_checkable
class TabularWorld(ControlWorld, Protocol):
    """A world of finitely many states and actions, known exactly: `params` are its tables."""

    rewards: np.ndarray  # [S, A]
    initial: np.ndarray  # [S], the distribution of the first state


class Scaling(NamedTuple):
    """How features see a state: (s - shift) / scale."""

    shift: np.ndarray  # [dimension] float64
    scale: np.ndarray

    def __call__(self, states: np.ndarray) -> np.ndarray:
        return (states - self.shift) / self.scale

    @property
    def single(self) -> tuple[np.ndarray, np.ndarray]:
        """Both in float32, as kernels read them."""
        return self.shift.astype(np.float32), self.scale.astype(np.float32)


class DiscreteWorld(Protocol):
    """Few actions, a continuous state of `dimension` numbers, the same world for all clients."""

    name: str
    clients: int
    dimension: int
    actions: int
    limit: int
    scaling: Scaling
    kernel: int | None
    """Which world of `discrete.classic_kernels` it is; None where it is simulated on the host."""

    def landers(self, count: int) -> Lunar:
        """The simulator of a world without a kernel."""


@runtime_checkable
class ScalesObservations(Protocol):
    """A world that shows its policies (s - shift) / scale instead of s, if `shown` is not None."""

    shown: Scaling | None


@runtime_checkable
class BoundsActions(Protocol):
    """A world of continuous actions that plays them otherwise than a Gaussian says them."""

    def action_box(self) -> ActionBox | None: ...


def seen_and_played(world: object) -> tuple[SavedScaling | None, ActionBox | None]:
    """How a policy of the world sees its observations, and how its actions are played."""
    shown = world.shown if isinstance(world, ScalesObservations) else None
    box = world.action_box() if isinstance(world, BoundsActions) else None
    return None if shown is None else SavedScaling(*shown), box
