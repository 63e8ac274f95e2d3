"""The server's side of a secure sum: adds masked vectors, opens only their sum, finds out liars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from fedrl.core.types import TooFew
from fedrl.privacy.secure_aggregation import commitments, masks, shamir
from fedrl.privacy.secure_aggregation.protocol import (
    Answer,
    Dealing,
    Keys,
    Letter,
    ProtocolError,
    mask_label,
    mask_sign,
)
from fedrl.privacy.secure_aggregation.quantise import WORD


class Server:
    """Adds masked vectors as they come and opens only the sum.

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

    def add(self, number: int, vector: np.ndarray) -> None:
        if number not in self.sharing or number in self.masked:
            raise ProtocolError(f"client {number} shared no keys, or was added already")
        if vector.shape != self._total.shape or vector.dtype != WORD:
            raise ProtocolError(f"client {number} sent {vector.dtype} {vector.shape}")
        self.masked.append(number)
        self._total += vector

    def survivors(self) -> list[int]:
        """Whose vectors are in the sum."""
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
                pair = masks.agree(key, self.known[v].masks, mask_label(u, v))
                masks.hide(total, pair, -mask_sign(v, u))
        return total

    def blame(self) -> list[str]:
        """Who lied, as far as the last step has shown it; a line each."""
        lines = [f"client {u} lied: {how}" for u, how in sorted(self.liars.items())]
        for holder, dealer in sorted(set(self.disputes)):
            if not {holder, dealer} & set(self.liars):
                lines.append(
                    f"client {holder} has no good share of client {dealer}: one of the two lied"
                )
        return lines

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
            secret = shamir.combine(shares, self.threshold)
        except ValueError:
            secret = b""
        if not self._is_secret(kind, dealer, secret):  # no holder's fault: these are as dealt
            self.liars[dealer] = f"the shares that it dealt do not give its {kind}"
            raise ProtocolError(f"secure sum: client {dealer}'s {kind} cannot be found")
        for holder in without:  # was it committed to what the others' shares say that it is?
            right = shamir.share_of(holder, shares, self.threshold)
            if not self._fits(kind, dealer, holder, right):
                self.liars[dealer] = f"it dealt client {holder} a wrong share of its {kind}"
        return secret

    def _fits(self, kind: str, dealer: int, holder: int, share: bytes) -> bool:
        both = self._dealt[dealer].commitments[holder]
        said = both[: commitments.SIZE] if kind == "seed" else both[commitments.SIZE :]
        return commitments.to_share(kind, dealer, holder, share) == said

    def _is_secret(self, kind: str, dealer: int, secret: bytes) -> bool:
        if not secret:
            return False
        if kind == "seed":
            return commitments.to_seed(dealer, secret) == self._dealt[dealer].seed
        return masks.public(secret) == self.known[dealer].masks

    def _enough(self, clients: Iterable[int], did: str) -> None:
        count = len(list(clients))
        if count < self.threshold:
            raise TooFew(f"secure sum: {count} clients {did}, {self.threshold} needed")
