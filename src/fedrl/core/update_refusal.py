"""Why an update, or what a client reports beside it, is refused: in one line that names no content.

A method declares the names, shapes and dtypes of its updates, and the names and ranges of the
numbers that a client may report. Anything else, and what is not finite, is refused.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from math import isfinite

import numpy as np

from fedrl.core import tree
from fedrl.core.abilities import Bounded
from fedrl.core.types import Algorithm, Failure, JsonValue, Range, Result, Spec

LONGEST_REASON = 300
LONGEST_NAMES = 200
COUNTS = "env/"
"""Reports whose names begin so are added up over clients and rounds."""
COUNT = Range(0.0, 2.0**40, whole=True)
NUMBER = Range(-float(np.finfo(np.float32).max), float(np.finfo(np.float32).max))
"""What a method computes in single precision; no sum of such numbers overflows."""
LARGEST_WEIGHT = 2.0**40


def one_line(text: str) -> str:
    """Somebody else's words as they may stand in a log: short, printable, on one line."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(printable.split())[:LONGEST_REASON]


def ranges(algorithm: Algorithm) -> dict[str, Range]:
    """Of all that its clients may report: as declared, else by group."""
    declared = algorithm.ranges if isinstance(algorithm, Bounded) else {}
    return {name: declared.get(name, _usual(name)) for name in algorithm.reports}


def _usual(name: str) -> Range:
    return COUNT if name.startswith(COUNTS) else NUMBER


def refusal(
    result: Result | Failure, specs: Mapping[str, Spec], reports: Collection[str]
) -> str | None:
    """Why an outcome cannot be used, or None: what was declared, and finite numbers.

    `reports` are names, or a mapping from names to ranges.
    """
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
    if reason := undeclared({name: _form(leaf) for name, leaf in update.items()}, specs):
        return reason
    for name in specs:
        leaf = update[name]
        if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
            return f"{name} has {'NaN' if np.isnan(leaf).any() else 'infinite'} entries"
    if not (isinstance(result.weight, float | int) and 0 < result.weight < math.inf):
        return f"the weight is {result.weight} instead of a positive number"
    if result.weight > LARGEST_WEIGHT:
        return f"the weight is above {LARGEST_WEIGHT:g}"
    return misreported(result.metrics, reports)


def undeclared(update: Mapping[str, Spec | str], declared: Mapping[str, Spec]) -> str | None:
    """What of an update is not as declared, or None; what is no array comes with a word for it."""
    if missing := sorted(set(declared) - set(update)):
        return f"the update lacks {', '.join(missing)[:LONGEST_NAMES]}"
    if extra := sorted(map(str, set(update) - set(declared))):
        names = ", ".join(extra)[:LONGEST_NAMES]
        return f"the update has {names}, which the algorithm does not declare"
    for name, spec in declared.items():
        form = update[name]
        if isinstance(form, str):
            return f"{name} is a {form} instead of an array"
        if form.shape != spec.shape:
            return f"{name} has shape {form.shape} instead of {spec.shape}"
        if form.dtype != spec.dtype:
            return f"{name} has dtype {form.dtype} instead of {spec.dtype}"
    return None


def _form(leaf: np.ndarray | JsonValue) -> Spec | str:
    if isinstance(leaf, np.ndarray):
        return Spec(leaf.shape, leaf.dtype.name)
    return type(leaf).__name__


def misreported(metrics: Mapping[str, float], reports: Collection[str]) -> str | None:
    """Why these metrics cannot be used, or None. What is not finite was not measured."""
    if extra := sorted(map(str, set(metrics) - set(reports))):
        return (
            f"it reports {', '.join(extra)[:LONGEST_NAMES]}, which the algorithm does not declare"
        )
    for name, value in metrics.items():
        if not isinstance(value, float | int):
            return f"it reports a {type(value).__name__} as {name} instead of a number"
        allowed = reports[name] if isinstance(reports, Mapping) else _usual(name)
        if isinstance(value, float) and not isfinite(value):
            continue
        if not allowed.low <= value <= allowed.high:
            return f"it reports {name} outside {allowed.low:g} to {allowed.high:g}"
        if allowed.whole and value != int(value):
            return f"it reports {name} = {value:g}, which is no count"
    return None
