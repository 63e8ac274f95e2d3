"""A member that lies: a node with a registered key that sends what no honest one would.

    python tests/support/flower_hostile.py --client 2 …        the words of `fedrl flower node`

Its answer to each job is the next of `LIES`.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))  # nodes are started with `python -P`
from flwr.app import Array, ArrayRecord, RecordDict
from safetensors.numpy import save

from fedrl.cli import call
from fedrl.core import serialization
from fedrl.engines.flower import adapter, messages, node_recipes
from fedrl.engines.flower.adapter import records
from fedrl.engines.flower.node import NodeClient
from support.flower_runs import IMPATIENT

LIES = [
    "honest", "undeclared", "too large", "too often", "replayed", "no archive", "pickled",
    "nested", "numbered", "unprintable", "multiplied", "boasted", "honest",
]  # fmt: skip
HEADS = {"nested": b"[" * 100_000, "numbered": b'[[null, 5, "plain", 1], [null, "a", "plain", 1]]'}


class Hostile(NodeClient):
    asked: int = 0
    first: RecordDict | None = None

    def answer(self, content: RecordDict) -> RecordDict:
        honest = super().answer(content)
        text, pieces = records.opened(honest)
        if json.loads(text)["kind"] != "answer":
            return honest
        lie = LIES[self.asked % len(LIES)]
        self.asked += 1
        self.first = self.first or honest
        heading: messages.Answer = messages.from_json(text, messages.Answer)
        if lie == "undeclared":
            update = serialization.unpack(b"".join(pieces)) | {"diary": np.ones(3)}
            return sealed(heading, [serialization.pack(update)])
        if lie == "too large":
            return sealed(heading, [bytes([number]) * 10**6 for number in range(3)])
        if lie == "too often":  # Flower carries equal pieces once
            return sealed(heading, [bytes(10**5)] * 30)
        if lie == "replayed":
            return self.first
        if lie == "no archive":
            return sealed(heading, [b"PK\x03\x04 and then nothing that fits"])
        if lie in HEADS:
            return sealed(heading, [save({"head": np.frombuffer(HEADS[lie], np.uint8)})])
        if lie == "multiplied":  # one tensor, restored to twice its size under 4,000 names
            entries = [[None, f"n{number}", "half array", "0"] for number in range(4000)]
            head = np.frombuffer(json.dumps(entries).encode(), np.uint8)
            return sealed(heading, [save({"0": np.zeros(2**15, np.float16), "head": head})])
        if lie == "boasted":
            return sealed(replace(heading, metrics=heading.metrics | {"env/steps": 1e308}), pieces)
        if lie == "unprintable":
            told = messages.to_json(replace(heading, reason="\ud800\n12:00:00 round 9/9 done"))
            return records.content(told)
        if lie == "pickled":
            bomb = Array("object", (1,), "numpy.ndarray", pickle.dumps(Bomb()))
            return RecordDict({**honest, records.BODY: ArrayRecord({"0": bomb})})
        return honest


class Bomb:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> tuple:
        return os._exit, (13,)


def sealed(heading: messages.Answer, pieces: list[bytes]) -> RecordDict:
    """With a checksum that fits: what is wrong is inside."""
    told = messages.to_json(replace(heading, digest=serialization.checksum(pieces)))
    return records.content(told, records.body(pieces))


if __name__ == "__main__":
    adapter.SUPERNODE = IMPATIENT + adapter.SUPERNODE
    node_recipes.NodeClient = Hostile  # type: ignore[misc]
    sys.exit(call(["flower", "node", *sys.argv[1:]]))
