"""Our DQN beside Stable-Baselines3's, on the same settings: CartPole-v1 and MountainCar-v0.

    python benchmarks/dqn_sb3.py [sb3] [fedrl] [--seeds 10] [--processes 2] [--records FOLDER]
                                 [--tasks cartpole mountaincar] [--quick] [--json F]

The settings are those that RL Baselines3 Zoo tuned for Stable-Baselines3 (`TASKS`). Ours are flags
on the recipes `fedqhd/cartpole` and `fedqhd/mountaincar` (`flags`): one client, the same network,
optimizer, loss, clipping, replay, ε and target, states as the world shows them. A seed is a process
and a file in the folder of records: what is there is not run again. Each implementation needs only
its own packages, so the two can be run in two environments into one folder.

Margin, stated before any run. A seed's score is the mean return of 100 greedy episodes with the
weights at the end of training (no choice among checkpoints). A seed solves its task if that is at
least Gymnasium's own threshold: 475 on CartPole, -110 on MountainCar. Ours holds if on both tasks

    the interquartile mean over 10 seeds (the middle six) is at most 10% of the scale below SB3's:
    50 on CartPole (scale 500), 10 on MountainCar (scale 100: from -200, never there, to -100), and
    at most 2 fewer of the 10 seeds solve the task.

To be better is no failure. Ours plays whole episodes: its last may end after the budget of steps.
There is no verdict before both have all the seeds, ten at least. With scores as scattered as these
were, ten are too few: beside the verdict stands how often the rule would fail Stable-Baselines3
itself, drawn twice from its own scores.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import harness
import numpy as np

from fedrl.runs import provenance

EPISODES = 100
"""Greedy episodes behind a score."""
FEWER = 2
"""Solving seeds of ten that ours may lack."""
LEAST = 10
"""Seeds of each that the margin is for."""
DRAWS = 4000
"""Pairs of resampled implementations behind the rule's error rate."""


@dataclass(frozen=True)
class Task:
    """A row of the Zoo's `dqn.yml`, in Stable-Baselines3's words, and what the margin needs."""

    world: str
    steps: int
    lr: float
    batch: int
    buffer: int
    learning_starts: int
    gamma: float
    target_update_interval: int
    train_freq: int
    gradient_steps: int
    exploration_fraction: float
    exploration_final: float
    solved: float
    margin: float
    hidden: tuple[int, int] = (256, 256)
    max_grad_norm: float = 10.0


TASKS = {
    "cartpole": Task(
        "CartPole-v1",
        50_000,
        2.3e-3,
        64,
        100_000,
        1000,
        0.99,
        10,
        256,
        128,
        0.16,
        0.04,
        475.0,
        50.0,
    ),
    "mountaincar": Task(
        "MountainCar-v0",
        120_000,
        4e-3,
        128,
        10_000,
        1000,
        0.98,
        600,
        16,
        8,
        0.2,
        0.07,
        -110.0,
        10.0,
    ),
}  # fmt: skip


def sb3(task: Task, seed: int) -> dict[str, Any]:
    import gymnasium
    import stable_baselines3 as library
    import torch
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    torch.set_num_threads(1)
    world = Monitor(gymnasium.make(task.world))
    model = library.DQN(
        "MlpPolicy", world, learning_rate=task.lr, buffer_size=task.buffer, batch_size=task.batch,
        learning_starts=task.learning_starts, gamma=task.gamma, train_freq=task.train_freq,
        gradient_steps=task.gradient_steps, target_update_interval=task.target_update_interval,
        exploration_fraction=task.exploration_fraction, max_grad_norm=task.max_grad_norm,
        exploration_final_eps=task.exploration_final, seed=seed, device="cpu",
        policy_kwargs={"net_arch": list(task.hidden)},
    )  # fmt: skip
    model.learn(task.steps)
    other = Monitor(gymnasium.make(task.world))
    other.reset(seed=10_000 + seed)
    returns, _ = evaluate_policy(
        model, other, EPISODES, deterministic=True, return_episode_rewards=True
    )
    return {
        "greedy": list(map(float, returns)),
        "train": world.get_episode_rewards(),
        "steps": int(model.num_timesteps),
        "updates": int(model._n_updates),
        "version": f"stable-baselines3 {library.__version__}, torch {torch.__version__}",
    }


def flags(task: Task) -> list[str]:
    """The same settings as flags of `fedrl run`."""
    states = {"CartPole-v1": 4, "MountainCar-v0": 2}[task.world]
    algorithm = {
        "name": "feddqn", "hidden": list(task.hidden), "lr": task.lr, "batch": task.batch,
        "replay": task.buffer, "learning_starts": task.learning_starts, "gamma": task.gamma,
        "sync_steps": task.target_update_interval, "sync_episodes": 0,
        "train_every": task.train_freq, "gradient_steps": task.gradient_steps,
        "epsilon_steps": round(task.exploration_fraction * task.steps),
        "epsilon_floor": task.exploration_final, "max_grad_norm": task.max_grad_norm,
        "huber": 1.0, "double": "false", "episodes": 1, "eval_episodes": EPISODES,
    }  # fmt: skip
    world = {"shift": [0.0] * states, "scale": [1.0] * states}
    words = ["--federation.clients", "1"]
    for table, settings in (("algorithm", algorithm), ("world", world)):
        for key, value in settings.items():
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            words += [f"--{table}.{key}", text]
    return words


def fedrl(task: Task, seed: int) -> dict[str, Any]:
    from fedrl.algorithms.qhd.dqn import feddqn
    from fedrl.algorithms.qhd.dqn.episodes import evaluate
    from fedrl.algorithms.qhd.q_learning_kernels import UPDATES
    from fedrl.config.loading import find_recipe, read_recipe, resolve
    from fedrl.core.types import Job
    from fedrl.envs.discrete import worlds as discrete

    recipe = read_recipe(find_recipe(f"fedqhd/{task.world.split('-')[0].lower()}"))
    config = resolve(recipe, flags(task))
    world = discrete.World(config.world, 1, seed)
    method = feddqn.FedDQN(config.algorithm, world, [[0]])
    state, kept, steps, returns = method.init(seed), None, 0.0, []
    while steps < task.steps:
        result = method.local(Job(0, state, kept, 1000 * seed))
        state, kept = result.update, result.state
        steps += result.metrics["env/steps"]
        returns.append(result.metrics["train/return"])
    assert kept is not None
    greedy = evaluate(world, EPISODES, method.shape, state["weights"], 10_000 + seed)
    return {
        "greedy": greedy.tolist(),
        "train": returns,
        "steps": int(steps),
        "updates": int(kept["counters"][UPDATES]),
        "version": f"fedrl {provenance.commit()}",
    }


def record(which: str, name: str, task: Task, seed: int, folder: Path) -> Path:
    """Train and score one seed, unless its file is there."""
    path = folder / f"{which}-{name}-{seed}.json"
    wanted = {"implementation": which, "task": name, "seed": seed, "settings": asdict(task)}
    wanted["settings"]["hidden"] = list(task.hidden)
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        if all(found[key] == value for key, value in wanted.items()):
            return path
    start = time.perf_counter()
    done = {"sb3": sb3, "fedrl": fedrl}[which](task, seed)
    last = done.pop("train")[-100:]
    facts = {"seconds": time.perf_counter() - start, "cpu": provenance.hardware()["cpu"]}
    whole = wanted | done | facts | {"score": float(np.mean(done["greedy"]))}
    whole["train_last100"] = float(np.mean(last))
    part = path.with_suffix(".part")
    part.write_text(json.dumps(whole) + "\n", encoding="utf-8")
    part.replace(path)
    print(f"{path.stem}: {whole['score']:.1f} greedy, {whole['seconds']:.0f} s", flush=True)
    return path


def interquartile_mean(values: np.ndarray) -> float:
    """The mean without the lowest and highest quarter, rounded down: the middle six of ten."""
    cut = len(values) // 4
    return float(np.sort(values)[cut : len(values) - cut].mean())


def holds(task: Task, sb3: np.ndarray, ours: np.ndarray) -> bool:
    """The rule that was stated before any run."""
    below = interquartile_mean(sb3) - interquartile_mean(ours)
    fewer = (sb3 >= task.solved).mean() - (ours >= task.solved).mean()
    return bool(below <= task.margin and fewer <= FEWER / 10 + 1e-9)


def failing(task: Task, scores: np.ndarray) -> float:
    """How often the rule fails an implementation against itself, both drawn from these scores."""
    random = np.random.default_rng(0)
    drawn = random.choice(scores, (DRAWS, 2, len(scores)))
    return float(np.mean([not holds(task, *pair) for pair in drawn]))


def table(
    name: str, task: Task, found: dict[str, list[dict[str, Any]]], seeds: int = LEAST
) -> bool | None:
    """Print a row for each implementation; whether ours holds, if both have all their seeds."""
    kept, of = {}, {}
    for which, records in found.items():
        scores = np.array([one["score"] for one in records])
        solving = int((scores >= task.solved).sum())
        kept[which], of[which] = (interquartile_mean(scores), solving / len(scores)), scores
        last = np.mean([one["train_last100"] for one in records])
        updates = np.mean([one["updates"] for one in records])
        print(
            f"{task.world:16}{which:7}{len(scores):3} seeds: interquartile mean "
            f"{kept[which][0]:7.1f}, {solving} of {len(scores)} solve, "
            f"last 100 training episodes {last:7.1f}, {updates:,.0f} updates; "
            f"scores {' '.join(f'{s:.1f}' for s in sorted(scores))}"
        )
    if min(len(of.get(which, ())) for which in ("sb3", "fedrl")) < max(seeds, LEAST):
        print(f"{task.world:16}no verdict: {max(seeds, LEAST)} seeds of both are needed")
        return None
    below = kept["sb3"][0] - kept["fedrl"][0]
    fewer = kept["sb3"][1] - kept["fedrl"][1]
    good = holds(task, of["sb3"], of["fedrl"])
    print(
        f"{task.world:16}ours {-below:+.1f} (margin -{task.margin:g}), solving share {-fewer:+.2f} "
        f"(margin -{FEWER / 10:g}): {'holds' if good else 'falls short'}; the rule would fail SB3 "
        f"against itself in {failing(task, of['sb3']):.0%} of cases"
    )
    return good


def main() -> None:
    parser = harness.options((__doc__ or "").splitlines()[0])
    choices = ("sb3", "fedrl")
    parser.add_argument("which", nargs="*", choices=[*choices, []], metavar="IMPLEMENTATION")
    parser.add_argument("--tasks", nargs="*", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--records", type=Path, default=Path("dqn_sb3"), metavar="FOLDER")
    asked = parser.parse_args()
    harness.header("DQN beside Stable-Baselines3: the same settings, one thread per seed")
    which = asked.which or [
        name
        for name, package in zip(choices, ("stable_baselines3", "numba"))
        if not harness.missing(package)
    ]
    tasks = {name: TASKS[name] for name in asked.tasks}
    if asked.quick:
        tasks = {
            name: Task(**(asdict(task) | {"steps": 2500, "hidden": (32, 32)}))
            for name, task in tasks.items()
        }
        asked.seeds = min(asked.seeds, 2)
    asked.records.mkdir(parents=True, exist_ok=True)
    jobs = [
        (name, key, task, seed, asked.records)
        for seed in range(asked.seeds)
        for key, task in tasks.items()
        for name in which
    ]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(asked.processes, context, max_tasks_per_child=1) as pool:
        list(pool.map(record, *zip(*jobs)))
    compare(tasks, asked.seeds, asked.records).finish(asked.json)


def compare(tasks: dict[str, Task], seeds: int, folder: Path) -> harness.Results:
    """What the folder holds of these tasks and seeds, of either implementation."""
    results = harness.Results()
    for name, task in tasks.items():
        found: dict[str, list[dict[str, Any]]] = {}
        for which in ("sb3", "fedrl"):
            paths = [folder / f"{which}-{name}-{seed}.json" for seed in range(seeds)]
            texts = [path.read_text(encoding="utf-8") for path in paths if path.exists()]
            if texts:
                found[which] = [json.loads(text) for text in texts]
                scores = np.array([one["score"] for one in found[which]])
                results.add(f"dqn/{name}_{which}", interquartile_mean(scores), "return")
                solving = float((scores >= task.solved).mean())
                results.add(f"dqn/{name}_{which}_solved", solving, "fraction")
        good = table(name, task, found, seeds)
        if good is not None:
            results.add(f"dqn/{name}_holds", good, "yes_or_no")
    return results


if __name__ == "__main__":
    main()
