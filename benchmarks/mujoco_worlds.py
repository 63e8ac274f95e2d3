"""MuJoCo steps per second: ours beside Gymnasium's vector environment and, if installed, envpool.

python benchmarks/mujoco_worlds.py [--quick] [--json FILE]
"""

from __future__ import annotations

import time
from collections.abc import Callable

import harness
import numpy as np

HORIZON = 100


def rate(play: Callable[[], int], seconds: float) -> float:
    """Steps per second of the best half of the repetitions: others may be using the machine."""
    play()  # the first one builds and fills caches
    rates, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until or len(rates) < 2:
        start = time.perf_counter()
        steps = play()
        rates.append(steps / (time.perf_counter() - start))
    return float(np.median(sorted(rates)[len(rates) // 2 :]))


def ours(batch: int) -> Callable[[], int]:
    from fedrl.envs.control import mujoco

    world = mujoco.World(mujoco.Settings(name="halfcheetah", horizon=HORIZON), batch, 0)
    params = {"client": np.arange(batch)[:, None]}
    seeds = np.arange(batch, dtype=np.uint64)
    return lambda: int(world.rollout(lambda o, z, alive: 0.3 * z, params, seeds).mask.sum())


def gymnasium_loop(batch: int) -> Callable[[], int]:
    import gymnasium

    envs = gymnasium.make_vec("HalfCheetah-v5", num_envs=batch, vectorization_mode="sync")
    return _vector(envs, batch)


def envpool_loop(batch: int) -> Callable[[], int]:
    import envpool

    return _vector(envpool.make_gymnasium("HalfCheetah-v4", num_envs=batch, num_threads=1), batch)


def _vector(envs: object, batch: int) -> Callable[[], int]:
    draw = np.random.default_rng(0)

    def play() -> int:
        envs.reset()  # type: ignore[attr-defined]
        for _ in range(HORIZON):
            envs.step(0.3 * draw.standard_normal((batch, 6)))  # type: ignore[attr-defined]
        return HORIZON * batch

    return play


def main() -> None:
    asked = harness.options(__doc__ or "").parse_args()
    harness.header("mujoco: HalfCheetah, one thread, random actions")
    results = harness.Results()
    rivals = {
        "ours": (ours, "mujoco"),
        "gymnasium": (gymnasium_loop, "gymnasium"),
        "envpool": (envpool_loop, "envpool"),
    }
    for batch in (5, 25):
        for name, (make, package) in rivals.items():
            if harness.missing(package):
                print(f"{name} is skipped: needs {package}")
                continue
            steps = rate(make(batch), 1.0 if asked.quick else 5.0)
            print(f"{batch:3} environments, {name}: {steps:,.0f} steps/s", flush=True)
            results.add(f"mujoco_steps_per_s_{name}_{batch}", steps, "steps/s")
    results.finish(asked.json)


if __name__ == "__main__":
    main()
