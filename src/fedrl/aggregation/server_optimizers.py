"""Server optimisers: how the aggregated direction moves the server's parameters.

Pure functions on named tensors. The direction points uphill (it is added). Momentum and Adam are
the server sides of FedAvgM and FedAdam.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedrl.core import tree
from fedrl.core.types import Tensors

Name = Literal["sgd", "momentum", "adam"]
MOMENTUM, BETA1, BETA2, EPSILON = 0.9, 0.9, 0.99, 1e-8


def init(name: Name, params: Tensors) -> Tensors:
    """The optimiser's state: nothing, a velocity, or two moments and a count of steps."""
    if name == "sgd":
        return {}
    if name == "momentum":
        return {"velocity": tree.zeros_like(params)}
    return {"first": tree.zeros_like(params), "second": tree.zeros_like(params), "count": 0}


def apply(
    name: Name, state: Tensors, params: Tensors, direction: Tensors, lr: float
) -> tuple[Tensors, Tensors]:
    """(new parameters, new state) after one step of size `lr` along `direction`."""
    if name == "sgd":
        return tree.map(lambda p, d: p + _like(lr * d, p), params, direction), {}
    if name == "momentum":
        velocity = tree.map(lambda v, d: _like(MOMENTUM * v + d, v), state["velocity"], direction)
        moved = tree.map(lambda p, v: p + _like(lr * v, p), params, velocity)
        return moved, {"velocity": velocity}
    count = int(state["count"]) + 1
    first = tree.map(lambda m, d: _like(BETA1 * m + (1 - BETA1) * d, m), state["first"], direction)
    second = tree.map(
        lambda v, d: _like(BETA2 * v + (1 - BETA2) * d * d, v), state["second"], direction
    )
    rate = lr * np.sqrt(1 - BETA2**count) / (1 - BETA1**count)
    moved = tree.map(
        lambda p, m, v: p + _like(rate * m / (np.sqrt(v) + EPSILON), p), params, first, second
    )
    return moved, {"first": first, "second": second, "count": count}


def _like(value: np.ndarray, pattern: np.ndarray) -> np.ndarray:
    return np.asarray(value, pattern.dtype)
