"""A client's part of a secure sum on its own node: its words go in, only masked ones come out.

`Worded` is the algorithm in the node's worker process: it makes words of an update that passed the
check and keeps to the bound, with the client's part of the noise. `Member` lives in the node's own
process from the job to the last step, with keys that are made for this one sum. A new job ends the
sum before it, so nothing is left of a sum that was given up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np

from fedrl import privacy
from fedrl.clients.wrapper import Wrapped
from fedrl.core.serialization import Damaged
from fedrl.core.types import Algorithm, Job, Result, Shareable, Tensors, TooFew
from fedrl.engines.flower.client_state_store import NO_HISTORY
from fedrl.federation.update_check import ranges, refusal
from fedrl.privacy import clipping, noise
from fedrl.privacy.secure_aggregation import Terms, messages
from fedrl.privacy.secure_aggregation.identity import Identity, about_keys, about_survivors
from fedrl.privacy.secure_aggregation.protocol import Client, Keys, ProtocolError


class Worded(Wrapped):
    """An algorithm whose clients give words of a secure sum instead of updates."""

    def __init__(self, algorithm: Algorithm, settings: privacy.Settings, terms: Terms) -> None:
        super().__init__(algorithm)
        self.settings, self.terms = settings, terms

    def local(self, job: Job) -> Result:
        result = self.algorithm.local(job)
        # The server's own check comes too late: in a sum nobody finds what is not a number.
        reason = refusal(result, self.declare(job.broadcast), ranges(self))
        if reason is not None:
            raise ValueError(Shareable(reason))
        form = clipping.layout(self.algorithm, job.broadcast)
        (vector,) = clipping.vectors([(result.update, 1.0)], self.terms.bound, form)
        draw = noise.source(self.settings.seeded, job.seed, "privacy")
        return replace(result, update=messages.pack_words(self.terms.words(vector, draw)))


class Member:
    """This client in the sum named `exchange`; `remember` may refuse the survivors.

    `charge` counts what the sum tells and may refuse it: before the masked words leave, because
    the others can open them. `history` is that of the state which the words come from, and `alike`
    says that all others must have the same: two sums with other states of one client alone would
    differ by what it does with them.
    """

    def __init__(
        self,
        exchange: str,
        number: int,
        terms: Terms,
        words: np.ndarray,
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
        self._words: np.ndarray | None = words
        self._remember, self._charge = remember, charge
        self._identity = identity
        self._job, self._history, self._alike = job, history, alike
        self._needed = terms.needed
        self._agreed: list[int] | None = None

    def advertise(self) -> Tensors:
        keys = self._client.advertise()
        signature = self._identity.sign(self._about(self.number, keys, self._history))
        return messages.pack_keys({self.number: messages.Signed(keys, signature, self._history)})

    def take(self, step: str, given: Tensors) -> Tensors:
        """The answer to the next step. Each is taken once, whether it ends well or not."""
        if step == "share":
            known = messages.read_keys(given)
            if len(known) > self.asked:  # the words of more would not fit into a sum
                raise ProtocolError(f"{len(known)} clients, where {self.asked} were to be asked")
            for other, (keys, signature, history) in known.items():
                if other != self.number:
                    statement = self._about(other, keys, history)
                    if not self._identity.believes(other, statement, signature):
                        raise ProtocolError(f"client {other} has not signed its keys for this job")
                    if self._alike and history != self._history:
                        raise ProtocolError(
                            f"client {other} starts from a state of other rounds than this client"
                        )
            return messages.pack_dealing(
                self._client.share({u: one.keys for u, one in known.items()})
            )
        if step == "mask":
            words, self._words = self._words, None
            if words is None:
                raise ProtocolError("mask was asked for out of turn")
            masked = self._client.mask(messages.read_letters(given), words)
            self._charge()
            return messages.pack_words(masked)
        if step == "agree":
            survivors = messages.read_survivors(given)
            if self._words is not None or self._agreed is not None:
                raise ProtocolError("agree was asked for out of turn")
            self._agreed = survivors
            statement = about_survivors(self.exchange, survivors)
            return messages.pack_signatures({self.number: self._identity.sign(statement)})
        if step == "unmask":
            survivors, signatures = messages.read_opening(given)
            self._check_agreement(survivors, signatures)
            answer = self._client.unmask(survivors)
            self._remember(survivors)  # before anything leaves
            return messages.pack_answer(answer)
        raise Damaged("a secure sum has no such step")

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
