"""Signatures of what leaves a run: its last checkpoint, and what is exported of it.

A run across machines is its coordinator's, who has a signing key beside its driver's secret; any
other run is signed with a key that is named. `fedrl verify` needs neither the run nor the key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedrl.core import signatures
from fedrl.core.signatures import About, Signed, Signer, Unsigned
from fedrl.runs import coordinator
from fedrl.runs.checkpoint import round_of
from fedrl.runs.run_dir import RunDir


class Objection(NamedTuple):
    """Why a key should not sign for a run: `known` if that is another coordinator's."""

    why: str = ""
    known: bool = False


def objection(by: Signer, run: Path, round: int) -> Objection:
    """None if the run is of this key's coordinator: its checkpoint says so by its signature, or the
    run by whose nodes it trained with."""
    try:
        signed = _signature(run, round)
    except Unsigned as error:
        return Objection(f"its checkpoint is not as it was signed: {error}")
    if signed is not None and by.fingerprint == signed.key:
        return Objection()
    theirs = coordinator.kept(run) if signed is None else signed.coordinator
    ours = by.coordinator
    if theirs and theirs == ours:
        return Objection()
    if signed is None and not theirs:
        return Objection(
            "nothing says whose the run is: its checkpoint is not signed, and it has no coordinator"
        )
    whose = coordinator.words(theirs) if theirs or signed is None else f"key {signed.key[:16]}"
    return Objection(
        f"the run is of {whose}, and this key of {coordinator.words(ours)}", bool(ours)
    )


def _signature(run: Path, round: int) -> Signed | None:
    """Of the checkpoint of a round, by whomever; `Unsigned` if it has one that does not hold."""
    found = (path for path in RunDir(run).checkpoints() if round_of(path) == round)
    checkpoint = next(found, None)  # if there are several, the one that is read
    if checkpoint is None or not checkpoint.with_name(checkpoint.name + signatures.SUFFIX).exists():
        return None
    return signatures.verify_file(checkpoint)


def sign_export(by: Signer, folder: Path, run: Path, what: str, round: int) -> None:
    """Sign a folder that was made of a run. Its recipe is that of the checkpoint's own signature:
    what nodes were sent is in no file of the run."""
    try:
        signed = _signature(run, round)
    except Unsigned:
        signed = None
    recipe = signed.about.recipe if signed is not None and signed.key == by.fingerprint else ""
    by.sign_folder(folder, About(what, run.resolve().name, round, settings(run), recipe))


def sign_checkpoint(by: Signer, run: RunDir, recipe: str) -> None:
    """Sign the newest checkpoint of a run that has ended; `recipe` is the digest of what its nodes
    were sent."""
    for newest in run.checkpoints()[:1]:
        number = round_of(newest)
        assert number is not None
        name = run.path.resolve().name
        about = About("checkpoint", name, number, settings(run.path), recipe)
        by.sign_file(newest, about, run.mode)


def verify(path: Path, keys: Sequence[str] = ()) -> Signed:
    """Whether an exported folder, a checkpoint or a run's newest one is as it was signed.

    `keys` are the signers that are believed: digests, .pub files, or ca.pem of coordinators; none
    believes any. `Unsigned` says in one line what is wrong.
    """
    believed = [signatures.trusted(word) for word in keys]
    if not path.is_dir():
        return signatures.verify_file(path, believed)
    if not (path / "config.toml").is_file() or (path / signatures.FILE).is_file():
        return signatures.verify_folder(path, believed)
    newest = RunDir(path).checkpoints()[:1]
    if not newest:
        raise Unsigned("the run has no checkpoint")
    signed = signatures.verify_file(newest[0], believed)
    if signed.about.settings != settings(path):
        raise Unsigned("config.toml was changed after it was signed")
    return signed


def settings(run: Path) -> str:
    """The digest of a run's config.toml."""
    return hashlib.sha256((run / "config.toml").read_bytes()).hexdigest()
