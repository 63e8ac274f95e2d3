"""The discrete worlds, each by its name."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("numba", reason="the classic worlds are compiled by numba")
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
