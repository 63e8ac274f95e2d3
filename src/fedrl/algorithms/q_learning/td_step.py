"""What a method's `target` and `loss` are given: a batch of transitions, traced by JAX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedrl.core.types import Tensors

if TYPE_CHECKING:
    import jax

    Array = jax.Array

Params = dict[str, "jax.Array"]
Values = Callable[[Params, "jax.Array"], "jax.Array"]


@dataclass(frozen=True)
class TDStep:
    """One update of one client: B transitions (s, a, r, s') and what Q says of them.

    All arrays are traced: write with `jax.numpy`, and branch on settings, never on values. There is
    no axis of clients: the base adds it where many compute at once.
    """

    # Q(s, ·) [B, |A|] of θ: what is learned.
    q: Array
    # Q(s', ·) [B, |A|] of θ too.
    q_next: Array
    # Q⁻(s', ·) [B, |A|] of the delayed weights; of a table, which delays nothing, `q_next` itself.
    q_delayed: Array
    # a [B], numbers of actions.
    actions: Array
    # r [B].
    rewards: Array
    # Whether s' ends the episode [B]; a cut at the step limit does not.
    terminal: Array
    # γ.
    gamma: float
    # What each transition counts [B]: 1/B, or in a table the share of s' among what follows (s, a).
    weight: Array
    # s and s' as the learner sees them: [B, d], or numbers of states [B].
    states: Array
    nexts: Array
    # θ, by the names of the parameters: "weights" of a network, "table" [S, |A|].
    theta: Params
    # θ_r, which the server sent.
    start: Params
    # What the server sent beside θ_r.
    server: Tensors
    # What the client keeps from round to round.
    client: Tensors
    # `values(theta, states)`: Q of other parameters, or elsewhere.
    values: Values

    @property
    def taken(self) -> Array:
        """Q(s, a) [B]."""
        return picked(self.q, self.actions)

    def bootstrap(self, value: Array) -> Array:
        """r + γ · value [B], of a terminal transition r alone."""
        import jax.numpy as jnp

        return self.rewards + self.gamma * jnp.where(self.terminal, 0.0, value)

    def total(self, each: Array) -> Array:
        """The update's loss from one per transition [B]."""
        return (self.weight * each).sum()

    def squared_distance(self) -> Array:
        """‖θ − θ_r‖²."""
        import jax.numpy as jnp

        return jnp.stack(
            [((x - self.start[name]) ** 2).sum() for name, x in self.theta.items()]
        ).sum()


def picked(values: Array, actions: Array) -> Array:
    """values[b, actions[b]] [B]."""
    import jax.numpy as jnp

    return jnp.take_along_axis(values, actions[:, None], 1)[:, 0]


def half_square(error: Array, huber: float = 0.0) -> Array:
    """error²/2, beyond `huber` (if that is positive) linear [B]."""
    import jax.numpy as jnp

    if not huber:
        return error**2 / 2
    size = jnp.abs(error)
    return jnp.where(size > huber, huber * (size - huber / 2), error**2 / 2)
