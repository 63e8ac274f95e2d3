"""Secure sums over Flower: what a driver does not take from a client, nor a node from a driver."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from support.rewritten_messages import rewritten
from support.secure_nodes import (
    CLIENTS,
    CLIP,
    STEPS,
    SecretNet,
    close,
    jobs,
    mean_of,
    no_answer,
    opened,
    vectors,
)
from support.toy import Toy

from fedrl.core import serialization
from fedrl.core.types import Failure, Result, Tensors
from fedrl.engines.flower import messages
from fedrl.engines.flower.adapter import records
from fedrl.engines.flower.superlink_client import Arrived
from fedrl.privacy.secure_aggregation import messages as secure_messages

pytestmark = pytest.mark.slow  # of waits for messages: seconds of the clock, few of a core


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedrl.engines.flower.node_calls.POLL_SECONDS", 0.005)


@pytest.fixture
def net(tmp_path: Path) -> SecretNet:
    return SecretNet(Toy(CLIENTS), tmp_path)


# Answers that are not what they should be --------------------------------------------------------


def table(tensors: Tensors, name: str, **columns: np.ndarray) -> Tensors:
    return tensors | {name: tensors[name] | columns}


def rows(change: Callable[[np.ndarray], np.ndarray], name: str) -> Callable[[Tensors], Tensors]:
    return lambda t: table(t, name, rows=change(t[name]["rows"].copy()))


def who(change: Callable[[np.ndarray], np.ndarray], name: str) -> Callable[[Tensors], Tensors]:
    return lambda t: table(t, name, who=change(t[name]["who"].copy()))


WRONG: dict[str, tuple[str, Callable[[Tensors], Tensors], str]] = {
    "keys of another": ("job", who(lambda w: w + 1, "keys"), "keys of other clients"),
    "one key twice": (
        "job",
        rows(lambda r: np.hstack([r[:, :32], r[:, :32], r[:, 64:]]), "keys"),
        "not fresh",
    ),
    "a key that is a constant": (
        "job",
        rows(lambda r: r * (np.arange(r.shape[1]) > 31), "keys"),
        "agree with",
    ),
    "short keys": ("job", rows(lambda r: r[:, :63], "keys"), "rows of another size"),
    "an update instead of keys": ("job", lambda t: {"a": np.ones(3)}, "a instead of keys"),
    "a letter too few": (
        "share",
        lambda t: table(t, "letters", **{k: v[1:] for k, v in t["letters"].items()}),
        "letters to others",
    ),
    "a letter to a stranger": ("share", who(lambda w: w + 7, "letters"), "letters to others"),
    "letters to one twice": ("share", who(lambda w: w * 0, "letters"), "named twice"),
    "negative numbers": ("share", who(lambda w: -w, "letters"), "no numbers of clients"),
    "numbers as floats": ("share", who(lambda w: w.astype(float), "letters"), "not named by"),
    "short letters": ("share", rows(lambda r: r[:, 1:], "letters"), "rows of another size"),
    "a table that is none": ("share", lambda t: t | {"letters": np.ones(3)}, "is no table"),
    "a commitment too few": (
        "share",
        lambda t: table(t, "commitments", **{k: v[1:] for k, v in t["commitments"].items()}),
        "commitments to shares of others",
    ),
    "short commitments": ("share", rows(lambda r: r[:, 1:], "commitments"), "another size"),
    "no commitment to a seed": (
        "share",
        lambda t: {k: v for k, v in t.items() if k != "seed"},
        "no commitment to a seed",
    ),
    "too few words": ("mask", lambda t: {"vector": t["vector"][1:]}, "not 7 words"),
    "words of 8 bytes": (
        "mask",
        lambda t: {"vector": t["vector"].astype(np.uint64)},
        "not 7 words",
    ),
    "no words": ("mask", lambda t: {"letters": t["vector"]}, "not 7 words"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG)
def test_a_malformed_answer_is_one_clients_failure(case: str, net: SecretNet):
    step, change, reason = WRONG[case]
    net.changes[step, 1] = rewritten(change)
    found = list(net.engine().run(jobs(net)))
    assert [type(outcome) for outcome in found] == [Result, Failure, Result, Result, Result]
    assert "malformed" in found[1].reason
    assert reason in found[1].reason
    close(mean_of(found), np.delete(vectors(net), 1, 0).mean(0))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"weight": 2.0}, "a weight other than 1"),
        ({"weight": math.nan}, "a weight other than 1"),
        ({"metrics": {"train/seen": 1.0}}, "it reports train/seen"),
    ],
)
def test_a_weight_or_metrics_that_nobody_asked_for_keep_a_client_out_of_the_sum(
    fields: dict[str, object], reason: str, net: SecretNet
):
    """Refused after the sum, its update would be in the model and not in the records."""

    def edit(arrived: Arrived) -> Arrived:
        assert arrived.content is not None
        text, pieces = records.opened(arrived.content)
        told = replace(messages.from_json(text, messages.Answer), **fields)
        content = records.content(messages.to_json(told), records.body(pieces))
        return arrived._replace(content=content)

    net.changes["job", 1] = edit
    found = list(net.engine().run(jobs(net)))
    assert [type(outcome) for outcome in found] == [Result, Failure, Result, Result, Result]
    assert reason in found[1].reason
    close(mean_of(found), np.delete(vectors(net), 1, 0).mean(0))


def test_metrics_that_were_asked_for_come_through(tmp_path: Path):
    net = SecretNet(Toy(CLIENTS), tmp_path, reports=True)
    found = list(net.engine().run(jobs(net)))
    assert [outcome.metrics["env/steps"] for outcome in found] == [7.0] * CLIENTS


def test_a_client_that_lies_moves_the_mean_no_further_than_the_bound(net: SecretNet):
    """Also with one of the others gone: the words of five are then those of four."""
    net.changes["job", 4] = no_answer
    net.changes["mask", 1] = rewritten(lambda t: {"vector": t["vector"] + np.uint32(2**31 - 2**29)})
    found = mean_of(list(net.engine().run(jobs(net), 0.3)))
    assert np.linalg.norm(found) == pytest.approx(CLIP, rel=1e-6)


@pytest.mark.parametrize("step", STEPS[:3])
def test_a_sum_of_two_is_not_opened(step: str, tmp_path: Path):
    """Each of the two would have the other's update."""
    net = SecretNet(Toy(3), tmp_path, clients=3)
    net.changes[step, 1] = no_answer
    found = list(net.engine().run(jobs(net)[:3], 0.3))
    assert all(isinstance(outcome, Failure) for outcome in found)
    assert "2 clients" in found[0].reason
    assert "3 needed" in found[0].reason
    assert not any(seen.step == "unmask" for seen, _ in net.questions)


def test_who_advertises_anothers_keys_makes_nobody_else_give_up(tmp_path: Path):
    """All others would refuse a list with a key in it twice."""
    net = SecretNet(Toy(CLIENTS), tmp_path, threshold=0.51)

    def copied(tensors: Tensors) -> Tensors:
        (first,) = [s for s in net.answers_seen if s.step == "job" and s.client == 0]
        return table(tensors, "keys", rows=first.tensors["keys"]["rows"])

    net.changes["job", 1] = rewritten(copied)
    found = list(net.engine().run(jobs(net)))
    assert [type(outcome) for outcome in found[2:]] == [Result] * 3
    assert any("not fresh" in f.reason for f in found if isinstance(f, Failure))
    close(mean_of(found), vectors(net)[2:].mean(0))


@pytest.mark.parametrize("step", STEPS[:3])
def test_an_answer_of_another_sum_is_refused(step: str, tmp_path: Path):
    net = SecretNet(Toy(CLIENTS), tmp_path, regroup=True)
    old: list[Arrived] = []
    net.changes[step, 1] = lambda arrived: old.append(arrived) or arrived
    list(net.engine().run(jobs(net)))
    net.changes[step, 1] = lambda arrived: arrived._replace(content=old[0].content)
    found = list(net.engine().run(jobs(net, 20)))
    assert isinstance(found[1], Failure)
    assert "sent again" in found[1].reason
    close(mean_of(found), np.delete(vectors(net, 20), 1, 0).mean(0))


def test_an_unmasking_that_is_not_as_asked_is_left_out(net: SecretNet):
    """One that gives a seed too few; then a second, which is below the threshold."""

    def short(tensors: Tensors) -> Tensors:
        return table(tensors, "seeds", **{k: v[1:] for k, v in tensors["seeds"].items()})

    said: list[str] = []
    net.changes["unmask", 1] = rewritten(short)
    close(mean_of(list(net.engine(said.append).run(jobs(net)))), vectors(net).mean(0))
    why = "client {} has no good share of client 0: one of the two lied"
    assert said == [f"{why.format(1)} (the sum was opened without it)"]
    net.changes["unmask", 2] = rewritten(short)
    found = list(net.engine().run(jobs(net, 8)))
    assert {f.reason for f in found} == {
        "secure sum: 3 clients have good shares of client 0's seed, 4 needed; "
        f"{why.format(1)}; {why.format(2)}"
    }


@pytest.mark.parametrize("what", ["seeds", "keys"])
def test_a_wrong_share_is_left_out_and_its_holder_named(what: str, tmp_path: Path):
    """A flipped bit would make the mean a random one."""
    net = SecretNet(Toy(CLIENTS), tmp_path, threshold=0.51)
    there = np.arange(CLIENTS)
    if what == "keys":
        net.changes["mask", 4] = no_answer
        there = there[:4]
    net.changes["unmask", 1] = rewritten(rows(lambda r: r ^ (np.arange(33) == 20), what))
    said: list[str] = []
    found = list(net.engine(said.append).run(jobs(net), 0.3))
    close(mean_of(found), vectors(net)[there].mean(0))
    last = f"it gave a wrong share of client {4}'s {what[:-1]}"
    assert said == [f"client 1 lied: {last} (the sum was opened without it)"]


def test_too_many_wrong_shares_open_nothing_and_name_their_holders(net: SecretNet):
    net.changes["mask", 4] = no_answer
    net.changes["unmask", 1] = rewritten(rows(lambda r: r ^ np.uint8(1), "keys"))
    found = list(net.engine().run(jobs(net), 0.3))
    assert all(isinstance(outcome, Failure) for outcome in found)
    assert found[0].reason == (
        "secure sum: 3 clients have good shares of client 4's key, 4 needed; "
        "client 1 lied: it gave a wrong share of client 4's key"
    )


def nonsense(*receivers: int) -> Callable[[Tensors], Tensors]:
    """Letters that these cannot open; the others can."""

    def spoil(tensors: Tensors) -> Tensors:
        rows = tensors["letters"]["rows"].copy()
        rows[np.isin(tensors["letters"]["who"], receivers)] ^= 1
        return table(tensors, "letters", rows=rows)

    return spoil


def test_letters_that_cannot_be_opened_name_their_sender(net: SecretNet):
    net.changes["share", 1] = rewritten(nonsense(2))
    said: list[str] = []
    found = list(net.engine(said.append).run(jobs(net)))
    close(mean_of(found), vectors(net).mean(0))
    why = "client {} has no good share of client 1: one of the two lied"
    assert said == [f"{why.format(2)} (the sum was opened without it)"]
    net.changes["share", 1] = rewritten(nonsense(0, 2, 3, 4))
    found = list(net.engine(said.append).run(jobs(net, 8)))
    assert all(isinstance(outcome, Failure) for outcome in found)
    assert all(why.format(u) in found[0].reason for u in (0, 2, 3, 4))


# What a node does not do -------------------------------------------------------------------------


def ask(
    net: SecretNet, client: int, like: str, change: Callable[[Tensors], Tensors], **fields: object
) -> messages.Answer:
    """The last question of that kind to a client once more, with a new nonce."""
    seen, _ = [q for q in net.questions if q[0].step == like and q[0].client == client][-1]
    data = serialization.pack(change(seen.tensors))
    heading = seen.heading | {"nonce": messages.nonce(), "digest": serialization.checksum([data])}
    content = records.content(json.dumps(heading | fields), records.body([data]))
    answer = net.members[100 + client].answer(content)
    return messages.from_json(records.opened(answer)[0], messages.Answer)


def just(tensors: Tensors) -> Tensors:
    return tensors


@pytest.mark.parametrize("step", STEPS[1:])
def test_a_step_is_answered_once(step: str, net: SecretNet):
    list(net.engine().run(jobs(net)))
    _, message = next(q for q in net.questions if q[0].step == step and q[0].client == 1)
    again = opened(step, 1, net.members[101].answer(message.content))
    assert again.heading["reason"] == "this job was done before"
    assert ask(net, 1, step, just).reason == f"{step} was asked for out of turn"


def test_no_second_opinion_on_who_survived(net: SecretNet):
    """The other half of client 2's secrets would come out."""
    net.changes["unmask", 1] = no_answer
    list(net.engine().run(jobs(net), 0.3))
    fewer = secure_messages.pack_opening([0, 1, 3, 4], {})
    assert ask(net, 1, "unmask", lambda _: fewer).reason == "unmask was asked for out of turn"


@pytest.mark.parametrize(
    ("survivors", "reason"),
    [
        ([0, 1, 2], "3 clients are left, 4 needed"),
        ([0, 2, 3, 4], "without this client"),
        ([0, 1, 2, 3, 4, 9], "shared no keys"),
    ],
)
def test_what_a_client_is_told_of_survivors_is_checked(
    survivors: list[int], reason: str, net: SecretNet
):
    """A driver that stops before the last step and asks on its own."""
    net.gone = [("unmask", 0)]
    list(net.engine().run(jobs(net)))
    made_up = secure_messages.pack_opening(survivors, {})
    told = ask(net, 1, "mask", lambda _: made_up, step="unmask")
    assert reason in told.reason


def test_a_sum_of_more_than_were_to_be_asked_is_refused(net: SecretNet):
    def more(tensors: Tensors) -> Tensors:
        known = secure_messages.read_keys(tensors)
        strangers = {9 + n: keys for n, keys in known.items()}
        return secure_messages.pack_keys(known | strangers)

    net.changes["share", 1] = no_answer
    list(net.engine().run(jobs(net), 0.3))
    told = ask(net, 1, "share", more)
    assert told.reason == "10 clients, where 5 were to be asked"


def test_another_sums_steps_are_refused(net: SecretNet):
    list(net.engine().run(jobs(net)))
    assert "knows no such sum" in ask(net, 1, "unmask", just, exchange="another").reason
    new = {"exchange": "new", "round": 8, "seed": jobs(net, 8)[1].seed}
    assert ask(net, 1, "job", just, **new).reason == ""  # a new job ends the sum before
    assert "knows no such sum" in ask(net, 1, "unmask", just).reason
    assert "no such step" in ask(net, 1, "unmask", just, step="tell", exchange="new").reason


def test_a_node_that_adds_up_secretly_sends_no_update_in_plain_sight(net: SecretNet):
    list(net.engine().run(jobs(net)))
    for fields in (
        {"exchange": "", "terms": {}},
        {"exchange": ""},
        {"terms": secure_messages.sendable(net.terms._replace(needed=3))},
        {"terms": secure_messages.sendable(net.terms._replace(bound=2.0))},
        {"terms": {}},
    ):
        assert "another secure sum, or none" in ask(net, 1, "job", just, **fields).reason
    # A job that comes to nothing ends the sum before it, too.
    assert "knows no such sum" in ask(net, 1, "unmask", just).reason


def test_a_node_without_a_secure_sum_in_its_settings_starts_none(net: SecretNet):
    plain = replace(net.members[101].plan(""), build=lambda: net.honest, terms=None)
    net.members[101].plan = lambda recipe: plain
    found = list(net.engine().run(jobs(net)))
    assert isinstance(found[1], Failure)
    assert "another secure sum, or none" in found[1].reason
