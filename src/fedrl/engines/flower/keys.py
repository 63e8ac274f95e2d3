"""Certificates and keys for a federation: a CA, a server certificate, a key pair per node.

The coordinator files nodes' public keys under their clients' numbers, which binds the two.

Elliptic curves throughout, by the `cryptography` package. Private keys are files that only their
owner can read. Nodes' keys are OpenSSH files on the curve P-384, which is what Flower reads.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedrl.core.private_files import create_private
from fedrl.core.types import UserError
from fedrl.privacy.secure_aggregation.identity import check_distinct

DAYS = 825
"""Longer certificates are refused by some systems."""
NUMBERED = re.compile(r"client-(0|[1-9]\d{0,8})\.pub")


def make_server(folder: Path, hosts: Sequence[str]) -> None:
    """ca.pem, ca.key, server.pem, server.key and secret, for a server under these names."""
    authority = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedrl federation")])
    usage = _usage(sign_certificates=True)
    ca = _certificate(name, name, authority.public_key(), authority)
    ca = ca.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    signed_ca = ca.add_extension(usage, critical=True).sign(authority, hashes.SHA384())

    key = ec.generate_private_key(ec.SECP384R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedrl SuperLink")])
    server = _certificate(subject, name, key.public_key(), authority)
    server = server.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    server = server.add_extension(_usage(sign_certificates=False), critical=True)
    server = server.add_extension(x509.SubjectAlternativeName(list(map(_name, hosts))), False)
    server = server.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
    signed = server.sign(authority, hashes.SHA384())

    create_private(folder / "ca.key", _pem(authority))
    create_private(folder / "server.key", _pem(key))
    create_private(folder / "secret", secrets.token_bytes(32))
    (folder / "ca.pem").write_bytes(signed_ca.public_bytes(serialization.Encoding.PEM))
    (folder / "server.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / "nodes").mkdir(exist_ok=True)


def make_node(path: Path) -> None:
    """`path` with the private key and `path`.pub, to be given to the server's side."""
    key = ec.generate_private_key(ec.SECP384R1())
    encoding, shape = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH
    create_private(path, key.private_bytes(encoding, shape, serialization.NoEncryption()))
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    path.with_name(path.name + ".pub").write_bytes(public + b"\n")


class Registered:
    """Which key is which client's: the files `client-N.pub` of a folder, read when they are needed.

    A node says its number itself, so the number is believed only with the key of that file: who
    holds another member's key cannot take the place of a client that is absent.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def doubt(self, client: int, key: ec.EllipticCurvePublicKey | None) -> str:
        """Why a node with this key is not this client; empty if it is."""
        known = self._keys()
        numbers = [number for number, one in known.items() if one == key]
        if numbers == [client]:
            return ""
        if len(numbers) > 1:
            return f"its key is in {' and '.join(f'client-{n}.pub' for n in numbers)}"
        whose = f"that of client {numbers[0]}" if numbers else "no client's"
        return f"its key is {whose}, by {self.folder}/client-*.pub"

    def check(self) -> None:
        """Say before a run what would keep everybody out."""
        known = self._keys()
        if not known:
            raise UserError(
                f"{self.folder} has no client-0.pub, client-1.pub, …: put the nodes' public keys "
                "there under their clients' numbers"
            )
        check_distinct(known, str(self.folder))

    def _keys(self) -> dict[int, ec.EllipticCurvePublicKey]:
        known = {}
        for path in sorted(self.folder.glob("client-*.pub")):
            number = NUMBERED.fullmatch(path.name)
            try:
                key = serialization.load_ssh_public_key(path.read_bytes())
            except (OSError, ValueError, UnsupportedAlgorithm):
                continue  # the SuperLink says that it did not register it
            if number and isinstance(key, ec.EllipticCurvePublicKey):
                known[int(number[1])] = key
        return dict(sorted(known.items()))


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
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
