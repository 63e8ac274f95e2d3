"""Rooms: what furniture stands in them, what lies about, and what may be put where (rooms.toml)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from fedrl.core.package_files import package_toml
from fedrl.core.types import Json

SIZES = ("tiny", "small", "medium", "dataset")

Words = tuple[str, ...]


@dataclass(frozen=True)
class Bounds:
    """The fewest and the most that scenes and problems of one size have."""

    receptacles: tuple[int, int]
    objects: tuple[int, int]
    types: int  # only the first so many of a room's thing types occur
    copies: int  # most things of one type, one more when two are to be found


@dataclass(frozen=True)
class Room:
    """One kind of room.

    `furniture` gives, for each size, the receptacle types with the fewest and the most of each.
    `things` are the types that can be carried, the most common first, each with the receptacle
    types where it lies, the likely ones repeated. `fixtures` only fill the dataset size.
    """

    name: str
    kinds: Words  # of tasks that can be set here
    fixtures: Words
    lamps: Words
    bounds: Mapping[str, Bounds]
    furniture: Mapping[str, tuple[tuple[str, int, int], ...]]
    things: Mapping[str, Words]


@dataclass(frozen=True)
class House:
    """The whole of rooms.toml."""

    rooms: Mapping[str, Room]
    fits: Mapping[str, frozenset[str]]  # receptacle type: the object types it can contain
    able: Mapping[str, Words]  # flag: the object types that have it
    heights: Mapping[str, int]  # of receptacle types, in cm
    openable: frozenset[str]
    stuck: frozenset[str]  # openable, but the dataset has some without a door that moves
    single: frozenset[str]  # room for one thing at the start, and never the goal of two
    never_goal: frozenset[str]
    wordings: Mapping[str, Words]  # kind of task: its sentences


@cache
def house() -> House:
    """The tables, read when the first scene is drawn."""
    tables = package_toml(__package__, "rooms.toml")
    return House(
        rooms={name: _room(name, room, tables["sizes"]) for name, room in tables["rooms"].items()},
        fits={rtype: frozenset(words.split()) for rtype, words in tables["fits"].items()},
        able={flag: tuple(words.split()) for flag, words in tables["able"].items()},
        heights={
            rtype: int(cm) for cm, words in tables["heights"].items() for rtype in words.split()
        },
        wordings={kind: tuple(sentences) for kind, sentences in tables["wordings"].items()},
        **{name: frozenset(words.split()) for name, words in tables["receptacles"].items()},
    )


def _bounds(table: Json) -> Bounds:
    low_high = tuple(table["receptacles"]), tuple(table["objects"])
    return Bounds(*low_high, table["types"], table["copies"])


def _room(name: str, table: Json, sizes: Json) -> Room:
    own = table.get("bounds", {})
    return Room(
        name,
        kinds=tuple(table["kinds"].split()),
        fixtures=tuple(table["fixtures"].split()),
        lamps=tuple(table.get("lamps", "").split()),
        bounds={size: _bounds(sizes[size] | own.get(size, {})) for size in sizes},
        furniture={
            size: tuple(_count(word) for word in words.split())
            for size, words in table["furniture"].items()
        },
        things={otype: tuple(words.split()) for otype, words in table["things"].items()},
    )


def _count(word: str) -> tuple[str, int, int]:
    """ "Drawer=2..4" as the receptacle type, the fewest and the most."""
    rtype, _, counts = word.partition("=")
    low, _, high = counts.partition("..")
    return rtype, int(low), int(high or low)


@cache
def flags(otype: str) -> frozenset[str]:
    """What can be done with an object type; lamps and the fixtures of a house cannot be carried."""
    able = {flag for flag, types in house().able.items() if otype in types}
    if any(otype in room.things for room in house().rooms.values()):
        able.add("pickupable")
    return frozenset(able)


@cache
def can_contain(receptacles: frozenset[str], things: frozenset[str]) -> frozenset[tuple[str, str]]:
    """The pairs of types that a problem states: those that occur in it."""
    fits = house().fits
    return frozenset((r, t) for r in receptacles for t in fits.get(r, frozenset()) & things)
