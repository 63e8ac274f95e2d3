"""The ALFWorld domain and its text grammar, written out from domain.toml, in both generations.

The real engine (textworld's PddlEnv) needs them in every game file: the domain says what each
action requires and changes, the grammar what is typed and answered. Sentences are those of our own
engine (game.py, layout.py); a test plays both engines against each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from fedrl.core.package_files import package_toml
from fedrl.envs.household.game import STATE_WORDS
from fedrl.envs.household.layout import GENERATIONS, HELP

Rule = str | list[list[str]]
"""A text, or pairs of a condition (nothing: always) and a text."""


class Action(NamedTuple):
    """One action: what must hold, what it changes, what is typed, and the rule that answers."""

    parameters: str
    does: Sequence[str]
    typed: str
    answer: str
    needs: Sequence[str] = ()
    cost: int = 0


class Logic(NamedTuple):
    """domain.toml as one generation of the texts has it."""

    predicates: Mapping[str, str]  # the types of each one's arguments
    named: Mapping[str, str]  # types that the domain names itself
    variables: Mapping[str, str]
    actions: Mapping[str, Action]
    rules: Mapping[str, Rule]


@cache
def logic(generation: str = GENERATIONS[0]) -> Logic:
    tables = package_toml(__package__, "domain.toml")
    older, actions, rules = tables.pop("older"), tables.pop("actions"), tables.pop("rules")
    if generation != GENERATIONS[0]:
        for name, changes in older["actions"].items():
            actions[name] |= changes
        rules |= older["rules"]
        for name in older["without"]:
            actions.pop(name, None)
            rules.pop(name, None)
    return Logic(
        actions={name: Action(**action) for name, action in actions.items()}, rules=rules, **tables
    )


def domain(generation: str) -> str:
    """The PDDL domain; it names types that every problem must declare (`Logic.named`)."""
    tables = logic(generation)
    predicates = "\n".join(
        f"    ({name} {' '.join(f'?x{i} - {kind}' for i, kind in enumerate(kinds.split()))})"
        for name, kinds in tables.predicates.items()
    )
    parts = [
        "(define (domain alfred)",
        "  (:requirements :adl :action-costs :typing)",
        "  (:types agent location receptacle object rtype otype)",
        f"  (:predicates\n{predicates}\n  )",
        "  (:functions (total-cost) - number)",
        *(_pddl(name, action, tables.variables) for name, action in tables.actions.items()),
        ")",
    ]
    return "\n".join(parts) + "\n"


def _pddl(name: str, action: Action, variables: Mapping[str, str]) -> str:
    parameters = " ".join(f"?{v} - {variables[v]}" for v in action.parameters.split())
    needs = f"(and {_joined(action.needs)})" if action.needs else "()"
    cost = (f"increase (total-cost) {action.cost}",) if action.cost else ()
    return (
        f"  (:action {name}\n    :parameters ({parameters})\n"
        f"    :precondition {needs}\n    :effect (and {_joined((*action.does, *cost))})\n  )"
    )


def _joined(conditions: Iterable[str]) -> str:
    return " ".join(f"({condition})" for condition in conditions)


def grammar(task: str, generation: str) -> str:
    """The text grammar of one game; `task` is the words after "Your task is to: "."""
    tables = logic(generation)
    rules = {name: _lines(rule) for name, rule in tables.rules.items()}
    rules["task"][0]["rhs"] = rules["task"][0]["rhs"].replace("{TASK}", task)
    if "help.feedback" in rules:
        rules["help.feedback"][0]["rhs"] = f"\n{HELP}"
    for states, text in STATE_WORDS:
        condition = " & ".join(f"{state.lower()}(o:object)" for state in sorted(states))
        rules["examineObject.feedback"] += _lines([[condition, text.format("{o.name}")]])
    parts = [f'grammar :: """\n{json.dumps(rules, indent=2)}\n""";\n']
    for name, action in tables.actions.items():
        lines = f'    template :: "{action.typed}";\n    feedback :: "#{action.answer}#";'
        parts.append(f"action {name} {{\n{lines}\n}}\n")
    return "\n".join(parts)


def _lines(rule: Rule) -> list[dict[str, str]]:
    pairs = [["", rule]] if isinstance(rule, str) else rule
    return [{"condition": c, "rhs": text} if c else {"rhs": text} for c, text in pairs]
