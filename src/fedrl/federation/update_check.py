"""What comes back from clients, checked: only what was declared, and only finite numbers.

A method declares the names, shapes and dtypes of its updates, and the names and ranges of the
numbers that a client may report. Anything else is refused, with a reason in one line: it costs that
client's update, never the run. What is left of the reports becomes the round's metrics: a number
within its range may be a lie as well, so where the rule for updates withstands liars, medians do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite

import numpy as np

from fedrl.core import tree
from fedrl.core.types import Algorithm, Failure, Job, Metrics, Record, Result, Tensors
from fedrl.core.update_refusal import COUNTS, one_line, ranges, refusal


class Received:
    """Checks a stream of outcomes: passes good updates on, writes down who failed and why."""

    def __init__(
        self,
        algorithm: Algorithm,
        broadcast: Tensors,
        number: int,
        attempt: int,
        records: list[Record],
    ) -> None:
        self.specs = algorithm.declare(broadcast)
        self.reports = ranges(algorithm)
        self.where = {"round": number} | ({"attempt": attempt + 1} if attempt else {})
        self.records = records
        self.first = len(records)
        self.accepted: list[Result] = []
        self.refused = 0  # for good, as far as this round goes
        self.bytes = 0

    def check(
        self, outcomes: Iterable[tuple[Job, Result | Failure]]
    ) -> Iterator[tuple[Tensors, float]]:
        for job, outcome in outcomes:
            # The job knows whose turn it was; a client's own word for it does not count.
            record: Record = {**self.where, "client": job.client}
            reason = refusal(outcome, self.specs, self.reports)
            if reason is not None or isinstance(outcome, Failure):
                self.refused += isinstance(outcome, Failure) and outcome.final
                why = one_line(str(reason))
                self.records.append(record | {"status": "failed", "reason": why})
                continue
            metrics = {name: value for name, value in outcome.metrics.items() if isfinite(value)}
            self.records.append({**record, "status": "ok", **metrics})
            self.bytes += tree.nbytes(outcome.update)
            self.accepted.append(Result(job.client, {}, outcome.weight, outcome.state, metrics))
            yield outcome.update, outcome.weight

    def blame(self, reason: str) -> None:
        """All that were accepted turn out to be of no use together."""
        for record in self.records[self.first :]:
            if record["status"] == "ok":
                record |= {"status": "failed", "reason": reason}


def combined(accepted: Sequence[Result], totals: Metrics, robust: bool = False) -> Metrics:
    """Means over clients; counts (`env/…`) are added to the running totals instead.

    Where `robust`, medians, and n times the median count. A name that some do not report is left
    out then if half of the clients or fewer do, or less than three: of two, either alone puts the
    middle where it likes. Lies have to be fewer than half of what is reported.
    """
    combined: Metrics = {}
    for name in sorted({name for result in accepted for name in result.metrics}):
        values = [result.metrics[name] for result in accepted if name in result.metrics]
        few = len(values) < 3 or 2 * len(values) <= len(accepted)
        if robust and few and len(values) < len(accepted):
            continue
        middle = float(np.median(values) if robust else np.mean(values))
        if name.startswith(COUNTS):
            add(totals, {name: len(values) * middle if robust else sum(values)})
        else:
            combined[name] = middle
    return combined


def add(totals: Metrics, amounts: Metrics) -> None:
    for name, amount in amounts.items():
        totals[name] = totals.get(name, 0.0) + amount
