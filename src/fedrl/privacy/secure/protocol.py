"""Secure aggregation after Bonawitz et al. (CCS 2017): the server learns a sum and nothing else.

Client u hides its words x_u under a mask of its own and one per other client:

    y_u = x_u + PRG(b_u) + Σ_{v > u} PRG(s_uv) - Σ_{v < u} PRG(s_uv)      modulo 2³²

Four exchanges, all through the server:

    advertise   every client sends two fresh public keys
    share       it sends t-of-n shares of b_u and of its mask key to the others, sealed
    mask        it sends y_u
    unmask      the server says who sent y; everybody left sends shares of b_u for those, of the
                mask key for those who dropped out, never both

Client and Server are state machines without input or output: whoever carries the messages drives
them. Against a server that follows the protocol and looks at everything, also together with fewer
than t clients, only the sum is visible. A server that hands out public keys of its own making is
held off by whoever carries the messages and has them signed (`engines/flower/identity.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from fedrl.privacy.secure import masks, shamir
from fedrl.privacy.secure.quantise import WORD
from fedrl.types import TooFew


class ProtocolError(Exception):
    """A message that an honest partner does not send; who got it keeps its secrets."""


class Keys(NamedTuple):
    """A client's public keys: for letters, and for masks."""

    letters: bytes
    masks: bytes


class Answer(NamedTuple):
    """Shares that open the sum, by whose secret they are of."""

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
        self._received: dict[int, bytes] = {}
        self._own: tuple[bytes, bytes] = b"", b""
        self._left = ["advertise", "share", "mask", "unmask"]

    def advertise(self) -> Keys:
        self._enter("advertise")
        return Keys(masks.public(self._letter_key), masks.public(self._mask_key))

    def share(self, known: Mapping[int, Keys]) -> dict[int, bytes]:
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
        self._own = seeds[self.number], keys[self.number]
        return {
            other: masks.seal(
                self._letters(other), seeds[other] + keys[other], _label(self.number, other)
            )
            for other in everybody
            if other != self.number
        }

    def mask(self, letters: Mapping[int, bytes], words: np.ndarray) -> np.ndarray:
        """y_u. `letters` are those of all who are still there; masks are shared with them."""
        self._enter("mask")
        if not set(letters) < set(self._known) or self.number in letters:
            raise ProtocolError("letters of clients that advertised no keys")
        if len(letters) + 1 < self.threshold:
            raise TooFew(f"{len(letters) + 1} clients share keys, {self.threshold} needed")
        self._received = dict(letters)
        total = words.astype(WORD)
        masks.hide(total, self._seed)
        for other in letters:
            key = masks.agree(self._mask_key, self._known[other].masks, _pair(self.number, other))
            masks.hide(total, key, _sign(self.number, other))
        return total

    def unmask(self, survivors: Collection[int]) -> Answer:
        """Of everybody in the sum one share: of the seed if it survived, else of the mask key."""
        self._enter("unmask")
        there = {*self._received, self.number}
        if not set(survivors) <= there or self.number not in survivors:
            raise ProtocolError("survivors that shared no keys, or without this client")
        if len(set(survivors)) < self.threshold:
            raise TooFew(f"{len(set(survivors))} clients are left, {self.threshold} needed")
        answer = Answer({}, {})
        for other in sorted(there):
            seed, key = self._own if other == self.number else self._open(other)
            if other in survivors:
                answer.seeds[other] = seed
            else:
                answer.keys[other] = key
        return answer

    def _open(self, other: int) -> tuple[bytes, bytes]:
        letter = masks.unseal(
            self._letters(other), self._received[other], _label(other, self.number)
        )
        if letter is None or len(letter) != 2 * shamir.SHARE:
            raise ProtocolError(f"the letter of client {other} was tampered with")
        return letter[: shamir.SHARE], letter[shamir.SHARE :]

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
    """Adds masked words as they come and opens only the sum."""

    def __init__(self, threshold: int, size: int) -> None:
        self.threshold = threshold
        self.known: dict[int, Keys] = {}
        self.sharing: tuple[int, ...] = ()
        self.masked: list[int] = []
        self._total = np.zeros(size, WORD)

    def collect(self, keys: Mapping[int, Keys]) -> dict[int, Keys]:
        """Everybody's public keys, for everybody."""
        self._enough(keys, "sent keys")
        self.known = dict(sorted(keys.items()))
        return self.known

    def route(self, letters: Mapping[int, Mapping[int, bytes]]) -> dict[int, dict[int, bytes]]:
        """Sealed letters, by who gets them, from those who sent one to everybody."""
        whole = [u for u in sorted(letters) if {u, *letters[u]} == set(self.known)]
        self._enough(whole, "shared keys")
        self.sharing = tuple(whole)
        return {v: {u: letters[u][v] for u in whole if u != v} for v in whole}

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
            if u in there and (set(a.seeds), set(a.keys)) == (there, gone)
        }
        self._enough(usable, "helped to open the sum")
        total = self._total.copy()
        for u in sorted(there):
            seed = self._secret(u, {v: a.seeds[u] for v, a in usable.items()})
            masks.hide(total, seed, -1)
        for u in sorted(gone):
            key = self._secret(u, {v: a.keys[u] for v, a in usable.items()})
            if masks.public(key) != self.known[u].masks:
                raise ProtocolError(f"the shares of client {u}'s key give another key")
            for v in there:
                pair = masks.agree(key, self.known[v].masks, _pair(u, v))
                masks.hide(total, pair, -_sign(v, u))
        return total

    def _secret(self, number: int, shares: Mapping[int, bytes]) -> bytes:
        try:
            return shamir.combine(shares, self.threshold)
        except ValueError as error:
            raise ProtocolError(f"client {number}'s secret: {error}") from error

    def _enough(self, clients: Iterable[int], did: str) -> None:
        count = len(list(clients))
        if count < self.threshold:
            raise TooFew(f"secure sum: {count} clients {did}, {self.threshold} needed")
