"""New household problems: a scene with fixed furniture, things placed anew, a goal that can be met.

As in ALFWorld, a scene (a floor plan) is the same in every task that plays in it. Scenes do not
depend on the seed, so "never trained on" holds across seeds too. Splits share no task, whatever
their seeds, because the content of a task decides which split it may be in (`_owner`).
"""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import NamedTuple

from fedrl.core import seeding
from fedrl.core.limits import one_of
from fedrl.core.types import UserError
from fedrl.envs.household.layout import TREATMENTS
from fedrl.envs.household.problem import KINDS, Goal, Problem, Thing
from fedrl.envs.household.rooms import SIZES, can_contain, flags, house
from fedrl.envs.household.scenes import SCENES, Dice, Scene, Spot, scene, spelled
from fedrl.envs.text import Task

Shares = tuple[tuple[str, float], ...]

SPLITS = ("train", "seen", "unseen", "public")

TRAINED = 24
"""Scenes of each room below this number are for training; the others are the unseen ones."""

OWNERS = ("train", "train", "seen", "public")
"""The split of a task in a trained scene, by its checksum modulo four."""


def generate(
    seed: int, index: int, size: str = "small", kind: str | None = None, scene: int | None = None
) -> Problem:
    """Problem `index`; a kind or scene that is not given is drawn."""
    one_of("size", size, SIZES)
    if kind is not None:
        one_of("kind", kind, KINDS)
    if scene is not None and not 0 <= scene < SCENES:
        raise UserError(f"scene is {scene}; there are {SCENES} of each room: 0 to {SCENES - 1}")
    dice = Dice(seeding.generator(seed, f"household {size}", round=index))
    kind = kind or dice.pick(KINDS)
    number = dice.between(0, SCENES - 1) if scene is None else scene
    return _build(dice, f"{index:05d}", _sketch(dice, size, kind, number), size)


def tasks(
    split: str,
    count: int,
    seed: int = 0,
    size: str = "small",
    mix: Mapping[str, float] | None = None,
) -> list[Problem]:
    """The first `count` tasks of a split, all different, with ids like "train/00042".

    train: scenes for training. seen: the same scenes, other tasks. unseen: scenes that no other
    split has. public: scenes of training, tasks of nobody, for a warm start. `mix` are the kinds'
    shares; without it they are equal.
    """
    return [task(split, index, seed, size, mix) for index in range(count)]


def task(
    split: str,
    index: int,
    seed: int = 0,
    size: str = "small",
    mix: Mapping[str, float] | None = None,
) -> Problem:
    """One of `tasks`. The first call sketches those before it, so that none comes twice."""
    one_of("split", split, SPLITS)
    one_of("size", size, SIZES)
    shares = _shares(mix)
    sketch = _split_sketches(split, seed, size, shares)[index]
    dice = Dice(seeding.generator(seed, f"household {size} {split} words", round=index))
    return _build(dice, f"{split}/{index:05d}", sketch, size)


def task_list(split: str, count: int, seed: int = 0, size: str = "small") -> list[Task]:
    """Id, kind and scene of the first `count` tasks, without building them."""
    one_of("split", split, SPLITS)
    one_of("size", size, SIZES)
    drawn = _split_sketches(split, seed, size, _shares(None))
    sketches = [drawn[index] for index in range(count)]
    return [Task(f"{split}/{i:05d}", s.goal.kind, s.scene) for i, s in enumerate(sketches)]


def fingerprint(problem: Problem) -> str:
    """Equal for problems that are the same game: furniture, what lies where, and the goal.

    Coordinates and wording do not count, nor does which of two mugs is called mug 1.
    """
    number = {r.id: i for i, r in enumerate(problem.receptacles)}
    places: dict[str, int] = {}
    furniture = [
        (r.type, r.openable, r.opened, places.setdefault(r.location, len(places)))
        for r in problem.receptacles
    ]
    homes: dict[str, list[int]] = {}
    for thing, receptacle in problem.inside:
        homes.setdefault(thing, []).append(number[receptacle])
    types = {thing.id: thing.type for thing in problem.things}
    things = sorted(
        (t.type, sorted(t.flags), sorted(t.states), sorted(homes.get(t.id, ())))
        for t in problem.things
    )
    held = sorted((types[inner], types[outer]) for inner, outer in problem.held_in)
    goal = (problem.goal.kind, problem.goal.object, problem.goal.target)
    text = repr((furniture, things, held, goal))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class Sketch(NamedTuple):
    """All that makes a game: equal sketches are the same game."""

    scene: str
    goal: Goal
    placed: tuple[tuple[str, int], ...]  # (object type, number of the receptacle), sorted


TRIES = 10_000
"""Draws for one new task before the world counts as used up."""


class _SplitSketches:
    """A split's sketches in order, drawn as far as they have been asked for."""

    def __init__(self, split: str, seed: int, size: str, shares: Shares) -> None:
        self.split, self.seed, self.size, self.shares = split, seed, size, shares
        self.drawn: set[Sketch] = set()
        self.listed: list[Sketch] = []

    def __getitem__(self, index: int) -> Sketch:
        while len(self.listed) <= index:
            self._draw(len(self.listed))
        return self.listed[index]

    def _draw(self, index: int) -> None:
        purpose = f"household {self.size} {self.split}"
        dice = Dice(seeding.generator(self.seed, purpose, round=index))
        kind = _kind(dice, self.shares)
        unseen = self.split == "unseen"
        low, high = (TRAINED, SCENES - 1) if unseen else (0, TRAINED - 1)
        for _ in range(TRIES):
            sketch = _sketch(dice, self.size, kind, dice.between(low, high))
            if sketch not in self.drawn and (unseen or _owner(sketch) == self.split):
                self.drawn.add(sketch)
                self.listed.append(sketch)
                return
        raise UserError(
            f"no more than {index} different {self.split} tasks of size {self.size!r} were found: "
            "ask for fewer, or a larger size"
        )


_split_sketches = lru_cache(maxsize=32)(_SplitSketches)


def _owner(sketch: Sketch) -> str:
    """The split that a task in a trained scene belongs to: its content decides."""
    scene, goal, placed = sketch
    content = repr((scene, goal.kind, goal.object, goal.target, placed))
    return OWNERS[zlib.crc32(content.encode()) % len(OWNERS)]


def _shares(mix: Mapping[str, float] | None) -> Shares:
    if mix is None:
        return tuple((kind, 1.0) for kind in KINDS)
    for kind in mix:
        one_of("mix", kind, KINDS)
    if min(mix.values(), default=0) < 0 or sum(mix.values()) <= 0:
        raise UserError("mix: give the kinds shares of 0 or more, one of them above 0")
    return tuple((kind, mix[kind]) for kind in KINDS if mix.get(kind, 0) > 0)


def _kind(dice: Dice, shares: Shares) -> str:
    left = dice.chance() * sum(share for _, share in shares)
    for kind, share in shares:
        left -= share
        if left < 0:
            return kind
    return shares[-1][0]


def _sketch(dice: Dice, size: str, kind: str, number: int) -> Sketch:
    room = dice.pick([room for room in house().rooms.values() if kind in room.kinds])
    plan = scene(room.name, size, number)
    goal = _goal(dice, plan, size, kind)
    return Sketch(plan.name, goal, tuple(sorted(_place(dice, plan, size, goal))))


def _build(dice: Dice, id: str, sketch: Sketch, size: str) -> Problem:
    """The problem of a sketch: coordinates and a wording are all that is still drawn."""
    room, _, number = sketch.scene.rpartition("-")
    plan, goal = scene(room, size, int(number)), sketch.goal
    ids: set[str] = set()
    things, inside = [], []
    for otype, at in sketch.placed:
        thing = _at_new_spot(dice, otype, plan.spots[at], ids)
        things.append(Thing(thing, otype, (plan.receptacles[at].location,), flags(otype)))
        inside.append((thing, plan.receptacles[at].id))
    if size == "dataset":
        for otype in plan.room.fixtures:
            thing = _at_new_spot(dice, otype, dice.pick(plan.spots), ids)
            beside = dice.pick(plan.receptacles).location
            things.append(Thing(thing, otype, (beside,), flags(otype)))
    things.sort(key=lambda thing: thing.id.lower())
    words = dice.pick(house().wordings[goal.kind])
    return Problem(
        id=id,
        task=words.format(o=goal.object.lower(), r=goal.target.lower()),
        goal=goal,
        start=plan.start,
        locations=plan.locations,
        receptacles=plan.receptacles,
        things=tuple(things),
        inside=tuple(inside),
        can_contain=can_contain(frozenset(plan.where), frozenset(t.type for t in things)),
        scene=plan.name,
    )


# Goals


def _goal(dice: Dice, plan: Scene, size: str, kind: str) -> Goal:
    choice = _goals(plan, size, kind)
    otype = dice.pick(list(choice))
    return Goal(kind, otype, dice.pick(choice[otype]))


@cache
def _goals(plan: Scene, size: str, kind: str) -> dict[str, tuple[str, ...]]:
    """The object types that a goal of this kind can have in the scene, each with its targets.

    A target needs another type of receptacle that can hold the object: there it lies at first. And
    it is not the appliance that the object has to visit.
    """
    types = [t for t in _types(plan, size) if _holders(plan, t)]
    if kind == "look":
        return dict.fromkeys(types, ("DeskLamp",))
    appliances, (_, flag, _) = TREATMENTS.get(kind, ((), ("", "pickupable", "")))
    single = house().single if kind == "pick_two" else ()
    refused = house().never_goal.union(appliances, single)
    targets = {
        otype: tuple(r for r in _holders(plan, otype) if r not in refused)
        for otype in types
        if flag in flags(otype) and len(_holders(plan, otype)) > 1
    }
    return {otype: receptacles for otype, receptacles in targets.items() if receptacles}


@cache
def _types(plan: Scene, size: str) -> tuple[str, ...]:
    """The types of things that occur at this size."""
    return tuple(plan.room.things)[: plan.room.bounds[size].types]


@cache
def _holders(plan: Scene, otype: str) -> tuple[str, ...]:
    """The scene's receptacle types that can contain the object type."""
    return tuple(rtype for rtype in plan.where if otype in house().fits.get(rtype, ()))


# Things


def _place(dice: Dice, plan: Scene, size: str, goal: Goal) -> list[tuple[str, int]]:
    """The types of the things and the numbers of the receptacles that they lie in."""
    used: Counter[str] = Counter()
    single, placed = house().single, []
    for otype in _choose(dice, plan, size, goal):
        words = _places(plan, otype, goal.target if otype == goal.object else "")
        rtype = dice.pick([w for w in words if used[w] < len(plan.where[w])] or words)
        numbers = plan.where[rtype]
        if rtype in single:
            placed.append((otype, numbers[used[rtype] % len(numbers)]))
            used[rtype] += 1
        else:
            placed.append((otype, dice.pick(numbers)))
    return placed


def _choose(dice: Dice, plan: Scene, size: str, goal: Goal) -> list[str]:
    """The types of the things, with repetitions; the goal's first, and none of it later."""
    bounds = plan.room.bounds[size]
    total, copies = dice.between(*bounds.objects), bounds.copies
    chosen = [goal.object] * (dice.between(1, copies) + (goal.kind == "pick_two"))
    if goal.kind == "look" or (plan.room.lamps and size != "tiny" and dice.chance() < 0.6):
        chosen.append("DeskLamp")
    types = [t for t in _types(plan, size) if t != goal.object]
    for otype in dice.shuffled(types) * 2:  # a bathroom knows too few types for one pass
        if len(chosen) >= total:
            break
        if _holders(plan, otype):
            chosen += [otype] * min(dice.between(1, copies), total - len(chosen))
    return chosen


@cache
def _places(plan: Scene, otype: str, target: str) -> tuple[str, ...]:
    """Receptacle types of the scene where a thing may lie at first, likely ones repeated."""
    usual = plan.room.lamps if otype == "DeskLamp" else plan.room.things[otype]
    words = tuple(word for word in usual if word in plan.where and word != target)
    return words or tuple(word for word in _holders(plan, otype) if word != target)


def _at_new_spot(dice: Dice, otype: str, near: Spot, ids: set[str]) -> str:
    x, y, z = near
    while True:
        spot = (x + dice.between(-19, 19), y + dice.between(2, 9), z + dice.between(-19, 19))
        id = spelled(otype, spot)
        if id not in ids:
            ids.add(id)
            return id
