"""Certificates and keys for a federation: a CA, a server certificate, a key pair per node, and the
coordinator's key that signs models and checkpoints.

The coordinator files nodes' public keys under their clients' numbers, which binds the two
(`registered.py`).

Elliptic curves throughout, by the `cryptography` package. Private keys are files that only their
owner can read. Nodes' keys are OpenSSH files on the curve P-384, which is what Flower reads.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedrl.core import signatures
from fedrl.core.atomic_files import OWNER_ONLY, write_atomically
from fedrl.core.private_files import create_private, require_new
from fedrl.core.types import UserError
from fedrl.engines.flower.connection import SIGNING_KEY
from fedrl.privacy.secure_aggregation import public_keys

DAYS = 825
"""Longer certificates are refused by some systems."""


def make_server(folder: Path, hosts: Sequence[str]) -> None:
    """ca.pem, ca.key, server.pem, server.key, secret and signing.key, for a server under these
    names."""
    for made in ("ca.pem", "ca.key", "server.pem", "server.key", "secret", SIGNING_KEY):
        require_new(folder / made)  # ca.key alone may have been put away
    authority = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedrl federation")])
    usage = _usage(sign_certificates=True)
    ca = _certificate(name, name, authority.public_key(), authority)
    ca = ca.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    signed_ca = ca.add_extension(usage, critical=True).sign(authority, hashes.SHA384())

    key = ec.generate_private_key(ec.SECP384R1())
    signed = _server_certificate(key, list(map(_name, hosts)), name, authority)

    create_private(folder / "ca.key", _pem(authority))
    create_private(folder / "server.key", _pem(key))
    create_private(folder / "secret", secrets.token_bytes(32))
    (folder / "ca.pem").write_bytes(signed_ca.public_bytes(serialization.Encoding.PEM))
    (folder / "server.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / "nodes").mkdir(exist_ok=True)
    make_signer(folder)


def make_signer(folder: Path) -> str:
    """signing.key and signing.key.pub, and signing.pem, in which the CA vouches for it; the
    fingerprint of the key."""
    authority, ca = _authority(folder)
    key = signatures.make_key(folder / SIGNING_KEY)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedrl models and checkpoints")])
    usage = [ExtendedKeyUsageOID.CODE_SIGNING]
    signed = _certificate(subject, ca.subject, key, authority)
    signed = signed.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    signed = signed.add_extension(_usage(sign_certificates=False), critical=True)
    signed = signed.add_extension(x509.ExtendedKeyUsage(usage), False)
    made = signed.sign(authority, hashes.SHA384()), ca
    pem = b"".join(one.public_bytes(serialization.Encoding.PEM) for one in made)
    write_atomically(folder / signatures.CERTIFICATE, pem)
    return signatures.fingerprint(key)


def renew_server(folder: Path, hosts: Sequence[str] = ()) -> None:
    """A new server.key and server.pem of the same CA, for the names that the old one has if no
    others are given; a SuperLink that is running takes them up by itself."""
    authority, ca = _authority(folder)
    try:
        old = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes())
        names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound) as error:
        raise UserError(f"{folder / 'server.pem'} cannot be read as a certificate") from error
    key = ec.generate_private_key(ec.SECP384R1())
    given = list(map(_name, hosts)) if hosts else list(names)
    signed = _server_certificate(key, given, ca.subject, authority)
    # A SuperLink that looks in between finds two that do not fit, and looks again.
    write_atomically(folder / "server.key", _pem(key), OWNER_ONLY)
    write_atomically(folder / "server.pem", signed.public_bytes(serialization.Encoding.PEM))


def _authority(folder: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """The CA's private key and certificate."""
    try:
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        ca = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    except OSError as error:
        raise UserError(
            f"{error.filename}: {error.strerror}; the CA's key is needed here for a moment"
        ) from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UserError(f"{folder} has no CA of `fedrl flower keys server`") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != ca.public_key():
        raise UserError(f"{folder / 'ca.key'} is not the key of {folder / 'ca.pem'}")
    return key, ca


def _server_certificate(
    key: ec.EllipticCurvePrivateKey,
    hosts: Sequence[x509.GeneralName],
    issuer: x509.Name,
    authority: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedrl SuperLink")])
    server = _certificate(subject, issuer, key.public_key(), authority)
    server = server.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    server = server.add_extension(_usage(sign_certificates=False), critical=True)
    server = server.add_extension(x509.SubjectAlternativeName(hosts), False)
    server = server.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
    return server.sign(authority, hashes.SHA384())


def make_node(path: Path, name: str = "") -> None:
    """`path` with the private key and `path`.pub, to be given to the server's side; the name of its
    file is that of its owner, if nothing else is said."""
    public_file = path.with_name(path.name + ".pub")
    require_new(public_file)
    key = ec.generate_private_key(ec.SECP384R1())
    encoding, shape = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH
    create_private(path, key.private_bytes(encoding, shape, serialization.NoEncryption()))
    called = name or "-".join(path.name.removesuffix(".key").split())
    named = called if public_keys.NAME.fullmatch(called) else ""
    public = public_keys.line(key.public_key(), named)
    public_file.write_bytes(public)


def key_digest(key: ec.EllipticCurvePublicKey) -> str:
    """SHA-256 of a public key: how policies and audit logs call a node or a coordinator."""
    der, shape = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(der, shape)).hexdigest()


def public_digest(file: Path) -> str:
    """The same of a node's key by its public half, `file`.pub."""
    path = file.with_name(file.name + ".pub")
    try:
        return key_digest(public_keys.parse(path.read_bytes())[-1].key)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, IndexError) as error:
        raise UserError(f"{path} is not the public key of a node") from error


def pem_digest(pem: bytes) -> str:
    """The same of a key as Flower has it; empty of anything else."""
    try:
        key = serialization.load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        return ""
    return key_digest(key) if isinstance(key, ec.EllipticCurvePublicKey) else ""


def coordinator_digest(ca: Path) -> str:
    """The digest of the key of a federation's CA, which stays when the server gets a new
    certificate from it. Of several in one file a node would trust all."""
    try:
        found = x509.load_pem_x509_certificates(ca.read_bytes())
    except OSError as error:
        raise UserError(f"{ca} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{ca} is no certificate in PEM form") from error
    if len(found) != 1:
        raise UserError(f"{ca} has {len(found)} certificates, and a federation has one CA")
    key = found[0].public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise UserError(f"{ca} is no certificate of `fedrl flower keys server`")
    return key_digest(key)


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey | Ed25519PublicKey,
    authority: ec.EllipticCurvePrivateKey,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
            critical=False,
        )
    )


def _usage(sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise UserError(f"--host {host!r} cannot stand in a certificate: {error}") from error


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
