"""Methods of a class from outside whose names are nearly those that fedrl asks for.

A hook is optional: one that is misspelt is never asked, and nothing would say so.
"""

from __future__ import annotations

import difflib
import logging
import multiprocessing
from collections.abc import Iterator
from types import CodeType, FunctionType

from fedrl.core import abilities, types
from fedrl.envs import interfaces, rendering

LOG = logging.getLogger("fedrl")

ASKED = {
    "algorithm": (
        types.Algorithm, abilities.Bounded, abilities.Batched, abilities.WarmUp,
        abilities.Outlined, abilities.SavesModel, abilities.GivesPolicy, abilities.KeepsPolicies,
        abilities.SendsParameters, abilities.Poisonable, abilities.Weighs,
        abilities.PartialParticipation, abilities.ServerSamples, abilities.HeldApart,
        abilities.TellsWhatIsHeld,
    ),
    "world": (
        interfaces.JaxWorld, interfaces.HostWorld, interfaces.TabularWorld,
        interfaces.DiscreteWorld, interfaces.ScalesObservations, interfaces.BoundsActions,
        rendering.Rendered,
    ),
}  # fmt: skip
"""What methods and worlds may have, whatever they are built on."""
GUESSED = {"server_step": "step", "local_step": "direction", "local_update": "local"}
"""Names that others have for the same, and ours."""
NEAR = 0.8
"""Of 1: `step_partail` is 0.92 of `step_partial`, and `clip_loss` 0.62 of `loss`."""


_told: set[type] = set()


def tell_near_hooks(table: str, thing: type, what: str) -> None:
    """Once for a class, a line for each method that nobody calls and whose name is nearly a hook's.

    One that the class's own code reads is no mistake.
    """
    if thing in _told or multiprocessing.parent_process() is not None:  # whose parent says it
        return
    _told.add(thing)
    bases = [cls for cls in thing.__mro__ if cls.__module__.partition(".")[0] == "fedrl"]
    known = {name for cls in (*bases, *ASKED.get(table, ())) for name in _public(cls)}
    guesses = {name: name for name in known} | {
        theirs: ours for theirs, ours in GUESSED.items() if ours in known and theirs not in known
    }
    own = [cls for cls in thing.__mro__ if cls.__module__ == thing.__module__]
    functions = {
        name: value
        for cls in own
        for name, value in vars(cls).items()
        if isinstance(value, FunctionType)
    }
    used = {name for function in functions.values() for name in _names(function.__code__)}
    for name in functions:
        if name.startswith("_") or name in known or name in used:
            continue
        if near := difflib.get_close_matches(name, guesses, n=1, cutoff=NEAR):
            LOG.warning(
                "note: %s has a method %s, which nothing calls: did you mean %s?",
                what, name, guesses[near[0]],
            )  # fmt: skip


def _public(cls: type) -> Iterator[str]:
    """Names that a class has or declares itself."""
    for part in cls.__mro__[:-1]:
        names = {**vars(part), **vars(part).get("__annotations__", {})}
        yield from (name for name in names if not name.startswith("_"))


def _names(code: CodeType) -> Iterator[str]:
    """Names that a function's code reads, functions within it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
