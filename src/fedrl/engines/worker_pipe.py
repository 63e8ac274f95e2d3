"""Objects through a pipe between processes, with their arrays beside them, piece by piece.

A pipe of `multiprocessing` sends one pickle with everything in it, which each side then has beside
the arrays themselves. Here arrays go as they lie in memory, and arrive in the memory that they
keep.
"""

from __future__ import annotations

import pickle
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

LARGE = 2**16
"""Bytes of an array that goes beside the pickle."""
PIECE = 2**20


def send(pipe: Connection, thing: Any) -> None:
    arrays: list[memoryview] = []

    def beside(buffer: pickle.PickleBuffer) -> bool:
        """Whether it goes into the pickle after all."""
        raw = buffer.raw()
        if raw.nbytes < LARGE:
            return True
        arrays.append(raw)
        return False

    data = pickle.dumps(thing, protocol=5, buffer_callback=beside)
    pipe.send([raw.nbytes for raw in arrays])
    pipe.send_bytes(data)
    for raw in arrays:
        for start in range(0, raw.nbytes, PIECE):
            pipe.send_bytes(raw[start : start + PIECE])


def receive(pipe: Connection) -> Any:
    sizes = pipe.recv()
    data = pipe.recv_bytes()
    arrays = []
    for size in sizes:
        room = np.empty(size, np.uint8).data
        reached = 0
        while reached < size:
            reached += pipe.recv_bytes_into(room, reached)
        arrays.append(room)
    return pickle.loads(data, buffers=arrays)
