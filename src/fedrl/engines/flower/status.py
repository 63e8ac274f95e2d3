"""`fedrl flower status`: who is in a federation and what was done, from a folder's own audit log.

    of a node          what it is doing, since when, rounds, refusals, its own ε
    of a coordinator   members by their keys, when each was last seen, why one did not answer,
                       rounds, requests that were turned away

Nothing is asked of anybody: it works while the rest of the federation is away. Whether a program
runs is known by the lock that it has on its folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path

from fedrl.core.types import Json, UserError
from fedrl.engines.flower import approval, audit_log, keys, node_check, policy, running_lock
from fedrl.engines.flower.audit_story import spent, with_own
from fedrl.engines.flower.node_audit import GAVE
from fedrl.engines.flower.node_story import BEAT_SECONDS, NOW, Now
from fedrl.privacy.secure_aggregation.public_keys import NUMBERED, Malformed, parse

LATE = 3 * BEAT_SECONDS
LAST_REFUSALS = 5


def status(folder: Path) -> list[str]:
    """Lines for a person; `UserError` where the folder is of neither side."""
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder")
    entries, _, _ = audit_log.read(folder)
    if (folder / "nodes").is_dir():
        return _coordinator(folder, entries)
    if entries or any((folder / name).is_file() for name in (NOW, policy.FILE)):
        return _node(folder, entries)
    raise UserError(
        f"{folder} has no audit log and no nodes/: name the --folder of `fedrl flower node` or of "
        "`fedrl flower link`"
    )


def _node(folder: Path, entries: Sequence[Json]) -> list[str]:
    starts = [entry for entry in entries if entry.get("event") == "start"]
    rounds = [entry for entry in entries if entry.get("event") in GAVE]
    lines = [_doing(folder), *_policy(folder)]
    if starts:
        last = starts[-1]
        lines.append(
            f"started {ago(last)} as client {last.get('client')}, fedrl {last.get('version')}, "
            f"coordinator {str(last.get('coordinator') or 'none')[:16]}"
        )
        lines += _key(entries)
    else:
        lines.append("it was never started: fedrl flower node")
    if waiting := approval.names(folder):
        count = "1 recipe waits" if len(waiting) == 1 else f"{len(waiting)} recipes wait"
        lines.append(f"{count} for a person's yes: fedrl flower approve {folder}")
    if rounds:
        lines.append(f"{_rounds(rounds, ' answered')}, the last one {ago(rounds[-1])}")
        epsilon = spent(entries)
        lines.append(f"own ε so far: {epsilon:.4g}" if epsilon < float("inf") else "no own ε")
    else:
        lines.append("no round answered yet")
    return lines + _refusals(entries, ("refused", "failed"))


def _key(entries: Sequence[Json]) -> list[str]:
    """In full, as `fedrl flower keys node` and `register` print it: to be compared."""
    last = [entry for entry in entries if entry.get("event") in ("start", "key")][-1]
    return [f"its key {last['key']}"] if last.get("key") else []


def _doing(folder: Path) -> str:
    try:
        now = Now(**json.loads((folder / NOW).read_bytes()))
    except FileNotFoundError:
        return "this node is not running"
    except (ValueError, TypeError) as error:
        raise UserError(f"{folder / NOW} is damaged; the node writes it anew") from error
    age = time.time() - now.time
    if running_lock.running(folder) is False:  # killed, or its machine went down
        return f"this node is not running; it ended within {_age(age + BEAT_SECONDS)}: {now.doing}"
    if age > LATE:
        return f"this node was last alive {_age(age)} ago: {now.doing}"
    how = f"connected to {now.superlink} as {now.name}" if now.connected else "not connected"
    return f"{how} (client {now.client}): {now.doing}"


def _policy(folder: Path) -> list[str]:
    """What is wrong with its policy, as it is now: with a mistake in it a node answers nothing."""
    try:
        policy.read(folder / policy.FILE)
    except UserError as error:
        return [f"it answers nothing: {error}"]
    return []


def _coordinator(folder: Path, entries: Sequence[Json]) -> list[str]:
    links = [entry for entry in entries if entry.get("event") == "link"]
    runs = [entry for entry in entries if entry.get("event") == "run"]
    rounds = [entry for entry in entries if entry.get("event") == "round"]
    lines = [_link(folder, links[-1]) if links else "the SuperLink never ran"]
    if (ca := folder / "ca.pem").is_file():
        lines.append(f"coordinator {keys.coordinator_digest(ca)}")
    members = _members(folder)
    for number, name, digests in members:
        lines.append(_member(number, name, digests, entries))
        lines += _missing(number, entries)
    if not members:
        lines.append(
            f"no members yet: fedrl flower register {folder} THEIR.key.pub --client 0 for each"
        )
    if runs:
        lines.append(
            f"{_plural(len(runs), 'run')}, the last one {ago(runs[-1])}: {runs[-1]['run']}"
        )
    if rounds:
        last = rounds[-1]
        lines.append(
            f"{_rounds(rounds)}, the last one {ago(last)}: number "
            f"{last.get('round')}, {len(last.get('answered', []))} answered, "
            f"{len(last.get('failed', {}))} did not"
        )
    known = {digest for _, _, digests in members for digest in digests}
    entries = [entry for entry in entries if not _was_a_check(entry, known)]
    where = " turned away at the door"
    return lines + _refusals(entries, ("unknown", "left out"), "request", where)


def _was_a_check(entry: Json, known: Collection[str]) -> bool:
    """`fedrl flower check` of a node that was registered afterwards."""
    asked = str(entry.get("asked"))
    return asked.startswith(f"{node_check.PATH} ") and entry.get("key") in known


def _link(folder: Path, last: Json) -> str:
    at, when = f"{last.get('host')}:{last.get('port')}", ago(last)
    now = running_lock.running(folder)
    if now:
        return f"the SuperLink runs at {at}, since {when.removesuffix(' ago')}"
    return f"the SuperLink {'is not running: it ' * (now is False)}was last started at {at}, {when}"


def _members(folder: Path) -> list[tuple[int, str, list[str]]]:
    """Clients' numbers, names and the digests of their keys, oldest first, by the files that the
    SuperLink reads."""
    found = []
    for path in (folder / "nodes").glob("client-*.pub"):
        number = NUMBERED.fullmatch(path.name)
        try:
            known = parse(path.read_bytes())
        except (OSError, Malformed):
            continue  # the SuperLink says that it did not register it
        if number and known:
            digests = [keys.key_digest(key) for key, _ in known]
            found.append((int(number[1]), known[-1].name, digests))
    return sorted(found)


def _member(number: int, name: str, digests: Sequence[str], entries: Sequence[Json]) -> str:
    """Seen when its node connected, when it was found for a run, and when it answered."""
    seen = [entry for entry in entries if _concerns(entry, number, digests)]
    registered = any(
        entry.get("event") == "registered" and entry.get("key") == digests[-1] for entry in entries
    )
    answered = [e for e in entries if e.get("event") == "round" and number in e.get("answered", [])]
    when = f"last seen {ago(seen[-1])}" if seen else "never seen"
    known = "" if registered else ", not registered yet (is the SuperLink running?)"
    called = f"client {number} {name}".rstrip()
    return f"{called}, key {digests[-1][:16]}: {when}, {_rounds(answered, ' answered')}{known}"


def _missing(number: int, entries: Sequence[Json]) -> list[str]:
    """Why the client was not in the last round that it was asked in, or is not ready for it."""
    asked = [
        entry
        for entry in entries
        if entry.get("event") in ("round", "ready")
        and (str(number) in entry.get("failed", {}) or number in entry.get("answered", []))
    ]
    why = asked[-1].get("failed", {}).get(str(number)) if asked else None
    if why is None:
        return []
    where = f"round {asked[-1]['round']}" if "round" in asked[-1] else "getting ready"
    return [f"  did not answer ({where}, {ago(asked[-1])}): {why}"]


def _concerns(entry: Json, number: int, digests: Sequence[str]) -> bool:
    event = entry.get("event")
    if event in ("activated", "joined"):
        return entry.get("key") in digests
    return event in ("round", "ready") and number in entry.get("answered", [])


def _refusals(
    entries: Sequence[Json], events: Sequence[str], what: str = "refusal", where: str = ""
) -> list[str]:
    found = [e for e in entries if e.get("event") in events]
    untold = sum(int(entry.get("untold", 0)) for entry in entries)
    if not found:
        return [f"no {what}s{where}"]
    lines = [f"{_plural(len(found) + untold, what)}{where}, the last:"]
    return lines + [f"  {ago(entry)}: {_why(entry)}" for entry in found[-LAST_REFUSALS:]]


def _why(entry: Json) -> str:
    if "reason" in entry:
        return with_own(entry)
    asked = str(entry.get("asked"))
    words = _of_a_node(entry) if asked.startswith("/v1/fleet/") else ""
    return f"{words}{asked} ({entry.get('status')})"


def _of_a_node(entry: Json) -> str:
    """What is wrong with its key or its signature."""
    number, key = entry.get("status"), str(entry.get("key", ""))[:16]
    if number == 403:
        return "a node with work of before, as after a restart of the SuperLink: "
    if number not in (401, 412):
        return ""
    if key and "client" in entry:
        twice = (
            ", which is connected already (a second node has it, or its own was killed just before)"
        )
        return f"client {entry['client']}'s key, {key}{twice if number == 412 else ''}: "
    if number == 401 and not key:
        return "no signature that holds, as of a node whose clock is off: "
    return f"a key that is not registered{f', {key}' if key else ''}: "


def ago(entry: Json) -> str:
    """How long ago an entry was written."""
    try:
        when = datetime.strptime(str(entry.get("time")), "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return "at an unknown time"
    return f"{_age(time.time() - when.replace(tzinfo=UTC).timestamp())} ago"


def _age(seconds: float) -> str:
    for size, name in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 2 * size:
            return _plural(int(seconds // size), name)
    return _plural(max(int(seconds), 0), "second")


def _rounds(entries: Sequence[Json], done: str = "") -> str:
    """A round that was tried again, or done again by a resumed run, is one; of clients on clocks of
    their own it has an entry for each."""
    asked: dict[tuple[object, object], set[str]] = {}
    repeated = 0
    for entry in entries:
        clients = {str(client) for client in entry.get("answered", ["this node"])}
        clients |= entry.get("failed", {}).keys()
        before = asked.setdefault((entry.get("run"), entry.get("round")), set())
        repeated += bool(before & clients)
        before |= clients
    again = f" and {repeated} repeated" if repeated else ""
    return f"{_plural(len(asked), 'round')}{done}{again}"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"
