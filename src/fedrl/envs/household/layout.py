"""What never changes while a household game is played: names, places and ready-made commands.

The real engine names things by the order of their PDDL ids and prints lists in that order, so a
thing is a number here: its rank among the ids. One `Layout` serves any number of episodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fedrl.core.types import UserError
from fedrl.envs.household.problem import Problem

GENERATIONS = ("2.1.2", "2.1.1")
"""Wordings of the same problems; the first is what the package alfworld 0.4.2 ships."""

HELP = """\
Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""
"""The answer to `help`, word for word: an agent trained here must not be surprised over there."""

KNIVES = ("Knife", "ButterKnife")

TREATMENTS = {
    "clean": (("SinkBasin",), ("clean", "cleanable", "isClean")),
    "heat": (("Microwave",), ("heat", "heatable", "isHot")),
    "cool": (("Fridge",), ("cool", "coolable", "isCool")),
}
"""Where a thing is treated, and: the command, the flag that allows it, the state it leads to."""


def listed(names: Sequence[str]) -> str:
    """ "a mug 1, and a pan 2": the engine's comma before "and", also for two."""
    if not names:
        return "nothing"
    if len(names) == 1:
        return f"a {names[0]}"
    return "a " + ", a ".join(names[:-1]) + f", and a {names[-1]}"


def numbered(ids: Sequence[str]) -> list[str]:
    """Names for ids in ascending order: the first of a kind gets the highest number."""
    kinds = [kind_of(id) for id in ids]
    left = Counter(kinds)
    names = []
    for kind in kinds:
        names.append(f"{kind} {left[kind]}")
        left[kind] -= 1
    return names


def kind_of(id: str) -> str:
    """ "Sink_bar_…_bar_SinkBasin" is a sinkbasin; everything else is called by its first part."""
    kind = id.lower().partition("_bar_")[0]
    return f"{kind}basin" if "basin" in id.lower() and not kind.endswith("basin") else kind


class Layout:
    """A compiled problem; receptacles, things and places are numbers.

    Attributes ending in `_at` are indexed by place, those of things and receptacles by their
    number. `goto_at` holds the sorted `go to` commands that are possible at each place.
    """

    def __init__(self, problem: Problem, generation: str = GENERATIONS[0]) -> None:
        if generation not in GENERATIONS:
            raise UserError(f"generation is {generation!r}; choose from {', '.join(GENERATIONS)}")
        self.problem, self.generation = problem, generation
        self.newer = generation == "2.1.2"
        self._name(problem)
        self._place(problem)
        self._allow(problem)

    def _name(self, problem: Problem) -> None:
        ids = [thing.id for thing in problem.things]
        places = sorted(set(problem.locations), key=str.lower)
        self.thing_names = numbered(ids)
        self.receptacle_names = numbered([r.id for r in problem.receptacles])
        self.place_names = [f"loc {len(places) - i}" for i in range(len(places))]
        self.thing_number = {id: i for i, id in enumerate(ids)}
        self.receptacle_number = {r.id: i for i, r in enumerate(problem.receptacles)}
        self.place_number = {id: i for i, id in enumerate(places)}

    def _place(self, problem: Problem) -> None:
        self.start = self.place_number[problem.start]
        self.place_of = [self.place_number[r.location] for r in problem.receptacles]
        self.receptacles_at: list[list[int]] = [[] for _ in self.place_names]
        for receptacle, place in enumerate(self.place_of):
            self.receptacles_at[place].append(receptacle)
        self.thing_places = [
            frozenset(self.place_number[place] for place in thing.locations)
            for thing in problem.things
        ]
        self.contents: list[list[int]] = [[] for _ in problem.receptacles]
        for thing, holder in problem.inside:
            self.contents[self.receptacle_number[holder]].append(self.thing_number[thing])
        for content in self.contents:
            content.sort()
        self.goto = {f"go to {name}": i for i, name in enumerate(self.receptacle_names)}
        every = sorted(self.goto)
        self.goto_at = [
            [command for command in every if self.place_of[self.goto[command]] != place]
            for place in range(len(self.place_names))
        ]

    def _allow(self, problem: Problem) -> None:
        things, receptacles = problem.things, problem.receptacles
        self.openable = [r.openable for r in receptacles]
        self.opened = [r.opened for r in receptacles]
        self.pickable = ["pickupable" in thing.flags for thing in things]
        self.lamp = ["toggleable" in thing.flags for thing in things]
        self.sliceable = [i for i, thing in enumerate(things) if "sliceable" in thing.flags]
        self.knife = [thing.type in KNIVES for thing in things]
        fits: dict[str, set[str]] = {}
        for receptacle, thing in problem.can_contain:
            fits.setdefault(receptacle, set()).add(thing)
        self.fits = [fits.get(r.type, set()) for r in receptacles]
        self.treats = [
            [treatment for types, treatment in self._treatments() if r.type in types]
            for r in receptacles
        ]
        self.inner: dict[int, list[int]] = {}
        for thing, holder in problem.held_in:
            self.inner.setdefault(self.thing_number[holder], []).append(self.thing_number[thing])
        for content in self.inner.values():
            content.sort()
        goal = problem.goal
        self.wanted = frozenset(i for i, thing in enumerate(things) if thing.type == goal.object)
        self.targets = [i for i, r in enumerate(receptacles) if r.type == goal.target]
        self.needed = 2 if goal.kind == "pick_two" else 1
        self.goal_state: str | None = None
        if goal.kind in TREATMENTS:
            _, flag, self.goal_state = TREATMENTS[goal.kind][1]
            self.wanted = frozenset(i for i in self.wanted if flag in things[i].flags)
        self.lights = frozenset(
            i for i, t in enumerate(things) if t.type == goal.target and "toggleable" in t.flags
        )

    def _treatments(self) -> list[tuple[tuple[str, ...], tuple[str, str, str]]]:
        older = {"clean": (("SinkBasin", "Sink"), TREATMENTS["clean"][1])}
        return list((TREATMENTS if self.newer else TREATMENTS | older).values())

    @property
    def goal(self) -> str:
        return self.problem.task

    def intro(self) -> str:
        around = listed(self.receptacle_names)
        return (
            "-= Welcome to TextWorld, ALFRED! =-\n\n"
            f"You are in the middle of a room. Looking quickly around you, you see {around}.\n\n"
            f"Your task is to: {self.problem.task}."
        )
