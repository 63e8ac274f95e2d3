"""What a rule of aggregation is: one function that makes one update of many, and what it needs.

    @rule(least=3, values=True)
    def geometric_median(updates: Updates, iterations: int = 20) -> Tensors: ...

`updates` are (update, weight) pairs in the order of clients; the parameters behind them are the
fields of the rule's `Settings`, which are the keys of `[aggregate]`. All that the rest of fedrl has
to know of a rule is declared here, so that adding one touches one place. What is not declared is
taken for the worst, also of a plain function that declares nothing:

    least       the fewest updates that it has a meaning for: a number, or a function of the number
                of updates and of the rule's parameters; 3, as of all that look for a middle
    values      whether it has a meaning for values, and not only for changes (`sends_parameters`)
    secure      whether it needs nothing but the updates' mean: then it is given that mean alone
                where a secure sum, or noise on the sum, leaves no other (`privacy.secure`)
    weighs      whether it reads the clients' weights, up to the method's heaviest; else all are 1
    sums        whether what is added up stays added up, as counts of holders have to (`HeldApart`)
    robust      whether it withstands a few liars; what clients report then has to as well
    by_number   whether it compares what clients say of every single number: it would never change
                what only one client holds (`HeldApart`)

A rule that is given fewer updates than `least` is not called: there is `TooFew`, and the round loop
tries the round again, as below the quorum.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Concatenate, Generic, NamedTuple, ParamSpec

import numpy as np

from fedrl.core import tree
from fedrl.core.types import Tensors, TooFew, UserError

P = ParamSpec("P")

Stream = Iterable[tuple[Tensors, float]]
Updates = list[tuple[Tensors, float]]
Aggregator = Callable[[Stream], Tensors]


class Need(NamedTuple):
    """The fewest updates of a rule, and the words for those who have fewer."""

    least: int
    # Behind "needs 5 clients per round": what for.
    why: str = ""
    # Behind "raise federation.clients or cohort": what else would do.
    instead: str = ""
    # Behind the rule's name, where fewer came: with which settings.
    how: str = ""
    # Byzantine clients that it is set against by aggregate.byzantine, if it is.
    byzantine: int | None = None
    # Why it would do nothing with these settings, if so.
    idle: str = ""


UNDECLARED = Need(3, why=" (it does not declare how few it has a meaning for)")


@dataclass(frozen=True)
class NoSettings:
    """A rule without settings of its own."""


def own_fields(settings: Any, size: int, among: int) -> dict[str, Any]:
    """A rule's parameters as its settings have them."""
    names = [field.name for field in dataclasses.fields(settings) if field.name != "name"]
    return {name: getattr(settings, name) for name in names}


@dataclass(eq=False)
class Rule(Generic[P]):
    """A rule and its needs (see above); called as its function is."""

    __qualname__: ClassVar[str]  # the function's own, of each rule

    function: Callable[Concatenate[Any, P], Tensors]
    name: str = ""  # of one that comes with fedrl
    Settings: type = NoSettings
    least: int | Callable[..., int | Need] | None = None
    # From settings, updates that are expected, and clients that liars may be of, to parameters.
    given: Callable[[Any, int, int], dict[str, Any]] = own_fields
    values: bool = False
    secure: bool = False
    weighs: bool = False
    sums: bool = False
    robust: bool = True
    by_number: bool = True

    def __post_init__(self) -> None:
        functools.update_wrapper(self, self.function)
        if self.secure and self.least != 1:
            raise UserError(f"{self.__qualname__} is declared secure, and so needs least=1: a mean")

    def __reduce__(self) -> str:
        """To another process by its name: the function alone is not found under it."""
        return self.__qualname__

    def need(self, size: int, *args: P.args, **kwargs: P.kwargs) -> Need:
        """Where `size` updates are expected, or came."""
        if self.least is None:
            return UNDECLARED
        least = self.least if isinstance(self.least, int) else self.least(size, *args, **kwargs)
        return least if isinstance(least, Need) else Need(least)

    def __call__(self, stream: Stream, *args: P.args, **kwargs: P.kwargs) -> Tensors:
        """One that takes any number may read the stream as it comes; others get a list."""
        if self.need(0, *args, **kwargs).least == 1:
            return self.function(stream, *args, **kwargs)
        updates = list(stream)
        self.check_enough(self.name, len(updates), *args, **kwargs)
        return self.function(updates, *args, **kwargs)

    def check_enough(self, name: str, count: int, *args: P.args, **kwargs: P.kwargs) -> None:
        need = self.need(count, *args, **kwargs)
        if count < need.least:
            raise TooFew(f"{name}{need.how} needs {need.least} updates, and {count} were usable")


def rule(
    name: str = "", **needs: Any
) -> Callable[[Callable[Concatenate[Any, P], Tensors]], Rule[P]]:
    """Declare a function as a rule, with its needs; those that come with fedrl have a name."""

    def declared(function: Callable[Concatenate[Any, P], Tensors]) -> Rule[P]:
        return Rule(function, name, **needs)

    return declared


def vectors(updates: Updates) -> np.ndarray:
    """[n, d]: all numbers of every update in one row, in double precision; for small updates."""
    return np.stack(
        [np.concatenate([np.ravel(leaf) for _, leaf in tree.leaves(one)]) for one, _ in updates],
        dtype=np.float64,
    )


def as_update(vector: np.ndarray, like: Tensors) -> Tensors:
    """The numbers of one row [d] as an update with the names, shapes and dtypes of another."""
    flat = tree.flatten(like)
    ends = itertools.accumulate(leaf.size for leaf in flat.values())
    parts = np.split(vector, list(ends)[:-1])
    return tree.unflatten(
        {
            name: part.reshape(leaf.shape).astype(leaf.dtype)
            for part, (name, leaf) in zip(parts, flat.items())
        }
    )
