"""Steps per second of rollouts in Gymnasium's environments: ours, the built-in twin, SB3's loop.

    python benchmarks/gymnasium_worlds.py [--sb3 PYTHON] [--quick] [--json FILE]

CartPole-v1 and Pendulum-v1 with 1, 10 and 64 environments side by side, one thread. Each loop asks
a network of the same layers for every action and keeps what a policy gradient needs:

    ours       `rollout` of the world "gymnasium", every trajectory with its own parameters
    built-in   the same of the world "cartpole-v1", compiled (there is no built-in Pendulum)
    SB3        `PPO.collect_rollouts` on a DummyVecEnv, which also asks its value network
    bare       the environment's own `step` on random actions and nothing else: the limit

Stable-Baselines3 asks for other versions than ours, so it may live in an environment of its own:
`--sb3 PYTHON` names its interpreter. Its loop is a process that waits while the others play: they
take turns, so that other work on the machine hits all alike. Steps of CPU time are compared.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import harness
import numpy as np

WORLDS = {"cartpole": ("CartPole-v1", (8, 8)), "pendulum": ("Pendulum-v1", (32, 32))}
"""With the layers of our policies there."""
Play = Callable[[], tuple[float, float]]
"""Steps played, and the seconds of CPU time that they took."""

THEIRS = """
import json, sys, time
import torch
torch.set_num_threads(1)
from stable_baselines3 import PPO, __version__
from stable_baselines3.common.env_util import make_vec_env

id, layers, count, steps = json.loads(sys.argv[1])
env = make_vec_env(id, n_envs=count, seed=0)
kwargs = {"net_arch": list(layers)}
model = PPO("MlpPolicy", env, n_steps=steps, batch_size=steps * count, device="cpu", seed=0,
            policy_kwargs=kwargs)
_, callback = model._setup_learn(10**9, None)
print(__version__, flush=True)
for line in sys.stdin:
    before = time.process_time()
    model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=steps)
    print(steps * count, time.process_time() - before, flush=True)
"""


def rollouts(world: Any, count: int, steps: int) -> Play:
    """Batches of `count` trajectories until there are so many steps."""
    from fedrl.algorithms.policy_gradient.policies import network_policy

    policy = network_policy(world, 0.0)
    theta = {name: np.repeat(leaf[None], count, 0) for name, leaf in policy.init(0).items()}
    params, drawn = {"client": np.zeros((count, 1), np.int64)}, np.random.default_rng(0)

    def act(observations: np.ndarray, noise: np.ndarray, alive: np.ndarray) -> np.ndarray:
        rows = theta if len(alive) == count else {name: x[alive] for name, x in theta.items()}
        return policy.sample_rows(rows, observations, noise)

    def play() -> tuple[float, float]:
        played, before = 0.0, time.process_time()
        while played < steps:
            seeds = drawn.integers(2**63, size=count).astype(np.uint64)
            played += float(world.rollout(act, params, seeds).mask.sum())
        return played, time.process_time() - before

    return play


def bare(id: str, steps: int) -> Play:
    import gymnasium

    env = gymnasium.make(id, disable_env_checker=True).unwrapped
    discrete = isinstance(env.action_space, gymnasium.spaces.Discrete)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(steps)]
    actions = [int(action) for action in actions] if discrete else actions
    env.reset(seed=0)

    def play() -> tuple[float, float]:
        before = time.process_time()
        for action in actions:
            if env.step(action)[2]:
                env.reset()
        return len(actions), time.process_time() - before

    return play


class Theirs:
    """Stable-Baselines3's loop in a process of its own, a turn whenever it is asked for one."""

    def __init__(self, python: str, *asked: Any) -> None:
        self.process = subprocess.Popen(
            [python, "-c", THEIRS, json.dumps(asked)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.version = self._line()

    def __call__(self) -> tuple[float, float]:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        steps, seconds = map(float, self._line().split())
        return steps, seconds

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            raise SystemExit("Stable-Baselines3's process has ended; is it installed there?")
        return line

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def in_turns(plays: dict[str, Play], turns: int) -> dict[str, float]:
    """Steps per second of CPU time, the median over turns; the first warms up."""
    rates: dict[str, list[float]] = {name: [] for name in plays}
    for turn in range(turns + 1):
        for name, play in plays.items():
            steps, seconds = play()
            if turn:
                rates[name].append(steps / seconds)
    return {name: float(np.median(each)) for name, each in rates.items()}


def main() -> None:
    parser = harness.options((__doc__ or "").splitlines()[0])
    parser.add_argument("--sb3", metavar="PYTHON", help="the interpreter that has it")
    asked = parser.parse_args()
    harness.header("rollouts in Gymnasium's environments: steps per second of CPU time")
    python = asked.sb3 or ("" if harness.missing("stable_baselines3") else sys.executable)
    from fedrl.envs.discrete import worlds as discrete
    from fedrl.envs.gymnasium import world as gym

    results = harness.Results()
    turns, steps = (2, 600) if asked.quick else (9, 6000)
    for name, (id, layers) in WORLDS.items():
        for count in (10,) if asked.quick else (1, 10, 64):
            ours = gym.World(gym.Settings(id=id), 1, 0)
            plays: dict[str, Play] = {"ours": rollouts(ours, count, steps), "bare": bare(id, steps)}
            if not ours.continuous:
                built_in = discrete.World(discrete.Settings(name="cartpole-v1"), 1, 0)
                plays["builtin"] = rollouts(built_in, count, steps)
            if python:
                theirs = Theirs(python, id, layers, count, steps // count)
                plays["sb3"] = theirs
                print(f"stable-baselines3 {theirs.version}")
            rates = in_turns(plays, turns)
            for which, rate in rates.items():
                print(f"{id:14}{count:3} environments  {which:8}{rate:12,.0f} steps/s")
                results.add(f"gymnasium/{name}_{count}_{which}", rate, "steps/s")
            if python:
                theirs.close()
                times = rates["ours"] / rates["sb3"]
                results.add(f"gymnasium/{name}_{count}_over_sb3", times, "times")
    results.finish(asked.json)


if __name__ == "__main__":
    main()
