"""What a person of an organisation asks: recipes that wait, in words, and audit logs, verified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from fedrl.core.registry import missing_extra
from fedrl.core.types import Json, UserError

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


def needs_flower(call: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    @wraps(call)
    def called(*words: Arguments.args, **named: Arguments.kwargs) -> Returned:
        try:
            return call(*words, **named)
        except ModuleNotFoundError as error:
            raise missing_extra(error, "fedrl flower", "flower") from error

    return called


@needs_flower
def waiting(folder: str | Path) -> list[str]:
    """Digests of the recipes that wait for a person, in a node's folder."""
    from fedrl.engines.flower import approval

    return approval.names(_node_folder(folder))


@needs_flower
def describe(
    folder: str | Path,
    recipe: str,
    *,
    policy: str | Path | None = None,
    allow: Sequence[str] = (),
    packages: Sequence[str] = (),
    own: Sequence[str] = (),
    data: str | Path | None = None,
) -> list[str]:
    """A recipe that was asked for, in words: what it does, what leaves the node, what it opens.

    `recipe` is its digest, or the beginning of it; the rest is as of `node`, and its coordinator
    and peers are those of the node's last start. With `data` (empty if there is none) its method is
    built, to say what an update has by name and size.
    """
    from fedrl.engines.flower import approval, node_audit, node_recipes, policy_check, recipe_words
    from fedrl.engines.flower.policy import Flags, read

    place = _node_folder(folder)
    said = Flags(allow=tuple(allow), packages=tuple(packages))
    rules = said.over(read(policy_file(place, policy)))
    started = node_audit.last_start(place)  # for which coordinator, and with whose keys
    node = policy_check.Node(
        place,
        node_recipes.own_keys(own),
        peers="peers" in started,
        coordinator=str(started.get("coordinator", "")),
    )
    text = approval.read(place, approval.find(place, recipe))
    try:
        config = node_recipes.configuration(text, own, rules.packages)
    except policy_check.Refused as error:
        raise UserError(str(error)) from error
    refused = policy_check.refusals(config, rules, node)
    words = [f"REFUSED by the policy: {line}" for line in refused]
    if data is not None and not refused:
        own_data = str(Path(data).resolve()) if data else ""
        words += recipe_words.declared(text, place, own_data, own, rules.packages)
    return [*words, *recipe_words.in_words(config, rules, node)]


@needs_flower
def approve(folder: str | Path, recipe: str, yes: bool = True) -> str:
    """Say yes, or no, to a recipe that waits; the node's audit log has who did. Its digest."""
    import getpass

    from fedrl.core.private_files import StateError
    from fedrl.engines.flower import approval
    from fedrl.engines.flower.audit_log import AuditLog

    place = _node_folder(folder)
    name = approval.find(place, recipe)
    try:
        AuditLog(place).add(
            "approved" if yes else "rejected", recipe=name, person=getpass.getuser()
        )
    except (StateError, OSError) as error:
        raise UserError(f"{place}: {error}") from error
    approval.decide(place, name, "approved" if yes else "rejected")
    return name


def _node_folder(folder: str | Path) -> Path:
    if not Path(folder).is_dir():
        raise UserError(f"{folder} is no folder of a node")
    return Path(folder).resolve()


class Audit(NamedTuple):
    """A log's entries, each in words and as it is; what is wrong with the log; its head, to be kept
    elsewhere; and what this and another log do not tell alike."""

    entries: list[Json]
    lines: list[str]
    damage: list[str]
    head: str
    differences: list[str]


@needs_flower
def audit(folder: str | Path, *, head: str = "", coordinator: str | Path | None = None) -> Audit:
    """Read the audit log of a node or a coordinator, and verify it.

    `head` is one of the log from earlier, which it must go on from. `coordinator` is the folder of
    the coordinator's log, with which a node's is compared, round by round.
    """
    from fedrl.engines.flower import audit_log, audit_story

    place = Path(folder)
    if not (place / f"{audit_log.NAME}.jsonl").is_file():
        raise UserError(f"{folder} has no audit log: name the folder of a node or a coordinator")
    entries, wrong, last = audit_log.read(place)
    damage = [audit_log.in_words(one) for one in wrong]
    if head and not audit_log.holds(place, head):
        damage.append(f"it does not go on from {head}: entries before it were written anew")
    found: list[str] = []
    if coordinator is not None:
        theirs = audit(coordinator)
        damage += [f"the coordinator's: {line}" for line in theirs.damage]
        clients = {e["client"] for e in entries if e.get("event") == "start"}
        for client in sorted(clients):
            found += audit_story.differences(theirs.entries, entries, client)
    return Audit(entries, [audit_story.sentence(e) for e in entries], damage, last, found)


def policy_file(folder: Path, named: str | Path | None, key: Path | None = None) -> Path:
    """A policy that its owner wrote and the node would not read is a mistake."""
    from fedrl.engines.flower.policy import FILE, Policy, read

    file = Path(named) if named else folder / FILE
    if named and not file.is_file():
        raise UserError(f"--policy {named} is no file")
    if not file.is_file() and key is not None and read(key.parent / FILE) != Policy():
        raise UserError(
            f"{key.parent / FILE} lies beside the key, and this node reads {file}: move it there, "
            "or name it with --policy"
        )
    return file.resolve()
