"""A running SuperLink and its folder: who is in the register is a node, who is taken out is none,
and a new certificate is taken up, all with no restart.

Flower registers and unregisters nodes while it runs (its command `supernode register`), for whoever
may ask for control; here that is done from the files of the folder. A key that was unregistered it
does not take again before it is restarted: who comes back makes a new one.
"""

from __future__ import annotations

import ssl
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import httpx
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedrl.engines.flower.coordinator_audit import CoordinatorAudit
from fedrl.engines.flower.keys import pem_digest
from fedrl.engines.flower.owner_log import say
from fedrl.privacy.secure_aggregation import public_keys
from fedrl.privacy.secure_aggregation.public_keys import Malformed

LOOK_SECONDS = 3.0
PATIENT_TRIES = 10
ABSENT = 2
"""Looks in a row that must not find a key before it is revoked: files are written in two steps."""


class Registry(Protocol):
    """What a SuperLink does with keys, in PEM form."""

    def register(self, key: bytes) -> None: ...

    def unregister(self, key: bytes) -> None: ...


class KeptRegister:
    """The keys in the files `*.pub` of a folder, and those that a SuperLink knows."""

    def __init__(self, registry: Registry, folder: Path, audit: CoordinatorAudit) -> None:
        self.registry, self.folder, self.audit = registry, folder, audit
        self._known: dict[bytes, str] = {}  # key → its file
        self._refused: set[bytes] = set()
        self._absent: dict[bytes, int] = {}
        self._told: dict[str, bytes] = {}  # files that are no keys, and what they were

    def client_of(self, key: bytes) -> str:
        """The number under which a key is filed; empty if there is none."""
        number = public_keys.NUMBERED.fullmatch(self._known.get(key, ""))
        return number[1] if number else ""

    def look(self) -> None:
        """Once; `httpx.TransportError` if the SuperLink does not answer."""
        wanted = self._wanted()
        if wanted is None:
            return
        for key, name in wanted.items():
            if key not in self._known and key not in self._refused:
                self._register(key, name)
        for key in [key for key in self._known if key not in wanted]:
            self._absent[key] = self._absent.get(key, 0) + 1
            if self._absent[key] >= ABSENT:
                self._revoke(key)
        self._absent = {key: n for key, n in self._absent.items() if key not in wanted}

    def _wanted(self) -> dict[bytes, str] | None:
        """The keys of all files; those of a file that cannot be read are as they were."""
        if not self.folder.is_dir():  # moved away for a moment, or for good: nobody is put out
            return None
        wanted: dict[bytes, str] = {}
        for path in sorted(self.folder.glob("*.pub")):
            text = b""
            try:
                text = path.read_bytes()
                found = public_keys.parse(text)
            except (OSError, Malformed) as error:
                wanted |= {key: name for key, name in self._known.items() if name == path.name}
                if self._told.get(path.name) != text:
                    say(f"{path.name} was not registered: {error}")
                    self._told[path.name] = text
                continue
            for key, _ in found:
                pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
                wanted.setdefault(pem, path.name)
        return wanted

    def _register(self, key: bytes, name: str) -> None:
        try:
            self.registry.register(key)
        except httpx.HTTPStatusError as error:
            self._refused.add(key)
            status = error.response.status_code
            say(f"{name} was not registered ({status}): a key that was revoked is not taken again")
            return
        self._known[key] = name
        say(f"registered the node of {name}")
        self.audit.add("registered", file=name, key=pem_digest(key))

    def _revoke(self, key: bytes) -> None:
        self.registry.unregister(key)
        name = self._known.pop(key)
        say(f"revoked the node of {name}")
        self.audit.add("revoked", file=name, key=pem_digest(key))

    def keep(self) -> None:
        """For ever."""
        tries = 0
        while True:
            try:
                self.look()
            except httpx.TransportError as error:  # the SuperLink is starting
                tries += 1
                if tries == PATIENT_TRIES:
                    say(f"no node is registered: nothing answers ({error})")
            except Exception as error:  # noqa: BLE001 - it must not end: nobody could be revoked
                say(f"the register was not looked at ({type(error).__name__})")
            time.sleep(LOOK_SECONDS)


class KeptCertificate:
    """server.pem and server.key of a folder, in a TLS context that is being used.

    Connections that are open stay; new ones are made with the new certificate. A pair that does not
    fit, half written say, is not taken up.
    """

    def __init__(self, context: ssl.SSLContext, folder: Path, audit: CoordinatorAudit) -> None:
        self.context, self.folder, self.audit = context, folder, audit
        self._pair = self._read()

    def _read(self) -> tuple[bytes, bytes]:
        return (self.folder / "server.pem").read_bytes(), (self.folder / "server.key").read_bytes()

    def look(self) -> bool:
        """Whether there was a new one that is now used."""
        try:
            pair = self._read()
            if pair == self._pair:
                return False
            until = x509.load_pem_x509_certificate(pair[0]).not_valid_after_utc
            with tempfile.NamedTemporaryFile() as whole:  # its owner's alone
                whole.write(b"\n".join(pair))
                whole.flush()
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(whole.name)
                self.context.load_cert_chain(whole.name)
        except (OSError, ValueError):  # an error of TLS is an OSError
            return False
        self._pair = pair
        say(f"the SuperLink has a new certificate, valid until {until:%Y-%m-%d}")
        self.audit.add("certificate", until=f"{until:%Y-%m-%d}")
        return True

    def keep(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """For ever."""
        while True:
            sleep(LOOK_SECONDS)
            self.look()
