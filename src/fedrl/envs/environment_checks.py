"""What one client's environment must be, and what its `reset` and `step` must give: a line if not.

The texts quote nothing that an environment gave: they may leave a client.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from fedrl.core.types import Shareable, UserError


class World(Protocol):
    name: str
    observation_size: int


def require_methods(world: str, environment: Any) -> None:
    for name in ("reset", "step"):
        if not callable(getattr(environment, name, None)):
            kind = type(environment).__name__
            raise UserError(
                Shareable(f"environment(client) of the world {world} gives a {kind} without {name}")
            )


def begun(world: str, environment: Any, seed: int) -> Any:
    """The first observation of an episode."""
    how = f"reset of the world {world} must"
    try:
        given = environment.reset(seed=seed)
    except TypeError as error:
        if "unexpected keyword argument 'seed'" not in str(error):
            raise
        raise UserError(
            Shareable(f"{how} take a seed: def reset(self, *, seed, options=None)")
        ) from None
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise UserError(Shareable(f"{how} return (observation, info), as Gymnasium's does"))
    return given[0]


def unlike(world: str, given: Any) -> UserError:
    """Of a step that is none of Gymnasium's, such as an older one of four values."""
    many = isinstance(given, tuple | list)
    got = f"{len(given)} values" if many else type(given).__name__
    five = "return five: (observation, reward, terminated, truncated, info)"
    return UserError(Shareable(f"step of the world {world} returns {got}; {five}"))


def require_numbers(world: World, what: str, observation: Any, reward: Any = 0.0) -> None:
    """As many as the world says, and one reward; None is left to whoever looks for NaN."""
    about = f"{what} of the world {world.name} gives"
    try:
        shape = np.shape(np.asarray(observation, np.float64))
    except (TypeError, ValueError):
        raise UserError(Shareable(f"{about} an observation that is no row of numbers")) from None
    size = world.observation_size
    row = math.prod(shape) == size and shape[-1:] in ((), (size,))
    if not row and observation is not None:
        raise UserError(
            Shareable(f"{about} an observation of shape {shape}; its observation_size is {size}")
        )
    try:
        float(0.0 if reward is None else reward)
    except (TypeError, ValueError):
        raise UserError(Shareable(f"{about} a reward that is no number")) from None
