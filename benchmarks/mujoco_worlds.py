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


def network(batch: int, task: str, compiled: bool) -> Callable[[], int]:
    """Episodes of the paper's policy, asked step by step in NumPy or all in compiled code."""
    from fedrl.algorithms.policy_gradient.policies import gaussian_mlp
    from fedrl.envs.control import mujoco

    world = mujoco.World(mujoco.Settings(name=task, horizon=HORIZON), batch, 0)
    policy = gaussian_mlp(world.observation_size, world.action_size, log_std=-1.0)
    theta = policy.init(0)
    rows = {name: np.repeat(leaf[None], batch, 0) for name, leaf in theta.items()}
    params = {"client": np.arange(batch)[:, None]}
    seeds = np.arange(batch, dtype=np.uint64)
    if compiled:
        assert policy.network is not None
        layers = policy.network(rows)
        return lambda: int(world.rollout_network(layers, params, seeds).mask.sum())  # type: ignore[union-attr]

    def act(observations: np.ndarray, noise: np.ndarray, alive: np.ndarray) -> np.ndarray:
        return policy.sample_rows({n: x[alive] for n, x in rows.items()}, observations, noise)

    return lambda: int(world.rollout(act, params, seeds).mask.sum())


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
    for task in ("halfcheetah", "walker2d", "hopper"):
        if harness.missing("numba") or harness.missing("jax"):
            print("networks are skipped: need numba and jax")
            break
        seconds = 0.5 if asked.quick else 5.0
        slow, fast = (rate(network(5, task, compiled), seconds) for compiled in (False, True))
        print(f"  5 {task}, a network: {slow:,.0f} steps/s asked, {fast:,.0f} compiled", flush=True)
        results.add(f"mujoco_network_{task}", fast / slow, "times the loop in Python")
    results.finish(asked.json)


if __name__ == "__main__":
    main()
