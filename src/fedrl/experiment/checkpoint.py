"""A snapshot as the bytes of a safetensors file, and back.

Server states are stored leaf by leaf. Clients' states are many and alike, so equal leaves of all
clients are stacked into one tensor: ten thousand clients cost a few tensors, not ten thousand.
Scalars go into the header as JSON.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fedrl import tree
from fedrl.federation import Snapshot


def pack(snapshot: Snapshot, lengths: dict[str, int]) -> bytes:
    """`lengths` are those of the logs at this moment."""
    tensors: dict[str, np.ndarray] = {}
    scalars: dict[str, Any] = {}
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
    names = []
    for i, ((name, _, _), rows) in enumerate(alike.items()):
        names.append(name)
        tensors[f"clients/{i}:ids"] = np.array([client for client, _ in rows], np.int64)
        tensors[f"clients/{i}:rows"] = np.stack([leaf for _, leaf in rows])
    header = {
        "round": snapshot.round,
        "states": len(snapshot.states),
        "totals": snapshot.totals,
        "lengths": lengths,
        "scalars": scalars,
        "stacked": names,
    }
    return save_tensors(tensors, {"fedrl": json.dumps(header)})


def unpack(data: bytes) -> tuple[Snapshot, dict[str, int]]:
    tensors = load_tensors(data)
    size = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["fedrl"])
    flat: dict[str, dict[str, Any]] = {f"state/{i}": {} for i in range(header["states"])}
    for key, leaf in header["scalars"].items():
        owner, _, name = key.partition(":")
        flat.setdefault(owner, {})[name] = leaf
    for key, tensor in tensors.items():
        owner, _, name = key.partition(":")
        if owner.startswith("state/"):
            flat[owner][name] = tensor
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
    return Snapshot(header["round"], states, clients, header["totals"]), header["lengths"]
