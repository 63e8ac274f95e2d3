"""Progress: one living line on a terminal, plain lines elsewhere.

A line says the round, the main metric, bytes sent, environment steps and the time left.
"""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from fedrl.experiment.words import duration, si
from fedrl.federation import Round
from fedrl.types import Metrics

MAIN = ("eval/success", "eval/return", "train/return")
PLAIN_SECONDS = 2.0
"""Without a terminal, a line at most this often (and for the first and the last round)."""


class Progress:
    """`with Progress(rounds) as p: … p.round_done(done)`."""

    def __init__(self, rounds: int, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self.rounds = rounds
        self._first: tuple[int, float] | None = None
        self._printed = float("-inf")
        self._latest: Metrics = {}
        self._bar: Bar | None = None
        if self.console.is_terminal:
            columns = (
                TextColumn("round"),
                MofNCompleteColumn(),
                BarColumn(bar_width=24),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
            )
            self._bar = Bar(*columns, console=self.console)
            self._task = self._bar.add_task("compiling", total=rounds)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def note(self, line: str) -> None:
        """Something worth a line of its own: a failed client, a damaged checkpoint."""
        self.console.print(line, style="yellow", markup=False, soft_wrap=True)

    def round_done(self, done: Round) -> None:
        self._latest |= done.metrics
        text = self.summary(done)
        if self._bar is not None:
            self._bar.update(self._task, completed=done.round, description=text)
            return
        now = time.monotonic()
        if now - self._printed >= PLAIN_SECONDS or done.round == done.rounds:
            self._printed = now
            print(f"round {done.round}/{done.rounds}  {text}", file=sys.stderr, flush=True)

    def line(self, done: Round) -> str:
        return f"round {done.round}/{done.rounds}  {self.summary(done)}"

    def summary(self, done: Round) -> str:
        metrics = self._latest | done.metrics
        main = next((name for name in MAIN if name in metrics), None)
        parts = [] if main is None else [f"{main} {metrics[main]:.4g}"]
        if "env/steps" in metrics:
            parts.append(f"{si(metrics['env/steps'])} steps")
        if "comm/bytes_up" in metrics:
            parts.append(f"{si(metrics['comm/bytes_up'], 'B')} up")
        if done.metrics.get("cohort/failed"):
            parts.append(f"{done.metrics['cohort/failed']:.0f} failed")
        return "  ".join([*parts, self._left(done)])

    def _left(self, done: Round) -> str:
        """Time left, from the rounds after the first (which compiles)."""
        now = time.monotonic()
        if self._first is None:
            self._first = (done.round, now)
        first, at = self._first
        if done.round == done.rounds:
            return "done"
        if done.round <= first:
            return "…"
        seconds = (now - at) / (done.round - first) * (done.rounds - done.round)
        return f"{duration(round(seconds))} left"
