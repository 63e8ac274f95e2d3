"""Recipes that wait for a person of the node's organisation, and what became of them.

    recipes/waiting/DIGEST.toml    asked for by the coordinator, and within the policy
    recipes/approved/DIGEST.toml   somebody here has read it and said yes (`fedrl flower approve`)
    recipes/rejected/DIGEST.toml   or no

The digest is SHA-256 of the recipe's text as it was sent: a recipe with one letter changed is
another one, and waits again. A file counts only under the digest that it has.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

from fedrl.core.private_files import locked, write_private
from fedrl.core.types import UserError
from fedrl.engines.flower.node_plan import RECIPES, Refused
from fedrl.engines.flower.owner_log import say
from fedrl.engines.flower.policy import DIGEST, Policy

MOST = 20
"""Recipes that may wait: a coordinator could make up any number."""

Verdict = Literal["waiting", "approved", "rejected"]
VERDICTS: tuple[Verdict, ...] = ("waiting", "approved", "rejected")


def digest(recipe: str) -> str:
    """Of any text: one that came over the network may be none that can be written."""
    return hashlib.sha256(recipe.encode("utf-8", "surrogatepass")).hexdigest()


def require(folder: Path, policy: Policy, recipe: str) -> None:
    """Refuse a recipe that nobody has said yes to; it waits then, where the policy says so."""
    name = digest(recipe)
    if policy.approval == "none" or name in policy.pinned:
        return
    if policy.approval == "pinned":
        raise Refused(f"recipe {name[:16]} is not one that this node's owner has pinned (approval)")
    with locked(folder):
        verdict = verdict_on(folder, name)
        if verdict == "approved":
            return
        if verdict == "rejected":
            raise Refused(f"recipe {name[:16]}: a person of this organisation said no (approval)")
        if verdict is None:
            if len(names(folder)) >= MOST:
                raise Refused(f"{MOST} recipes wait for a person of this organisation (approval)")
            write_private(_path(folder, "waiting", name), recipe.encode())
            say(f"a recipe waits for your yes: fedrl flower approve {folder} {name[:8]}")
    raise Refused(f"recipe {name[:16]} waits for a person of this organisation (approval)")


def decide(folder: Path, name: str, verdict: Verdict) -> None:
    """What a person said to a recipe that was asked for."""
    recipe = read(folder, name)
    with locked(folder):
        write_private(_path(folder, verdict, name), recipe.encode())
        for other in VERDICTS:
            if other != verdict:
                _path(folder, other, name).unlink(missing_ok=True)


def verdict_on(folder: Path, name: str) -> Verdict | None:
    """What became of a recipe so far; none of a file whose text is another one."""
    for verdict in ("rejected", "approved", "waiting"):
        if _text(_path(folder, verdict, name), name) is not None:
            return verdict
    return None


def names(folder: Path, verdict: Verdict = "waiting") -> list[str]:
    """Digests, those asked for first at the beginning."""
    found = (folder / RECIPES / verdict).glob("*.toml")
    whole = [path for path in found if _text(path, path.stem) is not None]
    return [path.stem for path in sorted(whole, key=lambda path: (path.stat().st_mtime, path.stem))]


def find(folder: Path, beginning: str) -> str:
    """The digest that begins like this, of recipes that wait or were decided on."""
    known = {name for verdict in VERDICTS for name in names(folder, verdict)}
    found = sorted(name for name in known if name.startswith(beginning.lower()))
    if len(found) != 1:
        what = "several recipes" if found else "no recipe"
        raise UserError(f"{folder} knows {what} whose digest begins with {beginning!r}")
    return found[0]


def read(folder: Path, name: str) -> str:
    verdict = verdict_on(folder, name)
    text = None if verdict is None else _text(_path(folder, verdict, name), name)
    if text is None:
        raise UserError(f"{folder} knows no recipe {name[:16]}")
    return text


def _path(folder: Path, verdict: str, name: str) -> Path:
    return folder / RECIPES / verdict / f"{name}.toml"


def _text(path: Path, name: str) -> str | None:
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None
    return text if DIGEST.fullmatch(name) and digest(text) == name else None
