"""Signed keys of secure sums: a driver that lies about keys or invents clients opens nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="needs the extra flower")

from support.secure_nodes import CLIENTS, SecretNet, Seen, jobs, opened
from support.toy import Toy

from fedrl.core import serialization, tree
from fedrl.core.types import Failure, Result, Tensors, UserError
from fedrl.engines.flower import keys, messages
from fedrl.engines.flower.adapter import records
from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.superlink_client import Arrived, Outgoing
from fedrl.privacy.secure_aggregation import identity, masks
from fedrl.privacy.secure_aggregation import messages as secure_messages
from fedrl.privacy.secure_aggregation.client import Client, SigningClient
from fedrl.privacy.secure_aggregation.identity import (
    SIGNATURE,
    Identity,
    about_keys,
    about_survivors,
)
from fedrl.privacy.secure_aggregation.protocol import Keys, ProtocolError

survivors = st.lists(st.integers(0, 300), unique=True, max_size=5)


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


JOB = bytes(32)


def test_a_signature_is_for_one_client_one_sum_one_job_and_its_keys(people: list[Identity]):
    made = fresh()
    about = about_keys("a", 1, made, JOB)
    signature = people[1].sign(about)
    assert len(signature) == SIGNATURE
    assert people[0].believes(1, about, signature)
    assert Identity().believes(1, about, bytes(SIGNATURE))  # without peers, everybody
    changed = bytearray(signature)
    changed[50] ^= 1
    for other in (
        about_keys("b", 1, made, JOB),
        about_keys("a", 2, made, JOB),
        about_keys("a", 1, fresh(), JOB),
        about_keys("a", 1, Keys(made.masks, made.letters), JOB),
        about_keys("a", 1, made, b"\1" + JOB[1:]),
        about_keys("a", 1, made, JOB, b"\1" * 32),
        about_survivors("a", [1]),
    ):
        assert not people[0].believes(1, other, signature)
    for wrong in (
        bytes(changed),
        bytes(SIGNATURE),
        b"\xff" * SIGNATURE,
        people[CLIENTS].sign(about),
        people[2].sign(about),
    ):
        assert not people[0].believes(1, about, wrong)
    assert not people[0].believes(7, about, people[CLIENTS].sign(about))


@pytest.mark.slow
@given(st.lists(st.text(max_size=9), min_size=2, max_size=2), st.lists(survivors, min_size=2))
def test_no_two_statements_are_the_same_bytes(names: list[str], lists: list[list[int]]):
    told = {(name, tuple(sorted(numbers))) for name in names for numbers in lists}
    assert len({about_survivors(*one) for one in told}) == len(told)


@pytest.fixture
def net(tmp_path: Path, people: list[Identity], monkeypatch: pytest.MonkeyPatch) -> SecretNet:
    monkeypatch.setattr("fedrl.engines.flower.node_calls.POLL_SECONDS", 0.01)
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
        text, _ = records.opened(arrived.content)
        heading: messages.Answer = messages.from_json(text, messages.Answer)
        forged = secure_messages.Signed(
            driver, signer.sign(about_keys("another sum", 2, driver, JOB))
        )
        body = serialization.cut(serialization.pack(secure_messages.pack_keys({2: forged})), 100)
        told = messages.to_json(replace(heading, digest=serialization.checksum(body)))
        return arrived._replace(content=records.content(told, records.body(body)))

    net.changes["job", 2] = in_between
    outcomes = list(net.engine().run(jobs(net)))
    assert [type(o) for o in outcomes] == [Failure] * CLIENTS
    assert outcomes[0].reason == "client 2 has not signed its keys for this job"
    assert asked(net) == {"job", "share"}  # nobody has masked anything


def test_a_client_that_is_no_peer_is_in_no_sum(net: SecretNet, people: list[Identity]):
    fewer = {n: key for n, key in (people[0].peers or {}).items() if n != 4}
    for node in net.members.values():
        node.identity = replace(node.identity, peers=fewer)
    outcomes = list(net.engine().run(jobs(net)))
    assert outcomes[0].reason == "client 4 has not signed its keys for this job"
    assert asked(net) == {"job", "share"}


def told_otherwise(net: SecretNet, step: str, lie: Callable[[Seen], Tensors]) -> None:
    """A driver that puts this into its questions of one step, to everybody but client 1."""
    real = net.push

    def push(given: Sequence[Outgoing]) -> list[str]:
        (message,) = given
        seen = opened("", message.node - 100, message.content)
        if seen.heading.get("step", seen.heading["kind"]) == step and seen.client != 1:
            data = serialization.pack(lie(seen))
            heading = seen.heading | {"digest": serialization.checksum([data])}
            content = records.content(json.dumps(heading), records.body([data]))
            message = message._replace(content=content)
        return real([message])

    net.push = push  # type: ignore[method-assign]


def test_a_sum_of_different_jobs_is_refused(net: SecretNet):
    """Who gives all others a model from which they learn nothing has one client's update."""
    told_otherwise(net, "job", lambda seen: tree.map(np.zeros_like, seen.tensors))
    outcomes = list(net.engine().run(jobs(net)))
    assert [type(o) for o in outcomes] == [Failure] * CLIENTS
    assert outcomes[1].reason == "client 0 has not signed its keys for this job"
    assert asked(net) == {"job", "share"}


def test_clients_that_are_told_different_survivors_open_nothing(net: SecretNet):
    """Each would give what is right for its list, and together that could be one client's all."""

    def without_another(seen: Seen) -> Tensors:
        return secure_messages.pack_survivors(set(range(CLIENTS)) - {4 if seen.client < 3 else 0})

    told_otherwise(net, "agree", without_another)
    said: list[str] = []
    outcomes = list(net.engine(said.append).run(jobs(net)))
    assert [type(o) for o in outcomes] == [Failure] * CLIENTS
    assert not any(seen.tensors for seen in net.answers_seen if seen.step == "unmask")
    assert any("1 clients agree who is in the sum, 4 needed" in line for line in said)
    assert any("others are in the sum than this client has agreed to" in line for line in said)


def test_a_driver_that_skips_the_agreement_gets_no_shares(net: SecretNet, people: list[Identity]):
    words = np.zeros(7, np.uint32)
    member = SigningClient("x", 1, net.terms, words, lambda _: None, lambda: None, people[1], JOB)
    member.advertise()
    with pytest.raises(ProtocolError, match="than this client has agreed to"):
        member.answer("unmask", secure_messages.pack_opening(range(CLIENTS), {}))


def test_a_client_whose_node_did_not_sign_fails_alone(
    net: SecretNet, people: list[Identity], monkeypatch: pytest.MonkeyPatch
):
    """The driver knows nodes' keys from the SuperLink: its peers need not all give up."""
    net.members[102].identity = replace(people[2], key=people[CLIENTS].key)
    engine = net.engine()
    monkeypatch.setattr(engine.calls, "connection", Connection("x:1", ca="ca.pem"))
    public = {100 + n: one.key.public_key() for n, one in enumerate(people[:CLIENTS]) if one.key}
    net.key_of = public.get  # type: ignore[attr-defined]
    outcomes = list(engine.run(jobs(net)))
    assert [type(o) for o in outcomes] == [Result, Result, Failure, Result, Result]
    assert outcomes[2].reason == (
        "its answer is malformed: keys that its node has not signed for this job"
    )


def test_a_member_with_two_numbers_is_in_a_sum_once(
    net: SecretNet, people: list[Identity], monkeypatch: pytest.MonkeyPatch
):
    """It would count twice, and twice towards the threshold."""
    net.members[103].identity = replace(people[3], key=people[1].key)
    for node in net.members.values():
        node.identity = replace(node.identity, peers=None)
    engine = net.engine()
    monkeypatch.setattr(engine.calls, "connection", Connection("x:1", ca="ca.pem"))
    public = {100 + n: one.key.public_key() for n, one in enumerate(people[:CLIENTS]) if one.key}
    net.key_of = (public | {103: public[101]}).get  # type: ignore[attr-defined]
    outcomes = list(engine.run(jobs(net)))
    twice = [o for o in outcomes if isinstance(o, Failure)]
    assert len(twice) == 1
    assert "two numbers with one key: its node's is that of client" in twice[0].reason
    assert {twice[0].client} < {1, 3}


def three_peers(folder: Path) -> Path:
    peers = folder / "peers"
    peers.mkdir()
    for number in range(3):
        keys.make_node(folder / str(number))
        public = (folder / f"{number}.pub").read_bytes()
        (peers / f"client-{number}.pub").write_bytes(public)
    return peers


def test_two_peers_with_one_key_are_refused(tmp_path: Path):
    peers = three_peers(tmp_path)
    assert len(identity.load(None, peers).peers or {}) == 3
    (peers / "client-2.pub").write_bytes((tmp_path / "0.pub").read_bytes())
    with pytest.raises(UserError, match=r"client-0\.pub and client-2\.pub are the same key"):
        identity.load(None, peers)


def test_a_nodes_own_key_is_that_of_its_number(tmp_path: Path):
    peers = three_peers(tmp_path)
    assert identity.load(tmp_path / "1", peers, 1).peers is not None
    with pytest.raises(UserError, match=r"is client 1's in --peers"):
        identity.load(tmp_path / "1", peers, 2)
    with pytest.raises(UserError, match=r"is client 1's in --peers"):
        identity.load(tmp_path / "1", peers, 9)
    keys.make_node(tmp_path / "new")
    with pytest.raises(UserError, match=r"is not that of client-1\.pub in --peers"):
        identity.load(tmp_path / "new", peers, 1)
    assert identity.load(tmp_path / "new", peers, 3).peers is not None  # its peers may not know it


def test_a_sum_has_its_name_once(net: SecretNet, monkeypatch: pytest.MonkeyPatch):
    """Else signatures of an old one, whose keys may have been opened, would hold again."""
    real, names = messages.nonce, iter(["same", "same"])

    def nonce() -> str:
        return next(names) if named and named.pop() else real()

    named = [True]
    monkeypatch.setattr(messages, "nonce", nonce)
    assert [type(o) for o in net.engine().run(jobs(net))] == [Result] * CLIENTS
    named.append(True)
    outcomes = list(net.engine().run(jobs(net, 50)))
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
