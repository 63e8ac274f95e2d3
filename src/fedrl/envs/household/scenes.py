"""Scenes: the floor plans that tasks play in, their furniture set along the walls.

Ids carry coordinates, as ALFWorld's do, because the real engine orders and numbers by them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np

from fedrl.core import seeding
from fedrl.envs.household.problem import Receptacle
from fedrl.envs.household.rooms import Room, house

SCENES = 30
"""Floor plans of each room: no two have the same furniture."""

Spot = tuple[int, int, int]
"""East, up and north of the room's middle, in cm."""

Item = TypeVar("Item")


class Dice:
    """Cheap draws: NumPy's scalar methods cost more than the rest of a tiny problem."""

    __slots__ = ("_left", "_rng")

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._left: list[float] = []

    def chance(self) -> float:
        if not self._left:
            self._left = self._rng.random(128).tolist()
        return self._left.pop()

    def between(self, low: int, high: int) -> int:
        """Uniform, both ends included."""
        return low + int(self.chance() * (high - low + 1))

    def pick(self, items: Sequence[Item]) -> Item:
        return items[int(self.chance() * len(items))]

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        order = list(items)
        for i in range(len(order) - 1, 0, -1):
            j = int(self.chance() * (i + 1))
            order[i], order[j] = order[j], order[i]
        return order


@dataclass(frozen=True, eq=False)
class Scene:
    """Receptacles come in the order of their ids; `spots` and `where` are numbered alike."""

    room: Room
    name: str  # "kitchen-7"
    receptacles: tuple[Receptacle, ...]
    spots: tuple[Spot, ...]
    where: dict[str, tuple[int, ...]]  # receptacle type: its numbers
    start: str

    @property
    def locations(self) -> tuple[str, ...]:
        return tuple(sorted({self.start, *(r.location for r in self.receptacles)}))

    @property
    def furniture(self) -> frozenset[tuple[str, int]]:
        return frozenset((rtype, len(numbers)) for rtype, numbers in self.where.items())


@cache
def scene(room: str, size: str, number: int) -> Scene:
    """Floor plan `number` (below SCENES) of a room; redrawn while an earlier one is alike."""
    taken = {scene(room, size, earlier).furniture for earlier in range(number)}
    dice = Dice(seeding.generator(0, f"household scene {room} {size}", round=number))
    while True:
        drawn = _furnish(house().rooms[room], size, f"{room}-{number}", dice)
        if drawn.furniture not in taken:
            return drawn


def _furnish(room: Room, size: str, name: str, dice: Dice) -> Scene:
    tables, types = house(), _choose(room, size, dice)
    groups = dice.shuffled(sorted(types))
    around = [rtype for rtype in groups for _ in range(types[rtype])]
    side = max(300, 40 * (len(around) // 4 + 2))
    placed: list[tuple[Receptacle, Spot]] = []
    for i, rtype in enumerate(around):
        spot, location = _along_the_wall(i / len(around), side, tables.heights.get(rtype, 40), dice)
        if size == "dataset" and i and around[i - 1] == rtype and dice.chance() < 0.15:
            location = placed[-1][0].location  # one standing place for two, as in the dataset
        opens = rtype in tables.openable and not (
            size == "dataset" and rtype in tables.stuck and dice.chance() < 0.15
        )
        placed.append((Receptacle(spelled(rtype, spot), rtype, location, opens), spot))
    placed.sort(key=lambda pair: pair[0].id.lower())
    where: dict[str, tuple[int, ...]] = {}
    for i, (receptacle, _) in enumerate(placed):
        where[receptacle.type] = (*where.get(receptacle.type, ()), i)
    receptacles, spots = zip(*placed)
    return Scene(room, name, receptacles, spots, where, _standing(0, 0, 0, 30))


def _choose(room: Room, size: str, dice: Dice) -> Counter[str]:
    """How many of each receptacle type: what must be there, then at random up to the total."""
    least: Counter[str] = Counter()
    spare: list[str] = []
    for rtype, low, high in room.furniture[size]:
        least[rtype] = low
        spare += [rtype] * (high - low)
    total = dice.between(*room.bounds[size].receptacles)
    least.update(dice.shuffled(spare)[: max(0, total - least.total())])
    return +least


def _along_the_wall(share: float, side: int, height: int, dice: Dice) -> tuple[Spot, str]:
    """A spot that far around a square room, and where to stand before it.

    Neighbours are more than 25 cm apart, the grid that locations are numbered on, so no two spots
    get the same standing place.
    """
    wall, along = divmod(share * 4, 1)
    half = side // 2
    offset, near = int(along * side) - half, half - 50
    x, z, stand_x, stand_z = (
        (offset, half, offset, near),
        (half, -offset, near, -offset),
        (-offset, -half, -offset, -near),
        (-half, offset, -near, offset),
    )[int(wall)]
    up = height + dice.between(-9, 9)
    horizon = 60 if up < 60 else 45 if up < 100 else 15
    return (x, up, z), _standing(stand_x // 25, stand_z // 25, int(wall), horizon)


def _standing(x: int, z: int, facing: int, horizon: int) -> str:
    parts = "_bar_".join(f"_minus_{-n}" if n < 0 else str(n) for n in (x, z, facing, horizon))
    return f"loc_bar_{parts}"


def spelled(kind: str, spot: Spot) -> str:
    """The PDDL id of a thing or receptacle at a spot, as ALFWorld spells it."""
    numbers = "_bar_".join(
        f"_{'minus' if cm < 0 else 'plus'}_{abs(cm) // 100:02d}_dot_{abs(cm) % 100:02d}"
        for cm in spot
    )
    if kind.endswith("Basin"):
        return f"{kind.removesuffix('Basin')}_bar_{numbers}_bar_{kind}"
    return f"{kind}_bar_{numbers}"
