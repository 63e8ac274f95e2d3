"""The table of rules, and the rule of a run: `[aggregate]` against its federation and its method.

What is known to be too few before a run begins is refused there, and so is a rule that has no
meaning for what a method's clients send: by what the rule declares (`rule.py`), whoever wrote it.

A rule from outside is watched. It is given a list and weights that it may read; what it raises, and
numbers that are not finite or not of the updates' form, end the run in one line. fedrl's own may
overflow: then the round loop keeps the state that was good.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedrl.aggregation import fedpg, robust
from fedrl.aggregation import mean as means
from fedrl.aggregation.rule import Aggregator, Need, Rule, Stream
from fedrl.aggregation.settings import Settings
from fedrl.core import tree
from fedrl.core.abilities import HeldApart, Weighs, sends_parameters
from fedrl.core.registry import Entry, Table, load
from fedrl.core.types import Algorithm, Tensors, TooFew, UserError
from fedrl.core.update_refusal import one_line

KEY = "aggregate.name"


def _declared() -> Iterator[tuple[str, Entry]]:
    for module in (means, robust, fedpg):
        for attribute, thing in vars(module).items():
            if isinstance(thing, Rule) and thing.__module__ == module.__name__:
                summary = str(thing.__doc__).splitlines()[0]
                yield thing.name, Entry(f"{module.__name__}:{attribute}", "", summary)


AGGREGATORS = Table("aggregators", KEY, dict(_declared()))
"""Rules by name. One that comes with fedrl is declared beside its function, and nowhere else."""


def find(name: str) -> Rule[...]:
    """The rule of a name; a plain function is one that declares nothing."""
    thing = load(AGGREGATORS.find(name), KEY, name)
    if isinstance(thing, Rule):
        return thing
    if isinstance(thing, type) or not callable(thing):
        raise UserError(
            f"{KEY} = {name!r} is no rule: it is a function that makes one update of a list of "
            "(update, weight), declared by @fedrl.aggregation.rule.rule(…)"
        )
    return Rule(thing)


@dataclass(frozen=True)
class Chosen:
    """The rule of a run with its settings.

    Liars may be of `among` clients; 0: of those that are asked.
    """

    rule: Rule[...]
    settings: Any
    among: int = 0

    @property
    def name(self) -> str:
        return str(self.settings.name)

    @property
    def robust(self) -> bool:
        """Whether it withstands a few liars; metrics then have to as well."""
        return self.rule.robust

    def given(self, size: int) -> dict[str, Any]:
        """The rule's parameters where `size` updates are expected."""
        return self.rule.given(self.settings, size, self.among or size)

    def need(self, size: int) -> Need:
        return self.rule.need(size, **self.given(size))

    def least(self, size: int) -> int:
        """The fewest updates that the rule has a meaning for where `size` clients are asked."""
        return self.need(size).least

    def check(self, size: int, kind: str) -> None:
        """Refuse what cannot work with `size` clients per round in a federation of this kind."""
        need = self.need(size)
        if need.least == 1:
            return
        if kind != "federated":
            raise UserError(
                f'aggregate.name = "{self.name}" compares clients, but each is alone when '
                f'federation.kind is "{kind}": set aggregate.name = "mean"'
            )
        if size < need.least:
            raise UserError(
                f'aggregate.name = "{self.name}" needs {need.least} clients per round{need.why}, '
                f"and there are {size}: raise federation.clients or cohort{need.instead}"
            )
        if need.idle:
            raise UserError(need.idle)

    def check_method(self, name: str, algorithm: Algorithm, noise: bool, buffer: int) -> None:
        """Refuse a rule that has no meaning for what this method's clients send."""
        rule = self.rule
        if not rule.values and sends_parameters(algorithm):
            raise UserError(
                f'aggregate.name = "{self.name}" is for changes, but {name} sends values: '
                'choose another, for instance "median"'
            )
        alike = isinstance(algorithm, Weighs) and algorithm.heaviest == 1
        if rule.weighs and rule.sums and alike:
            raise UserError(
                f'aggregate.name = "{self.name}" is "mean" here, because all clients of {name} '
                'weigh the same: set aggregate.name = "mean"'
            )
        if not isinstance(algorithm, HeldApart):
            return
        if algorithm.counts and (not rule.sums or noise or buffer):
            asked = "" if rule.sums else f'aggregate.name = "{self.name}"'
            raise UserError(
                f"{asked or ('privacy.noise' if noise else 'async_buffer.size')} would spoil the "
                f"counts of holders that {name} divides by, which have to be added up as they are: "
                f"set {algorithm.without_counts}"
            )
        if rule.by_number and algorithm.held_apart:
            raise UserError(
                f'aggregate.name = "{self.name}" looks at every number over all clients, but in '
                f"{name} only some of them hold a row of "
                f"{' or '.join(sorted(algorithm.held_apart))}: such rows would never change. "
                'Choose "multi-krum", "norm-bound" or "mean"'
            )


def chosen(settings: Any, among: int = 0) -> Chosen:
    """The rule of a table `[aggregate]`."""
    return Chosen(find(settings.name), settings, among)


def build(chosen: Chosen, size: int, algorithm: Algorithm | None = None) -> Aggregator:
    """The rule where `size` clients of this method are asked per round.

    `size` 0: those that come. Without a method nothing bounds a weight.
    """
    rule, given = chosen.rule, chosen.given(size)
    heaviest = algorithm.heaviest if isinstance(algorithm, Weighs) else math.inf
    outside = AGGREGATORS.find(chosen.name).outside

    def combined(stream: Stream) -> Tensors:
        weighed = (
            (update, min(weight, heaviest) if rule.weighs else 1.0) for update, weight in stream
        )
        return watched(chosen, weighed, given) if outside else rule(weighed, **given)

    return combined


def watched(chosen: Chosen, stream: Stream, given: dict[str, Any]) -> Tensors:
    """What a rule from outside makes of the updates, in their own form and dtypes."""
    updates = list(stream)  # before the rule: what an engine raises is not its fault
    if not updates:
        return {}  # the round loop knows what to do where nobody gave anything
    chosen.rule.check_enough(chosen.name, len(updates), **given)
    what = f'aggregate.name = "{chosen.name}"'
    pattern = tree.flatten(updates[0][0])
    try:
        result = chosen.rule.function(updates, **given)
    except (UserError, TooFew):
        raise
    except Exception as error:
        said = one_line(f"{type(error).__name__}: {error}")
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{frame.filename}:{frame.lineno}, in {frame.name}"
        raise UserError(f"{what}: the rule raised {said} ({where})") from error
    if not isinstance(result, dict):
        raise UserError(f"{what}: the rule returned a {type(result).__name__}, not named tensors")
    flat = tree.flatten(result)
    if wrong := sorted(map(str, flat.keys() ^ pattern.keys())):
        raise UserError(f"{what}: the rule's update lacks, or adds, {one_line(', '.join(wrong))}")
    return tree.unflatten({name: _alike(what, name, flat[name], pattern[name]) for name in pattern})


def _alike(what: str, name: str, value: object, pattern: np.ndarray) -> np.ndarray:
    """A tensor of the result with the dtype of the updates'; finite, and of their shape."""
    array = np.asarray(value)
    if array.shape != pattern.shape or array.dtype.kind not in "fiub":
        form = f"{array.dtype.name} of shape {array.shape}"
        raise UserError(
            f"{what}: the rule made {name} a {form}, and not {pattern.dtype} of {pattern.shape}"
        )
    with np.errstate(over="ignore"):
        array = array.astype(pattern.dtype)
    if pattern.dtype.kind == "f" and not np.isfinite(array).all():
        raise UserError(f"{what}: the rule made {name} NaN or infinite of finite updates")
    return array


def get(
    name: str, trim: float = 0.2, byzantine: int = 0, keep: int = 0, bound: float = 0.0
) -> Aggregator:
    """The rule of a name that comes with fedrl, over as many updates as come."""
    return build(chosen(Settings(name, trim, float(byzantine), keep, bound)), 0)
