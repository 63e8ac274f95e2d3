"""Audit logs in words, and whether a coordinator's and a node's tell the same story.

For each round that the coordinator's log has of a client, the node's must have an answer of the
same run, recipe, round and attempt: an update, or masked numbers for a sum; and where the
coordinator's has a refusal, the node's must have that reason. What only the node's has was lost on
its way, or kept quiet about.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fedrl.core.types import Json
from fedrl.engines.flower.node_audit import GAVE
from fedrl.engines.flower.policy import in_toml

NOT_THE_NODES = (
    "no node of this client",
    "no answer within",
    "the SuperLink",
    "its answer is malformed",
    "its answer is larger",
    "secure sum:",
    "Flower reports",
)
"""How reasons begin that a driver finds itself."""


class Question(NamedTuple):
    run: str
    recipe: str
    round: int
    attempt: int


def sentence(entry: Json) -> str:
    """An entry in words, with its number and time."""
    return f"{entry.get('n', '?'):>5} {entry.get('time', '?')}  {_told(entry)}"


def _told(entry: Json) -> str:
    event = str(entry.get("event", "?"))
    about = _about(entry)
    size = f"{entry.get('sent', 0):,} bytes" if "sent" in entry else ""
    members = ", ".join(map(str, entry.get("members", [])))
    said = {
        "begin": "a new log begins",
        "start": f"the node of client {entry.get('client')} starts, for coordinator "
        f"{_short(entry.get('coordinator'))}",
        "key": f"the node goes on with key {_short(entry.get('key'))}",
        "policy": f"policy {_short(entry.get('policy'))}: {_keys(entry.get('said'))}",
        "ready": f"said that it is ready: {about}",
        "update": f"sent an update of {size}: {about}{_epsilon(entry)}",
        "keys": f"trained for a secure sum and sent keys: {about}",
        "letters": f"sent shares of its secrets to clients {members}: {about}",
        "masked": f"sent masked numbers, {size}, with clients {members}: {about}{_epsilon(entry)}",
        "agreed": f"signed that clients {members} are in the sum: {about}",
        "opened": f"helped to open the sum of clients {members}: {about}",
        "refused": f"refused: {about}{with_own(entry)}",
        "failed": f"no update: {about}{entry.get('reason', '')}",
        "approved": f"{entry.get('person')} approved recipe {_short(entry.get('recipe'))}",
        "rejected": f"{entry.get('person')} rejected recipe {_short(entry.get('recipe'))}",
        "link": f"the SuperLink starts, at {entry.get('host')}:{entry.get('port')}",
        "registered": f"registered {entry.get('file')}, key {_short(entry.get('key'))}",
        "activated": f"node with key {_short(entry.get('key'))} connected from "
        f"{entry.get('address')}",
        "unknown": f"refused {entry.get('asked')} ({entry.get('status')})"
        + (f", key {_short(entry.get('key'))}" if entry.get("key") else ""),
        "run": f"a run of {entry.get('clients')} clients begins: {about}",
        "revoked": f"revoked {entry.get('file')}, key {_short(entry.get('key'))}",
        "certificate": f"the SuperLink has a new certificate, valid until {entry.get('until')}",
        "joined": f"client {entry.get('client')}{_called(entry)} is there, key "
        f"{_short(entry.get('key'))}",
        "left out": f"not let in: {entry.get('reason', '')}",
        "ended": f"{'completed' if entry.get('completed') else 'stopped'}: {about}",
    }.get(event, event)
    if event in ("round", "ready") and "answered" in entry:
        said = _outcomes(entry, about)
    later = f" (and {entry['untold']} refusals before it)" if "untold" in entry else ""
    return said.rstrip(": ") + later


def with_own(entry: Json) -> str:
    """The reason of a refusal, with what only the node's owner knows of it."""
    own = f" [{entry['own']}]" if entry.get("own") else ""
    return f"{entry.get('reason', '')}{own}"


def _outcomes(entry: Json, about: str) -> str:
    good = ", ".join(map(str, entry["answered"])) or "none"
    one = len(entry["answered"]) == 1
    be = "is" if one else "are"
    what = f"{be} ready" if entry.get("event") == "ready" else "answered"
    what = f"{be} in the sum" if entry.get("summed") else what
    bad = "; ".join(f"client {c}: {why}" for c, why in entry.get("failed", {}).items())
    return f"{about}client{'' if one else 's'} {good} {what}" + (f"; {bad}" if bad else "")


def _about(entry: Json) -> str:
    if "run" not in entry:
        return ""
    where = f"run {entry['run']}, recipe {_short(entry.get('recipe'))}"
    if "round" in entry:
        where += f", round {entry['round']}"
        where += f", attempt {entry['attempt'] + 1}" if entry.get("attempt") else ""
    return f"{where}: "


def _epsilon(entry: Json) -> str:
    if "epsilon" in entry:
        return f"own ε now {entry['epsilon']:.4g}"
    return f"noise {entry['noise']:g}" if entry.get("noise") else "no noise"


def _called(entry: Json) -> str:
    return f" ({entry['name']})" if entry.get("name") else ""


def _short(digest: object) -> str:
    return str(digest)[:16] if digest else "none"


def _keys(said: object) -> str:
    return in_toml(said if isinstance(said, dict) else {}) or "the defaults"


def differences(coordinator: Iterable[Json], node: Sequence[Json], client: int) -> list[str]:
    """Where the two logs do not tell the same of this client; a line each."""
    coordinator = list(coordinator)
    gave = {_question(entry) for entry in node if entry.get("event") in GAVE}
    reasons: dict[Question, set[str]] = {}
    for entry in node:
        if "reason" in entry and "round" in entry:
            reasons.setdefault(_question(entry), set()).add(str(entry["reason"]))
    did = {_question(entry) for entry in node if "round" in entry}
    found, told = [], set()
    for entry in coordinator:
        if entry.get("event") != "round":
            continue
        asked, failed = _question(entry), entry.get("failed", {})
        if client in entry.get("answered", []):
            told.add(asked)
            if asked not in gave:
                found.append(f"{_name(asked)}: the coordinator has an answer, the node gave none")
        elif str(client) in failed:
            why = str(failed[str(client)])
            told.add(asked)
            # What a sum failed of is said of all who were asked.
            known = asked in did if entry.get("summed") else why in reasons.get(asked, set())
            if not known and not why.startswith(NOT_THE_NODES):
                found.append(f"{_name(asked)}: the coordinator has a refusal, the node none: {why}")
    runs = {(asked.run, asked.recipe) for asked in told}
    untold = [asked for asked in sorted(gave - told) if (asked.run, asked.recipe) in runs]
    missing = "the node gave an answer, the coordinator's log has none"
    return found + [
        f"{_name(asked)}: {missing}{_stopped(asked, coordinator)}"
        for asked in (untold if told else sorted(gave))
    ]


def _stopped(asked: Question, coordinator: Sequence[Json]) -> str:
    """Whether the coordinator's log ends before this round was over, and says no other end."""
    of_run = [e for e in coordinator if (e.get("run"), e.get("recipe")) == asked[:2]]
    last = max((_question(e).round for e in of_run if e.get("event") == "round"), default=0)
    completed = any(e.get("event") == "ended" and e.get("completed") for e in of_run)
    stopped = of_run and asked.round == last + 1 and not completed
    return " (by it, the run was stopped in this round)" if stopped else ""


def _question(entry: Json) -> Question:
    number = {k: entry.get(k) for k in ("round", "attempt")}
    whole = {k: v if isinstance(v, int) else -1 for k, v in number.items()}
    return Question(str(entry.get("run", "")), str(entry.get("recipe", "")), **whole)


def _name(asked: Question) -> str:
    return f"run {asked.run}, round {asked.round}, attempt {asked.attempt + 1}"


def spent(entries: Iterable[Json]) -> float:
    """The last ε that a node's log has of its own ledger; infinite if something left without."""
    last = 0.0
    for entry in entries:
        if "epsilon" in entry:
            last = float(entry["epsilon"])
        elif entry.get("event") in GAVE:
            return math.inf
    return last
