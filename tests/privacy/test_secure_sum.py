"""Secure aggregation: the sum is right, and it is all there is to see."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cryptography", reason="secure aggregation needs the extra privacy")

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedrl.core.types import TooFew
from fedrl.privacy import secure_aggregation
from fedrl.privacy.secure_aggregation import masks, quantise, shamir
from fedrl.privacy.secure_aggregation.client import Client
from fedrl.privacy.secure_aggregation.cost import cost
from fedrl.privacy.secure_aggregation.protocol import Answer, Keys, Letter, ProtocolError
from fedrl.privacy.secure_aggregation.server import Server

# Numbers as integers


@settings(max_examples=100)
@given(st.integers(1, 60), st.floats(1e-6, 1e6), st.integers(0, 2**32), st.booleans())
def test_a_sum_is_exact_to_a_step_per_client_and_cannot_wrap(clients, bound, seed, extreme):
    size = quantise.step(bound, clients)
    random = np.random.default_rng(seed)
    values = random.uniform(-bound, bound, (clients, 5))
    if extreme:
        values = np.full((clients, 5), bound) * [1, -1, 1, -1, 1]
    total = np.zeros(5, np.uint32)
    for row in values:
        total += quantise.encode(row, bound, size, None)
    found = quantise.decode(total, size)
    assert np.abs(found - values.sum(0)).max() <= clients * size * (1 + 1e-6)


@settings(max_examples=50)
@given(st.integers(1, 50), st.integers(0, 2**32))
def test_the_grid_never_makes_a_vector_longer(clients, seed):
    x = np.random.default_rng(seed).standard_normal(50)
    x /= np.linalg.norm(x)
    size = quantise.step(1.0, clients)
    on_grid = quantise.decode(quantise.encode(x, 1.0, size, None), size)
    assert np.linalg.norm(on_grid) <= np.linalg.norm(x)
    assert np.abs(on_grid - x).max() <= size


def test_flowers_quantisation_gives_the_same_mean():
    flower = pytest.importorskip(
        "flwr.common.secure_aggregation.quantization", reason="an oracle of the extra flower"
    )
    values = np.random.default_rng(0).uniform(-1, 1, (9, 200))
    levels = 2**22
    theirs = sum(flower.quantize([row], 1.0, levels)[0].astype(np.int64) for row in values)
    # Each of theirs is shifted by the range; the sum by nine times that.
    expected = (flower.dequantize([theirs], 1.0, levels)[0] - 8) / 9
    size = quantise.step(1.0, 9)
    total = sum(quantise.encode(row, 1.0, size, None) for row in values)
    found = quantise.decode(total, size) / 9
    assert np.abs(found - expected).max() <= quantise.step(1.0, 9) + 2 / levels


# Shares

SECRET = bytes(range(32))


@settings(max_examples=50)
@given(st.integers(2, 12), st.data())
def test_any_t_shares_give_the_secret(count, data):
    needed = data.draw(st.integers(1, count))
    shares = shamir.split(SECRET, needed, range(count))
    chosen = data.draw(st.permutations(range(count)))[:needed]
    assert shamir.combine({i: shares[i] for i in chosen}, needed) == SECRET
    if needed > 1:
        with pytest.raises(ValueError, match="needed"):
            shamir.combine({i: shares[i] for i in chosen[:-1]}, needed)


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32])
def test_fewer_than_t_shares_are_uniform(secret):
    """Two of three shares, over many draws: the same flat distribution for opposite secrets."""
    draws = [shamir.split(secret, 3, range(5)) for _ in range(4000)]
    one, other = ([int.from_bytes(d[i], "big") / shamir.PRIME for d in draws] for i in (1, 3))
    counts = np.histogram2d(one, other, bins=8, range=[[0, 1], [0, 1]])[0]
    assert scipy.stats.chisquare(counts.ravel()).pvalue > 1e-6
    # The lowest bits, where arithmetic modulo a prime would show as well.
    low = np.bincount([d[1][-1] >> 4 for d in draws], minlength=16)
    assert scipy.stats.chisquare(low).pvalue > 1e-6


def test_t_minus_one_shares_fit_every_secret():
    """For any other secret there is a last share that makes it: the others exclude nothing."""
    shares = shamir.split(SECRET, 3, range(3))
    tries = 200
    found = set()
    for last in range(tries):
        forged = (int.from_bytes(shares[2], "big") + last * 2**200) % shamir.PRIME
        try:
            found.add(shamir.combine({**shares, 2: forged.to_bytes(shamir.SHARE, "big")}, 3))
        except ValueError:  # one of the 297 numbers that are no 32 bytes
            continue
    assert len(found) >= tries - 1
    assert SECRET in found


def test_the_modulus_is_prime():
    sympy = pytest.importorskip("sympy")
    assert sympy.isprime(shamir.PRIME)


@pytest.mark.parametrize(("secret", "needed"), [(b"short", 2), (SECRET, 0), (SECRET, 4)])
def test_impossible_shares(secret, needed):
    with pytest.raises(ValueError):
        shamir.split(secret, needed, range(3))


# Masks and letters


def test_two_clients_agree_and_a_third_does_not():
    a, b, c = (masks.new_secret() for _ in range(3))
    key = masks.agree(a, masks.public(b), b"x")
    assert key == masks.agree(b, masks.public(a), b"x")
    assert key != masks.agree(c, masks.public(a), b"x")
    assert key != masks.agree(a, masks.public(b), b"y")


def mask(key, size):
    """The stream of a key, all at once."""
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(4 * size)), "<u4").astype(np.uint32)


@pytest.mark.parametrize("size", [0, 1, 100, masks.PIECE, masks.PIECE + 1, 3 * masks.PIECE - 3])
def test_words_are_hidden_piece_by_piece_as_in_one_go(size):
    key, words = masks.new_secret(), np.arange(size, dtype=np.uint32) * np.uint32(99_991)
    hidden = words.copy()
    masks.hide(hidden, key)
    np.testing.assert_array_equal(hidden, words + mask(key, size))
    masks.hide(hidden, key, -1)
    np.testing.assert_array_equal(hidden, words)


def test_masks_are_repeatable_and_flat():
    key, words = masks.new_secret(), np.zeros(50_000, np.uint32)
    masks.hide(words, key)
    assert scipy.stats.chisquare(np.bincount(words >> 24, minlength=256)).pvalue > 1e-6
    assert scipy.stats.chisquare(np.bincount(words & 255, minlength=256)).pvalue > 1e-6
    assert words.max() > 2**32 - 2**20  # the whole range


@given(st.binary(max_size=80), st.integers(0, 10**6))
def test_a_letter_is_read_by_its_reader_or_refused(letter, spot):
    key, label = masks.new_secret(), b"1 to 2"
    sealed = masks.seal(key, letter, label)
    assert masks.unseal(key, sealed, label) == letter
    assert masks.unseal(key, sealed, b"2 to 1") is None
    assert masks.unseal(masks.new_secret(), sealed, label) is None
    spot %= len(sealed)
    broken = sealed[:spot] + bytes([sealed[spot] ^ 1]) + sealed[spot + 1 :]
    assert masks.unseal(key, broken, label) is None
    assert masks.unseal(key, sealed[:spot], label) is None


# The protocol


def begin(count, needed, size=4, silent=()):
    """Keys and shares; clients in `silent` advertise keys and never come back."""
    clients = {n: Client(n, needed) for n in range(count)}
    server = Server(needed, size)
    known = server.collect({n: c.advertise() for n, c in clients.items()})
    sent = {n: c.share(known) for n, c in clients.items() if n not in silent}
    return clients, server, server.route(sent)


def play(inputs, needed, silent=(), dropped=(), quiet=()):
    """The sum; clients drop after keys (`silent`), shares (`dropped`) or masked words (`quiet`)."""
    clients, server, letters = begin(len(inputs), needed, len(inputs[0]), silent)
    for number, theirs in letters.items():
        if number not in dropped:
            server.add(number, clients[number].mask(theirs, inputs[number]))
    survivors = server.survivors()
    return server.total({n: clients[n].unmask(survivors) for n in survivors if n not in quiet})


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 14), st.integers(1, 40), st.integers(0, 2**32), st.data())
def test_the_sum_is_that_of_those_who_sent_whoever_drops_and_when(count, size, seed, data):
    needed = data.draw(st.integers(count // 2 + 1, count))
    order = data.draw(st.permutations(range(count)))
    cuts = sorted(data.draw(st.lists(st.integers(0, count - needed), min_size=3, max_size=3)))
    silent, dropped, quiet = order[: cuts[0]], order[cuts[0] : cuts[1]], order[cuts[1] : cuts[2]]
    inputs = np.random.default_rng(seed).integers(0, 2**32, (count, size), np.uint32)
    total = play(inputs, needed, silent, dropped, quiet)
    there = [i for i in range(count) if i not in (*silent, *dropped)]
    np.testing.assert_array_equal(total, inputs[there].sum(0, dtype=np.uint32))


@pytest.mark.parametrize("count", [3, 10, 50])
def test_the_mean_is_the_plain_one_to_the_step(count):
    random = np.random.default_rng(count)
    needed = secure_aggregation.threshold(0.66, count)
    for there in (count, needed):
        vectors = [v / np.linalg.norm(v) for v in random.standard_normal((there, 30))]
        found = secure_aggregation.mean(vectors, secure_aggregation.Terms(count, needed, 1.0, 0.0))
        assert np.abs(found - np.mean(vectors, 0)).max() <= quantise.step(1.0, count)


@pytest.mark.parametrize(
    ("phase", "did"),
    [("silent", "shared keys"), ("dropped", "sent their updates"), ("quiet", "helped to open")],
)
def test_below_the_threshold_nothing_is_opened(phase, did):
    inputs = np.zeros((6, 4), np.uint32)
    with pytest.raises(TooFew, match=f"3 clients {did}.*, 4 needed"):
        play(inputs, 4, **{phase: (0, 2, 5)})


@pytest.mark.parametrize("fill", [0, 2**31 - 1])
def test_what_the_server_sees_of_one_client_is_uniform(fill):
    """Over many sums and two inputs that could not differ more, for a survivor and for a client
    whose mask key is opened because it dropped out after sending."""
    words = np.full(64, fill, np.uint32)
    seen = []
    for _ in range(60):
        clients, _, letters = begin(3, 2, len(words))
        seen.append(clients[1].mask(letters[1], words))
    found = np.concatenate(seen)
    assert scipy.stats.chisquare(np.bincount(found >> 26, minlength=64)).pvalue > 1e-6
    assert scipy.stats.chisquare(np.bincount(found & 63, minlength=64)).pvalue > 1e-6
    # From one sum to the next nothing repeats.
    assert abs(np.corrcoef(seen[0].astype(float), seen[1].astype(float))[0, 1]) < 0.7


def test_the_own_mask_stays_when_the_pairwise_ones_are_known():
    """A client that is taken for lost and whose words come late: they stay hidden."""
    words = np.zeros(20_000, np.uint32)
    clients, server, letters = begin(4, 3, len(words))
    late = clients[0].mask(letters[0], words)
    for number in (1, 2, 3):
        server.add(number, clients[number].mask(letters[number], words))
    answers = {n: clients[n].unmask(server.survivors()) for n in (1, 2, 3)}
    np.testing.assert_array_equal(server.total(answers), words)
    key = shamir.combine({n: a.keys[0] for n, a in answers.items()}, 3)
    for other in (1, 2, 3):
        pair = masks.agree(
            key, server.known[other].masks, b"mask/" + bytes([0, 0, 0, 0, 0, 0, 0, other])
        )
        late = late - mask(pair, len(words))
    assert scipy.stats.chisquare(np.bincount(late >> 24, minlength=256)).pvalue > 1e-6


def test_no_client_gives_both_secrets_of_another():
    clients, server, letters = begin(5, 3)
    words = np.ones(4, np.uint32)
    for number in range(4):
        server.add(number, clients[number].mask(letters[number], words))
    answer = clients[0].unmask([0, 1, 2, 3])
    assert set(answer.seeds) == {0, 1, 2, 3}
    assert set(answer.keys) == {4}
    with pytest.raises(ProtocolError, match="out of turn"):  # a server that asks again
        clients[0].unmask([0, 1, 4])
    with pytest.raises(ProtocolError, match="out of turn"):  # or from the start, with old keys
        clients[0].advertise()


@pytest.mark.parametrize("both", [True, False])
def test_an_answer_that_is_not_as_asked_is_one_that_is_missing(both):
    clients, server, letters = begin(4, 3)
    for number in range(3):
        server.add(number, clients[number].mask(letters[number], np.ones(4, np.uint32)))
    answers = {n: clients[n].unmask([0, 1, 2]) for n in range(3)}
    good = answers[0]
    keys = good.keys | good.seeds if both else {}
    answers[0] = Answer(good.seeds, keys)
    did = "helped to open the sum" if both else "have good shares of client 3's key"
    with pytest.raises(TooFew, match=f"2 clients {did}, 3 needed"):
        server.total(answers)
    assert set(server.liars) == ({0} if both else set())
    assert server.disputes == ([] if both else [(0, 3)])
    np.testing.assert_array_equal(server.total(answers | {0: good}), np.full(4, 3, np.uint32))


def test_shares_of_tampered_letters_are_not_kept():
    clients, _, letters = begin(3, 2)
    sealed = letters[0][1].sealed
    broken = letters[0] | {1: letters[0][1]._replace(sealed=sealed[:-1] + b"?")}
    clients[0].mask(broken, np.zeros(4, np.uint32))
    assert set(clients[0].unmask([0, 1, 2]).seeds) == {0, 2}


def test_letters_of_another_pair_are_not_kept():
    clients, _, letters = begin(4, 3)
    mixed = letters[0] | {1: letters[0][2], 2: letters[0][2]}
    clients[0].mask(mixed, np.zeros(4, np.uint32))
    assert set(clients[0].unmask([0, 1, 2, 3]).seeds) == {0, 2, 3}


def test_a_clients_own_letter_is_not_taken_for_an_answer():
    """Both directions have the same key; the label says which one it is."""
    clients = [Client(n, 2) for n in range(3)]
    known = {c.number: c.advertise() for c in clients}
    sent = {c.number: c.share(known) for c in clients}
    letters = {
        1: Letter(sent[0].letters[1], sent[0].commitments[1]),
        2: Letter(sent[2].letters[0], sent[2].commitments[0]),
    }
    clients[0].mask(letters, np.zeros(4, np.uint32))
    assert set(clients[0].unmask([0, 1, 2]).seeds) == {0, 2}


def test_a_client_checks_what_it_is_told():
    def fresh(count=4, needed=3):
        clients = [Client(n, needed) for n in range(count)]
        return clients, {c.number: c.advertise() for c in clients}

    clients, known = fresh()
    with pytest.raises(ProtocolError, match="advertise was asked for out of turn"):
        clients[0].advertise()
    with pytest.raises(ProtocolError, match="own"):
        clients[0].share(known | {0: known[1]})
    clients, known = fresh()
    with pytest.raises(ProtocolError, match="the same key"):
        clients[0].share(known | {2: known[1]})
    clients, known = fresh(needed=2)  # two halves could be asked for different secrets
    with pytest.raises(ProtocolError, match="threshold of 2"):
        clients[0].share(known)
    clients, known = fresh(needed=5)
    with pytest.raises(ProtocolError, match="threshold of 5"):
        clients[0].share(known)
    clients, _ = fresh()
    with pytest.raises(ProtocolError, match="out of turn"):
        clients[0].mask({}, np.zeros(4, np.uint32))
    clients, _, letters = begin(4, 3)
    with pytest.raises(TooFew, match="2 clients share keys, 3 needed"):
        clients[0].mask({1: letters[0][1]}, np.zeros(4, np.uint32))
    clients, _, letters = begin(4, 3)
    with pytest.raises(ProtocolError, match="advertised no keys"):
        clients[0].mask(letters[0] | {9: Letter(b"", b"")}, np.zeros(4, np.uint32))
    clients, _, letters = begin(4, 3)
    clients[0].mask(letters[0], np.zeros(4, np.uint32))
    with pytest.raises(TooFew, match="2 clients are left, 3 needed"):
        clients[0].unmask([0, 1])


def test_the_server_adds_nobody_twice_and_nothing_odd():
    clients, server, letters = begin(4, 3, silent=(3,))
    words = clients[0].mask(letters[0], np.zeros(4, np.uint32))
    server.add(0, words)
    for number in (0, 3, 9):
        with pytest.raises(ProtocolError, match="shared no keys, or was added already"):
            server.add(number, words)
    with pytest.raises(ProtocolError, match="client 1 sent"):
        server.add(1, words.astype(np.int64))
    with pytest.raises(ProtocolError, match="client 1 sent"):
        server.add(1, words[:2])


def test_cost_counts_the_bytes_of_all_messages():
    """64 of keys, a letter to everybody (12 + 66 + 16), commitments to two shares of everybody and
    to a seed (32 each), 4 a number, a share of everybody."""
    for count, dropped in ((3, 0), (8, 2)):
        found = cost(count, 1000, dropped)
        assert found.up == 64 + 94 * (count - 1) + 64 * count + 32 + 4000 + 33 * count
        assert found.down == 64 * count + (94 + 64) * (count - 1)
        assert found.client_seconds > 0
        assert found.server_seconds > 0


def test_keys_are_fresh_in_every_sum():
    seen = {key for _ in range(3) for client in range(3) for key in Client(client, 2).advertise()}
    assert len(seen) == 18
    assert Keys._fields == ("letters", "masks")
