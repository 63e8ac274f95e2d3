"""Live tracking: each round's metrics also go to TensorBoard, Weights & Biases or trackio.

A resumed run continues in the tracker's run of the same name. Rounds that are done again after a
restart give the same numbers: TensorBoard replaces the first copy, Weights & Biases keeps it, and
trackio keeps both.
"""

from __future__ import annotations

import difflib
import importlib
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from fedrl.core.types import Json, Metrics, UserError


class Sink(Protocol):
    """Where metrics go while a run goes on, besides its folder."""

    def log(self, round: int, metrics: Metrics) -> None:
        """The metrics of one round."""

    def close(self) -> None:
        """Send what is left; nothing is logged afterwards."""


class TensorBoard:
    """Event files in `RUN/tensorboard`, written by the `tensorboard` package without torch."""

    def __init__(self, run_dir: Path) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._events: Any = event_pb2
        self._summaries: Any = summary_pb2
        self._writer = EventFileWriter(str(run_dir / "tensorboard"))
        self._started = False

    def log(self, round: int, metrics: Metrics) -> None:
        if not self._started:
            # Tells the reader to forget what an interrupted run wrote from this round on.
            start = self._events.SessionLog(status=self._events.SessionLog.START)
            self._write(round, session_log=start)
            self._started = True
        values = [
            self._summaries.Summary.Value(tag=name, simple_value=value)
            for name, value in metrics.items()
        ]
        self._write(round, summary=self._summaries.Summary(value=values))
        # Rounds take seconds: the curve should move with them, not every two minutes.
        self._writer.flush()

    def _write(self, round: int, **content: Any) -> None:
        self._writer.add_event(self._events.Event(wall_time=time.time(), step=round, **content))

    def close(self) -> None:
        self._writer.close()


class Tracker:
    """A run of Weights & Biases or of trackio, which took over its interface."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, round: int, metrics: Metrics) -> None:
        self._run.log(dict(metrics), step=round)

    def close(self) -> None:
        self._run.finish()


def _tensorboard(run_dir: Path, config: Json) -> Sink:
    del config
    return TensorBoard(run_dir)


def _wandb(run_dir: Path, config: Json) -> Sink:
    name = run_dir.resolve().name
    return Tracker(
        _package("wandb").init(
            project=os.environ.get("WANDB_PROJECT", "fedrl"),
            group=config.get("name"),
            name=name,
            id=re.sub(r"[^\w.-]", "-", name),
            resume="allow",
            config=config,
            dir=str(run_dir),
        )
    )


def _trackio(run_dir: Path, config: Json) -> Sink:
    return Tracker(
        _package("trackio").init(
            project="fedrl",
            group=config.get("name"),
            name=run_dir.resolve().name,
            resume="allow",
            config=config,
        )
    )


SINKS: dict[str, Callable[[Path, Json], Sink]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "trackio": _trackio,
}


def check_sinks(names: Sequence[str]) -> None:
    """Every name is known and its package installed, or the user is told."""
    for name in names:
        if name not in SINKS:
            near = difflib.get_close_matches(name, SINKS, n=1, cutoff=0.4)
            hint = f'did you mean "{near[0]}"?' if near else "there are: " + ", ".join(SINKS)
            raise UserError(f'tracking "{name}" is unknown: {hint}')
        _package(name)


def open_sinks(names: Sequence[str], run_dir: Path, config: Json) -> list[Sink]:
    """The sinks called `names` for the run in `run_dir`; none is opened if one cannot be."""
    check_sinks(names)
    return [SINKS[name](run_dir, config) for name in names]


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A package that is there but lacks one of its own needs keeps its own, truer message.
        if error.name != name:
            raise
        install = '"fedrl[track]"' if name == "tensorboard" else name
        raise UserError(
            f'tracking "{name}" needs the package {name}: pip install {install}'
        ) from None
