"""What a node keeps of a run for its owner: the recipe, the last model it was sent, its rounds.

Asked for with `fedrl flower node --keep-model`; `fedrl joining` reads it. Nothing of it is sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fedrl.core import serialization
from fedrl.core.private_files import StateError, write_private
from fedrl.core.types import Json, Tensors, UserError
from fedrl.engines.flower.client_state_store import NAME, ClientStateStore, without_history
from fedrl.engines.flower.messages import Job
from fedrl.engines.flower.owner_log import say

FOLDER = "joined"
MOST = 100
"""Runs of which a model is kept: a coordinator chooses their names."""
ABOUT = "fedrl about"
"""Name, among the tensors, of what is told about them: one file is there whole, or not at all."""


class Kept(NamedTuple):
    """`broadcast` is what the client was sent last and `state` what it had kept by then; `rounds`
    are those before that it took part in, which that model comes from."""

    recipe: str
    client: int
    rounds: list[int]
    broadcast: Tensors
    state: Tensors | None


def keep(folder: Path, client: int, job: Job, broadcast: Tensors) -> None:
    if not NAME.fullmatch(job.run):
        return
    path = folder / FOLDER / f"{job.run}.safetensors"
    if not path.is_file() and len(list(path.parent.glob("*.safetensors"))) >= MOST:
        raise OSError(f"{path.parent} has {MOST} already: remove those that are not needed")
    before = _about(_read(path))["rounds"] if path.is_file() else []
    rounds = sorted({*before, job.round})
    about = {"client": client, "rounds": rounds, "state": job.state, "recipe": job.recipe}
    write_private(path, serialization.pack(broadcast | {ABOUT: json.dumps(about)}))


def keep_if_possible(
    folder: Path, client: int, job: Job, broadcast: Tensors, log: Callable[[str], None]
) -> None:
    """For its owner; a disk that is full costs no update."""
    try:
        keep(folder, client, job, broadcast)
    except OSError as error:
        log(f"the model was not kept: {error.strerror or error}")


def _read(path: Path) -> Tensors:
    try:
        return serialization.unpack(path.read_bytes())
    except serialization.Damaged as error:
        raise OSError(f"{path} is damaged: remove it") from error


def _about(kept: Tensors) -> Json:
    about: Json = json.loads(str(kept[ABOUT]))
    return about


def load(folder: Path, run: str = "") -> Kept:
    """Of a run, or of the last one; which that is, is said where there are several."""
    paths = sorted((folder / FOLDER).glob("*.safetensors"), key=lambda path: path.stat().st_mtime)
    found = [path.stem for path in paths]
    if not found:
        raise UserError(f"{folder} has kept no run: start the node with --keep-model")
    if not run and len(found) > 1:
        say(f"{folder} has kept {len(found)} runs: this is about the last, {found[-1]} (--run)")
    if run and run not in found:
        raise UserError(f"{folder} has kept no run {run!r}; it has {', '.join(found)}")
    path = folder / FOLDER / f"{run or found[-1]}.safetensors"
    try:
        kept = _read(path)
        about = _about(kept)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    state = None
    if about["state"]:
        store = ClientStateStore(folder / "states")
        try:
            state, _ = without_history(store.load(path.stem, about["state"]))
        except StateError as error:
            raise UserError(f"{path}: {error}") from error
    broadcast = {name: value for name, value in kept.items() if name != ABOUT}
    return Kept(about["recipe"], about["client"], about["rounds"][:-1], broadcast, state)
