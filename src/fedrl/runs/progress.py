"""Progress: one living line on a terminal, plain lines elsewhere.

A line says the round, the main metric, bytes sent, environment steps, ε and the time left.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from rich.console import Console
from rich.status import Status
from rich.text import Text

from fedrl.core.number_format import duration, si
from fedrl.core.types import Metrics
from fedrl.federation.round_loop import Round
from fedrl.runs.main_metric import beside, main_metrics

EXACT = "eval/q_error"
"""Told beside the main metric, where a world is small enough to solve: returns hardly show it."""
PLAIN_SECONDS = 2.0
"""Without a terminal, a line at most this often (and for the first and the last round)."""
NO_SIGNAL_ROUNDS = 3
"""Rounds without anything to learn from until that is said."""
STARTING = "getting ready for the first round, which takes longest the first time"
STARTING_SECONDS = (3.0, 30.0)
"""Without a terminal, when that is said if nothing else was, and how often after that."""
WAITING = "waiting for "
"""How a note begins that says what a run waits for: as long as it is the last one, nothing else is
getting ready."""


def open_progress(shown: bool | None, settings: Mapping[str, object]) -> Progress:
    """Shown, or not; if nothing is said, on a terminal only: a notebook stays quiet."""
    terminal = Console(stderr=True).is_terminal
    progress = Progress() if shown or (shown is None and terminal) else Quiet()
    progress.settings = settings
    return progress


class Progress:
    """`with Progress() as p: … p.round_done(done)`."""

    settings: Mapping[str, object] = MappingProxyType({})
    """Of the run, as `world.name`: they say which metric is the main one."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self._first: tuple[int, float] | None = None
        self._counted = -1  # the last round whose compiling is taken out: a line is asked for twice
        self._printed = float("-inf")
        self._latest: Metrics = {}
        self._told_in: dict[str, int] = {}  # by metric, the round of its latest value
        self._living: Status | None = None
        if self.console.is_terminal:
            self._living = self.console.status(STARTING)
        self._begun = threading.Event()  # the first round is there, or it is all over
        self._waiting = False

    def __enter__(self) -> Progress:
        if self._living is not None:
            self._living.start()
        else:
            threading.Thread(target=self._starting, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._begun.set()
        if self._living is not None:
            self._living.stop()

    def _starting(self) -> None:
        """A log that stays empty for a minute looks like a program that hangs."""
        began, (pause, later) = time.monotonic(), STARTING_SECONDS
        while not self._begun.wait(pause):
            waited = f", {time.monotonic() - began:.0f} s so far" if pause == later else ""
            if not self._waiting:
                self._plain(f"{STARTING}{waited}")
            pause = later

    def note(self, line: str) -> None:
        """Something worth a line of its own: a failed client, a damaged checkpoint."""
        self.console.print(line, style="yellow", markup=False, soft_wrap=True)
        self._waiting = line.startswith(WAITING)
        if self._living is not None and not self._begun.is_set():
            self._living.update("waiting" if self._waiting else STARTING)

    def round_done(self, done: Round) -> None:
        self._begun.set()
        self._take(done)
        line = self.line(done)
        if self._living is not None:
            # One line: what is cut off on a narrow terminal is its end, never the round.
            self._living.update(Text(line, no_wrap=True, overflow="ellipsis"))
            if done.round == done.rounds:
                self.console.print(line, markup=False, no_wrap=True, overflow="ellipsis")
            return
        now = time.monotonic()
        if now - self._printed >= PLAIN_SECONDS or done.round == done.rounds:
            self._printed = now
            self._plain(line)

    def _take(self, done: Round) -> None:
        self._latest |= done.metrics
        self._told_in |= dict.fromkeys(done.metrics, done.round)

    def _plain(self, line: str) -> None:
        with contextlib.suppress(OSError):  # nobody reads any more: no reason to stop
            print(line, file=sys.stderr, flush=True)

    def line(self, done: Round) -> str:
        return f"round {done.round}/{done.rounds}  {self.summary(done)}"

    def summary(self, done: Round) -> str:
        self._take(done)
        metrics = self._latest
        order = (*main_metrics(self.settings), "train/return")
        main = next((name for name in order if name in metrics), "")
        parts = []
        for name in (main, beside(main, self.settings)):
            if name in metrics:
                told_in = self._told_in[name]
                since = "" if told_in == done.round else f" (round {told_in})"
                parts.append(f"{name} {metrics[name]:.4g}{since}")
        if EXACT in metrics:
            parts.append(f"{EXACT} {metrics[EXACT]:.3g}")
        if "env/steps" in metrics:
            parts.append(f"{si(metrics['env/steps'])} steps")
        if "comm/bytes_up" in metrics:
            parts.append(f"{si(metrics['comm/bytes_up'], 'B')} up")
        if "privacy/epsilon" in metrics:
            parts.append(f"ε {metrics['privacy/epsilon']:.3g}")
        if done.metrics.get("cohort/failed"):
            parts.append(f"{done.metrics['cohort/failed']:.0f} failed")
        return "  ".join([*parts, self._left(done)])

    def _left(self, done: Round) -> str:
        """Time left, from the rounds after the first, without what these compile."""
        now = time.monotonic()
        if self._first is None:
            self._first = (done.round, now)
        elif done.round > self._counted:
            self._first = (self._first[0], self._first[1] + sum(done.compile_seconds.values()))
        self._counted = done.round
        first, at = self._first
        if done.round == done.rounds:
            return "done"
        if done.round <= first:
            return "…"
        seconds = (now - at) / (done.round - first) * (done.rounds - done.round)
        return f"{duration(round(seconds))} left"


class Quiet(Progress):
    """Shows no rounds; what went wrong is a warning of the logger `fedrl`."""

    def __init__(self) -> None:
        super().__init__(Console(stderr=True, force_terminal=False))

    def __enter__(self) -> Quiet:
        return self

    def note(self, line: str) -> None:
        logging.getLogger("fedrl").warning(line)

    def round_done(self, done: Round) -> None:
        self._take(done)


class NoSignal:
    """Says once that a run cannot learn: for some rounds, all groups of episodes went alike."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.warn = warn
        self.rounds = 0

    def __call__(self, done: Round) -> None:
        share = done.metrics.get("train/zero_advantage")
        if share is None:  # not of this method, or nobody trained
            return
        self.rounds = self.rounds + 1 if share >= 1 else 0
        if self.rounds == NO_SIGNAL_ROUNDS:
            self.warn(
                f"nothing to learn from since round {done.round - NO_SIGNAL_ROUNDS + 1}: the "
                "episodes of every task went alike (train/zero_advantage 1). A warm start, easier "
                "tasks, a higher temperature or a graded reward gives groups that differ"
            )


class StartUp:
    """How long it took until the first round began, as far as it has: engines, processes, nodes."""

    def __init__(self, started: float) -> None:
        self.started, self.known = started, -1.0

    def __call__(self, done: Round) -> None:
        if self.known < 0:
            self.known = max(0.0, self.so_far() - sum(done.seconds.values()))

    def so_far(self) -> float:
        return time.monotonic() - self.started

    @property
    def seconds(self) -> float:
        return self.so_far() if self.known < 0 else self.known
