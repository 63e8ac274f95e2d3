"""Secure sums among members and drivers that lie at random: exact, or refused.

Members: whatever one changes in any of its answers, the mean is that of the words of all who are in
the sum (of the liar, the words that it added), to the bit; or there is none. Drivers: whatever
they send and whomever they leave out, no two sums that they get differ by clients, or are of one
round and attempt.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("dp_accounting", reason="needs the extra privacy")

from support.flower_nodes import in_small_pieces
from support.rewritten_messages import rewritten
from support.secure_nodes import CLIENTS, STEPS, SecretNet, jobs
from support.toy import Toy

from fedrl.core import tree
from fedrl.core.types import Failure, Job, Result, Tensors
from fedrl.engines.flower.connection import Connection
from fedrl.engines.flower.engine import FlowerEngine, Recipe
from fedrl.engines.flower.superlink_client import Arrived
from fedrl.privacy import clipping

pytestmark = pytest.mark.slow

MEMBERS = 60
DRIVERS = 12


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedrl.engines.flower.node_calls.POLL_SECONDS", 0.002)


def gone(arrived: Arrived) -> Arrived:
    """An answer that does not come, without waiting for it."""
    return arrived._replace(content=None, error="it is gone (test)")


# Members -----------------------------------------------------------------------------------------


def spoiled(draw: random.Random) -> Callable[[Tensors], Tensors]:
    """One of the tables of an answer, changed somehow."""

    def change(tensors: Tensors) -> Tensors:
        name = draw.choice(sorted(tensors))
        table = tensors[name]
        if not isinstance(table, dict):
            return tensors | {name: flipped(table, draw)}
        who, rows = table["who"], table["rows"]
        if not len(who):
            return tensors
        some = np.array(draw.sample(range(len(who)), draw.randint(1, len(who))))
        kind = draw.choice(["bits", "bits", "fewer", "swapped", "named"])
        if kind == "bits":
            rows = rows.copy()
            rows[some] = flipped(rows[some], draw)
        elif kind == "fewer":
            who, rows = np.delete(who, some), np.delete(rows, some, 0)
        elif kind == "swapped":
            rows = rows[np.roll(np.arange(len(who)), 1)]
        else:
            who = who.copy()
            who[some[0]] = draw.choice([0, CLIENTS, 7])
        return tensors | {name: {"who": who, "rows": rows}}

    return change


def flipped(values: np.ndarray, draw: random.Random) -> np.ndarray:
    changed = values.copy()
    flat = changed.reshape(-1).view(np.uint8)
    for _ in range(draw.randint(1, 4)):
        flat[draw.randrange(len(flat))] ^= 1 << draw.randrange(8)
    return changed


def added(words: np.ndarray) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {"vector": tensors["vector"] + words}


@pytest.mark.parametrize("number", range(MEMBERS))
def test_members_that_lie_leave_an_exact_sum_or_none(number: int, tmp_path: Path):
    draw = random.Random(number)
    share = draw.choice([0.51, 0.66])
    net = SecretNet(Toy(CLIENTS), tmp_path, threshold=share, regroup=True)
    words = {job.client: net.algorithm.local(job).update["vector"] for job in jobs(net)}
    for client in draw.sample(range(CLIENTS), draw.randint(1, 3)):
        step = draw.choice(STEPS)
        if step == "mask" and draw.random() < 0.5:
            more = np.random.default_rng(number).integers(0, 2**32, len(words[0]), np.uint32)
            net.changes[step, client] = rewritten(added(more))
            words[client] = words[client] + more
        elif step == "mask" or draw.random() < 0.2:
            net.changes[step, client] = gone
        else:
            net.changes[step, client] = rewritten(spoiled(draw))
    said: list[str] = []
    found = list(net.engine(said.append).run(jobs(net), 5.0))
    there = [outcome.client for outcome in found if isinstance(outcome, Result)]
    if not there:
        assert all(isinstance(outcome, Failure) and outcome.reason for outcome in found)
        return
    total = np.sum([words[client] for client in there], 0, dtype=np.uint32)
    form = clipping.layout(net.honest, jobs(net)[0].broadcast)
    expected = form.update(net.terms.mean(total, len(there)))
    first = next(outcome for outcome in found if isinstance(outcome, Result))
    assert tree.flatten(first.update).keys() == tree.flatten(expected).keys()
    for name, leaf in tree.flatten(expected).items():
        np.testing.assert_array_equal(tree.flatten(first.update)[name], leaf)
    liars = {client for _, client in net.changes}
    named = {int(line.split()[1]) for line in said if " lied: " in line}
    assert named <= liars


# Drivers -----------------------------------------------------------------------------------------


class Had(NamedTuple):
    """A sum that a driver has: whose, and of which recipe, round and attempt."""

    clients: set[int]
    turn: tuple[str, int, int]


def lie(net: SecretNet, draw: random.Random) -> Had | None:
    """One try of a driver to have a sum."""
    run, text = draw.choice("ab"), draw.choice(["", "# x"])
    engine = FlowerEngine(
        net.honest, Recipe(run, text, keep=3), Connection("x:1"), in_small_pieces(), lambda _: None,
        net.open, net.terms,
    )  # fmt: skip
    net.changes.clear()
    for client in draw.sample(range(CLIENTS), draw.choice([0, 0, 1, 1, 2])):
        net.changes[draw.choice(STEPS), client] = gone
    up, round = draw.choice([0, 1, 2**30]), draw.choice([1, 2, 3, 9])

    def moved(leaf: np.ndarray) -> np.ndarray:
        bits = np.ascontiguousarray(leaf, np.float64).view(np.int64) + up
        return bits.view(np.float64).astype(leaf.dtype)

    def asked(job: Job) -> Job:
        theta = tree.map(moved, job.broadcast["theta"])
        return replace(job, broadcast=job.broadcast | {"theta": theta, "round": round})

    attempt = draw.choice([0, 0, 1, 50])
    some = [asked(job) for job in jobs(net, round, attempt)]
    if odd := draw.random() < 0.2:
        some[1] = replace(some[1], seed=draw.randrange(2**62))
    found = list(engine.run(some, 5.0))
    there = {outcome.client for outcome in found if isinstance(outcome, Result)}
    assert not (odd and 1 in there), "a client was in a sum with a seed of its own"
    return Had(there, (text, round, attempt)) if there else None


@pytest.mark.parametrize("number", range(DRIVERS))
def test_drivers_that_lie_get_no_two_sums_that_differ_by_a_client(number: int, tmp_path: Path):
    draw = random.Random(number)
    net = SecretNet(Toy(CLIENTS), tmp_path, threshold=draw.choice([0.51, 0.66]))
    sums: list[Had] = []
    if number % 2:  # begins honestly; the others may find that no set can be opened any more
        assert all(isinstance(outcome, Result) for outcome in net.engine().run(jobs(net, 0)))
        sums.append(Had(set(range(CLIENTS)), ("", 0, 0)))
    for _ in range(12):
        if draw.random() < 0.3:  # all nodes are restarted
            net = SecretNet(Toy(CLIENTS), tmp_path, threshold=net.settings.threshold)
        if (had := lie(net, draw)) is not None:
            sums.append(had)
    assert sums
    for one, other in itertools.combinations(sums, 2):
        differ = one.clients ^ other.clients
        assert not differ, f"the difference of two sums is that of clients {differ}"
        assert one.turn != other.turn, "one round was opened twice"
