"""`fedrl eval`: a run's last checkpoint in every client's environment."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from fedrl.algorithms.fedagent.settings import Settings
from fedrl.config.build import build_algorithm
from fedrl.config.loading import as_dict, read_recipe, resolve
from fedrl.config.schema import Config
from fedrl.core import seeding
from fedrl.core.abilities import KeepsAdapters
from fedrl.core.types import Metrics, Tensors, UserError
from fedrl.envs.text import Task, TextWorld
from fedrl.federation import client_sampling, round_loop
from fedrl.runs.checkpoint import Damaged, read_checkpoint
from fedrl.runs.main_metric import RETURN, SUCCESS, pays_numbers
from fedrl.runs.read import flatten
from fedrl.runs.resume_rules import require_same
from fedrl.runs.run_dir import RunDir, require_run

if TYPE_CHECKING:
    from fedrl.llm.rollout import Rollout

LOG = logging.getLogger("fedrl")


@runtime_checkable
class PlaysTasks(Protocol):
    """A method that trains a text agent."""

    settings: Settings
    world: TextWorld
    eval_tasks: Sequence[Task]

    def play_tasks(self, theta: Tensors, tasks: Sequence[Task], seed: int) -> Rollout:
        """Episodes of these tasks at the evaluation's temperature, with their transcripts. Of one
        it is the same, but for rounding, whichever others are played."""
        ...


@runtime_checkable
class MeasuresClients(Protocol):
    """A method that tells more of every client than one number."""

    def measure_clients(
        self, state: Tensors, kept: Mapping[int, Tensors], seed: int, episodes: int
    ) -> list[Metrics]: ...


def newest(checkpoints: list[Path], config: Config | None = None) -> round_loop.Snapshot | None:
    """The newest one that is whole; unlike a resumed run, a reader moves no file.

    A `config` that is not of these checkpoints is refused.
    """
    for checkpoint in checkpoints:
        try:
            snapshot, notes = read_checkpoint(checkpoint)
        except Damaged as error:
            LOG.warning("%s; taking the one before it", error)
            continue
        if config is not None:
            require_same(config, notes["settings"], checkpoint.parent.parent)
        return snapshot
    return None


@dataclass(frozen=True)
class Evaluation:
    """What every client gets from a run's newest checkpoint.

    `by_client` are means over episodes, and over models where each client has its own; `own` are
    those of each client's own model then, or of the shared one with what a client keeps for itself.
    `measure` is a mean return, or a success rate; `success` stands beside returns where rewards are
    numbers. `tasks` are how many each was played, where that is known, by each of so many `models`.
    """

    round: int
    measure: str
    by_client: np.ndarray
    own: np.ndarray | None = None
    success: np.ndarray | None = None
    tasks: np.ndarray | None = None
    models: int = 1

    @property
    def mean(self) -> float:
        """Over the clients that hold something to be evaluated on."""
        return float(np.nanmean(self.by_client))


def evaluate(path: Path, episodes: int, seed: int) -> Evaluation:
    """The newest checkpoint on fresh episodes of every client (tabular worlds: exactly)."""
    require_run(path)
    if episodes < 1:
        raise UserError(f"--episodes is {episodes}; it must be at least 1")
    config = resolve(read_recipe(path / "config.toml"))
    snapshot = newest(RunDir(path).checkpoints(), config)
    if snapshot is None:
        raise UserError(f"{path} has no whole checkpoint")
    algorithm = build_algorithm(config)
    drawn = seeding.derive(seed, "eval command", snapshot.round)
    success: np.ndarray | None = None
    tasks: np.ndarray | None = None
    if isinstance(algorithm, MeasuresClients):
        found = [algorithm.measure_clients(s, {}, drawn, episodes) for s in snapshot.states]
        rows, played = _of(found, SUCCESS), _of(found, "tasks")[0]
        tasks = None if np.isnan(played).any() else played
        if pays_numbers(flatten(as_dict(config))):
            rows, success = _of(found, RETURN), rows.mean(0)
    else:
        rows = np.stack(
            [algorithm.evaluate_clients(state, drawn, episodes) for state in snapshot.states]
        )
    if config.partition.strategy == "own" and np.isnan(rows).all():
        raise UserError(f"no client of {path} holds anything out to be evaluated on")
    own: np.ndarray | None = None
    if len(client_sampling.groups(config.federation)) > 1:
        own = np.diagonal(rows).copy()
    elif isinstance(algorithm, KeepsAdapters) and any(
        algorithm.own_theta(snapshot.states[0], kept) for kept in snapshot.clients.values()
    ):
        given = snapshot.states[0], snapshot.clients, drawn, episodes
        if success is not None and isinstance(algorithm, MeasuresClients):
            own = _of([algorithm.measure_clients(*given)], RETURN)[0]
        else:
            own = algorithm.evaluate_own(*given)
    won_or_lost = success is None and isinstance(algorithm, PlaysTasks)
    measure = "success" if won_or_lost else "mean return"
    models = len(snapshot.states)
    return Evaluation(snapshot.round, measure, rows.mean(0), own, success, tasks, models)


def _of(found: Sequence[Sequence[Metrics]], name: str) -> np.ndarray:
    """One number of every model and client [models, clients]; NaN where there is none."""
    return np.array([[row.get(name, np.nan) for row in rows] for rows in found])
