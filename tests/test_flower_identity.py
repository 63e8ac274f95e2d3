"""Signed keys of secure sums: a driver that lies about keys or invents clients opens nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from secure_nodes import CLIENTS, SecretNet, jobs
from toy import Toy

from fedrl.engines.flower import framing, identity, keys, messages, protocol, steps
from fedrl.engines.flower.identity import SIGNATURE, Identity
from fedrl.engines.flower.link import Arrived
from fedrl.privacy.secure import masks
from fedrl.privacy.secure.protocol import Client, Keys, ProtocolError
from fedrl.types import Failure, Result, UserError


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> list[Identity]:
    """Everybody with a key and everybody's public keys; the last one is a stranger."""
    folder = tmp_path_factory.mktemp("keys")
    (folder / "peers").mkdir()
    for number in range(CLIENTS + 1):
        keys.make_node(folder / str(number))
        public = (folder / f"{number}.pub").read_bytes()
        if number < CLIENTS:
            (folder / "peers" / f"client-{number}.pub").write_bytes(public)
    return [identity.load(folder / str(n), folder / "peers") for n in range(CLIENTS + 1)]


def fresh() -> Keys:
    return Client(0, 2).advertise()


def test_a_signature_is_for_one_client_one_sum_and_its_keys(people: list[Identity]):
    made = fresh()
    signature = people[1].sign("a", 1, made)
    assert len(signature) == SIGNATURE
    people[0].check("a", 1, made, signature)
    Identity().check("a", 1, made, bytes(SIGNATURE))  # who has no peers believes everybody
    changed = bytearray(signature)
    changed[50] ^= 1
    for about in (
        ("b", 1, made, signature),
        ("a", 2, made, signature),
        ("a", 1, fresh(), signature),
        ("a", 1, Keys(made.masks, made.letters), signature),
        ("a", 1, made, bytes(changed)),
        ("a", 1, made, bytes(SIGNATURE)),
        ("a", 1, made, b"\xff" * SIGNATURE),
        ("a", 1, made, people[CLIENTS].sign("a", 1, made)),
    ):
        with pytest.raises(ProtocolError, match="are not signed by it"):
            people[0].check(*about)
    with pytest.raises(ProtocolError, match="client 7 is none of this node's peers"):
        people[0].check("a", 7, made, people[CLIENTS].sign("a", 7, made))


@pytest.fixture
def net(tmp_path: Path, people: list[Identity], monkeypatch: pytest.MonkeyPatch) -> SecretNet:
    monkeypatch.setattr("fedrl.engines.flower.engine.POLL_SECONDS", 0.01)
    net = SecretNet(Toy(CLIENTS), tmp_path)
    for number, node in enumerate(net.members.values()):
        node.identity = people[number]
    return net


def asked(net: SecretNet) -> set[str]:
    return {seen.step for seen, _ in net.questions}


def test_members_add_up_as_ever(net: SecretNet):
    assert [type(o) for o in net.engine().run(jobs(net))] == [Result] * CLIENTS


@pytest.mark.parametrize("signs", [None, CLIENTS, 2])
def test_keys_that_the_driver_puts_in_another_clients_place_open_nothing(
    net: SecretNet, people: list[Identity], signs: int | None
):
    """Unsigned, signed by a stranger, or by client 2 itself in another sum."""
    driver = Keys(masks.public(masks.new_secret()), masks.public(masks.new_secret()))
    signer = Identity() if signs is None else people[signs]

    def in_between(arrived: Arrived) -> Arrived:
        assert arrived.content is not None
        text, _ = messages.opened(arrived.content)
        heading: protocol.Answer = protocol.read(text, protocol.Answer)
        forged = steps.Signed(driver, signer.sign("another sum", 2, driver))
        body = framing.cut(framing.pack(steps.pack_keys({2: forged})), 100)
        told = protocol.write(replace(heading, digest=framing.checksum(body)))
        return arrived._replace(content=messages.content(told, messages.body(body)))

    net.changes["job", 2] = in_between
    outcomes = list(net.engine().run(jobs(net)))
    assert [type(o) for o in outcomes] == [Failure] * CLIENTS
    assert outcomes[0].reason.endswith("the keys of client 2 are not signed by it")
    assert asked(net) == {"job", "share"}  # nobody has masked anything


def test_a_client_that_is_no_peer_is_in_no_sum(net: SecretNet, people: list[Identity]):
    fewer = {n: key for n, key in (people[0].peers or {}).items() if n != 4}
    for node in net.members.values():
        node.identity = replace(node.identity, peers=fewer)
    outcomes = list(net.engine().run(jobs(net)))
    assert outcomes[0].reason.endswith("client 4 is none of this node's peers")
    assert asked(net) == {"job", "share"}


def test_a_sum_has_its_name_once(net: SecretNet, monkeypatch: pytest.MonkeyPatch):
    """Else signatures of an old one, whose keys may have been opened, would hold again."""
    real, names = protocol.nonce, iter(["same", "same"])

    def nonce() -> str:
        return next(names) if named and named.pop() else real()

    named = [True]
    monkeypatch.setattr(protocol, "nonce", nonce)
    assert [type(o) for o in net.engine().run(jobs(net))] == [Result] * CLIENTS
    named.append(True)
    outcomes = list(net.engine().run(jobs(net, seed=50)))
    assert outcomes[0].reason.endswith("a sum of this name was begun before")


def test_mistakes_with_keys_are_told(tmp_path: Path):
    peers = tmp_path / "peers"
    peers.mkdir()
    with pytest.raises(UserError, match="it has none"):
        identity.load(None, peers)
    keys.make_node(tmp_path / "a")
    (peers / "north.pub").write_bytes((tmp_path / "a.pub").read_bytes())
    with pytest.raises(UserError, match=r"it has north\.pub"):
        identity.load(None, peers)
    (peers / "north.pub").rename(peers / "client-0.pub")
    assert identity.load(tmp_path / "a", peers).peers is not None
    (peers / "client-1.pub").write_text("ssh-ed25519 nonsense")
    with pytest.raises(UserError, match=r"client-1.pub cannot be read as a key"):
        identity.load(None, peers)
    with pytest.raises(UserError, match="cannot be read as a key"):
        identity.load(tmp_path / "a.pub", None)
