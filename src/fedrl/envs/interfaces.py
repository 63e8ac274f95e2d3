"""What an algorithm may ask of a world, by kind of world. A world is any class with these names.

Policy gradients play control worlds, of which there are three sorts, told apart by what they offer:
`rollout_jax`, `rollout` on the host, or tables. Q-learners play discrete worlds. One world may be
both: `fedrl.envs.simulated` makes it of an environment's `reset` and `step`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from fedrl.core.policies import ActionBox
from fedrl.core.policies import Scaling as Scaling
from fedrl.core.types import Tensors

if TYPE_CHECKING:
    import jax

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


class Network(NamedTuple):
    """Policies of B rows: layers of `sizes` with tanh between them, then normal noise.

    `weights` [B, P] are, layer by layer, w [in, out] and b [out]; `deviation` is [B, actions].
    """

    sizes: tuple[int, ...]
    weights: np.ndarray
    deviation: np.ndarray


@runtime_checkable
class NetworkWorld(HostWorld, Protocol):
    """A world on the host that can play such policies without asking anybody."""

    def rollout_network(
        self, network: Network, params: Tensors, seeds: np.ndarray
    ) -> Trajectories[np.ndarray] | None:
        """As `rollout`; None where it cannot here, and is to be asked step by step."""


@runtime_checkable
class TabularWorld(ControlWorld, Protocol):
    """A world of finitely many states and actions, known exactly: `params` are its tables."""

    rewards: np.ndarray  # [S, A]
    initial: np.ndarray  # [S], the distribution of the first state


class Step(NamedTuple):
    """What became of the stepped episodes. One may be terminated and truncated at once."""

    observations: np.ndarray  # [n, O] float32, true ones at an end too
    rewards: np.ndarray  # [n] float64
    terminated: np.ndarray  # [n] bool: ended by the world itself
    truncated: np.ndarray  # [n] bool: cut, as a rule at the step limit


class Simulator(Protocol):
    """`count` environments stepped together; each one's episodes come from its own seed, whatever
    the others do. Nothing restarts by itself: a learner needs the observation that an episode ended
    with and the first one of the next."""

    count: int

    def reset(self, seeds: Sequence[int] | np.ndarray) -> np.ndarray:
        """Begin a new stream of episodes everywhere; the first observations [count, O]."""

    def step(self, actions: np.ndarray, rows: np.ndarray | None = None) -> Step:
        """An action for each of the environments `rows` (all by default); the others wait."""

    def step_alone(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        """`step` where there is one environment, without arrays of one.

        Returns (observation [O], reward, terminated, truncated).
        """

    def restart(self, rows: np.ndarray) -> np.ndarray:
        """The next episodes of these environments; their first observations [len(rows), O]."""


Discrete = TypeVar("Discrete", bound="DiscreteWorld")


class DiscreteWorld(Protocol):
    """Few actions and a state of `dimension` numbers; clients' environments may differ."""

    name: str
    clients: int
    dimension: int
    actions: int
    """How many there are; 0 where they are continuous, which no Q-learner plays."""
    limit: int
    scaling: Scaling
    kernel: int | None
    """Which world of `discrete.classic_kernels` it is; None where it is simulated on the host."""
    own: Sequence[int]
    """The clients whose environments are played here: all, but for what `of_clients` returns."""

    def of_clients(self: Discrete, clients: Sequence[int]) -> Discrete:
        """The environments of these clients alone; the world itself where all are alike."""

    def simulator(self, pools: Sequence[Sequence[int]] | np.ndarray) -> Simulator:
        """An environment for each of `pools`: every episode plays one of that row's clients'."""


@runtime_checkable
class ScalesObservations(Protocol):
    """A world that shows its policies (s - shift) / scale instead of s, if `shown` is not None."""

    shown: Scaling | None


@runtime_checkable
class BoundsActions(Protocol):
    """A world of continuous actions that plays them otherwise than a Gaussian says them."""

    def action_box(self) -> ActionBox | None: ...


def seen_and_played(world: object) -> tuple[Scaling | None, ActionBox | None]:
    """How a policy of the world sees its observations, and how its actions are played."""
    shown = world.shown if isinstance(world, ScalesObservations) else None
    box = world.action_box() if isinstance(world, BoundsActions) else None
    return shown, box
