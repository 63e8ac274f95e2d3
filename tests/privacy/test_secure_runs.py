"""Runs with secure aggregation: the same models, dropouts, too few clients, noise in parts."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="secure aggregation needs the extra privacy")

from support.private_rounds import epsilons, play, theta
from support.rounds import Memory, same
from support.toy import Toy
from support.values import Values

from fedrl.clients.faults import Faulty
from fedrl.clients.faults import Settings as Faults
from fedrl.federation.round_loop import QuorumLost
from fedrl.privacy import accounting
from fedrl.privacy.secure_aggregation import quantise

NOISY = {"clip": 0.5, "noise": 2.0, "secure": True, "seeded": True}


@pytest.mark.parametrize("kind", [Toy, Values])
@pytest.mark.parametrize("lost", [(), (1, 4)])
def test_a_secure_run_is_the_plain_one_to_the_step(kind, lost):
    clip, rounds = 1.5, 5
    plain, secret = (
        play(Faulty(kind(), Faults(clients=lost)), rounds=rounds, clip=clip, secure=secure)
        for secure in (False, True)
    )
    # Θ after R rounds of steps that are off by a grid step each; the toy forgets a tenth a round.
    allowed = rounds * quantise.step(clip, 6)
    for name in ("a", "b"):
        one, other = (s.last.states[0]["theta"][name] for s in (plain, secret))
        assert np.abs(one - other).max() <= allowed + 2e-6 * (name == "b")
        assert one.dtype == other.dtype
    assert not np.array_equal(theta(plain), theta(secret))
    assert [r["client"] for r in secret.rounds[2].clients if r["status"] == "failed"] == list(lost)


def test_below_the_threshold_a_round_fails_and_says_why():
    faulty = Faulty(Toy(), Faults(clients=(0, 1, 2)))
    said: list[str] = []
    store = Memory()
    with pytest.raises(QuorumLost, match="round 1: only 0 of 6"):  # 3 answers are a quorum
        play(faulty, store=store, said=said, fed={"retries": 1}, clip=1.0, secure=True)
    assert "client 3, 4, 5: secure sum: 3 clients sent their updates, 4 needed" in said[0]
    assert store.last.round == 0


def test_of_three_clients_none_may_be_missing():
    """Two would be left, and each would have the other's update."""
    faulty = Faulty(Toy(3), Faults(clients=(1,)))
    said: list[str] = []
    with pytest.raises(QuorumLost, match="round 1: only 0 of 3"):
        play(faulty, fed={"clients": 3, "retries": 0}, said=said, clip=1.0, secure=True)
    four = play(Faulty(Toy(4), Faults(clients=(1,))), fed={"clients": 4}, clip=1.0, secure=True)
    assert four.last.round == 4


def test_a_round_that_nobody_answers_fails_the_same_way():
    faulty = Faulty(Toy(), Faults(clients=tuple(range(6))))
    with pytest.raises(QuorumLost, match="round 1: only 0 of 6"):
        play(faulty, fed={"retries": 0}, clip=1.0, secure=True)


def test_noise_in_parts_is_at_least_that_of_the_server():
    """Its variance is that of the central noise for the fewest that may stay, more for more."""
    pytest.importorskip("dp_accounting", reason="ε needs the extra privacy")
    size = 20_000
    start = theta(play(Toy(size=size), rounds=0, clip=0.5))
    for lost, there in (((), 6), ((0, 5), 4)):
        moved = theta(play(Faulty(Toy(size=size), Faults(clients=lost)), rounds=1, **NOISY)) - start
        expected = 2.0 * 0.5 * np.sqrt(there / 4) / 6
        assert moved.std() == pytest.approx(expected, rel=0.03)


def test_the_server_is_not_trusted_so_nothing_is_amplified():
    pytest.importorskip("dp_accounting", reason="ε needs the extra privacy")
    fed = {"clients": 12, "cohort": 4}
    store = play(rounds=4, fed=fed, **NOISY)
    taken = np.zeros(12, int)
    for done, epsilon in zip(store.rounds, epsilons(store)):
        for record in done.clients:
            taken[record["client"]] += 1
        assert epsilon == accounting.full_view(2.0, taken.max(), accounting.default_delta(12))


def test_seeded_noise_in_parts_resumes_to_the_same_numbers():
    """Keys and masks are new each time, and leave no trace in the sum."""
    pytest.importorskip("dp_accounting", reason="ε needs the extra privacy")
    whole, first = play(rounds=5, **NOISY), play(rounds=2, **NOISY)
    rest = play(rounds=5, store=Memory(first.last), **NOISY)
    same(whole.last.states[0], rest.last.states[0])
    assert [r.metrics for r in whole.rounds[3:]] == [r.metrics for r in rest.rounds]
