"""Secure sums over Flower: the same models, and nothing of one client at the driver."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("dp_accounting", reason="ε needs the extra privacy")

from support.private_rounds import epsilons, theta
from support.rounds import same
from support.secure_nodes import (
    CLIENTS,
    STEPS,
    SecretNet,
    close,
    jobs,
    mean_of,
    no_answer,
    over,
    rehearsed,
    train,
    turned,
    vectors,
)
from support.toy import Toy
from support.values import Values

from fedrl.clients.faults import Faulty
from fedrl.clients.faults import Settings as Faults
from fedrl.core import serialization
from fedrl.core.types import Failure, Job, Result, Spec, Tensors
from fedrl.engines.flower.superlink_client import Arrived
from fedrl.federation.round_loop import QuorumLost
from fedrl.privacy.secure_aggregation import messages as secure_messages
from fedrl.privacy.secure_aggregation.server import Server

pytestmark = pytest.mark.slow  # of waits for messages: seconds of the clock, few of a core

NEEDED = 4  # of 5, at the default threshold


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedrl.engines.flower.node_calls.POLL_SECONDS", 0.005)


@pytest.fixture
def net(tmp_path: Path) -> SecretNet:
    return SecretNet(Toy(CLIENTS), tmp_path)


# The same models ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Toy, Values])
@pytest.mark.parametrize("lost", [(), (2,)])
def test_a_run_is_that_of_one_process_to_the_bit(kind, lost, tmp_path: Path):
    """Masks leave no trace, so not even the last bit differs."""
    algorithm = Faulty(kind(CLIENTS), Faults(clients=lost))
    net = SecretNet(algorithm, tmp_path)
    there, here = over(net), rehearsed(algorithm, net.settings)
    same(there.last.states[0], here.last.states[0])
    assert [r.metrics for r in there.rounds] == [r.metrics for r in here.rounds]
    for one, other in zip(there.rounds, here.rounds):
        assert [r["status"] for r in one.clients] == [r["status"] for r in other.clients]
    failed = [r["client"] for r in there.rounds[2].clients if r["status"] == "failed"]
    assert failed == list(lost)


def test_a_cohort_is_a_sum_of_its_own(tmp_path: Path):
    toy = Toy(9)
    net = SecretNet(toy, tmp_path, clients=9, regroup=True)
    net.terms = net.terms._replace(asked=4, needed=3)
    plan = replace(net.members[100].plan(""), terms=net.terms)
    net.algorithm.terms = net.terms
    for node in net.members.values():
        node.plan = lambda recipe: plan
    fields = {"clients": 9, "cohort": 4}
    same(over(net, **fields).last.states[0], rehearsed(toy, net.settings, **fields).last.states[0])


def test_half_precision_of_the_broadcast_is_what_values_differ_from(tmp_path: Path):
    """The driver must add what clients took away: 2⁻¹¹ of the values, not of their changes."""

    class Large(Values):
        def init(self, seed: int) -> Tensors:
            state = super().init(seed)
            state["theta"]["b"] = np.full((2, 2), 1000.3, np.float32)
            return state

    toy = Large(CLIENTS)
    net = SecretNet(toy, tmp_path, precision="float16")
    sent = toy.broadcast(toy.init(0), 1)
    (found, *_) = net.engine().run([turned(Job(c, sent, None, 0), 1) for c in range(CLIENTS)])
    assert isinstance(found, Result)
    seen = serialization.unpack(serialization.pack(sent, "float16"))
    each = [net.honest.local(turned(Job(c, seen, None, 0), 1)).update for c in range(CLIENTS)]
    expected = np.mean([update["theta"]["b"] for update in each], 0)
    np.testing.assert_allclose(found.update["theta"]["b"], expected, atol=2e-4)


def test_noise_in_shares_and_the_same_epsilon(tmp_path: Path):
    toy = Toy(CLIENTS, size=8000)
    net = SecretNet(toy, tmp_path, clip=0.5, noise=2.0)
    engine = net.engine(piece_mb=1.0)
    noisy = train(engine, net.honest, net.settings, rounds=1)
    assert epsilons(noisy) == epsilons(rehearsed(toy, net.settings, rounds=1))
    start = theta(rehearsed(toy, net.settings, rounds=0))
    moved = theta(noisy) - start
    # Five parts of a noise that four make up, over the five that were asked.
    assert moved.std() == pytest.approx(2.0 * 0.5 * np.sqrt(5 / 4) / 5, rel=0.05)


@pytest.mark.slow
def test_seeded_noise_is_repeatable_and_everybodys_own(tmp_path: Path):
    fields = {"clip": 0.5, "noise": 2.0, "seeded": True}
    one, other = (
        over(SecretNet(Toy(CLIENTS), tmp_path / name, **fields), rounds=2) for name in "ab"
    )
    same(one.last.states[0], other.last.states[0])
    net = SecretNet(Toy(CLIENTS), tmp_path / "c", **fields)
    plain = SecretNet(Toy(CLIENTS), tmp_path / "d", clip=0.5)
    words = [net.algorithm.local(job).update["vector"] for job in jobs(net)]
    quiet = [plain.algorithm.local(job).update["vector"] for job in jobs(net)]
    noise = np.array([w.view(np.int32) for w in words]) * net.terms.step
    noise -= np.array([w.view(np.int32) for w in quiet]) * plain.terms.step
    assert np.linalg.matrix_rank(np.round(noise, 4)) == CLIENTS


def test_what_is_no_number_is_refused_before_it_is_added(tmp_path: Path):
    net = SecretNet(Faulty(Toy(CLIENTS), Faults(clients=(3,), kind="nan")), tmp_path)
    found = list(net.engine().run(jobs(net)))
    assert isinstance(found[3], Failure)
    assert found[3].reason == "ValueError: a has NaN entries"
    honest = SecretNet(Toy(CLIENTS), tmp_path)
    close(mean_of(found), np.delete(vectors(honest), 3, 0).mean(0))


def test_states_stay_on_the_nodes(net: SecretNet):
    store = over(net, rounds=2)
    assert store.last is not None
    assert set(store.last.clients) == set(range(CLIENTS))
    for client, state in store.last.clients.items():
        assert state
        files = {path.stem for path in net.members[100 + client].folder.rglob("*.safetensors")}
        assert set(state.values()) <= files


# What the driver sees ----------------------------------------------------------------------------


class Fixed(Toy):
    """Everybody sends the same number in every place."""

    value = 0.0

    def declare(self, broadcast: Tensors) -> dict[str, Spec]:
        return {"a": Spec((self.size,), "float64")}

    def local(self, job: Job) -> Result:
        return Result(job.client, {"a": np.full(self.size, self.value)}, 1.0 + job.client)


@pytest.mark.slow
@pytest.mark.parametrize("value", [0.0, 0.02])
def test_all_that_the_driver_gets_of_a_client_is_uniform(value: float, tmp_path: Path):
    fixed = Fixed(CLIENTS, size=2000)
    fixed.value = value
    net = SecretNet(fixed, tmp_path)
    engine = net.engine(piece_mb=1.0)
    for number in range(4):
        list(engine.run(jobs(net, number)))
    mine = [seen for seen in net.answers_seen if seen.client == 1]
    assert [seen.step for seen in mine] == list(STEPS) * 4
    words = np.concatenate([seen.tensors["vector"] for seen in mine if seen.step == "mask"])
    assert words.size == 4 * 2000
    for part in (words >> 26, words & 63):
        assert scipy.stats.chisquare(np.bincount(part, minlength=64)).pvalue > 1e-6
    # Letters are bytes without a pattern too, and all of it is new in every sum.
    letters = [seen.tensors["letters"]["rows"] for seen in mine if seen.step == "share"]
    counts = np.bincount(np.concatenate([rows.ravel() for rows in letters]) >> 4, minlength=16)
    assert scipy.stats.chisquare(counts).pvalue > 1e-6
    assert len({seen.raw for seen in mine}) == len(mine)
    # What it would have sent, as numbers and as words: nowhere, not even in part.
    plain = np.full(16, value).tobytes()
    hidden = net.algorithm.local(jobs(net)[1]).update["vector"][:16].tobytes()
    assert not any(plain in seen.raw or hidden in seen.raw for seen in mine)
    for seen in mine:
        assert (seen.heading["weight"], seen.heading["metrics"]) == (1.0, {})


def test_letters_pass_through_the_driver_as_they_are(net: SecretNet):
    list(net.engine().run(jobs(net)))
    sent = {
        s.client: secure_messages.read_dealing(s.tensors)
        for s in net.answers_seen
        if s.step == "share"
    }
    got = {
        s.client: secure_messages.read_letters(s.tensors)
        for s, _ in net.questions
        if s.step == "mask"
    }
    for u in sent:
        assert got[u] == {v: (sent[v].letters[u], sent[v].commitments[u]) for v in sent if v != u}


# Clients that drop out ---------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_one_that_drops_out_costs_its_update_and_nothing_else(step: str, net: SecretNet):
    net.changes[step, 1] = no_answer
    said: list[str] = []
    found = list(net.engine(said.append).run(jobs(net), 0.5))
    here = vectors(net)
    if step in ("agree", "unmask"):  # it is in the sum already
        assert all(isinstance(outcome, Result) for outcome in found)
        did_not = "agree who is in the sum" if step == "agree" else "help to open the sum"
        assert said == [f"client 1 did not {did_not}: no answer within the deadline of 0.5 s"]
        close(mean_of(found), here.mean(0))
        return
    assert [type(outcome) for outcome in found] == [Result, Failure, Result, Result, Result]
    assert found[1].reason == "no answer within the deadline of 0.5 s"
    close(mean_of(found), np.delete(here, 1, 0).mean(0))
    (asked,) = {tuple(s.tensors["survivors"]) for s, _ in net.questions if s.step == "unmask"}
    assert asked == (0, 2, 3, 4)
    # Only who shared keys and then sent nothing has its mask key opened.
    opened_keys = {tuple(s.tensors["keys"]["who"]) for s in net.answers_seen if s.step == "unmask"}
    assert opened_keys == ({(1,)} if step == "mask" else {()})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "did"),
    [
        ("job", "sent keys"),
        ("share", "shared keys"),
        ("mask", "sent their updates"),
        ("agree", "agreed who is in it"),
        ("unmask", "helped to open the sum"),
    ],
)
def test_below_the_threshold_nothing_is_opened(
    step: str, did: str, net: SecretNet, monkeypatch: pytest.MonkeyPatch
):
    totals: list[np.ndarray] = []
    real = Server.total
    monkeypatch.setattr(Server, "total", lambda *args: totals.append(real(*args)) or totals[-1])
    for client in (1, 3):
        net.changes[step, client] = no_answer
    said: list[str] = []
    with pytest.raises(QuorumLost, match="round 1: only 0 of 5"):  # 3 answers are a quorum
        over(net, said, rounds=1, retries=1, deadline=0.3)
    why = (
        f"client {'0, 1, 2, 3, 4' if step in ('agree', 'unmask') else '0, 2, 4'}: "
        f"secure sum: 3 clients {did}"
    )
    assert any(f"{why}, 4 needed" in line for line in said)
    assert totals == []
    after = STEPS[STEPS.index(step) + 1 :]
    assert not any(seen.step in after for seen, _ in net.questions)


# A SuperLink that goes away ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS[:4])
@pytest.mark.parametrize("through", [0, 3])
def test_a_sum_that_was_interrupted_starts_again_with_new_keys(
    step: str, through: int, net: SecretNet
):
    net.gone = [(step, through)]
    said: list[str] = []
    found = list(net.engine(said.append).run(jobs(net)))
    close(mean_of(found), vectors(net).mean(0))
    assert len(said) == 1
    assert len({seen.heading["exchange"] for seen, _ in net.questions}) == (
        1 if (step, through) == ("job", 0) else 2
    )
    keys = [
        seen.tensors["keys"]["rows"].tobytes() for seen in net.answers_seen if seen.step == "job"
    ]
    assert len(set(keys)) == len(keys)
    assert len([1 for seen, _ in net.questions if seen.step == "unmask"]) == CLIENTS


def test_an_interrupted_opening_is_an_exchange_and_the_round_is_tried_again(tmp_path: Path):
    net = SecretNet(Toy(CLIENTS), tmp_path, noise=1.0)
    net.gone = [("unmask", NEEDED - 1)]
    said: list[str] = []
    store = over(net, said, rounds=1)
    assert "while the sum was being opened" in said[0]
    assert store.rounds[1].metrics["privacy/exchanges"] == 2.0
    assert [r["status"] for r in store.rounds[1].clients] == ["failed"] * 5 + ["ok"] * 5


def test_enough_answers_open_the_sum_though_the_superlink_is_gone(net: SecretNet):
    """Four of five have arrived, and the fifth is not waited for."""
    real = net.pull

    def pull(numbers: Collection[str], limit: int) -> list[Arrived]:
        asked = len([seen for seen in net.answers_seen if seen.step == "unmask"])
        if asked == CLIENTS and len(net.answers) == CLIENTS - NEEDED:
            net.lost = ["pull"]
        return real(numbers, limit)

    net.pull = pull  # type: ignore[method-assign]
    said: list[str] = []
    found = list(net.engine(said.append).run(jobs(net)))
    close(mean_of(found), vectors(net).mean(0))
    assert len(said) == 1
    assert "while the sum was being opened" in said[0]


# Real processes ----------------------------------------------------------------------------------

SECRET = ("--privacy.clip", "0.5", "--privacy.secure", "true")


@pytest.mark.machines
@pytest.mark.xdist_group("flower machines")
def test_on_real_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """TLS and node keys: the numbers of one process; with a client that fails; and with noise."""
    from support.flower_runs import MOMENTUM, on_flower, one_by_one, same_numbers

    from fedrl.engines.flower.connection import FOLDER
    from fedrl.engines.flower.local_federation import LocalFederation

    monkeypatch.setenv(FOLDER, str(tmp_path / "connections"))
    with LocalFederation(
        tmp_path / "federation", 4, name="test", peers=True, allowed=["faults"], regroup=True
    ):
        same_numbers(
            on_flower(MOMENTUM, tmp_path / "a", *SECRET, rounds=1),
            one_by_one(MOMENTUM, tmp_path / "b", *SECRET, rounds=1),
        )
        words = (*SECRET, "--privacy.noise", "2", "--federation.clients", "4")
        words += ("--faults.clients", "1", "--faults.kind", "exit")
        words += ("--seed", "1")  # nodes open no job of the first run for other clients
        run = on_flower(MOMENTUM, tmp_path / "c", *words, rounds=1)
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    records = [json.loads(line) for line in (run / "clients.jsonl").read_text().splitlines()]
    assert last["privacy/exchanges"] == 2.0
    assert last["privacy/epsilon"] > 0
    assert {r["client"] for r in records if r["status"] == "failed"} == {1}
    alone = one_by_one(MOMENTUM, tmp_path / "d", *words, rounds=1)
    same_epsilon = json.loads((alone / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["privacy/epsilon"] == same_epsilon["privacy/epsilon"]
