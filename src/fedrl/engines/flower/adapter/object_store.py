"""Objects of messages at a SuperLink or SuperNode: a bounded part in memory, the rest in files.

Flower holds them all in memory, which for a model of gigabytes and several clients is more than a
machine has, or in a database on its disk. Here what is beyond `held` bytes lies in files that are
encrypted with a key which is nowhere but in this process: nobody can read them, and nobody can once
it has ended. They are deleted with the message; those of a process that was killed, when the next
one starts.
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore

HELD = 2**28
"""Bytes in memory: rounds of adapters and small models never see a disk."""
SMALLEST = 2**16
"""Bytes that are worth a file."""
NONCE = 12


class SpooledObjectStore(InMemoryObjectStore):
    """`folder` is its own: what lies there is deleted."""

    def __init__(self, folder: Path, held: int = HELD) -> None:
        super().__init__()
        shutil.rmtree(folder, ignore_errors=True)
        self._folder, self._most = folder, held
        self._cipher = AESGCM(AESGCM.generate_key(128))
        self._held: dict[str, int] = {}  # bytes in memory, by object
        self._bytes = 0
        self._files: dict[str, Path] = {}

    def put(self, object_id: str, object_content: bytes) -> None:
        super().put(object_id, object_content)  # which checks it
        with self.lock_store:
            if object_id in self._held or object_id in self._files:
                return
            size = len(object_content)
            if size < SMALLEST or self._bytes + size <= self._most:
                self._held[object_id] = size
                self._bytes += size
                return
            self._files[object_id] = self._write(object_id, object_content)
            self.store[object_id].content = b""

    def get(self, object_id: str) -> bytes | None:
        with self.lock_store:
            path = self._files.get(object_id)
            if path is None:
                return super().get(object_id)
            data = path.read_bytes()
        return self._cipher.decrypt(data[:NONCE], data[NONCE:], object_id.encode())

    def delete(self, object_id: str) -> None:
        with self.lock_store:
            super().delete(object_id)  # which calls this for what it named
            if object_id not in self.store:
                self._bytes -= self._held.pop(object_id, 0)
                if (path := self._files.pop(object_id, None)) is not None:
                    path.unlink(missing_ok=True)

    def clear(self) -> None:
        with self.lock_store:
            super().clear()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._held.clear()
            self._files.clear()
            self._bytes = 0

    def _write(self, object_id: str, content: bytes) -> Path:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / secrets.token_hex(16)
        nonce = secrets.token_bytes(NONCE)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(file, "wb") as out:
                out.write(nonce)
                out.write(self._cipher.encrypt(nonce, content, object_id.encode()))
        except OSError:  # a full disk: the sender hears that it was not taken
            path.unlink(missing_ok=True)
            self.store[object_id].is_available = False
            self.store[object_id].content = b""
            raise
        return path
