"""Who signs what is exported of a run: the key that is named, or that of the run's coordinator.

A coordinator's key signs only what is known to be of its own runs: a connection's name may lead to
another coordinator by now, whose key would say of a model that it never trained that it is its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fedrl.config.schema import Config
from fedrl.core.registry import missing_extra
from fedrl.core.types import UserError
from fedrl.engines.flower import connection as connections


class Sealed(NamedTuple):
    """By which key, or why by none; neither of a run that has no coordinator."""

    signer: str = ""
    unsigned: str = ""


Seal = Callable[[Path, str, int], Sealed]
"""Signs a folder of a run, what it is and of which round."""


def sealing(run: Path, config: Config, key: Path | None = None) -> Seal:
    if key is None and config.engine != "flower":
        return lambda folder, what, round: Sealed()
    try:
        path = key or _coordinators_key(config)
    except UserError as error:  # a run that was copied, say: its coordinator is elsewhere
        why = str(error)
        return lambda folder, what, round: Sealed(unsigned=why)
    try:
        from fedrl.core.signatures import Signer
        from fedrl.runs import signing
    except ModuleNotFoundError as error:
        raise missing_extra(error, "a signature", "flower") from error
    by = Signer.load(path)

    def seal(folder: Path, what: str, round: int) -> Sealed:
        wrong = signing.objection(by, run, round)
        if key is not None and wrong.known:
            raise UserError(f"--sign {key}: {wrong.why}")
        if key is None and wrong.why:
            mend = "; give its own, --sign HUB/signing.key of that coordinator's folder"
            return Sealed(unsigned=wrong.why + mend * wrong.known)
        signing.sign_export(by, folder, run, what, round)
        return Sealed(by.fingerprint)

    return seal


def _coordinators_key(config: Config) -> Path:
    here = connections.find(config.connection)
    if (path := here.signing_key) is not None:
        return path
    if not here.secret:
        raise UserError(
            f"connection {config.connection} names no secret, beside which its coordinator's "
            f"{connections.SIGNING_KEY} lies"
        )
    place = Path(here.secret).parent
    raise UserError(
        f"{place / connections.SIGNING_KEY} is missing or not yours to read: `fedrl flower keys "
        f"signer {place}` makes one"
    )
