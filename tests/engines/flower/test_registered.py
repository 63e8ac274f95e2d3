"""The register: whose key is whose, changed while a SuperLink runs; certificates as well."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

import httpx

import fedrl
from fedrl.cli import call
from fedrl.core.types import UserError
from fedrl.engines.flower import keys, registered, superlink_register
from fedrl.engines.flower.audit_log import read as read_log
from fedrl.engines.flower.coordinator_audit import CoordinatorAudit
from fedrl.engines.flower.registered import Registered
from fedrl.engines.flower.superlink_register import KeptCertificate, KeptRegister
from fedrl.privacy.secure_aggregation import identity, public_keys


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """A register with North and South."""
    (tmp_path / "hub" / "nodes").mkdir(parents=True)
    for number, name in enumerate(("north", "south")):
        keys.make_node(tmp_path / f"{name}.key")
        fedrl.flower.register(tmp_path / "hub", tmp_path / f"{name}.key.pub", client=number)
    return tmp_path / "hub"


def public(path: Path):
    return public_keys.read(path)[0].key


def nodes(hub: Path) -> Registered:
    return Registered(hub / "nodes")


def test_a_name_comes_with_the_key_and_not_with_what_a_node_says(hub: Path, tmp_path: Path):
    north, south = (public(tmp_path / f"{name}.key.pub") for name in ("north", "south"))
    assert nodes(hub).name(0) == "north"
    assert nodes(hub).doubt(0, north) == ""
    assert "its key is that of client 1 (south)" in nodes(hub).doubt(0, south)
    assert "its key is that of client 0 (north)" in nodes(hub).doubt(1, north)
    keys.make_node(tmp_path / "x.key", "north")  # whatever it calls itself
    assert "no client's" in nodes(hub).doubt(0, public(tmp_path / "x.key.pub"))
    shutil.copy(tmp_path / "x.key.pub", hub / "nodes" / "client-2.pub")  # by hand
    assert (nodes(hub).name(0), nodes(hub).name(1), nodes(hub).name(2)) == ("", "south", "")
    nodes(hub).check()


def test_nobody_gets_a_number_a_key_or_a_name_that_is_anothers(hub: Path, tmp_path: Path):
    keys.make_node(tmp_path / "west.key")
    add = nodes(hub).add
    with pytest.raises(UserError, match="client 0 has a key"):
        add(tmp_path / "west.key.pub", 0)
    with pytest.raises(UserError, match="this key is client 0's"):
        add(tmp_path / "north.key.pub", 2)
    with pytest.raises(UserError, match="another client is called south"):
        add(tmp_path / "west.key.pub", 2, "south")
    with pytest.raises(UserError, match="--name"):
        add(tmp_path / "west.key.pub", 2, "so\nuth")
    with pytest.raises(UserError, match="whose key"):
        add(tmp_path / "west.key.pub")
    with pytest.raises(UserError, match="not the public key"):
        add(tmp_path / "west.key", 2)  # the private one
    assert sorted(nodes(hub).clients()) == [0, 1]
    assert add(tmp_path / "west.key.pub", 2) == (2, "west")


def test_both_keys_are_a_clients_while_it_changes_them(hub: Path, tmp_path: Path):
    old = public(tmp_path / "north.key.pub")
    renewal = registered.renew(tmp_path / "north.key")
    new = public(tmp_path / "north.key.next.pub")
    assert "no client's" in nodes(hub).doubt(0, new)
    assert nodes(hub).add(renewal) == (0, "north")
    assert nodes(hub).add(renewal) == (0, "north")  # once more is once
    assert [nodes(hub).doubt(0, key) for key in (old, new)] == ["", ""]
    nodes(hub).check()
    registered.use(tmp_path / "north.key")
    assert public(tmp_path / "north.key.pub") == new
    assert identity.load(tmp_path / "north.key", hub / "nodes", 0).key is not None
    assert nodes(hub).remove(0, old=True) == 1
    assert nodes(hub).doubt(0, new) == ""
    assert "no client's" in nodes(hub).doubt(0, old)
    assert nodes(hub).name(0) == "north"


def test_a_renewal_is_signed_with_the_key_that_it_renews(hub: Path, tmp_path: Path):
    """Else whoever can write to the coordinator could take a member's place."""
    said = json.loads(registered.renew(tmp_path / "north.key").read_text())
    theirs = json.loads(registered.renew(tmp_path / "south.key").read_text())
    forged = tmp_path / "forged.renewal"
    for wrong in (
        said | {"new": theirs["new"]},
        said | {"old": theirs["old"]},
        said | {"signature": theirs["signature"]},
    ):
        forged.write_text(json.dumps(wrong))
        with pytest.raises(UserError, match="not signed with the key that it renews"):
            nodes(hub).add(forged)
    for text in ("{}", "{", '{"old": 1}', json.dumps(said | {"signature": "é"})):
        forged.write_text(text)
        with pytest.raises(UserError, match="no renewal"):
            nodes(hub).add(forged)
    forged.write_text(json.dumps(said))
    with pytest.raises(UserError, match="renews a key that is client 0's"):
        nodes(hub).add(forged, 1)
    nodes(hub).remove(0)
    with pytest.raises(UserError, match="no client's"):  # a revoked key renews nothing
        nodes(hub).add(forged)


def test_a_change_of_keys_that_was_stopped_in_between_goes_on(hub: Path, tmp_path: Path):
    north = tmp_path / "north.key"
    registered.renew(north)
    new = (tmp_path / "north.key.next").read_bytes()
    (tmp_path / "north.key.next.pub").replace(tmp_path / "north.key.pub")
    registered.use(north)
    assert north.read_bytes() == new


def test_a_node_cannot_renew_into_the_key_of_another(hub: Path, tmp_path: Path):
    registered.renew(tmp_path / "north.key")
    shutil.copy(tmp_path / "south.key", tmp_path / "north.key.next")
    old, new = (registered._private(tmp_path / f"north.key{end}") for end in ("", ".next"))
    import base64

    signature = old.sign(
        registered._statement(old.public_key(), new.public_key()), registered.SCHEME
    )
    said = {
        "old": public_keys.line(old.public_key()).decode(),
        "new": public_keys.line(new.public_key()).decode(),
        "signature": base64.b64encode(signature).decode(),
    }
    (tmp_path / "x.renewal").write_text(json.dumps(said))
    with pytest.raises(UserError, match="this key is client 1's"):
        nodes(hub).add(tmp_path / "x.renewal")


def test_peers_believe_both_keys_of_a_member_that_changes_them(hub: Path, tmp_path: Path):
    before = identity.load(tmp_path / "north.key", hub / "nodes", 0)
    nodes(hub).add(registered.renew(tmp_path / "north.key"))
    after = identity.load(tmp_path / "north.key.next", hub / "nodes", 0)
    south = identity.load(tmp_path / "south.key", hub / "nodes", 1)
    for signer in (before, after):
        assert south.believes(0, b"a statement", signer.sign(b"a statement"))
        assert not south.believes(1, b"a statement", signer.sign(b"a statement"))
    nodes(hub).remove(0, old=True)
    south = identity.load(tmp_path / "south.key", hub / "nodes", 1)
    assert not south.believes(0, b"a statement", before.sign(b"a statement"))
    assert south.believes(0, b"a statement", after.sign(b"a statement"))


# A SuperLink that runs ---------------------------------------------------------------------------


class Registry:
    """Registers as Flower does: a key once."""

    def __init__(self) -> None:
        self.now: set[bytes] = set()
        self.ever: set[bytes] = set()

    def register(self, key: bytes) -> None:
        if key in self.ever:
            request = httpx.Request("POST", "http://x")
            raise httpx.HTTPStatusError("used", request=request, response=httpx.Response(409))
        self.now.add(key)
        self.ever.add(key)

    def unregister(self, key: bytes) -> None:
        self.now.remove(key)


def test_who_is_put_in_is_registered_and_who_is_taken_out_is_revoked(
    hub: Path, tmp_path: Path, capsys: Any
):
    registry = Registry()
    kept = KeptRegister(registry, hub / "nodes", CoordinatorAudit(hub))
    kept.look()
    assert len(registry.now) == 2
    nodes(hub).add(registered.renew(tmp_path / "north.key"))
    kept.look()
    assert len(registry.now) == 3
    nodes(hub).remove(0, old=True)
    nodes(hub).remove(1)
    kept.look()
    assert len(registry.now) == 3  # a file may be written in two steps
    kept.look()
    assert len(registry.now) == 1
    fedrl.flower.register(hub, tmp_path / "south.key.pub", client=1)
    kept.look()
    kept.look()
    assert len(registry.now) == 1
    assert capsys.readouterr().err.count("a key that was revoked is not taken again") == 1
    events = [(entry["event"], entry.get("file")) for entry in read_log(hub)[0]]
    assert events.count(("registered", "client-0.pub")) == 2
    assert events.count(("revoked", "client-0.pub")) == 1
    assert events.count(("revoked", "client-1.pub")) == 1


def test_a_file_that_is_being_written_and_a_folder_that_is_away_revoke_nobody(hub: Path):
    registry = Registry()
    kept = KeptRegister(registry, hub / "nodes", CoordinatorAudit(None))
    kept.look()
    path = hub / "nodes" / "client-0.pub"
    whole = path.read_bytes()
    path.write_bytes(whole[:50])
    for _ in range(5):
        kept.look()
    path.unlink()
    kept.look()
    path.write_bytes(whole)
    kept.look()
    (hub / "nodes").rename(hub / "away")
    for _ in range(5):
        kept.look()
    (hub / "away").rename(hub / "nodes")
    kept.look()
    assert len(registry.now) == 2


def test_one_bad_key_file_keeps_nobody_out(tmp_path: Path, capsys: Any):
    for name in ("a", "z"):
        keys.make_node(tmp_path / name)
    whole = (tmp_path / "z.pub").read_bytes()
    (tmp_path / "b.pub").write_bytes("ecdsa-sha2".encode("utf-16"))
    (tmp_path / "c.pub").mkdir()
    (tmp_path / "d.pub").write_bytes(b"ssh-unknown AAAA")
    (tmp_path / "z.pub").write_bytes(whole[:40])  # it is still being copied
    registry = Registry()
    kept = KeptRegister(registry, tmp_path, CoordinatorAudit(None))
    kept.look()
    (tmp_path / "z.pub").write_bytes(whole)
    for _ in range(3):
        kept.look()
    assert len(registry.now) == 2
    said = capsys.readouterr().err
    for name in ("b.pub", "c.pub", "d.pub", "z.pub"):
        assert said.count(f"{name} was not registered") == 1
    assert said.count("registered the node of z.pub") == 1


def test_a_new_certificate_is_taken_up_and_open_connections_stay(tmp_path: Path):
    keys.make_server(tmp_path, ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    kept = KeptCertificate(context, tmp_path, CoordinatorAudit(tmp_path))
    believes = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(3):
                accepted, _ = server.accept()
                threading.Thread(target=echo, args=(accepted,), daemon=True).start()

        def echo(accepted: socket.socket) -> None:
            with context.wrap_socket(accepted, server_side=True) as peer:
                while data := peer.recv(10):
                    peer.sendall(data)

        threading.Thread(target=serve, daemon=True).start()

        def connect() -> ssl.SSLSocket:
            plain = socket.create_connection(server.getsockname(), timeout=20)
            return believes.wrap_socket(plain, server_hostname="127.0.0.1")

        with connect() as first:
            old = first.getpeercert(binary_form=True)
            assert not kept.look()
            before = (tmp_path / "server.key").read_bytes()
            keys.renew_server(tmp_path)
            new = (tmp_path / "server.key").read_bytes()
            (tmp_path / "server.key").write_bytes(before)  # a pair that does not fit
            assert not kept.look()
            with connect() as second:
                assert second.getpeercert(binary_form=True) == old
            (tmp_path / "server.key").write_bytes(new)
            assert kept.look()
            with connect() as third:
                assert third.getpeercert(binary_form=True) != old
            first.sendall(b"still")
            assert first.recv(10) == b"still"
    assert [entry["event"] for entry in read_log(tmp_path)[0]][-1] == "certificate"


def test_a_renewed_certificate_has_the_names_of_the_old_one(tmp_path: Path):
    keys.make_server(tmp_path, ["hub.example", "10.1.2.3"])
    digest = keys.coordinator_digest(tmp_path / "ca.pem")
    assert call(["flower", "keys", "server", str(tmp_path), "--renew"]) == 0
    from cryptography import x509

    def names() -> str:
        made = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
        return str(made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)

    assert "hub.example" in names()
    assert "10.1.2.3" in names()
    assert keys.coordinator_digest(tmp_path / "ca.pem") == digest
    assert (tmp_path / "server.key").stat().st_mode & 0o077 == 0
    assert (
        call(["flower", "keys", "server", str(tmp_path), "--renew", "--host", "new.example"]) == 0
    )
    assert "new.example" in names()
    (tmp_path / "ca.key").rename(tmp_path / "offline")
    assert call(["flower", "keys", "server", str(tmp_path), "--renew"]) == 2


# Commands ----------------------------------------------------------------------------------------


def test_members_are_changed_by_commands(hub: Path, tmp_path: Path, capsys: Any):
    keys.make_node(tmp_path / "west.key")
    word = str(tmp_path / "west.key")
    assert call(["flower", "register", str(hub), f"{word}.pub", "--client", "2"]) == 0
    assert call(["flower", "keys", "renew", word]) == 0
    assert call(["flower", "register", str(hub), f"{word}.renewal"]) == 0
    assert call(["flower", "keys", "use", word]) == 0
    assert call(["flower", "keys", "use", word]) == 2  # there is no next one any more
    assert call(["flower", "revoke", str(hub), "2", "--old"]) == 0
    assert call(["flower", "revoke", str(hub), "0"]) == 0
    assert call(["flower", "revoke", str(hub), "0"]) == 2
    capsys.readouterr()
    assert call(["flower", "register", str(hub)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["client 1 south", "client 2 west"]
    digest = keys.key_digest(public(tmp_path / "west.key.pub"))
    assert lines[1].endswith(f": {digest}")
    assert call(["flower", "revoke", str(hub), "1"]) == 0
    assert call(["flower", "revoke", str(hub), "2"]) == 0
    capsys.readouterr()
    assert call(["flower", "register", str(hub)]) == 0
    assert capsys.readouterr().out.startswith("nobody yet: fedrl flower register ")


def test_the_registers_thread_survives_what_it_meets(hub: Path, monkeypatch: Any, capsys: Any):
    looks = iter([httpx.ConnectError("starting"), RuntimeError("what"), None])
    kept = KeptRegister(Registry(), hub / "nodes", CoordinatorAudit(None))

    def look() -> None:
        if (trouble := next(looks)) is not None:
            raise trouble

    def pause(_: float) -> None:
        if "not looked at" in capsys.readouterr().err:
            raise KeyboardInterrupt

    monkeypatch.setattr(kept, "look", look)
    monkeypatch.setattr(superlink_register.time, "sleep", pause)
    with pytest.raises(KeyboardInterrupt):
        kept.keep()
