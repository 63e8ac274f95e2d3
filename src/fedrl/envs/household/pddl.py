"""Reads an ALFWorld PDDL problem. Not a PDDL parser: the dataset's files have one fixed shape."""

from __future__ import annotations

import re
from functools import lru_cache

from fedrl.core.types import UserError
from fedrl.envs.household.problem import FLAGS, STATES, Goal, Problem, Receptacle, Thing

FACT = re.compile(r"\(([^()]+)\)")
DECLARED = re.compile(r"^\s*(\S+) - location\b", re.MULTILINE)
TYPED = re.compile(r"\((objectType|receptacleType) \?(\w+) (\w+)Type\)")

GOALS = {
    "isToggled": "look",
    "isClean": "clean",
    "isHot": "heat",
    "isCool": "cool",
    "?o2": "pick_two",
}
"""The word that tells the goal formula of each type apart; without any it is "pick"."""

GENUINE = {
    "pick": "and exists ?r receptacle exists ?o object and inReceptacle ?o ?r",
    "clean": "and exists ?r receptacle exists ?o object and cleanable ?o isClean ?o "
    "inReceptacle ?o ?r",
    "heat": "and exists ?r receptacle exists ?o object and heatable ?o isHot ?o inReceptacle ?o ?r",
    "cool": "and exists ?r receptacle exists ?o object and coolable ?o isCool ?o "
    "inReceptacle ?o ?r",
    "pick_two": "and exists ?r receptacle exists ?o1 object and inReceptacle ?o1 ?r "
    "exists ?o2 object and not = ?o1 ?o2 inReceptacle ?o2 ?r",
    "look": "and exists ?ot object ?r receptacle ?a agent ?l location and toggleable ?ot "
    "isToggled ?ot receptacleAtLocation ?r ?l atLocation ?a ?l inReceptacle ?ot ?r "
    "exists ?o object ?a agent and holds ?a ?o",
}
"""The six goal formulas of the dataset, without brackets and types: any other is refused."""


def parse(text: str, id: str, task: str, scene: str = "") -> Problem:
    """`text` is the PDDL problem, `task` the sentence of the game ("Your task is to: … .")."""
    declared, _, rest = text.partition("(:init")
    init, _, formula = rest.partition("(:goal")
    if not formula:
        raise UserError(f"game {id}: no (:init …) and (:goal …) in its PDDL problem")
    facts: dict[str, list[tuple[str, ...]]] = {}
    for fact in FACT.findall(init):
        word, *arguments = fact.split()
        facts.setdefault(word, []).append(tuple(arguments))
    return Problem(
        id=id,
        task=words_of(task),
        goal=_goal(formula, id),
        start=_start(facts, id),
        locations=tuple(DECLARED.findall(declared)),
        receptacles=_receptacles(facts),
        things=_things(facts),
        inside=tuple((a[0], a[1]) for a in facts.get("inReceptacle", [])),
        can_contain=frozenset(_pair(*a) for a in facts.get("canContain", [])),
        held_in=tuple((a[0], a[1]) for a in facts.get("inReceptacleObject", [])),
        scene=scene,
    )


def words_of(task: str) -> str:
    """The task without "Your task is to: " and the full stop, as the newer grammar keeps it."""
    return task.strip().removeprefix("Your task is to:").strip().removesuffix(".")


@lru_cache(maxsize=4096)
def _pair(receptacle: str, thing: str) -> tuple[str, str]:
    """One tuple for all games: 3,827 of them share a few hundred pairs."""
    return receptacle.removesuffix("Type"), thing.removesuffix("Type")


def _start(facts: dict[str, list[tuple[str, ...]]], id: str) -> str:
    if len(facts.get("atLocation", [])) != 1:
        raise UserError(f"game {id}: the agent must be at exactly one location")
    return facts["atLocation"][0][1]


def _receptacles(facts: dict[str, list[tuple[str, ...]]]) -> tuple[Receptacle, ...]:
    types = {a[0]: a[1] for a in facts.get("receptacleType", [])}
    openable = {a[0] for a in facts.get("openable", [])}
    opened = {a[0] for a in facts.get("opened", [])}
    return tuple(
        Receptacle(id, types.get(id, "").removesuffix("Type"), place, id in openable, id in opened)
        for id, place in _in_order(facts.get("receptacleAtLocation", []))
    )


def _in_order(facts: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """By the id as the real engine compares it: in lower case."""
    return sorted(facts, key=lambda fact: fact[0].lower())


def _things(facts: dict[str, list[tuple[str, ...]]]) -> tuple[Thing, ...]:
    places: dict[str, list[str]] = {}
    for id, place in facts.get("objectAtLocation", []):
        places.setdefault(id, []).append(place)
    flags: dict[str, set[str]] = {}
    states: dict[str, set[str]] = {}
    for words, having in ((FLAGS, flags), (STATES, states)):
        for word in words:
            for (id,) in facts.get(word, []):
                having.setdefault(id, set()).add(word)
    return tuple(
        Thing(
            id,
            kind.removesuffix("Type"),
            tuple(places.get(id, ())),
            frozenset(flags.get(id, ())),
            frozenset(states.get(id, ())),
        )
        for id, kind in _in_order(facts.get("objectType", []))
    )


def _goal(formula: str, id: str) -> Goal:
    kind = next((kind for word, kind in GOALS.items() if word in formula), "pick")
    bare = " ".join(re.sub(r"[()]|- ", " ", TYPED.sub("", formula)).split())
    if bare != GENUINE[kind]:
        raise UserError(f"game {id}: its goal is none of the six that ALFWorld has: {bare[:80]}")
    types: dict[str, str] = {variable: name for _, variable, name in TYPED.findall(formula)}
    return Goal(
        kind,
        object=types["o1" if kind == "pick_two" else "o"],
        target=types["ot" if kind == "look" else "r"],
    )
