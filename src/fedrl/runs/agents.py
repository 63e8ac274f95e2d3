"""What is done with a trained agent: `fedrl eval RUN --split`, `fedrl label`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console

from fedrl.config.build import build_algorithm
from fedrl.config.loading import read_recipe, resolve
from fedrl.config.schema import Config
from fedrl.core import seeding
from fedrl.core.registry import suggestion
from fedrl.core.types import Algorithm, Tensors, UserError
from fedrl.envs.client_worlds import described
from fedrl.envs.text import Configured, Task
from fedrl.federation import round_loop
from fedrl.partition import write_labels
from fedrl.runs.evaluate import PlaysTasks, newest
from fedrl.runs.main_metric import pays_numbers
from fedrl.runs.run_dir import RunDir, require_run

AT_ONCE = 256
"""Episodes side by side: what a progress line counts in. FEDRL_AT_ONCE says another number."""


def at_once() -> int:
    said = os.environ.get("FEDRL_AT_ONCE", str(AT_ONCE))
    if not said.isascii() or not said.isdigit() or not int(said):
        raise UserError(f"FEDRL_AT_ONCE is {said!r}; it is a number of episodes, from 1")
    return int(said)


def load_agent(path: Path) -> tuple[PlaysTasks, round_loop.Snapshot]:
    """The algorithm and the newest checkpoint of a run of language agents."""
    config, algorithm = build(path)
    if not isinstance(algorithm, PlaysTasks):
        raise UserError(f"{path} is a run of {config.algorithm.name}, which trains no text agent")
    return algorithm, newest_checkpoint(path, config)


def build(path: Path) -> tuple[Config, Algorithm]:
    """The settings of a run, and its method."""
    require_run(path)
    config = resolve(read_recipe(path / "config.toml"))
    return config, build_algorithm(config)


def newest_checkpoint(path: Path, config: Config) -> round_loop.Snapshot:
    """The newest one that is whole."""
    snapshot = newest(RunDir(path).checkpoints(), config)
    if snapshot is None:
        raise UserError(f"{path} has no whole checkpoint")
    return snapshot


@dataclass(frozen=True)
class SplitEvaluation:
    """How often each task of a split was won: 1 or 0, or the mean over `models`, if there are more.

    `category` is the type of each task; `returns` stands beside it where rewards are numbers.
    """

    round: int
    split: str
    models: int
    category: np.ndarray
    won: np.ndarray
    returns: np.ndarray | None = None

    @property
    def mean(self) -> float:
        return float(self.won.mean())


def evaluate_split(path: Path, split: str, seed: int) -> SplitEvaluation:
    """Every task of one split, played once by the newest checkpoint's agent or agents."""
    algorithm, snapshot = load_agent(path)
    if split not in algorithm.world.splits:
        raise UserError(f"--split is {split!r}; {suggestion(split, list(algorithm.world.splits))}")
    tasks = list(algorithm.world.tasks(split))
    if not tasks:
        raise UserError(f"--split {split}: the world has no such tasks")
    played = [_play(algorithm, state, tasks, seed) for state in snapshot.states]
    won = np.mean([each for each, _ in played], axis=0)
    returns = np.mean([paid for _, paid in played], axis=0) if _graded(algorithm) else None
    kinds = np.array([task.category for task in tasks])
    return SplitEvaluation(snapshot.round, split, len(snapshot.states), kinds, won, returns)


def _graded(algorithm: PlaysTasks) -> bool:
    world = described(algorithm.world)
    known = asdict(world.settings) if isinstance(world, Configured) else {}
    reward = getattr(algorithm.settings, "reward", "auto")
    return pays_numbers(
        {f"world.{key}": value for key, value in known.items()} | {"algorithm.reward": reward}
    )


def label(path: Path, out: Path, seed: int) -> np.ndarray:
    """Write which training tasks the run's agent solves, for `hardness`; 1 for each of them.

    It sees the tasks of all clients, as only a simulation can.
    """
    algorithm, snapshot = load_agent(path)
    require_new_file(out)
    return write_successes(algorithm, snapshot.states[0], out, seed)


def label_model(config: Config, out: Path, seed: int) -> np.ndarray:
    """The same of the model that a recipe begins with, before any training."""
    own = config.partition.strategy == "own"  # tasks lie in the clients' folders
    dealt = config.partition if own else type(config.partition)(size=1)  # dealt out or not
    whole = replace(config, seed=0, partition=dealt)
    algorithm = build_algorithm(whole)
    if not isinstance(algorithm, PlaysTasks):
        raise UserError(f"a recipe of {config.algorithm.name} trains no text agent")
    require_new_file(out)
    return write_successes(algorithm, algorithm.init(seeding.derive(seed, "init")), out, seed)


def require_new_file(out: Path) -> None:
    """A place that cannot be written is found out before the episodes."""
    if out.exists():
        raise UserError(f"{out} exists already; name another file, or delete it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.touch()
        out.unlink()
    except OSError as error:
        raise UserError(
            f"--out {out}: cannot write this file ({error.strerror}); name another place"
        ) from error


def write_successes(algorithm: PlaysTasks, state: Tensors, out: Path, seed: int) -> np.ndarray:
    """Play every training task once and write which ones were won, 1 or 0 [tasks]."""
    tasks = list(algorithm.world.tasks("train"))
    won = _won(algorithm, state, tasks, seed)
    write_labels(out, {task.id: bool(w) for task, w in zip(tasks, won, strict=True)})
    return won


def _won(algorithm: PlaysTasks, state: Tensors, tasks: Sequence[Task], seed: int) -> np.ndarray:
    """1 for a task that was won [tasks]."""
    return _play(algorithm, state, tasks, seed)[0]


def _play(
    algorithm: PlaysTasks, state: Tensors, tasks: Sequence[Task], seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """1 for a task that was won, and what each episode was paid [tasks]."""
    console, size, drawn = Console(stderr=True), at_once(), seeding.derive(seed, "agents")
    won: list[bool] = []
    returns: list[float] = []
    with console.status("playing …") as status:
        for start in range(0, len(tasks), size):
            part = tasks[start : start + size]
            rollout = algorithm.play_tasks(state["theta"], part, drawn)
            won += rollout.won
            returns += rollout.returns
            status.update(f"{len(won):,} of {len(tasks):,} tasks played, {sum(won):,} won")
    return np.array(won, float), np.array(returns, float)
