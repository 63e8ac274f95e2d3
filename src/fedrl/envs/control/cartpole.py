"""CartPole, compiled: thousands of carts per call, each client with its own physics.

The dynamics are Gymnasium's CartPole-v1 (Euler, 0.02 s). A client may differ in where its episodes
start, in the pole's length, in gravity and in the force of a push.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.core import seeding
from fedrl.core.limits import at_least_one
from fedrl.core.types import Tensors, UserError
from fedrl.envs.interfaces import JaxSample, Trajectories
from fedrl.envs.rendering import RenderedEnvironment, twin

Array = jax.Array
Carry = tuple[Array | int, Array, Array, Array, Array, Array]
"""Step, state [4,B], who is upright, episodes' lengths [B], observations and actions so far."""

MASS_CART, MASS_POLE, SECONDS = 1.0, 0.1, 0.02
TOTAL_MASS = MASS_CART + MASS_POLE
X_LIMIT, ANGLE_LIMIT = 2.4, 12 * 2 * np.pi / 360


@dataclass(frozen=True)
class Settings:
    """How clients' carts differ: each spread s draws a factor 1 + s·U(-1, 1) per client."""

    name: Literal["cartpole"] = "cartpole"
    # Longest episode; 100 is the paper's, so 100 is the best return.
    horizon: int = 100
    # Discount γ.
    gamma: float = 0.995
    # Episodes start uniformly in ±initial for all four state variables.
    initial: float = 0.05
    # Spread over clients of the initial bound.
    initial_spread: float = 0.1
    # Spread over clients of the pole's length (0.5).
    length_spread: float = 0.0
    # Spread over clients of gravity (9.8).
    gravity_spread: float = 0.0
    # Spread over clients of the push (10).
    force_spread: float = 0.0

    def __post_init__(self) -> None:
        at_least_one(self, "world.", "horizon")
        if not 0 < self.gamma <= 1:
            raise UserError(f"world.gamma is {self.gamma}; it must lie in (0, 1]")
        if not 0 < self.initial < ANGLE_LIMIT:
            raise UserError(
                f"world.initial is {self.initial}; it must lie in (0, {ANGLE_LIMIT:.3f}), "
                "or episodes would start fallen"
            )
        for key in ("initial_spread", "length_spread", "gravity_spread", "force_spread"):
            if not 0 <= getattr(self, key) < 1:
                raise UserError(f"world.{key} is {getattr(self, key)}; it must lie in [0, 1)")


class World:
    """N carts. Client parameters are arrays [n] per quantity; n > 1 is a pool of clients."""

    continuous = False
    observation_size = 4
    action_size = 2

    def __init__(self, settings: Settings, clients: int, seed: int) -> None:
        self.settings = settings
        self.clients = clients
        self.horizon = settings.horizon
        self.gamma = settings.gamma
        spreads = {
            "initial": (settings.initial, settings.initial_spread),
            "length": (0.5, settings.length_spread),
            "gravity": (9.8, settings.gravity_spread),
            "force": (10.0, settings.force_spread),
        }
        self._all = {
            name: base * (1 + spread * _unit_draws(seed, name, clients))
            for name, (base, spread) in spreads.items()
        }

    def params(self, clients: Sequence[int]) -> Tensors:
        """The private physics of these clients' carts, [n] each."""
        index = np.asarray(clients)
        return {name: values[index].astype(np.float32) for name, values in self._all.items()}

    def rendered(self, client: int) -> RenderedEnvironment:
        """Gymnasium's CartPole with this client's physics and start."""
        own = {name: float(values[client]) for name, values in self._all.items()}
        physics = {
            "length": own["length"],
            "polemass_length": MASS_POLE * own["length"],
            "gravity": own["gravity"],
            "force_mag": own["force"],
        }
        start = {"low": -own["initial"], "high": own["initial"]}
        return twin("CartPole-v1", physics, start, max_episode_steps=self.horizon)

    def rollout_jax(
        self,
        sample: JaxSample,
        noise: Array,
        params: Tensors,
        keys: Array,
    ) -> Trajectories[Array]:
        """B episodes in lockstep: the loop outside, the batch inside, finished episodes masked.

        `sample(observations [4,B], noise […,B]) -> actions [B]`; noise is [B,T,…], params [B,n].
        Stops as soon as the last episode has ended.
        """
        batch, horizon = noise.shape[0], self.horizon
        choose, place = jax.vmap(jax.random.split, out_axes=1)(keys)
        n = params["length"].shape[1]
        pick = jax.vmap(lambda k: jax.random.randint(k, (), 0, n))(choose)
        physics = jax.tree.map(lambda leaf: leaf[jnp.arange(batch), pick], params)
        unit = jax.vmap(lambda k: jax.random.uniform(k, (4,), minval=-1.0))(place)
        state = (unit * physics["initial"][:, None]).T
        noise_t = jnp.moveaxis(noise, (0, 1), (-1, 0))

        def going(carry: Carry) -> Array:
            t, _, alive, *_ = carry
            return (t < horizon) & alive.any()

        def advance(carry: Carry) -> Carry:
            t, state, alive, length, observations, actions = carry
            action = sample(state, noise_t[t])
            observations = observations.at[t].set(state)
            actions = actions.at[t].set(action)
            length = length + alive
            state = physics_step(state, action, physics)
            fallen = (jnp.abs(state[0]) > X_LIMIT) | (jnp.abs(state[2]) > ANGLE_LIMIT)
            return t + 1, state, alive & ~fallen, length, observations, actions

        start: Carry = (
            0,
            state,
            jnp.ones(batch, bool),
            jnp.zeros(batch, jnp.int32),
            jnp.zeros((horizon, 4, batch)),
            jnp.zeros((horizon, batch), jnp.int32),
        )
        *_, length, observations, actions = jax.lax.while_loop(going, advance, start)
        mask = (jnp.arange(horizon) < length[:, None]).astype(jnp.float32)
        # One point of reward per step upright.
        return Trajectories(jnp.moveaxis(observations, -1, 0), actions.T, mask, mask)


def physics_step(state: Array, action: Array, physics: Array) -> Array:
    """One Euler step of Gymnasium's CartPole-v1; arrays [4,B], [B] and a dict of [B]."""
    x, x_dot, angle, angle_dot = state
    force = jnp.where(action == 1, physics["force"], -physics["force"])
    length = physics["length"]
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    pull = (force + MASS_POLE * length * angle_dot**2 * sin) / TOTAL_MASS
    angle_acc = (physics["gravity"] * sin - cos * pull) / (
        length * (4.0 / 3.0 - MASS_POLE * cos**2 / TOTAL_MASS)
    )
    x_acc = pull - MASS_POLE * length * angle_acc * cos / TOTAL_MASS
    return jnp.stack(
        [
            x + SECONDS * x_dot,
            x_dot + SECONDS * x_acc,
            angle + SECONDS * angle_dot,
            angle_dot + SECONDS * angle_acc,
        ]
    )


def _unit_draws(seed: int, quantity: str, clients: int) -> np.ndarray:
    """U(-1, 1) per client: a new knob or further clients leave the earlier draws alone."""
    return seeding.generator(seed, f"cartpole/{quantity}").uniform(-1, 1, size=clients)
