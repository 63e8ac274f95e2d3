"""A client's side of a secure sum: its vector goes in, only a masked one comes out.

`Client` is the protocol's. `SigningClient` is the same against a server that lies: it answers the
messages of each step, signs its keys and believes only those of its peers. It has keys that are
made for this one sum. A new job ends the sum before it, so nothing is left of one that was given
up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from fedrl.core.serialization import Damaged
from fedrl.core.types import Tensors, TooFew
from fedrl.privacy.secure_aggregation import Terms, commitments, masks, messages, shamir
from fedrl.privacy.secure_aggregation.identity import Identity, about_keys, about_survivors
from fedrl.privacy.secure_aggregation.protocol import (
    NO_HISTORY,
    Answer,
    Dealing,
    Keys,
    Letter,
    ProtocolError,
    letter_label,
    mask_label,
    mask_sign,
)
from fedrl.privacy.secure_aggregation.quantise import WORD


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
                self._letters(other), seeds[other] + keys[other], letter_label(self.number, other)
            )
            for other in everybody
            if other != self.number
        }
        said = {v: commitments.to_shares(self.number, v, seeds[v], keys[v]) for v in everybody}
        return Dealing(letters, said, commitments.to_seed(self.number, self._seed))

    def mask(self, letters: Mapping[int, Letter], vector: np.ndarray) -> np.ndarray:
        """The masked vector y_u. `letters` are those of all who are there, and so share masks."""
        self._enter("mask")
        if not set(letters) < set(self._known) or self.number in letters:
            raise ProtocolError("letters of clients that advertised no keys")
        if len(letters) + 1 < self.threshold:
            raise TooFew(f"{len(letters) + 1} clients share keys, {self.threshold} needed")
        self._there = {*letters, self.number}
        total = vector.astype(WORD)
        masks.hide(total, self._seed)
        for other, letter in letters.items():
            self._keep(other, letter)
            key = masks.agree(
                self._mask_key, self._known[other].masks, mask_label(self.number, other)
            )
            masks.hide(total, key, mask_sign(self.number, other))
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
        label = letter_label(dealer, self.number)
        shares = masks.unseal(self._letters(dealer), letter.sealed, label)
        if shares is None or len(shares) != 2 * shamir.SHARE:
            return
        seed, key = shares[: shamir.SHARE], shares[shamir.SHARE :]
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


class SigningClient:
    """This client in the sum named `exchange`; `remember` may refuse the survivors.

    `charge` counts what the sum tells and may refuse it: before the masked vector leaves,
    because the others can open it. `history` is that of the state which the vector comes from, and
    `alike` says that all others must have the same: two sums with other states of one client alone
    would differ by what it does with them.
    """

    def __init__(
        self,
        exchange: str,
        number: int,
        terms: Terms,
        vector: np.ndarray,
        remember: Callable[[Collection[int]], None],
        charge: Callable[[], None],
        identity: Identity,
        job: bytes,
        history: bytes = NO_HISTORY,
        alike: bool = True,
    ) -> None:
        self.exchange = exchange
        self.number = number
        self.asked = terms.asked
        self._client = Client(number, terms.needed)
        self._vector: np.ndarray | None = vector
        self._remember, self._charge = remember, charge
        self._identity = identity
        self._job, self._history, self._alike = job, history, alike
        self._needed = terms.needed
        self._agreed: list[int] | None = None

    def advertise(self) -> Tensors:
        keys = self._client.advertise()
        signature = self._identity.sign(self._about(self.number, keys, self._history))
        return messages.pack_keys({self.number: messages.Signed(keys, signature, self._history)})

    def answer(self, step: str, given: Tensors) -> Tensors:
        """To the next step. Each is answered once, whether it ends well or not."""
        steps = {
            "share": self._share,
            "mask": self._mask,
            "agree": self._agree,
            "unmask": self._unmask,
        }
        if step not in steps:
            raise Damaged("a secure sum has no such step")
        return steps[step](given)

    def _share(self, given: Tensors) -> Tensors:
        known = messages.read_keys(given)
        if len(known) > self.asked:  # the vectors of more would not fit into a sum
            raise ProtocolError(f"{len(known)} clients, where {self.asked} were to be asked")
        for other, (keys, signature, history) in known.items():
            if other == self.number:
                continue
            if not self._identity.believes(other, self._about(other, keys, history), signature):
                raise ProtocolError(f"client {other} has not signed its keys for this job")
            if self._alike and history != self._history:
                raise ProtocolError(
                    f"client {other} starts from a state of other rounds than this client"
                )
        dealing = self._client.share({other: signed.keys for other, signed in known.items()})
        return messages.pack_dealing(dealing)

    def _mask(self, given: Tensors) -> Tensors:
        vector, self._vector = self._vector, None
        if vector is None:
            raise ProtocolError("mask was asked for out of turn")
        masked_vector = self._client.mask(messages.read_letters(given), vector)
        self._charge()
        return messages.pack_vector(masked_vector)

    def _agree(self, given: Tensors) -> Tensors:
        survivors = messages.read_survivors(given)
        if self._vector is not None or self._agreed is not None:
            raise ProtocolError("agree was asked for out of turn")
        self._agreed = survivors
        statement = about_survivors(self.exchange, survivors)
        return messages.pack_signatures({self.number: self._identity.sign(statement)})

    def _unmask(self, given: Tensors) -> Tensors:
        survivors, signatures = messages.read_opening(given)
        self._check_agreement(survivors, signatures)
        answer = self._client.unmask(survivors)
        self._remember(survivors)  # before anything leaves
        return messages.pack_answer(answer)

    def _about(self, number: int, keys: Keys, history: bytes) -> bytes:
        return about_keys(self.exchange, number, keys, self._job, history)

    def _check_agreement(self, survivors: list[int], signatures: dict[int, bytes]) -> None:
        """Who tells clients different things could put one client's secrets together."""
        if self._identity.peers is None:
            return
        if self._agreed is None or set(survivors) != set(self._agreed):
            raise ProtocolError("others are in the sum than this client has agreed to")
        statement = about_survivors(self.exchange, survivors)
        agreed = {self.number} | {
            other
            for other, signature in signatures.items()
            if other in survivors and self._identity.believes(other, statement, signature)
        }
        if len(agreed) < self._needed:
            raise TooFew(f"{len(agreed)} clients agree who is in the sum, {self._needed} needed")
