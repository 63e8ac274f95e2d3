"""The register: which keys are which client's, by the files `client-N.pub` of a folder.

The coordinator's is `nodes` beside its certificates; a node's `--peers` is one, too. A file has a
client's keys, the newest last, and its name (`public_keys.py`). The SuperLink looks every few
seconds, so that who is put in is registered and who is taken out is out, with no restart.

A client changes its key with both in the register for a while:

    node          fedrl flower keys renew north.key      north.key.next, and north.key.renewal
    coordinator   fedrl flower register hub north.key.renewal
    node          fedrl flower keys use north.key        its node changes in the next quiet moment
    coordinator   fedrl flower revoke hub 0 --old

A renewal is signed with the old key: it needs no telephone, and whoever has only the name of a
client cannot take its place.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedrl.core.atomic_files import write_atomically
from fedrl.core.types import UserError
from fedrl.engines.flower.keys import make_node
from fedrl.privacy.secure_aggregation import public_keys
from fedrl.privacy.secure_aggregation.public_keys import NAME, NUMBERED, Malformed, Named

SCHEME = ec.ECDSA(hashes.SHA384())
DOMAIN = b"fedrl: this key follows that one\n"
NEXT, RENEWAL, OLD = ".next", ".renewal", ".old"
LARGEST = 2**14
"""Bytes of a renewal."""


class Registered:
    """Which key is which client's, read when it is needed.

    A node says its number itself, so the number is believed only with a key of that file: who holds
    another member's key cannot take the place of a client that is absent. Its name is that of the
    file, and nothing that it says.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def doubt(self, client: int, key: ec.EllipticCurvePublicKey | None) -> str:
        """Why a node with this key is not this client; empty if it is."""
        known = self.clients()
        numbers = [n for n, named in known.items() if any(one.key == key for one in named)]
        if numbers == [client]:
            return ""
        if len(numbers) > 1:
            return f"its key is in {' and '.join(f'client-{n}.pub' for n in numbers)}"
        whose = f"that of {_label(numbers[0], known)}" if numbers else "no client's"
        return f"its key is {whose}, by {self.folder}/client-*.pub"

    def owner(self, key: ec.EllipticCurvePublicKey) -> str:
        """The client whose key it is, with its name; empty if it is no client's."""
        known = self.clients()
        numbers = [n for n, named in known.items() if any(one.key == key for one in named)]
        return _label(numbers[0], known) if numbers else ""

    def name(self, client: int) -> str:
        """Of its newest key; empty if it has none that is its own alone."""
        known = self.clients()
        return _own_name(client, known) if client in known else ""

    def renewing(self, client: int) -> bool:
        """Whether it has two keys, and so changes from one to the other."""
        return len(self.clients().get(client, [])) > 1

    def check(self) -> None:
        """Say before a run what would keep everybody out."""
        known = self.clients()
        if not known:
            raise UserError(
                f"{self.folder} has no client-0.pub, client-1.pub, …: put the nodes' public keys "
                "there under their clients' numbers (fedrl flower register)"
            )
        if (pair := public_keys.twice(known)) is not None:
            raise UserError(
                f"{self.folder}: client-{pair[0]}.pub and client-{pair[1]}.pub are the same key; "
                "every client has its own"
            )

    def clients(self) -> dict[int, list[Named]]:
        """Keys by clients' numbers; files that cannot be read are nobody's."""
        known = {}
        for path in self.folder.glob("client-*.pub"):
            number = NUMBERED.fullmatch(path.name)
            try:
                keys = public_keys.read(path)
            except (OSError, Malformed):
                continue  # the SuperLink says that it did not register it
            if number and keys:
                known[int(number[1])] = keys
        return dict(sorted(known.items()))

    # Changing it ---------------------------------------------------------------------------------

    def add(self, file: Path, client: int | None = None, name: str = "") -> tuple[int, str]:
        """Register a public key under a client's number, or the renewal of one that is known: the
        number and the name."""
        data = _bytes(file)
        if data.lstrip().startswith(b"{"):
            return self._renew(data, file, client)
        if client is None:
            raise UserError("--client N: whose key is it? (a renewal says so itself)")
        try:
            (named,) = public_keys.parse(data)
        except ValueError as error:
            raise UserError(f"{file} is not the public key of a node, its .pub") from error
        if name and not NAME.fullmatch(name):
            raise UserError(f"--name is {name!r}; letters, digits and ._@- make one")
        called = name or named.name
        known = self.clients()
        if client in known or (self.folder / f"client-{client}.pub").exists():
            raise UserError(
                f"client {client} has a key: its owner renews it (fedrl flower keys renew), or it "
                f"is revoked first (fedrl flower revoke)"
            )
        self._write(known | {client: [Named(named.key, called)]}, client)
        return client, called

    def _renew(self, data: bytes, file: Path, client: int | None) -> tuple[int, str]:
        old, new = _renewal(data, file)
        known = self.clients()
        owners = [n for n, named in known.items() if any(one.key == old for one in named)]
        if not owners or (client is not None and owners != [client]):
            whose = f"client {owners[0]}'s" if owners else "no client's"
            raise UserError(f"{file} renews a key that is {whose}, by {self.folder}/client-*.pub")
        (number,) = owners
        if all(one.key != new for one in known[number]):
            # Else an old key that is still in the register would outlive the one that followed it.
            if known[number][-1].key != old:
                raise UserError(
                    f"{file} renews an older key of client {number}, which has another after it: "
                    "if that one is lost or not its owner's, revoke the client and register it anew"
                )
            kept = [*known[number], Named(new, _name(known[number]))]
            self._write(known | {number: kept}, number)
        return number, _name(known[number])

    def _write(self, known: dict[int, list[Named]], client: int) -> None:
        if (pair := public_keys.twice(known)) is not None:
            raise UserError(f"this key is client {pair[0] if pair[1] == client else pair[1]}'s")
        name = _name(known[client])
        if name and any(_name(named) == name for n, named in known.items() if n != client):
            raise UserError(f"another client is called {name}: --name gives this one another name")
        text = b"".join(public_keys.line(*one) for one in known[client])
        write_atomically(self.folder / f"client-{client}.pub", text)

    def remove(self, client: int, old: bool = False) -> int:
        """Take a client out, or with `old` all but its newest key; how many keys that are."""
        path = self.folder / f"client-{client}.pub"
        keys = self.clients().get(client, [])
        if not path.exists() or (old and not keys):
            raise UserError(f"there is no {path}")
        if not old:
            path.unlink()
            return len(keys)
        if len(keys) > 1:
            write_atomically(path, public_keys.line(*keys[-1]))
        return len(keys) - 1


def at(folder: Path) -> Registered:
    """The register of a server's folder, or of a folder of peers."""
    place = folder / "nodes" if (folder / "nodes").is_dir() else folder
    if not place.is_dir():
        raise UserError(f"{folder} is no folder")
    return Registered(place)


def _name(named: list[Named]) -> str:
    return named[-1].name if named else ""


def _own_name(client: int, known: dict[int, list[Named]]) -> str:
    """Files that were put there by hand may have one name: then it is nobody's."""
    name = _name(known[client])
    others = [_name(named) for number, named in known.items() if number != client]
    return "" if name in others else name


def _label(client: int, known: dict[int, list[Named]]) -> str:
    name = _own_name(client, known)
    return f"client {client} ({name})" if name else f"client {client}"


# A node's new key --------------------------------------------------------------------------------


def renew(path: Path) -> Path:
    """A new key beside a node's, PATH.next, and PATH.renewal for the coordinator and the peers."""
    old = _private(path)
    name = _name(public_keys.read(_beside(path, ".pub"))) if _beside(path, ".pub").exists() else ""
    make_node(_beside(path, NEXT), name)
    new = _private(_beside(path, NEXT))
    lines = [public_keys.line(key.public_key(), name).decode("ascii") for key in (old, new)]
    signature = old.sign(_statement(old.public_key(), new.public_key()), SCHEME)
    text = json.dumps(
        {"old": lines[0], "new": lines[1], "signature": base64.b64encode(signature).decode()}
    )
    write_atomically(_beside(path, RENEWAL), text.encode() + b"\n")
    return _beside(path, RENEWAL)


def use(path: Path) -> None:
    """Put the new key in the place of the old one, which stays as PATH.old until it is revoked."""
    _private(_beside(path, NEXT))
    _beside(path, OLD).unlink(missing_ok=True)
    _beside(path, OLD).hardlink_to(path)
    public = _beside(path, f"{NEXT}.pub")
    if public.exists():  # or it is in its place already, and this was stopped in between
        public.replace(_beside(path, ".pub"))
    _beside(path, NEXT).replace(path)


def _renewal(
    data: bytes, file: Path
) -> tuple[ec.EllipticCurvePublicKey, ec.EllipticCurvePublicKey]:
    """The old and the new key, if the old one has signed that."""
    try:
        said = json.loads(data)
        (old,) = public_keys.parse(said["old"].encode("ascii"))
        (new,) = public_keys.parse(said["new"].encode("ascii"))
        signature = base64.b64decode(said["signature"], validate=True)
        old.key.verify(signature, _statement(old.key, new.key), SCHEME)
    except InvalidSignature as error:
        raise UserError(f"{file} was not signed with the key that it renews") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UserError(f"{file} is no renewal of `fedrl flower keys renew`") from error
    return old.key, new.key


def _statement(old: ec.EllipticCurvePublicKey, new: ec.EllipticCurvePublicKey) -> bytes:
    der, shape = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return DOMAIN + old.public_bytes(der, shape) + new.public_bytes(der, shape)


def _private(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path} is no key of `fedrl flower keys node`") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UserError(f"{path} is no key of `fedrl flower keys node`")
    return key


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _bytes(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(LARGEST)
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from error
