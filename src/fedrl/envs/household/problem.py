"""A household problem: what exists, where it is, and what is to be done.

The content of one ALFWorld PDDL problem file, no more: `parse` (pddl.py) reads it from a genuine
file, `generate` makes new ones, `game.py` plays it and `export.py` writes it back. Identifiers are
the PDDL ones, because the real engine's order of lists and its numbering follow from them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

KINDS = ("pick", "look", "clean", "heat", "cool", "pick_two")
"""The six task types, in the papers' order."""

FOLDERS = {
    "pick_and_place_simple": "pick",
    "look_at_obj_in_light": "look",
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
    "pick_two_obj_and_place": "pick_two",
}
"""The task type that a name of the dataset's folders begins with."""


@dataclass(frozen=True, slots=True)
class Receptacle:
    id: str  # "Fridge_bar__plus_00_dot_10_…": the part before the first "_bar_" names it
    type: str  # "Fridge", without the PDDL suffix "Type"
    location: str  # the PDDL id of the place to stand
    openable: bool = False
    opened: bool = False


@dataclass(frozen=True, slots=True)
class Thing:
    """An object. `flags` are what can be done to it, `states` what has been."""

    id: str
    type: str  # "Mug", without the PDDL suffix "Type"
    locations: tuple[str, ...] = ()  # usually the one of its receptacle
    flags: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()


FLAGS = (
    "pickupable",
    "cleanable",
    "heatable",
    "coolable",
    "sliceable",
    "toggleable",
    "isReceptacleObject",
)
STATES = ("isClean", "isHot", "isCool", "isToggled", "isSliced")


@dataclass(frozen=True, slots=True)
class Goal:
    kind: str  # one of KINDS
    object: str  # the type of the object, "Mug"
    target: str  # the type of the receptacle; of the lamp for "look"


@dataclass(frozen=True, slots=True)
class Problem:
    id: str
    task: str  # the words after "Your task is to: ", without the full stop
    goal: Goal
    start: str  # the location where the agent stands
    locations: tuple[str, ...]  # every location declared, in the file's order
    receptacles: tuple[Receptacle, ...]
    things: tuple[Thing, ...]
    inside: tuple[tuple[str, str], ...]  # (object, receptacle); genuine files list some twice
    can_contain: frozenset[tuple[str, str]]  # (receptacle type, object type)
    held_in: tuple[tuple[str, str], ...] = field(default=())  # (object, object that contains it)
    scene: str = ""
