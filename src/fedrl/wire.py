"""What comes back from clients, checked: only what was declared, and only finite numbers.

A method declares the names, shapes and dtypes of its updates and the names of the numbers that a
client may report. Anything else is refused, with a reason in one line: it costs that client's
update, never the run.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from math import isfinite
from typing import Any

import numpy as np

from fedrl import tree
from fedrl.types import Algorithm, Failure, Job, Result, Spec, Tensors

LONGEST_REASON = 300


def one_line(text: str) -> str:
    """Somebody else's words as they may stand in a log: short, printable, on one line."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(printable.split())[:LONGEST_REASON]


class Received:
    """Checks a stream of outcomes: passes good updates on, writes down who failed and why."""

    def __init__(
        self,
        algorithm: Algorithm,
        broadcast: Tensors,
        number: int,
        attempt: int,
        records: list[dict[str, Any]],
    ) -> None:
        self.specs = algorithm.declare(broadcast)
        self.reports = algorithm.reports
        self.where = {"round": number} | ({"attempt": attempt + 1} if attempt else {})
        self.records = records
        self.first = len(records)
        self.accepted: list[Result] = []
        self.bytes = 0

    def check(
        self, outcomes: Iterable[tuple[Job, Result | Failure]]
    ) -> Iterator[tuple[Tensors, float]]:
        for job, outcome in outcomes:
            # The job knows whose turn it was; a client's own word for it does not count.
            record: dict[str, Any] = self.where | {"client": job.client}
            reason = refusal(outcome, self.specs, self.reports)
            if reason is not None or isinstance(outcome, Failure):
                why = one_line(str(reason))
                self.records.append(record | {"status": "failed", "reason": why})
                continue
            metrics = {name: value for name, value in outcome.metrics.items() if isfinite(value)}
            self.records.append(record | {"status": "ok"} | metrics)
            self.bytes += tree.nbytes(outcome.update)
            self.accepted.append(Result(job.client, {}, outcome.weight, outcome.state, metrics))
            yield outcome.update, outcome.weight

    def blame(self, reason: str) -> None:
        """All that were accepted turn out to be of no use together."""
        for record in self.records[self.first :]:
            if record["status"] == "ok":
                record |= {"status": "failed", "reason": reason}


def refusal(
    result: Result | Failure, specs: Mapping[str, Spec], reports: Collection[str]
) -> str | None:
    """Why an outcome cannot be used, or None: what was declared, and finite numbers."""
    if isinstance(result, Failure):
        return result.reason
    if not isinstance(result, Result):
        return f"a client returned a {type(result).__name__} instead of a Result"
    if not isinstance(result.update, dict) or not isinstance(result.metrics, dict):
        return "the update and the metrics must be dicts"
    groups = [value for value in result.update.values() if isinstance(value, dict)]
    if not all(isinstance(name, str) for names in (result.update, *groups) for name in names):
        return "the update has names that are no texts"
    update = tree.flatten(result.update)
    if missing := sorted(set(specs) - set(update)):
        return f"the update lacks {', '.join(missing)}"
    if extra := sorted(map(str, set(update) - set(specs))):
        return f"the update has {', '.join(extra)}, which the algorithm does not declare"
    for name, spec in specs.items():
        leaf = update[name]
        if not isinstance(leaf, np.ndarray):
            return f"{name} is a {type(leaf).__name__} instead of an array"
        if leaf.shape != spec.shape:
            return f"{name} has shape {leaf.shape} instead of {spec.shape}"
        if leaf.dtype.name != spec.dtype:
            return f"{name} has dtype {leaf.dtype.name} instead of {spec.dtype}"
        if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
            return f"{name} has {'NaN' if np.isnan(leaf).any() else 'infinite'} entries"
    if not (isinstance(result.weight, float | int) and 0 < result.weight < math.inf):
        return f"the weight is {result.weight} instead of a positive number"
    if extra := sorted(map(str, set(result.metrics) - set(reports))):
        return f"it reports {', '.join(extra)}, which the algorithm does not declare"
    for name, value in result.metrics.items():
        if not isinstance(value, float | int):
            return f"it reports a {type(value).__name__} as {name} instead of a number"
    return None
