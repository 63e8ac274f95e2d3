"""`fedrl.verify`: whether what left a run is whole, and who has signed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrl.core.registry import missing_extra
from fedrl.core.types import UserError


@dataclass(frozen=True)
class Verified:
    """`wrong` says in one line what is; else whose it is: `key` is the signer's digest,
    `coordinator` that of the CA that vouches for it, if one does."""

    wrong: str = ""
    what: str = ""
    run: str = ""
    round: int = -1
    recipe: str = ""
    key: str = ""
    coordinator: str = ""


def verify(path: str | Path, keys: Sequence[str] = ()) -> Verified:
    """An exported folder, a checkpoint, or a run's newest one.

    `keys` are the signers that are believed: a .pub, a coordinator's ca.pem, or the digest of
    either. With none, anybody is: compare `key`.
    """
    place = Path(path)
    if not place.exists() and not place.with_name(place.name + ".sig").exists():
        raise UserError(f"{place} does not exist")
    try:
        from fedrl.core.signatures import Unsigned
        from fedrl.runs import signing
    except ModuleNotFoundError as error:
        raise missing_extra(error, "fedrl verify", "flower") from error
    try:
        about, key, coordinator = signing.verify(place, keys)
    except Unsigned as wrong:
        return Verified(str(wrong))
    return Verified("", about.what, about.run, about.round, about.recipe, key, coordinator)
