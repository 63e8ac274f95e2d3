"""Secure aggregation after Bonawitz et al. (CCS 2017): the server learns a sum and nothing else.

Client u hides its words x_u under a mask of its own and one per other client:

    y_u = x_u + PRG(b_u) + Σ_{v > u} PRG(s_uv) - Σ_{v < u} PRG(s_uv)      modulo 2³²

Four exchanges, all through the server:

    advertise   every client sends two fresh public keys
    share       it sends t-of-n shares of b_u and of its mask key to the others, sealed, and a
                commitment to each of them to the server
    mask        it sends y_u
    unmask      the server says who sent y; everybody left sends shares of b_u for those, of the
                mask key for those who dropped out, never both

Client and Server are state machines without input or output: whoever carries the messages drives
them. Against a server that follows the protocol and looks at everything, also together with fewer
than t clients, only the sum is visible. A server that hands out public keys of its own making is
held off by whoever carries the messages and has them signed (`engines/flower/identity.py`).

Of clients that lie about shares the server finds out who (`commitments.py`): a wrong share is left
out, and the sum is opened if t right ones of every secret are there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from fedrl.core.types import TooFew
from fedrl.privacy.secure_aggregation import commitments, masks, shamir
from fedrl.privacy.secure_aggregation.quantise import WORD


class ProtocolError(Exception):
    """A message that an honest partner does not send; who got it keeps its secrets."""


class Keys(NamedTuple):
    """A client's public keys: for letters, and for masks."""

    letters: bytes
    masks: bytes


class Dealing(NamedTuple):
    """A client's letters by their receivers, and to the server: commitments to everybody's shares
    by holder, and to its seed."""

    letters: dict[int, bytes]
    commitments: dict[int, bytes]
    seed: bytes


class Letter(NamedTuple):
    """What the server passes on to one holder: sealed shares, and what its dealer said of them."""

    sealed: bytes
    commitment: bytes


class Answer(NamedTuple):
    """Shares that open the sum, by whose secret they are of; without those that were no good."""

    seeds: dict[int, bytes]
    keys: dict[int, bytes]


def _label(sender: int, receiver: int) -> bytes:
    return sender.to_bytes(4, "big") + receiver.to_bytes(4, "big")


def _pair(one: int, other: int) -> bytes:
    return b"mask/" + _label(min(one, other), max(one, other))


def _sign(mine: int, theirs: int) -> int:
    """Of a pair's mask: added by the lower number, taken away by the higher, gone in the sum."""
    return 1 if mine < theirs else -1


class Client:
    """One client in one sum. Its methods are called once each, in this order."""

    def __init__(self, number: int, threshold: int) -> None:
        self.number, self.threshold = number, threshold
        self._letter_key, self._mask_key = masks.new_secret(), masks.new_secret()
        self._seed = masks.new_secret()
        self._known: dict[int, Keys] = {}
        self._common: dict[int, bytes] = {}
        self._there: set[int] = set()
        self._shares: dict[int, tuple[bytes, bytes]] = {}  # that fit, by their dealer
        self._left = ["advertise", "share", "mask", "unmask"]

    def advertise(self) -> Keys:
        self._enter("advertise")
        return Keys(masks.public(self._letter_key), masks.public(self._mask_key))

    def share(self, known: Mapping[int, Keys]) -> Dealing:
        """A sealed letter to every other client, with shares of both secrets."""
        self._enter("share")
        everybody = sorted(known)
        if known.get(self.number) != (masks.public(self._letter_key), masks.public(self._mask_key)):
            raise ProtocolError("the list of keys does not have this client's own")
        if len({key for keys in known.values() for key in keys}) < 2 * len(known):
            raise ProtocolError("two clients are said to have the same key")
        if not len(known) < 2 * self.threshold <= 2 * len(known):
            raise ProtocolError(f"{len(known)} clients, with a threshold of {self.threshold}")
        self._known = dict(known)
        seeds = shamir.split(self._seed, self.threshold, everybody)
        keys = shamir.split(self._mask_key, self.threshold, everybody)
        self._shares[self.number] = seeds[self.number], keys[self.number]
        letters = {
            other: masks.seal(
                self._letters(other), seeds[other] + keys[other], _label(self.number, other)
            )
            for other in everybody
            if other != self.number
        }
        said = {v: commitments.to_shares(self.number, v, seeds[v], keys[v]) for v in everybody}
        return Dealing(letters, said, commitments.to_seed(self.number, self._seed))

    def mask(self, letters: Mapping[int, Letter], words: np.ndarray) -> np.ndarray:
        """y_u. `letters` are those of all who are still there; masks are shared with them."""
        self._enter("mask")
        if not set(letters) < set(self._known) or self.number in letters:
            raise ProtocolError("letters of clients that advertised no keys")
        if len(letters) + 1 < self.threshold:
            raise TooFew(f"{len(letters) + 1} clients share keys, {self.threshold} needed")
        self._there = {*letters, self.number}
        total = words.astype(WORD)
        masks.hide(total, self._seed)
        for other, letter in letters.items():
            self._keep(other, letter)
            key = masks.agree(self._mask_key, self._known[other].masks, _pair(self.number, other))
            masks.hide(total, key, _sign(self.number, other))
        return total

    def unmask(self, survivors: Collection[int]) -> Answer:
        """Of everybody in the sum one share: of the seed if it survived, else of the mask key."""
        self._enter("unmask")
        if not set(survivors) <= self._there or self.number not in survivors:
            raise ProtocolError("survivors that shared no keys, or without this client")
        if len(set(survivors)) < self.threshold:
            raise TooFew(f"{len(set(survivors))} clients are left, {self.threshold} needed")
        answer = Answer({}, {})
        for other, (seed, key) in sorted(self._shares.items()):
            if other in survivors:
                answer.seeds[other] = seed
            else:
                answer.keys[other] = key
        return answer

    def _keep(self, dealer: int, letter: Letter) -> None:
        """Its shares, if they are what the dealer has said; else none, as if it had sent none."""
        found = masks.unseal(self._letters(dealer), letter.sealed, _label(dealer, self.number))
        if found is None or len(found) != 2 * shamir.SHARE:
            return
        seed, key = found[: shamir.SHARE], found[shamir.SHARE :]
        if commitments.to_shares(dealer, self.number, seed, key) == letter.commitment:
            self._shares[dealer] = seed, key

    def _letters(self, other: int) -> bytes:
        if other not in self._common:  # one for both directions: labels tell them apart
            key = masks.agree(self._letter_key, self._known[other].letters, b"letters")
            self._common[other] = key
        return self._common[other]

    def _enter(self, phase: str) -> None:
        """Each phase once and in order: a second answer to `unmask` could open a single update."""
        if self._left[:1] != [phase]:
            raise ProtocolError(f"{phase} was asked for out of turn")
        del self._left[0]


class Server:
    """Adds masked words as they come and opens only the sum.

    `liars` are clients that are shown to have lied, and how; `disputes` are pairs of a holder that
    has no good share of a dealer, and that dealer: one of the two lies.
    """

    def __init__(self, threshold: int, size: int) -> None:
        self.threshold = threshold
        self.known: dict[int, Keys] = {}
        self.sharing: tuple[int, ...] = ()
        self.masked: list[int] = []
        self.liars: dict[int, str] = {}
        self.disputes: list[tuple[int, int]] = []
        self._dealt: dict[int, Dealing] = {}
        self._total = np.zeros(size, WORD)

    def collect(self, keys: Mapping[int, Keys]) -> dict[int, Keys]:
        """Everybody's public keys, for everybody."""
        self._enough(keys, "sent keys")
        self.known = dict(sorted(keys.items()))
        return self.known

    def route(self, dealt: Mapping[int, Dealing]) -> dict[int, dict[int, Letter]]:
        """Sealed letters, by who gets them, from those who sent one to everybody."""
        everybody = set(self.known)
        self._dealt = {
            u: one
            for u, one in sorted(dealt.items())
            if {u, *one.letters} == set(one.commitments) == everybody
        }
        self._enough(self._dealt, "shared keys")
        self.sharing = tuple(self._dealt)
        return {
            v: {
                u: Letter(one.letters[v], one.commitments[v])
                for u, one in self._dealt.items()
                if u != v
            }
            for v in self.sharing
        }

    def add(self, number: int, words: np.ndarray) -> None:
        if number not in self.sharing or number in self.masked:
            raise ProtocolError(f"client {number} shared no keys, or was added already")
        if words.shape != self._total.shape or words.dtype != WORD:
            raise ProtocolError(f"client {number} sent {words.dtype} {words.shape}")
        self.masked.append(number)
        self._total += words

    def survivors(self) -> list[int]:
        """Whose words are in the sum."""
        self._enough(self.masked, "sent their updates")
        return sorted(self.masked)

    def total(self, answers: Mapping[int, Answer]) -> np.ndarray:
        """Σ x_u over the survivors. An answer that is not as asked is one that is missing."""
        there = set(self.masked)
        gone = set(self.sharing) - there
        usable = {
            u: a
            for u, a in answers.items()
            if u in there and set(a.seeds) <= there and set(a.keys) <= gone
        }
        for u in sorted(there & set(answers) - set(usable)):
            self.liars[u] = "it gave shares that it was not asked for"
        self._enough(usable, "helped to open the sum")
        total = self._total.copy()
        for u in sorted(there):
            seed = self._secret("seed", u, {v: a.seeds.get(u) for v, a in usable.items()})
            masks.hide(total, seed, -1)
        for u in sorted(gone):
            key = self._secret("key", u, {v: a.keys.get(u) for v, a in usable.items()})
            for v in there:
                pair = masks.agree(key, self.known[v].masks, _pair(u, v))
                masks.hide(total, pair, -_sign(v, u))
        return total

    def blame(self) -> list[str]:
        """Who lied, as far as the last step has shown it; a line each."""
        told = [f"client {u} lied: {how}" for u, how in sorted(self.liars.items())]
        for holder, dealer in sorted(set(self.disputes)):
            if not {holder, dealer} & set(self.liars):
                told.append(
                    f"client {holder} has no good share of client {dealer}: one of the two lied"
                )
        return told

    def _secret(self, kind: str, dealer: int, revealed: Mapping[int, bytes | None]) -> bytes:
        """From shares that are what their dealer has said, and found to be the right secret."""
        shares: dict[int, bytes] = {}
        without = []
        for holder, share in revealed.items():
            if share is None:
                without.append(holder)
            elif self._fits(kind, dealer, holder, share):
                shares[holder] = share
            else:
                self.liars[holder] = f"it gave a wrong share of client {dealer}'s {kind}"
        self.disputes += [(holder, dealer) for holder in without]
        self._enough(shares, f"have good shares of client {dealer}'s {kind}")
        try:
            found = shamir.combine(shares, self.threshold)
        except ValueError:
            found = b""
        if not self._is_secret(kind, dealer, found):  # no holder's fault: these are as dealt
            self.liars[dealer] = f"the shares that it dealt do not give its {kind}"
            raise ProtocolError(f"secure sum: client {dealer}'s {kind} cannot be found")
        for holder in without:  # was it committed to what the others' shares say that it is?
            right = shamir.share_of(holder, shares, self.threshold)
            if not self._fits(kind, dealer, holder, right):
                self.liars[dealer] = f"it dealt client {holder} a wrong share of its {kind}"
        return found

    def _fits(self, kind: str, dealer: int, holder: int, share: bytes) -> bool:
        both = self._dealt[dealer].commitments[holder]
        said = both[: commitments.SIZE] if kind == "seed" else both[commitments.SIZE :]
        return commitments.to_share(kind, dealer, holder, share) == said

    def _is_secret(self, kind: str, dealer: int, found: bytes) -> bool:
        if not found:
            return False
        if kind == "seed":
            return commitments.to_seed(dealer, found) == self._dealt[dealer].seed
        return masks.public(found) == self.known[dealer].masks

    def _enough(self, clients: Iterable[int], did: str) -> None:
        count = len(list(clients))
        if count < self.threshold:
            raise TooFew(f"secure sum: {count} clients {did}, {self.threshold} needed")
