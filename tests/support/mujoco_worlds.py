"""What tests of the MuJoCo worlds share: a gentle policy, seeds, and the documented draws."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mujoco", reason="needs the extra: pip install 'fedrl[mujoco]'")
pytest.importorskip("gymnasium", reason="needs the extra: pip install 'fedrl[mujoco]'")

from fedrl.envs.control.mujoco import Trajectories, World

GYMNASIUM = {
    "halfcheetah": "HalfCheetah-v5",
    "walker2d": "Walker2d-v5",
    "hopper": "Hopper-v5",
}
NAMES = list(GYMNASIUM)


def same(left: Trajectories, right: Trajectories) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(left, right))


def gentle(observations: np.ndarray, noise: np.ndarray, alive: np.ndarray) -> np.ndarray:
    """A policy whose rows are independent of each other to the last bit (no matrix product)."""
    return 0.3 * noise - 0.1 * observations[:, -noise.shape[1] :]


def seeds(count: int, start: int = 0) -> np.ndarray:
    return np.arange(start, start + count, dtype=np.uint64)


def own(rows: int, client: int = 0) -> dict[str, np.ndarray]:
    return {"client": np.full((rows, 1), client)}


def draws(world: World, client: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Initial state and action noise in the documented order, by Gymnasium's formulas."""
    model, bound = world.models[client], world.bounds[client]
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    random.integers(1)
    position = model.qpos0 + random.uniform(-bound, bound, model.nq)
    if world.settings.name == "halfcheetah":
        velocity = bound * random.standard_normal(model.nv)
    else:
        velocity = random.uniform(-bound, bound, model.nv)
    noise = random.standard_normal((world.horizon, model.nu), np.float32)
    return position, velocity, noise
