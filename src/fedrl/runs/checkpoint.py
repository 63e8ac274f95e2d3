"""A snapshot as the bytes of a safetensors file, and back.

Server states are stored leaf by leaf. Clients' states are many and alike, so equal leaves of all
clients are stacked into one tensor: ten thousand clients cost a few tensors, not ten thousand.
Scalars go into the header as JSON. Outcomes that simulated clients are still at work on
(`buffered`) are stored one by one. Notes of the run's folder (how its logs were) lie in the header,
too.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fedrl.core import tree
from fedrl.core.atomic_files import kind_of, write_atomically
from fedrl.core.types import Failure, Json, Result, Tables, Tensors, UserError
from fedrl.federation.round_loop import Snapshot
from fedrl.federation.simulated_clock import Due

NAME = re.compile(r"(?:start|round-(\d+))\.([0-9a-f]{16})\.safetensors")
NOTES = ("lengths", "digests", "settings")
"""What a run's folder writes into a checkpoint; checkpoints of older versions have only lengths."""
UNREADABLE = (
    SafetensorError, LookupError, TypeError, ValueError, AttributeError, OverflowError,
    RecursionError,
)  # fmt: skip
"""What `unpack` raises of bytes that are no checkpoint of this version."""


class Damaged(UserError):
    """A checkpoint that is none (any more): the one before it may be whole."""


def file_name(round: int, data: bytes) -> str:
    """Holds the hash: a file that is torn or damaged does not fit its name."""
    label = f"round-{round:06d}" if round >= 0 else "start"
    return f"{label}.{hashlib.sha256(data).hexdigest()[:16]}.safetensors"


def round_of(path: Path) -> int | None:
    """By its name; None if that is no checkpoint's."""
    match = NAME.fullmatch(path.name)
    return None if match is None else int(match[1] or -1)


def read_checkpoint(path: Path) -> tuple[Snapshot, Json]:
    """The snapshot and its notes of the run's folder; `Damaged` if the file is none."""
    if not path.is_file():
        raise Damaged(f"checkpoint {path.name} is {kind_of(path) or 'gone'}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    number = round_of(path)
    if number is None or path.name.split(".")[1] != hashlib.sha256(data).hexdigest()[:16]:
        raise Damaged(f"checkpoint {path.name} is damaged")
    try:
        snapshot, notes = unpack(data)
    except UNREADABLE as error:
        raise Damaged(f"checkpoint {path.name} cannot be read: it is of another version") from error
    if snapshot.round != number:
        raise Damaged(f"checkpoint {path.name} is of round {snapshot.round}")
    return snapshot, notes


def write_checkpoint(folder: Path, snapshot: Snapshot, notes: Tables, mode: int) -> Path:
    """Write a snapshot, and what is to be remembered with it: all there or not at all."""
    data = pack(snapshot, notes)
    path = folder / file_name(snapshot.round, data)
    write_atomically(path, data, mode)
    return path


def pack(snapshot: Snapshot, notes: Tables) -> bytes:
    """`notes` come back as they are, if they are named in `NOTES`."""
    tensors: dict[str, np.ndarray] = {}
    scalars: Json = {}
    alike: dict[tuple[str, str, tuple[int, ...]], list[tuple[int, np.ndarray]]] = {}
    for i, state in enumerate(snapshot.states):
        for name, leaf in tree.leaves(state):
            if isinstance(leaf, np.ndarray | np.generic):
                tensors[f"state/{i}:{name}"] = np.asarray(leaf, order="C")
            else:
                scalars[f"state/{i}:{name}"] = leaf
    for client in sorted(snapshot.clients):
        for name, leaf in tree.leaves(snapshot.clients[client]):
            if isinstance(leaf, np.ndarray | np.generic):
                key = name, leaf.dtype.str, leaf.shape
                alike.setdefault(key, []).append((client, np.asarray(leaf)))
            else:
                scalars[f"client/{client}:{name}"] = leaf
    away = []
    for i, (began, due) in enumerate(snapshot.under_way):
        fact, parts = _told(due)
        away.append({"round": began, "time": due.time, "client": due.client} | fact)
        for part, values in parts.items():
            for name, leaf in tree.leaves(values):
                if isinstance(leaf, np.ndarray | np.generic):
                    tensors[f"away/{i}/{part}:{name}"] = np.asarray(leaf, order="C")
                else:
                    scalars[f"away/{i}/{part}:{name}"] = leaf
    names = []
    for i, ((name, _, _), rows) in enumerate(alike.items()):
        names.append(name)
        tensors[f"clients/{i}:ids"] = np.array([client for client, _ in rows], np.int64)
        tensors[f"clients/{i}:rows"] = np.stack([leaf for _, leaf in rows])
    header = {
        "round": snapshot.round,
        "states": len(snapshot.states),
        "totals": snapshot.totals,
        "scalars": scalars,
        "stacked": names,
    } | ({"away": away} if away else {})
    header |= {name: dict(notes[name]) for name in NOTES if name in notes}
    return save_tensors(tensors, {"fedrl": json.dumps(header)})


def unpack(data: bytes) -> tuple[Snapshot, Json]:
    """The snapshot and the notes; one of `UNREADABLE` if the bytes are no checkpoint."""
    tensors = load_tensors(data)
    size = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["fedrl"])
    _check(header)
    flat: dict[str, Json] = {f"state/{i}": {} for i in range(header["states"])}
    for key, leaf in header["scalars"].items():
        owner, _, name = key.partition(":")
        flat.setdefault(owner, {})[name] = leaf
    for key, tensor in tensors.items():
        owner, _, name = key.partition(":")
        if owner.startswith(("state/", "away/")):
            flat.setdefault(owner, {})[name] = tensor
    for i, name in enumerate(header["stacked"]):
        rows = tensors[f"clients/{i}:rows"]
        for client, row in zip(tensors[f"clients/{i}:ids"], rows):
            flat.setdefault(f"client/{client}", {})[name] = np.asarray(row)
    states = [tree.unflatten(flat[f"state/{i}"]) for i in range(header["states"])]
    clients = {
        int(owner.removeprefix("client/")): tree.unflatten(leaves)
        for owner, leaves in flat.items()
        if owner.startswith("client/")
    }
    away = tuple(_due(i, fact, flat) for i, fact in enumerate(header.get("away", [])))
    notes = {name: header.get(name, {}) for name in NOTES}
    return Snapshot(header["round"], states, clients, header["totals"], away), notes


def _check(header: Any) -> None:
    """Whole numbers where they count: what only looks like a checkpoint fails here, not later."""
    counts = [header["round"], header["states"], *header.get("lengths", {}).values()]
    if not all(type(count) is int and count >= -1 for count in counts):
        raise ValueError("a round, a number of states or a length is none")
    if not all(type(total) in (int, float) for total in header["totals"].values()):
        raise ValueError("a total is no number")
    if not all(isinstance(header.get(name, {}), dict) for name in NOTES):
        raise ValueError("a note is no table")


def _told(due: Due) -> tuple[Json, dict[str, Tensors]]:
    """What is plain of an outcome, and its tensors."""
    got = due.outcome
    if isinstance(got, Failure):
        return {"reason": got.reason}, {}
    parts = {"update": got.update} | ({} if got.state is None else {"state": got.state})
    return {"weight": got.weight, "metrics": got.metrics, "kept": got.state is not None}, parts


def _due(i: int, fact: Json, flat: dict[str, Json]) -> tuple[int, Due]:
    client = fact["client"]
    outcome: Result | Failure
    if "reason" in fact:
        outcome = Failure(client, fact["reason"])
    else:
        update = tree.unflatten(flat.get(f"away/{i}/update", {}))
        state = tree.unflatten(flat.get(f"away/{i}/state", {})) if fact["kept"] else None
        outcome = Result(client, update, fact["weight"], state, fact["metrics"])
    return fact["round"], Due(fact["time"], client, outcome)
