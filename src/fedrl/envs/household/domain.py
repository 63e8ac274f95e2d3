"""The ALFWorld domain and its text grammar, written out from tables, in both text generations.

The real engine (textworld's PddlEnv) needs them in every game file: the domain says what each
action requires and changes, the grammar what is typed and answered. Sentences are those of our own
engine (game.py, layout.py); a test plays both engines against each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from fedrl.envs.household.game import STATE_WORDS
from fedrl.envs.household.layout import GENERATIONS, HELP, KNIVES, TREATMENTS

NEWER = GENERATIONS[0]

PREDICATES = {
    "atLocation": "agent location",
    "receptacleAtLocation": "receptacle location",
    "objectAtLocation": "object location",
    "openable": "receptacle",
    "opened": "receptacle",
    "inReceptacle": "object receptacle",
    "isReceptacleObject": "object",
    "inReceptacleObject": "object object",
    "isReceptacleObjectFull": "object",
    "wasInReceptacle": "object receptacle",
    "checked": "receptacle",
    "examined": "location",
    "receptacleType": "receptacle rtype",
    "canContain": "rtype otype",
    "objectType": "object otype",
    "holds": "agent object",
    "holdsAny": "agent",
    "holdsAnyReceptacleObject": "agent",
    "full": "receptacle",
    "isClean": "object",
    "cleanable": "object",
    "isHot": "object",
    "heatable": "object",
    "isCool": "object",
    "coolable": "object",
    "pickupable": "object",
    "moveable": "object",
    "toggleable": "object",
    "isOn": "object",
    "isToggled": "object",
    "sliceable": "object",
    "isSliced": "object",
}
"""The types of each predicate's arguments. Some are in no fact and no action of any game."""

VARIABLES = {
    "a": "agent",
    "l": "location",
    "lStart": "location",
    "lEnd": "location",
    "r": "receptacle",
    "o": "object",
    "co": "object",
    "ko": "object",
    "ot": "otype",
    "rt": "rtype",
}

HERE = ("atLocation ?a ?l", "receptacleAtLocation ?r ?l")
UNLOCKED = "or (not (openable ?r)) (opened ?r)"


class Action(NamedTuple):
    """One action: what must hold, what it changes, what is typed, and the rule that answers."""

    parameters: str
    needs: tuple[str, ...]
    does: tuple[str, ...]
    cost: int
    typed: str
    answer: str


def domain(generation: str) -> str:
    """The PDDL domain; it names types that every problem must declare (`NAMED`)."""
    predicates = "\n".join(
        f"    ({name} {' '.join(f'?x{i} - {kind}' for i, kind in enumerate(kinds.split()))})"
        for name, kinds in PREDICATES.items()
    )
    parts = [
        "(define (domain alfred)",
        "  (:requirements :adl :action-costs :typing)",
        "  (:types agent location receptacle object rtype otype)",
        f"  (:predicates\n{predicates}\n  )",
        "  (:functions (total-cost) - number)",
        *(_pddl(name, action) for name, action in _actions(generation).items()),
        ")",
    ]
    return "\n".join(parts) + "\n"


NAMED = {
    "rtype": ("SinkBasin", "Microwave", "Fridge"),
    "otype": ("Sink", *KNIVES),
}
"""Types that the domain names itself."""


def grammar(task: str, generation: str) -> str:
    """The text grammar of one game; `task` is the words after "Your task is to: "."""
    newer = generation == NEWER
    parts = [f'grammar :: """\n{json.dumps(_rules(task, generation), indent=2)}\n""";\n']
    for name, action in _actions(generation).items():
        typed = action.typed if newer else action.typed.replace("move {o} to", "put {o} in/on")
        lines = f'    template :: "{typed}";\n    feedback :: "#{action.answer}#";'
        parts.append(f"action {name} {{\n{lines}\n}}\n")
    return "\n".join(parts)


def _actions(generation: str) -> dict[str, Action]:
    newer = generation == NEWER
    sink = TREATMENTS["clean"][0] if newer else (*TREATMENTS["clean"][0], "Sink")
    actions = {
        "look": Action("a l", HERE[:1], ("checked ?l",), 0, "look", "look.feedback"),
        "inventory": Action("a", (), ("checked ?a",), 0, "inventory", "inventory.feedback"),
        "examineReceptacle": Action(
            "a r",
            (f"exists (?l - location) (and {_joined(HERE)})",),
            ("checked ?r",),
            0,
            "examine {r}",
            "examineReceptacle.feedback",
        ),
        # Only what is in the hand. The original has a second clause, for what lies here, with a
        # comma among its variables; in play it never applies.
        "examineObject": Action(
            "a o", ("holds ?a ?o",), ("checked ?o",), 0, "examine {o}", "examineObject.feedback"
        ),
        "GotoLocation": Action(
            "a lStart lEnd r",
            ("atLocation ?a ?lStart", "receptacleAtLocation ?r ?lEnd"),
            ("not (atLocation ?a ?lStart)", "atLocation ?a ?lEnd"),
            1,
            "go to [{r.name | receptacleatlocation(r:receptacle, lend:location)}]",
            "goto.feedback",
        ),
        "OpenObject": Action(
            "a l r",
            ("openable ?r", *HERE, "not (opened ?r)"),
            ("opened ?r", "checked ?r"),
            1,
            "open {r}",
            "open.feedback",
        ),
        "CloseObject": Action(
            "a l r",
            ("openable ?r", *HERE, "opened ?r"),
            ("not (opened ?r)",),
            1,
            "close {r}",
            "close.feedback",
        ),
        "PickupObject": Action(
            "a l o r",
            ("pickupable ?o", *HERE, "inReceptacle ?o ?r", "not (holdsAny ?a)", UNLOCKED),
            (
                "not (inReceptacle ?o ?r)",
                "holds ?a ?o",
                "holdsAny ?a",
                "not (objectAtLocation ?o ?l)",
            ),
            1,
            "take {o} from {r}",
            "take.feedback",
        ),
        "PutObject": Action(
            "a l o r ot rt",
            (
                "holds ?a ?o",
                *HERE,
                UNLOCKED,
                "objectType ?o ?ot",
                "receptacleType ?r ?rt",
                "canContain ?rt ?ot",
            ),
            (
                "inReceptacle ?o ?r",
                "objectAtLocation ?o ?l",
                "not (holds ?a ?o)",
                "not (holdsAny ?a)",
            ),
            1,
            "move {o} to {r}",
            "put.feedback",
        ),
        "CleanObject": _treatment("clean", sink, ()),
        "HeatObject": _treatment("heat", TREATMENTS["heat"][0], ("not (isCool ?o)",)),
        "CoolObject": _treatment("cool", TREATMENTS["cool"][0], ("not (isHot ?o)",)),
        "ToggleObject": Action(
            "a l o r",
            ("toggleable ?o", *HERE, "inReceptacle ?o ?r"),
            (
                "when (isOn ?o) (not (isOn ?o))",
                "when (not (isOn ?o)) (isOn ?o)",
                "isToggled ?o",
            ),
            5,
            "use {o}",
            "use.feedback",
        ),
        "SliceObject": Action(
            "a l co ko",
            (
                "sliceable ?co",
                _any_of(f"objectType ?ko {knife}Type" for knife in KNIVES),
                "atLocation ?a ?l",
                "objectAtLocation ?co ?l",
                "holds ?a ?ko",
            ),
            ("isSliced ?co",),
            5,
            "slice {co} with {ko}",
            "slice.feedback",
        ),
    }
    if newer:
        actions["help"] = Action("a", (), ("checked ?a",), 0, "help", "help.feedback")
    return actions


def _treatment(word: str, appliances: tuple[str, ...], undoes: tuple[str, ...]) -> Action:
    command, flag, state = TREATMENTS[word][1]
    return Action(
        "a l r o",
        (
            f"{flag} ?o",
            _any_of(f"receptacleType ?r {appliance}Type" for appliance in appliances),
            *HERE,
            "holds ?a ?o",
        ),
        (f"{state} ?o", *undoes),
        5,
        f"{command} {{o}} with {{r}}",
        f"{command}.feedback",
    )


def _any_of(conditions: Iterable[str]) -> str:
    return f"or {_joined(conditions)}"


def _joined(conditions: Iterable[str]) -> str:
    return " ".join(f"({condition})" for condition in conditions)


def _pddl(name: str, action: Action) -> str:
    parameters = " ".join(f"?{v} - {VARIABLES[v]}" for v in action.parameters.split())
    needs = f"(and {_joined(action.needs)})" if action.needs else "()"
    does = (
        action.does if not action.cost else (*action.does, f"increase (total-cost) {action.cost}")
    )
    return (
        f"  (:action {name}\n    :parameters ({parameters})\n"
        f"    :precondition {needs}\n    :effect (and {_joined(does)})\n  )"
    )


# The grammar

SEEN_IN = "[{o.indefinite + ' ' + o.name | inreceptacle(o:object, r:receptacle)}]"
FACED = "atlocation(a:agent, l:location) & receptacleatlocation(r:receptacle, l:location)"
ASIDE = (
    "atlocation(a:agent, l:location) & objectatlocation(o:object, l:location)"
    " & receptacleatlocation(r:receptacle, l:location) & not_inreceptacle(o:object, r:receptacle)"
)

Rules = dict[str, list[dict[str, str]]]


def _rules(task: str, generation: str) -> Rules:
    newer = generation == NEWER
    arrived = "{r.name}" if newer else "{lend.name}"
    put = (
        "You move the {o.name} to the {r.name}."
        if newer
        else "You put the {o.name} in/on the {r.name}."
    )
    plain = {
        "intro": "-= Welcome to TextWorld, ALFRED! =-\n\n#look.feedback#\n\n#task#",
        "task": f"Your task is to: {task}.",
        "goto.feedback": f"You arrive at {arrived}. #examineReceptacle.feedback#",
        "open.feedback": "You open the {r.name}. #examineReceptacle.feedback#",
        "close.feedback": "You close the {r.name}.",
        "take.feedback": "You pick up the {o.name} from the {r.name}.",
        "put.feedback": put,
        "slice.feedback": "You sliced the {co.name} with the {ko.name}.",
        "use.feedback": "You turn on the {o.name}.",
        "overview(o)": "{o.indefinite} {o.name}",
        "overview(r)": "{r.indefinite} {r.name or r.id}",
        "list_empty": "nothing",
        "list_separator": ", ",
        "list_last_separator": ", and ",
        "facing": f"You are facing the [{{r.name | {FACED}}}]",
    }
    for command, _, _ in (treatment for _, treatment in TREATMENTS.values()):
        plain[f"{command}.feedback"] = f"You {command} the {{o.name}} using the {{r.name}}."
    if newer:
        plain["help.feedback"] = f"\n{HELP}"
    rules = {name: [_line(text)] for name, text in plain.items()}
    return rules | {
        "inventory.feedback": [
            _line(
                "You are carrying: [{o.indefinite + ' ' + o.name | holds(a:agent, o:object)}].",
                "holdsany(a:agent)",
            ),
            _line("You are not carrying anything."),
        ],
        "examineReceptacle.feedback": [
            _line(
                f"The {{r.name}} is open. In it, you see {SEEN_IN}.",
                "openable(r:receptacle) & opened(r:receptacle)",
            ),
            _line("The {r.name} is closed.", "openable(r:receptacle)"),
            _line(f"On the {{r.name}}, you see {SEEN_IN}."),
        ],
        "examineObject.feedback": [
            _line(
                "This is a normal {o.name}. In it, you see "
                "[{o2.indefinite + ' ' + o2.name | inreceptacleobject(o2:object, o:object)}].",
                "isreceptacleobject(o:object)",
            ),
            *(_line(text.format("{o.name}"), _states(states)) for states, text in STATE_WORDS),
        ],
        "look.feedback": [
            _line("#facing#. Next to it, you see #aside#.", FACED),
            _line(
                "You are in the middle of a room. Looking quickly around you, you see #appliances#."
            ),
        ],
        "aside": [_line(f"[{{#overview(o)# | {ASIDE}}}]", ASIDE), _line("nothing")],
        "appliances": [
            _line(
                "[{#overview(r)# | receptacleatlocation(r:receptacle, l:location)}]",
                "receptacleatlocation(r:receptacle, l:location)",
            ),
            _line("nothing"),
        ],
    }


def _line(text: str, condition: str = "") -> dict[str, str]:
    return {"condition": condition, "rhs": text} if condition else {"rhs": text}


def _states(states: Iterable[str]) -> str:
    return " & ".join(f"{state.lower()}(o:object)" for state in sorted(states))
