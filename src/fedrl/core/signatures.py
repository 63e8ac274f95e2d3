"""Signed files: who gets a model or a checkpoint can tell whose it is, and that it is whole.

A signature is a JSON file beside what it is about: the SHA-256 of every file, which run and round
they come from, and the signer's Ed25519 public key. What is signed is that statement in one
spelling (`_bytes`), so that what is read is what was signed. A key of its own can sign; that of a
coordinator has a certificate of its federation's CA with it, and is believed wherever that CA is.
A signature says who wrote the files and not when: a signer's clock proves nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from fedrl.core.atomic_files import write_atomically
from fedrl.core.private_files import create_private
from fedrl.core.types import Json, JsonValue, UserError

FORMAT = "fedrl signature 1"
DOMAIN = b"fedrl signature of files\n"
FILE = "signature.json"
"""In the folder that it is about."""
SUFFIX = ".sig"
"""Of the one beside a single file."""
CERTIFICATE = "signing.pem"
"""Beside a coordinator's signing key: its certificate, and that of the CA."""
LARGEST = 2**24
"""Bytes of a signature: it names every file, and comes from anybody."""
DIGEST = re.compile(r"[0-9a-f]{64}")
SHORT = re.compile(r"[0-9a-f]{8,}")
MALFORMED = (ValueError, TypeError, KeyError, RecursionError, UnsupportedAlgorithm)


class Unsigned(Exception):
    """What is wrong with a signature, or with what it is about, in one line."""


@dataclass(frozen=True)
class About:
    """What is signed: `settings` is the digest of the run's config.toml, `recipe` that of what its
    nodes were sent, as their audit logs have it; empty where there were none."""

    what: str
    run: str
    round: int
    settings: str
    recipe: str = ""


class Signed(NamedTuple):
    """A signature that holds: by which key, and of which coordinator, if its CA vouches for it."""

    about: About
    key: str
    coordinator: str


# Keys --------------------------------------------------------------------------------------------


def make_key(path: Path) -> Ed25519PublicKey:
    """`path` with a private key that only its owner can read, and `path`.pub for everybody."""
    key = Ed25519PrivateKey.generate()
    create_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    path.with_name(path.name + ".pub").write_bytes(public + b"\n")
    return key.public_key()


def fingerprint(key: Ed25519PublicKey) -> str:
    """SHA-256 of a public key, as policies and audit logs call nodes and coordinators."""
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def trusted(word: str) -> str:
    """The digest of whom `--key` names: by the digest itself, a signer's .pub or a ca.pem."""
    if DIGEST.fullmatch(word.lower()):
        return word.lower()
    if SHORT.fullmatch(word.lower()) and not Path(word).exists():
        raise UserError(f"--key {word}: a digest has 64 digits, and this has {len(word)}")
    try:
        data = Path(word).read_bytes()
        if b"BEGIN CERTIFICATE" in data:
            (authority,) = x509.load_pem_x509_certificates(data)
            return _digest_of(authority)
        key = load_ssh_public_key(data)
        if isinstance(key, Ed25519PublicKey):
            return fingerprint(key)
    except OSError as error:
        raise UserError(f"--key {word}: {error.strerror}") from error
    except MALFORMED:
        pass
    raise UserError(
        f"--key {word} is no signer: name its .pub, its coordinator's ca.pem, or the digest of "
        "either (64 hexadecimal digits)"
    )


def _digest_of(certificate: x509.Certificate) -> str:
    der = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


# Signing -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Signer:
    """A private key, with the certificates that lie beside it, if any."""

    key: Ed25519PrivateKey
    certificates: str = ""

    @classmethod
    def load(cls, path: Path) -> Signer:
        try:
            key = load_ssh_private_key(path.read_bytes(), password=None)
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from error
        except MALFORMED as error:
            raise UserError(f"{path} is no key of `fedrl flower keys signer`") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise UserError(
                f"{path} is a key of another kind than `fedrl flower keys signer` makes"
            )
        beside = path.with_name(CERTIFICATE)
        certificates = beside.read_text(encoding="ascii") if beside.is_file() else ""
        try:
            _coordinator(certificates, key.public_key())
        except Unsigned:  # it lies beside another key
            certificates = ""
        return cls(key, certificates)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.key.public_key())

    @property
    def coordinator(self) -> str:
        """The digest of the CA that vouches for it; empty if none does."""
        return _coordinator(self.certificates, self.key.public_key())

    def sign_folder(self, folder: Path, about: About) -> None:
        """Write the signature of all files of a folder into it."""
        self._write(folder / FILE, _digests(folder), about)

    def sign_file(self, path: Path, about: About, mode: int) -> None:
        """Write the signature of one file beside it."""
        self._write(path.with_name(path.name + SUFFIX), {path.name: _sha256(path)}, about, mode)

    def _write(
        self, place: Path, files: Mapping[str, str], about: About, mode: int = 0o666
    ) -> None:
        raw = self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        said: Json = {
            "format": FORMAT,
            **asdict(about),
            "files": dict(files),
            "key": base64.b64encode(raw).decode(),
            "certificates": self.certificates,
        }
        signature = base64.b64encode(self.key.sign(_bytes(said))).decode()
        text = json.dumps(said | {"signature": signature}, indent=1, sort_keys=True) + "\n"
        write_atomically(place, text.encode("ascii"), mode)


def _bytes(said: Mapping[str, JsonValue]) -> bytes:
    """The one spelling of a statement."""
    text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return DOMAIN + text.encode("ascii")


def _digests(folder: Path) -> dict[str, str]:
    """Every file by its name in the folder; links and what is no file are no part of a model."""
    return {name: _sha256(path) for name, path in _contents(folder) if path != folder / FILE}


def _contents(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            for name, inner in _contents(path):
                yield f"{path.name}/{name}", inner
        elif path.is_symlink() or not path.is_file():
            raise Unsigned(f"{path.name} is no ordinary file, which cannot be signed")
        else:
            yield path.name, path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Verifying ---------------------------------------------------------------------------------------


def verify_folder(folder: Path, keys: Collection[str] = ()) -> Signed:
    """Whether all files of a folder, and no others, are as one of these has signed them."""
    said, signed = _read(folder / FILE, keys)
    _compare(said, _digests(folder))
    return signed


def verify_file(path: Path, keys: Collection[str] = ()) -> Signed:
    said, signed = _read(path.with_name(path.name + SUFFIX), keys)
    if path.is_symlink() or not path.is_file():
        raise Unsigned(f"{path.name} is missing")
    _compare(said, {path.name: _sha256(path)})
    return signed


def _compare(signed: Mapping[str, str], found: Mapping[str, str]) -> None:
    wrong = [f"{name} is missing" for name in sorted(signed.keys() - found.keys())]
    wrong += [
        f"{name} was changed after it was signed"
        for name in sorted(signed.keys() & found.keys())
        if signed[name] != found[name]
    ]
    extra = sorted(found.keys() - signed.keys())
    wrong += [f"{name} was not signed: it is extra" for name in extra]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise Unsigned(wrong[0] + more)


def _read(path: Path, keys: Collection[str]) -> tuple[dict[str, str], Signed]:
    """What was signed, if the signature holds and is by one of these keys, or of their CA."""
    if path.is_symlink() or not path.is_file():
        raise Unsigned(f"there is no {path.name}: it was not signed")
    if os.path.getsize(path) > LARGEST:
        raise Unsigned(f"{path.name} is too large for a signature")
    try:
        said = json.loads(path.read_bytes())
        signature = base64.b64decode(said.pop("signature"), validate=True)
        known = said["format"]
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(said["key"], validate=True))
        files = {str(name): str(digest) for name, digest in said["files"].items()}
        about = About(
            str(said["what"]), str(said["run"]), int(said["round"]), str(said["settings"]),
            str(said["recipe"]),
        )  # fmt: skip
        statement = _bytes(said)
    except (*MALFORMED, AttributeError) as error:
        raise Unsigned(f"{path.name} is no signature, or was changed") from error
    if known != FORMAT:
        raise Unsigned(f"{path.name} is of another version of fedrl")
    try:
        key.verify(signature, statement)
    except InvalidSignature as error:
        raise Unsigned(f"{path.name} was changed: its signature does not hold") from error
    signed = Signed(about, fingerprint(key), _coordinator(said.get("certificates"), key))
    if keys and not {signed.key, signed.coordinator} & set(keys):
        raise Unsigned(f"it is signed by an unknown key, {signed.key}")
    return files, signed


def _coordinator(certificates: object, key: Ed25519PublicKey) -> str:
    """The digest of the CA that vouches for the key; empty if none does."""
    if not isinstance(certificates, str) or not certificates:
        return ""
    try:
        own, authority = x509.load_pem_x509_certificates(certificates.encode("ascii"))
        own.verify_directly_issued_by(authority)
        usage = own.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (*MALFORMED, InvalidSignature, x509.ExtensionNotFound) as error:
        raise Unsigned("its certificate is not of the CA that it names") from error
    if own.public_key() != key or ExtendedKeyUsageOID.CODE_SIGNING not in usage:
        raise Unsigned("its certificate is another key's")
    return _digest_of(authority)
