"""Secure aggregation among clients that lie about shares: found out, named, and left out."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cryptography", reason="secure aggregation needs the extra privacy")

from fedrl.core.types import TooFew
from fedrl.privacy.secure_aggregation import commitments, masks, shamir
from fedrl.privacy.secure_aggregation.client import Client
from fedrl.privacy.secure_aggregation.protocol import Answer, Dealing, ProtocolError, letter_label
from fedrl.privacy.secure_aggregation.server import Server

SIZE = 5


class Play:
    """A sum up to its last step; `dealing(u, …)` may be another one than client u made."""

    def __init__(self, count, needed, seed=0, gone=(), dealing=lambda u, client, dealt: dealt):
        self.inputs = np.random.default_rng(seed).integers(0, 2**32, (count, SIZE), np.uint32)
        self.clients = {n: Client(n, needed) for n in range(count)}
        self.server = Server(needed, SIZE)
        known = self.server.collect({n: c.advertise() for n, c in self.clients.items()})
        dealt = {n: dealing(n, c, c.share(known)) for n, c in self.clients.items()}
        for number, letters in self.server.route(dealt).items():
            if number not in gone:
                masked = self.clients[number].mask(letters, self.inputs[number])
                self.server.add(number, masked)
        self.survivors = self.server.survivors()
        self.answers = {n: self.clients[n].unmask(self.survivors) for n in self.survivors}

    @property
    def expected(self):
        return self.inputs[self.survivors].sum(0, dtype=np.uint32)


def flipped(share, draw):
    at = draw.randrange(8 * len(share))
    changed = bytearray(share)
    changed[at // 8] ^= 1 << at % 8
    return bytes(changed)


def lying(answer, draw):
    """With at least one of its shares changed, and whatever others."""
    seeds, keys = dict(answer.seeds), dict(answer.keys)
    places = [(table, of) for table in (seeds, keys) for of in table]
    for table, of in draw.sample(places, draw.randint(1, len(places))):
        table[of] = flipped(table[of], draw)
    return Answer(seeds, keys)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(3, 12), st.integers(0, 2**32), st.data())
def test_wrong_shares_name_exactly_the_liars_and_the_sum_is_right(count, seed, data):
    needed = data.draw(st.integers(count // 2 + 1, count))
    gone = data.draw(st.permutations(range(count)))[: data.draw(st.integers(0, count - needed))]
    play, draw = Play(count, needed, seed, gone), random.Random(seed)
    liars = set(draw.sample(play.survivors, draw.randint(0, len(play.survivors))))
    answers = {
        n: lying(answer, draw) if n in liars else answer for n, answer in play.answers.items()
    }
    honest = len(play.survivors) - len(liars)
    wrong = [
        sum(getattr(answers[n], kind)[of] != getattr(play.answers[n], kind)[of] for n in answers)
        for kind in ("seeds", "keys")
        for of in getattr(play.answers[play.survivors[0]], kind)
    ]
    enough = all(len(answers) - count >= needed for count in wrong)
    assert enough or honest < needed
    if not enough:
        with pytest.raises(TooFew, match=r"good shares of client \d+'s (seed|key)"):
            play.server.total(answers)
        assert set(play.server.liars) <= liars
        assert play.server.liars
        return
    np.testing.assert_array_equal(play.server.total(answers), play.expected)
    assert set(play.server.liars) == liars
    assert play.server.disputes == []
    assert len(play.server.blame()) == len(liars)


def other_letters(receivers, commit):
    """Shares that nobody can use for these; with or without commitments that fit them."""

    def change(number, client, dealt):
        if number != 1:
            return dealt
        letters, said = dict(dealt.letters), dict(dealt.commitments)
        for v in receivers:
            seed, key = (b"\0" + masks.new_secret() for _ in range(2))
            letters[v] = masks.seal(client._letters(v), seed + key, letter_label(number, v))
            if commit:
                said[v] = commitments.to_shares(number, v, seed, key)
        return Dealing(letters, said, dealt.seed)

    return change


@pytest.mark.parametrize("gone", [(), (1,)])
def test_a_dealer_whose_shares_do_not_belong_together_is_named_and_no_holder(gone):
    """It is committed to what it dealt, so its holders can show that they tell the truth."""
    play = Play(7, 4, gone=gone, dealing=other_letters((0,), commit=True))
    with pytest.raises(ProtocolError, match=f"client 1's {'key' if gone else 'seed'} cannot be"):
        play.server.total(play.answers)
    assert set(play.server.liars) == {1}
    what = "key" if gone else "seed"
    assert play.server.blame() == [
        f"client 1 lied: the shares that it dealt do not give its {what}"
    ]


def test_letters_that_are_not_as_committed_are_not_kept_and_cost_only_themselves():
    """Whether the holder or the dealer lies, nobody else can tell: both are named."""
    play = Play(7, 4, dealing=other_letters((0, 3), commit=False))
    np.testing.assert_array_equal(play.server.total(play.answers), play.expected)
    assert play.server.liars == {}
    assert play.server.blame() == [
        f"client {v} has no good share of client 1: one of the two lied" for v in (0, 3)
    ]


def test_a_dealer_that_was_committed_to_a_wrong_share_is_named_in_a_dispute():
    """The shares of the others say what the one in dispute must have been."""

    def change(number, client, dealt):
        if number != 1:
            return dealt
        said = dealt.commitments | {3: bytes(2 * commitments.SIZE)}
        return dealt._replace(commitments=said)

    play = Play(7, 4, dealing=change)
    np.testing.assert_array_equal(play.server.total(play.answers), play.expected)
    assert play.server.blame() == ["client 1 lied: it dealt client 3 a wrong share of its seed"]


def test_a_dealer_that_masks_with_another_seed_is_named():
    """Exactly t answers: any shares give some seed, and the sum would be random."""

    def change(number, client, dealt):
        if number == 2:
            client._seed = masks.new_secret()
        return dealt._replace(seed=commitments.to_seed(2, client._seed)) if number == 2 else dealt

    play = Play(5, 4, dealing=change)
    answers = {n: play.answers[n] for n in (0, 1, 3, 4)}
    with pytest.raises(ProtocolError, match="client 2's seed"):
        play.server.total(answers)
    assert set(play.server.liars) == {2}


def test_the_right_share_of_a_holder_follows_from_t_others():
    draw = random.Random(3)
    for _ in range(20):
        count = draw.randint(2, 12)
        needed = draw.randint(1, count)
        shares = shamir.split(masks.new_secret(), needed, range(count))
        some = dict(draw.sample(sorted(shares.items()), needed))
        assert all(shamir.share_of(i, some, needed) == shares[i] for i in range(count))


def test_commitments_are_of_one_place_only():
    """A share cannot be passed off as one of another kind, dealer or holder."""
    share = masks.new_secret() + b"\0"
    places = [(kind, u, v) for kind in ("seed", "key") for u in range(3) for v in range(3)]
    assert len({commitments.to_share(*place, share) for place in places}) == len(places)


def test_below_the_threshold_every_secret_fits_all_that_is_known():
    """t - 1 shares and all commitments: each guess of the seed gives other missing shares, and
    nothing but hashes of 256 unknown bits tells which are right."""
    needed, count = 3, 5
    seed = masks.new_secret()
    shares = shamir.split(seed, needed, range(count))
    seen = {i: shares[i] for i in range(needed - 1)}
    for _ in range(50):
        guess = b"\0" + masks.new_secret()
        # Holder -1 has the value at 0: a guessed secret is one more share.
        points = seen | {-1: guess}
        missing = [shamir.share_of(v, points, needed) for v in range(needed - 1, count)]
        assert len(set(missing)) == len(missing)
        assert all(share != shares[v] for v, share in enumerate(missing, needed - 1))
    right = seen | {-1: b"\0" + seed}
    assert [shamir.share_of(v, right, needed) for v in range(count)] == list(shares.values())
