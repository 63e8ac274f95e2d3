"""The discrete worlds, each by its name."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

pytest.importorskip("numba", reason="the classic worlds are compiled by numba")
from fedrl.envs.discrete import classic_kernels as classic
from fedrl.envs.discrete import lunarlander


def installed(simulator: str) -> bool:
    return all(importlib.util.find_spec(module) for module in lunarlander.NEEDS[simulator])


SIMULATORS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            not installed(name), reason=f"not installed: {lunarlander.INSTALL[name]}"
        ),
    )
    for name in lunarlander.NEEDS
]


EACH = pytest.mark.parametrize("simulator", SIMULATORS)

IDS = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0")
KINDS = pytest.mark.parametrize("kind", [0, 1, 2], ids=IDS)


def any_state(kind: int, random: np.random.Generator) -> np.ndarray:
    """Any state of the world, so that one step may hit its walls, wrap, and end."""
    reach = [(2.4, 4, 0.21, 4), (np.pi, np.pi, 12.56, 28.27), (0.9, 0.07)][kind]
    state = random.uniform(-1, 1, len(reach)) * reach
    return state - [0.3, 0] if kind == classic.MOUNTAINCAR else state
