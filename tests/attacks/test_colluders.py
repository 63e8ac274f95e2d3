"""A coordinator and k members that work together against the others of a secure sum of n.

The coordinator tells some that a client is in the sum, and others that it is not, to have both of
that client's secrets: its own mask and those that it shares. Honest members go on only with t
signatures under the list that they were told, and sign one list; liars sign both. So both lists get
t signatures only where n + k ≥ 2t, as docs/privacy.md says, and then the update is open.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs the extra privacy")

from cryptography.hazmat.primitives.asymmetric import ec

from fedrl.core.types import TooFew
from fedrl.privacy.secure_aggregation import Terms, masks, messages, shamir
from fedrl.privacy.secure_aggregation.client import SigningClient
from fedrl.privacy.secure_aggregation.identity import Identity, about_survivors
from fedrl.privacy.secure_aggregation.protocol import Letter, mask_label, mask_sign
from fedrl.privacy.secure_aggregation.server import Server

EXCHANGE, JOB = "a sum", bytes(32)
VICTIM = 0
CASES = [
    (n, t, k)
    for n in (4, 5, 6, 7)
    for t in range(max(3, n // 2 + 1), n + 1)
    for k in range(min(t, n - 1))  # with t liars nobody's help is needed
]


class Sum:
    """The steps up to the list of those who are in it, as all keep to them."""

    def __init__(self, n: int, t: int) -> None:
        keys = [ec.generate_private_key(ec.SECP384R1()) for _ in range(n)]
        peers = {number: key.public_key() for number, key in enumerate(keys)}
        self.people = [Identity(key, peers) for key in keys]
        self.vectors = np.random.default_rng(n).integers(0, 2**32, (n, 5), np.uint32)
        terms = Terms(n, t, 1.0, 0.0)
        self.needed, self.everybody = t, range(n)
        self.clients = [
            SigningClient(EXCHANGE, u, terms, self.vectors[u].copy(), lambda _: None, lambda: None,
                          self.people[u], JOB)
            for u in self.everybody
        ]  # fmt: skip
        known = {u: messages.read_keys(c.advertise())[u] for u, c in enumerate(self.clients)}
        self.known = {u: signed.keys for u, signed in known.items()}
        dealt = [messages.read_dealing(c.answer("share", messages.pack_keys(known)))
                 for c in self.clients]  # fmt: skip
        self.dealt = dict(enumerate(dealt))
        self.masked = []
        for u, client in enumerate(self.clients):
            letters = {v: Letter(dealt[v].letters[u], dealt[v].commitments[u])
                       for v in self.everybody if v != u}  # fmt: skip
            told = client.answer("mask", messages.pack_letters(letters))
            self.masked.append(messages.read_vector(told, 5))

    def opened_for(
        self, told: Collection[int], survivors: Collection[int], liars: Collection[int]
    ) -> dict[int, messages.Answer]:
        """What honest clients reveal that are told this list, with the liars' signatures."""
        statement = about_survivors(EXCHANGE, survivors)
        signed = {u: self.people[u].sign(statement) for u in liars}
        for u in told:
            answer = self.clients[u].answer("agree", messages.pack_survivors(survivors))
            signed |= messages.read_signatures(answer)
        opening = messages.pack_opening(survivors, signed)
        return {u: messages.read_answer(self.clients[u].answer("unmask", opening)) for u in told}


def attack(n: int, t: int, k: int) -> np.ndarray:
    """The victim's vector, or `TooFew` from somebody who does not go on."""
    found = Sum(n, t)
    liars = list(found.everybody)[n - k :] if k else []
    honest = [u for u in found.everybody if u not in liars]
    half = max(t - k, 1)  # no more than are needed for the one list: the rest are for the other
    first, second = honest[:half], honest[half:]
    if not second:
        raise TooFew("nobody is left to agree who is in the sum")
    whole = set(found.everybody)
    seeds = {u: a.seeds[VICTIM] for u, a in found.opened_for(first, whole, liars).items()}
    keys = {u: a.keys[VICTIM]
            for u, a in found.opened_for(second, whole - {VICTIM}, liars).items()}  # fmt: skip
    for u in liars:  # their own shares, which they were dealt as everybody was
        seeds[u], keys[u] = found.clients[u]._client._shares[VICTIM]
    seed, key = shamir.combine(seeds, t), shamir.combine(keys, t)
    vector = found.masked[VICTIM].copy()
    masks.hide(vector, seed, -1)
    for v in whole - {VICTIM}:
        pair = masks.agree(key, found.known[v].masks, mask_label(VICTIM, v))
        masks.hide(vector, pair, -mask_sign(VICTIM, v))
    assert np.array_equal(vector, found.vectors[VICTIM])
    return vector


@pytest.mark.parametrize(("n", "t", "k"), CASES)
def test_an_update_is_open_exactly_where_n_and_k_reach_twice_the_threshold(n: int, t: int, k: int):
    if n + k >= 2 * t:
        attack(n, t, k)
    else:
        with pytest.raises(TooFew, match="agree who is in the sum"):
            attack(n, t, k)


def test_of_four_two_liars_open_an_update_and_one_does_not():
    """As docs/explain/secure_sums.md tells it: n = 4, t = 3."""
    attack(4, 3, 2)
    with pytest.raises(TooFew, match="agree who is in the sum"):
        attack(4, 3, 1)


def test_of_a_sum_of_t_clients_all_but_one_have_the_last_ones_update():
    """Without a share too many: of four with t = 3 one is gone, or everybody is told that it is."""
    found = Sum(4, 3)
    left = north, south, west = 0, 1, 3
    answers = found.opened_for(left, left, [])
    server = Server(3, 5)
    server.collect(found.known)
    server.route(found.dealt)
    for u in left:
        server.add(u, found.masked[u])
    others = found.vectors[south] + found.vectors[west]
    assert np.array_equal(server.total(answers) - others, found.vectors[north])


def test_the_default_threshold_holds_against_one_liar_of_any_sum():
    """`threshold = 0.66`: the coordinator with one member opens nothing."""
    from fedrl.privacy import Settings

    for n in range(3, 200):
        needed = Terms.of(Settings(clip=1.0, secure=True), n).needed
        assert n + 1 < 2 * needed, n


def test_both_kinds_are_among_the_cases():
    kinds = [n + k >= 2 * t for n, t, k in CASES]
    assert any(kinds)
    assert not all(kinds)
