"""HalfCheetah, Walker2d and Hopper in numbers: the defaults of Gymnasium's v5 environments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple


class Health(NamedTuple):
    """The open ranges outside of which a walking body has fallen: the episode ends."""

    height: tuple[float, float]
    angle: tuple[float, float]
    state: float = math.inf


@dataclass(frozen=True)
class Task:
    """The default arguments of one of Gymnasium's v5 environments."""

    xml: str
    frame_skip: int
    noise: float
    control_cost: float
    # Environments that a thread must get before handing them over costs less than it saves:
    # measured; the cheetah's integrator is the cheap one.
    smallest_share: int
    velocity_limit: float = math.inf
    health: Health | None = None


TASKS = {
    "halfcheetah": Task(
        "half_cheetah.xml", frame_skip=5, noise=0.1, control_cost=0.1, smallest_share=4
    ),
    "walker2d": Task(
        "walker2d_v5.xml",
        frame_skip=4,
        noise=5e-3,
        control_cost=1e-3,
        smallest_share=2,
        velocity_limit=10.0,
        health=Health(height=(0.8, 2.0), angle=(-1.0, 1.0)),
    ),
    "hopper": Task(
        "hopper.xml",
        frame_skip=4,
        noise=5e-3,
        control_cost=1e-3,
        smallest_share=2,
        velocity_limit=10.0,
        health=Health(height=(0.7, math.inf), angle=(-0.2, 0.2), state=100.0),
    ),
}

TWINS = {"halfcheetah": "HalfCheetah-v5", "walker2d": "Walker2d-v5", "hopper": "Hopper-v5"}
"""Gymnasium's names of the same worlds."""
