"""Steps per second of FedQHD's worlds: the compiled ones and LunarLander beside Gymnasium's loop.

python benchmarks/discrete_worlds.py [--quick] [--json FILE]
"""

from __future__ import annotations

import time
from collections.abc import Callable

import harness
import numpy as np

IDS = {"cartpole-v1": "CartPole-v1", "acrobot-v1": "Acrobot-v1", "mountaincar-v0": "MountainCar-v0"}


def alternate(
    plays: dict[str, Callable[[], int]], seconds: float
) -> dict[str, tuple[float, float]]:
    """Steps per second of wall time and of CPU time, by name.

    In turns, so that other work on the machine hits all alike; the median of the best half of them.
    """
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in plays}
    for play in plays.values():
        play()  # the first one compiles and fills caches
    until = time.perf_counter() + seconds * len(plays)
    while time.perf_counter() < until or min(map(len, rates.values())) < 2:
        for name, play in plays.items():
            wall, cpu = time.perf_counter(), time.process_time()
            steps = play()
            taken = time.perf_counter() - wall, time.process_time() - cpu
            rates[name].append((steps / taken[0], steps / taken[1]))
    return {
        name: tuple(np.median(np.sort(each, axis=0)[len(each) // 2 :], axis=0))
        for name, each in rates.items()
    }


def compiled(name: str, steps: int) -> Callable[[], int]:
    from fedrl.envs.discrete import classic_kernels as classic
    from fedrl.envs.discrete.worlds import TASKS

    task, random = TASKS[name], np.random.default_rng(0)
    actions, uniforms = random.integers(task.actions, size=steps), random.random((steps, 4))
    visited = np.empty((steps, task.dimension), np.float32)

    def play() -> int:
        classic.wander(task.kernel, actions, uniforms, visited)
        return steps

    return play


def gymnasium_loop(name: str, steps: int, count: int = 1) -> Callable[[], int]:
    """Without Gymnasium's checker of environments, which training switches off as well."""
    import gymnasium

    envs = [gymnasium.make(name, disable_env_checker=True) for _ in range(count)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    random = np.random.default_rng(0)

    def play() -> int:
        actions = random.integers(int(envs[0].action_space.n), size=(steps // count, count))
        for chosen in actions.tolist():
            for env, action in zip(envs, chosen):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()
        return steps

    return play


def landers(simulator: str, steps: int, count: int) -> Callable[[], int]:
    from fedrl.envs.discrete.lunarlander import Lunar

    lunar, random = Lunar(count, simulator), np.random.default_rng(0)
    lunar.reset(range(count))

    def play() -> int:
        for chosen in random.integers(4, size=(steps // count, count)):
            after = lunar.step(chosen)
            over = after.terminated | after.truncated
            if over.any():
                lunar.restart(np.flatnonzero(over))
        return steps

    return play


def main() -> None:
    asked = harness.options(__doc__.splitlines()[0]).parse_args()
    harness.header("FedQHD's worlds: random actions, one thread")
    results = harness.Results()
    seconds = 0.3 if asked.quick else 4.0
    gymnasium = not harness.missing("gymnasium")
    if not gymnasium:
        print("the rival is skipped: needs gymnasium")

    for name, gym in IDS.items():
        plays = {"compiled": compiled(name, 200_000)}
        if gymnasium:
            plays["gymnasium"] = gymnasium_loop(gym, 5_000)
        show(results, name, alternate(plays, seconds))

    box2d = gymnasium and not harness.missing("Box2D")
    for count in (1, 5):
        plays = {}
        if box2d:
            plays["ours on gymnasium"] = landers("gymnasium", 2_000, count)
            plays["gymnasium"] = gymnasium_loop("LunarLander-v3", 2_000, count)
        if gymnasium and not harness.missing("envpool"):
            plays["ours on envpool"] = landers("envpool", 2_000, count)
        if plays:
            show(results, f"lunarlander-v3 × {count}", alternate(plays, seconds))
        else:
            print("lunarlander-v3 is skipped: needs Box2D or envpool")
    results.finish(asked.json)


def show(results: harness.Results, world: str, rates: dict[str, tuple[float, float]]) -> None:
    for name, (wall, cpu) in rates.items():
        print(f"{world}, {name}: {wall:,.0f} steps/s ({cpu:,.0f} per CPU second)", flush=True)
        key = f"{world}_{name}".replace(" × ", "_").replace(" ", "_").replace("-", "_")
        results.add(f"{key}_steps", wall, "steps/s")
        results.add(f"{key}_steps_cpu", cpu, "steps/s")


if __name__ == "__main__":
    main()
