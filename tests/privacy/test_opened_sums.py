"""Secure sums over Flower: of one set of clients, whatever happens between.

`tests/attacks/test_two_sums.py` has the drivers that try.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("dp_accounting", reason="needs the extra privacy")

from support.secure_nodes import (
    CLIENTS,
    STEPS,
    SecretNet,
    close,
    jobs,
    mean_of,
    no_answer,
    over,
    vectors,
)
from support.toy import Toy

from fedrl.core.private_files import StateError
from fedrl.core.types import Failure
from fedrl.engines.flower.superlink_client import Arrived
from fedrl.federation.round_loop import QuorumLost
from fedrl.privacy.secure_aggregation import opened_sums
from fedrl.privacy.secure_aggregation.opened_sums import Asked, OpenedSums
from fedrl.privacy.secure_aggregation.protocol import ProtocolError

WHY = "it has opened round {}, attempt {} of this recipe before: a resumed run needs "
WHY += "federation.retries left, a new one another --seed"
TWO_SETS = "it has opened the sum of this job for another set of clients"
FIRST = Asked("r", 1, 0)
OTHERS = (
    "its sums are of clients 0, 1, 2, 3, 4 and no others, since two that differ give clients away "
    "(an ε of its own, or --regroup, allows it)"
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedrl.engines.flower.node_calls.POLL_SECONDS", 0.005)


def nodes(folder: Path, regroup: bool = False) -> SecretNet:
    """Of this folder, as after a restart of all of them."""
    return SecretNet(Toy(CLIENTS), folder, regroup=regroup)


# Sums that are repeated --------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS[:3])
def test_a_repeated_sum_without_one_client_is_not_opened(step: str, tmp_path: Path):
    """5·mean₁ − 4·mean₂ would be client 1's update. Also nodes that regroup do not."""
    list(nodes(tmp_path, True).engine().run(jobs(nodes(tmp_path))))
    net = nodes(tmp_path, True)
    net.changes[step, 1] = no_answer
    said: list[str] = []
    found = list(net.engine(said.append).run(jobs(net), 0.3))
    assert all(isinstance(outcome, Failure) for outcome in found)
    assert found[0].reason.endswith(f"helped to open the sum, 4 needed; {TWO_SETS}")
    assert said == [f"client {u} did not help to open the sum: {TWO_SETS}" for u in (4, 3, 2, 0)]
    answers = [seen for seen in net.answers_seen if seen.step == "unmask"]
    assert len(answers) == 4
    assert all(seen.tensors == {} for seen in answers)


def test_nor_with_one_client_more(tmp_path: Path):
    first = nodes(tmp_path)
    first.changes["job", 1] = no_answer
    list(first.engine().run(jobs(first), 0.3))
    net = nodes(tmp_path)  # client 1 opened nothing, so it answers; the others do not
    assert all(isinstance(outcome, Failure) for outcome in net.engine().run(jobs(net)))
    assert not any(s.tensors for s in net.answers_seen if s.step == "unmask")
    net = nodes(tmp_path)
    assert all(isinstance(outcome, Failure) for outcome in net.engine().run(jobs(net, 8)))
    answered = [s.client for s in net.answers_seen if s.step == "unmask" and s.tensors]
    assert answered == [1]


@pytest.mark.slow
def test_other_jobs_are_opened_for_the_same_clients_and_for_no_others(tmp_path: Path):
    """Another round, also an earlier one after a resume; or a round tried again."""
    for turn in ((7, 0), (8, 0), (20, 0), (6, 0), (7, 1)):
        net = nodes(tmp_path)
        close(mean_of(list(net.engine().run(jobs(net, *turn)))), vectors(net, *turn).mean(0))
    net.changes["job", 1] = no_answer
    found = list(net.engine().run(jobs(net, 30), 0.3))
    assert all(isinstance(outcome, Failure) for outcome in found)
    assert found[0].reason.endswith(OTHERS)


def test_nodes_that_regroup_open_other_jobs_for_others(tmp_path: Path):
    list(nodes(tmp_path).engine().run(jobs(nodes(tmp_path))))
    net = nodes(tmp_path, regroup=True)
    net.changes["job", 1] = no_answer
    found = list(net.engine().run(jobs(net, 20), 0.3))
    close(mean_of(found), np.delete(vectors(net, 20), 1, 0).mean(0))


@pytest.mark.slow
def test_a_run_that_is_repeated_goes_on_with_the_next_attempt(tmp_path: Path):
    """From before its last checkpoint, as often as there are attempts; then it says what to do."""
    over(nodes(tmp_path), rounds=2)
    for again in (1, 2):
        said: list[str] = []
        store = over(nodes(tmp_path), said, rounds=2, retries=2)
        failed = ["failed"] * 5 * again
        for number in (1, 2):
            records = store.rounds[number].clients
            assert [r["status"] for r in records] == failed + ["ok"] * 5
        assert any(WHY.format(2, again) in line for line in said)
    with pytest.raises(QuorumLost, match=r"round 1: only 0 of 5 .* a new one another --seed$"):
        over(nodes(tmp_path), rounds=2, retries=2)
    last = over(nodes(tmp_path), rounds=3, retries=3)  # and goes on where it was not before
    assert [r["status"] for r in last.rounds[3].clients] == ["ok"] * 5


def test_what_is_refused_is_not_computed(tmp_path: Path):
    list(nodes(tmp_path).engine().run(jobs(nodes(tmp_path))))
    net = nodes(tmp_path)
    net.algorithm.local = None  # type: ignore[method-assign]
    found = list(net.engine().run(jobs(net)))
    assert {f.reason for f in found if isinstance(f, Failure)} == {WHY.format(7, 1)}


@pytest.mark.slow
def test_with_nodes_that_regroup_a_repeated_round_is_of_the_same_clients(tmp_path: Path):
    """From before its last checkpoint: round 2 has other tags of states, and the same states."""
    first = over(nodes(tmp_path, True), rounds=2)
    net, turn = nodes(tmp_path, True), itertools.count(1)

    def second_round(arrived: Arrived) -> Arrived | None:
        return None if next(turn) == 2 else arrived

    net.changes["job", 1] = second_round
    said: list[str] = []
    store = over(net, said, rounds=2, deadline=0.5)
    assert {r["status"] for r in store.rounds[1].clients} == {"ok"}
    assert [r["status"] for r in store.rounds[2].clients] == ["failed"] * 5 + ["ok"] * 5
    assert any(TWO_SETS in line for line in said)
    assert first.last is not None
    assert store.last is not None
    assert first.last.clients.keys() == store.last.clients.keys()


# The memory --------------------------------------------------------------------------------------


def test_nothing_leaves_before_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(opened_sums, "write_private", full)
    net = nodes(tmp_path)
    assert all(isinstance(outcome, Failure) for outcome in net.engine().run(jobs(net)))
    answers = [seen for seen in net.answers_seen if seen.step == "unmask"]
    assert len(answers) == CLIENTS
    assert all(seen.tensors == {} for seen in answers)


def test_survivors_that_are_refused_are_not_remembered(tmp_path: Path):
    """Who answers nothing has opened nothing."""
    net = nodes(tmp_path)
    for client in (1, 3):  # below the threshold
        net.changes["mask", client] = no_answer
    list(net.engine().run(jobs(net), 0.3))
    assert not list(tmp_path.rglob("opened.json"))


@pytest.mark.parametrize(
    "damaged",
    [
        b"", b"[]", b"{}", b'{"7 ab": [0', b'{"clients": [0, 1, 2]}',
        b'{"jobs": {}, "clients": null}', b'{"jobs": {"a": 1}, "clients": []}',
        b'{"jobs": [], "clients": [0]}', b'{"jobs": {}, "clients": ["0"]}',
        b'{"jobs": {}, "clients": [0], "rounds": []}',
        b'{"jobs": {}, "clients": [0], "rounds": {"a 0": [[1]]}}',
        b'{"jobs": {}, "clients": [0], "rounds": {"a 0": [[1, "2"]]}}',
    ],
)  # fmt: skip
def test_a_memory_that_cannot_be_read_opens_nothing(damaged: bytes, tmp_path: Path):
    path = tmp_path / "opened.json"
    path.write_bytes(damaged)
    with pytest.raises(StateError, match="damaged"):
        OpenedSums(path).add("7 ab", [0, 1, 2], FIRST)
    assert path.read_bytes() == damaged


def test_the_last_jobs_are_remembered_and_the_clients_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(opened_sums, "LAST", 3)
    path = tmp_path / "new" / "opened.json"
    for number, job in enumerate(("a", "b", "c", "a", "d")):  # a is newer than b now
        OpenedSums(path).add(job, [2, 1, 0], Asked("r", number, 0))
    whole = {
        "jobs": {job: [0, 1, 2] for job in "cad"}, "clients": [0, 1, 2], "rounds": {"r 0": [[0, 4]]}
    }  # fmt: skip
    assert json.loads(path.read_bytes()) == whole
    for regroup in (False, True):
        with pytest.raises(ProtocolError, match=TWO_SETS):
            OpenedSums(path, regroup).add("a", [0, 1, 3], Asked("r", 9, 0))
    with pytest.raises(ProtocolError, match="its sums are of clients 0, 1, 2 and no others"):
        OpenedSums(path).add("b", [0, 1, 3], Asked("r", 9, 0))
    assert json.loads(path.read_bytes()) == whole
    assert path.stat().st_mode & 0o777 == 0o600
    assert {p.name for p in path.parent.iterdir()} == {"opened.json", "memory.lock"}
    OpenedSums(path, regroup=True).add(
        "b", [0, 1, 3], Asked("r", 2, 0)
    )  # its owner's risk; the clients stay
    assert json.loads(path.read_bytes())["clients"] == [0, 1, 2]


def test_the_memory_of_an_earlier_version_is_kept(tmp_path: Path):
    path = tmp_path / "opened.json"
    path.write_text('{"1 a": [0, 1, 2, 3], "2 b": [0, 1, 2]}')
    with pytest.raises(ProtocolError, match=TWO_SETS):
        OpenedSums(path).add("1 a", [0, 1, 2], FIRST)
    with pytest.raises(ProtocolError, match="its sums are of clients 0, 1, 2 and no others"):
        OpenedSums(path).add("3 c", [0, 1, 2, 3], FIRST)
    OpenedSums(path).add("3 c", [0, 1, 2], FIRST)


def test_and_that_of_the_version_after_it(tmp_path: Path):
    path = tmp_path / "opened.json"
    path.write_text('{"jobs": {"1 a": [0, 1, 2]}, "clients": [0, 1, 2]}')
    with pytest.raises(ProtocolError, match="its sums are of clients 0, 1, 2 and no others"):
        OpenedSums(path).add("3 c", [0, 1, 2, 3], FIRST)
    OpenedSums(path).add("3 c", [0, 1, 2], FIRST)


def test_every_round_and_attempt_is_opened_once_in_whatever_order(tmp_path: Path):
    """A line of the memory for rounds that follow each other: as a set would have it."""
    path, draw, known = tmp_path / "opened.json", random.Random(0), set()
    for _ in range(400):
        asked = Asked(draw.choice("ab"), draw.randrange(40), draw.randrange(2))
        if asked in known:
            for refuses in (OpenedSums(path).check, partial(OpenedSums(path).add, "j", [0, 1, 2])):
                with pytest.raises(ProtocolError, match=WHY.format(asked[1], asked[2] + 1)):
                    refuses(asked)
            continue
        OpenedSums(path).check(asked)
        OpenedSums(path).add("j", [0, 1, 2], asked)
        known.add(asked)
    spans = json.loads(path.read_bytes())["rounds"]
    told = {
        Asked(line.split()[0], number, int(line.split()[1]))
        for line, some in spans.items()
        for first, last in some
        for number in range(first, last + 1)
    }
    assert told == known
    for recipe, number, attempt in itertools.product("ab", range(40), (0, 1)):
        if (asked := Asked(recipe, number, attempt)) not in known:
            OpenedSums(path).add("j", [0, 1, 2], asked)
    assert set(map(str, json.loads(path.read_bytes())["rounds"].values())) == {"[[0, 39]]"}


def test_two_of_one_folder_do_not_open_for_two_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Each would have read that nothing was opened before the other wrote. The lock is the file's,
    so threads are kept apart by it as processes are."""
    real, gate = opened_sums.write_private, threading.Barrier(4)

    def slow(path: Path, data: bytes) -> None:
        time.sleep(0.05)
        real(path, data)

    def add(those: list[int]) -> bool:
        gate.wait()
        try:
            OpenedSums(tmp_path / "opened.json").add(
                f"job of {those}", those, Asked("r", len(those), 0)
            )
        except ProtocolError:
            return False
        return True

    monkeypatch.setattr(opened_sums, "write_private", slow)
    with ThreadPool(4) as tries:
        found = tries.map(add, [[0, 1, 2], [0, 1, 3], [0, 2, 3], [0, 1, 2, 3]], 1)
    assert sorted(found) == [False, False, False, True]
