"""Writes a problem as the real ALFWorld has it: PDDL, and the game file that `alfworld` plays."""

from __future__ import annotations

import json
from pathlib import Path

from fedrl.envs.household.domain import domain, grammar, logic
from fedrl.envs.household.expert import demonstrate
from fedrl.envs.household.game import Game
from fedrl.envs.household.layout import GENERATIONS, TREATMENTS, Layout
from fedrl.envs.household.problem import FLAGS, FOLDERS, STATES, Goal, Problem

AGENT = "agent1"


def to_pddl(problem: Problem) -> str:
    """The PDDL problem: what `pddl.parse` and the real engine read."""
    return "\n".join(
        [
            f"(define (problem {_name(problem.id)})",
            "(:domain alfred)",
            "(:objects",
            *_declared(problem),
            ")",
            "(:init",
            *(f"    ({fact})" for fact in _facts(problem)),
            ")",
            f"(:goal {_goal(problem.goal)})",
            ")",
            "",
        ]
    )


def game(problem: Problem, generation: str = GENERATIONS[0]) -> dict[str, str]:
    """What the real engine needs to play a problem."""
    return {
        "pddl_domain": domain(generation),
        "grammar": grammar(problem.task, generation),
        "pddl_problem": to_pddl(problem),
    }


def write_game(problem: Problem, path: Path | str, generation: str = GENERATIONS[0]) -> None:
    """Write the game file, and beside it the description that `alfworld` looks for.

    `alfworld` collects folders that hold both, so give each game a folder of its own.
    """
    path = Path(path)
    walkthrough = demonstrate(Game(Layout(problem, generation)))
    content = {**game(problem, generation), "solvable": True, "walkthrough": walkthrough}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    goal = problem.goal
    looking = goal.kind == "look"
    description = {
        "task_id": _name(problem.id),
        "task_type": next(folder for folder, kind in FOLDERS.items() if kind == goal.kind),
        "pddl_params": {
            "object_target": goal.object,
            "parent_target": "" if looking else goal.target,
            "toggle_target": goal.target if looking else "",
            "mrecep_target": "",
            "object_sliced": False,
        },
        "turk_annotations": {"anns": [{"task_desc": problem.task}]},
    }
    beside = path.with_name("traj_data.json")
    beside.write_text(json.dumps(description), encoding="utf-8")


def _name(id: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in f"plan_{id}")


def _declared(problem: Problem) -> list[str]:
    """One line each. The types that the domain itself names are declared whether used or not."""
    named = logic().named
    things = {thing.type for thing in problem.things} | {t for _, t in problem.can_contain}
    receptacles = {r.type for r in problem.receptacles} | {r for r, _ in problem.can_contain}
    otypes = things | set(named["otype"].split()) | {problem.goal.object}
    rtypes = receptacles | set(named["rtype"].split())
    if problem.goal.kind == "look":
        otypes.add(problem.goal.target)
    else:
        rtypes.add(problem.goal.target)
    return [
        f"    {AGENT} - agent",
        *(f"    {name}Type - otype" for name in sorted(otypes)),
        *(f"    {name}Type - rtype" for name in sorted(rtypes)),
        *(f"    {thing.id} - object" for thing in problem.things),
        *(f"    {receptacle.id} - receptacle" for receptacle in problem.receptacles),
        *(f"    {location} - location" for location in problem.locations),
    ]


def _facts(problem: Problem) -> list[str]:
    facts = [f"canContain {r}Type {t}Type" for r, t in sorted(problem.can_contain)]
    for receptacle in problem.receptacles:
        facts.append(f"receptacleType {receptacle.id} {receptacle.type}Type")
        facts.append(f"receptacleAtLocation {receptacle.id} {receptacle.location}")
        facts += [f"openable {receptacle.id}"] if receptacle.openable else []
        facts += [f"opened {receptacle.id}"] if receptacle.opened else []
    for thing in problem.things:
        facts.append(f"objectType {thing.id} {thing.type}Type")
        facts += [f"objectAtLocation {thing.id} {location}" for location in thing.locations]
        facts += [f"{word} {thing.id}" for word in FLAGS if word in thing.flags]
        facts += [f"{word} {thing.id}" for word in STATES if word in thing.states]
    facts += [f"inReceptacle {thing} {receptacle}" for thing, receptacle in problem.inside]
    facts += [f"inReceptacleObject {inner} {outer}" for inner, outer in problem.held_in]
    return [*facts, f"atLocation {AGENT} {problem.start}"]


def _goal(goal: Goal) -> str:
    if goal.kind == "look":
        return (
            "(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and "
            f"(objectType ?ot {goal.target}Type) (toggleable ?ot) (isToggled ?ot) "
            "(receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r))) "
            f"(exists (?o - object ?a - agent) (and (objectType ?o {goal.object}Type) "
            "(holds ?a ?o))))"
        )

    def there(o: str) -> str:
        types = f"(objectType {o} {goal.object}Type) (receptacleType ?r {goal.target}Type)"
        return f"{types} (inReceptacle {o} ?r)"

    if goal.kind == "pick_two":
        second = f"(exists (?o2 - object) (and (not (= ?o1 ?o2)) {there('?o2')}))"
        first = f"(exists (?o1 - object) (and {there('?o1')} {second}))"
        return f"(and (exists (?r - receptacle) {first}))"
    treated = ""
    if goal.kind in TREATMENTS:
        _, flag, state = TREATMENTS[goal.kind][1]
        treated = f"({flag} ?o) ({state} ?o) "
    return f"(and (exists (?r - receptacle) (exists (?o - object) (and {treated}{there('?o')}))))"
