"""The driver's side of a secure sum: its five steps as questions to nodes.

    job      broadcast →          train, then fresh public keys, signed    (advertise)
    share    everybody's keys →   a sealed letter for everybody, commitments
    mask     letters →            the words, under masks
    agree    who is in the sum →  a signature                              (consistency check)
    unmask   all signatures →     shares that open the sum and nothing else

All that the driver gets of one client is in the right column. It passes letters on that it cannot
read, adds masked words as they come, and opens the sum of those who sent them. Training comes first
because it is what fails most: who drops out there costs the others nothing, and only one who drops
out between keys and words costs the server masks to make up for.

A deadline holds for each step. Who does not answer the last two is in the sum nevertheless. With
fewer than t clients at any step the round has no update, and nothing is opened. If the SuperLink
goes away before the last step, all starts again with new keys (`Lost`); in the last step it does
not, because what was opened then must count as an exchange: if too few answers are here, it is for
the round loop to try again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from fedrl.core.serialization import Damaged
from fedrl.core.types import Failure, Result, Tensors, TooFew
from fedrl.core.update_refusal import misreported
from fedrl.engines.flower import messages
from fedrl.engines.flower.connection import Lost
from fedrl.privacy.clipping import Layout
from fedrl.privacy.secure_aggregation import Terms, masks
from fedrl.privacy.secure_aggregation import messages as secure_messages
from fedrl.privacy.secure_aggregation.protocol import Answer, Dealing, ProtocolError
from fedrl.privacy.secure_aggregation.server import Server

Found = TypeVar("Found")

ROOM = 2**20
"""Bytes that an answer may have beside its words, letters or shares."""


class Question(NamedTuple):
    """For one client: what travels beside the heading, which is complete with nonce and digest."""

    client: int
    beside: Tensors
    heading: Callable[[str, str], messages.Job | messages.Step]


class Asks(Protocol):
    def __call__(
        self, questions: Mapping[int, Question], deadline: float, limit: int
    ) -> Iterator[tuple[int, Result | Failure]]:
        """Outcomes as they come, by the questions' keys; `Lost` if the SuperLink goes away."""


Doubts = Callable[[int, secure_messages.Signed, str], str]
"""What is wrong with the signature of a client's keys for a job with that broadcast, or nothing."""


class SecureSum:
    """One secure sum among a round's clients; `reports` are metrics that they may tell."""

    def __init__(
        self,
        exchange: str,
        terms: Terms,
        form: Layout,
        deadline: float,
        ask: Asks,
        warn: Callable[[str], None],
        reports: Collection[str],
        doubts: Doubts,
    ) -> None:
        self.exchange, self.terms, self.form = exchange, terms, form
        self.doubts = doubts
        self._broadcast = ""  # its checksum, which nodes sign
        self.reports = reports
        self.deadline, self.ask, self.warn = deadline, ask, warn
        self.server = Server(terms.needed, form.size)
        self.trained: dict[int, Result] = {}
        self.failures: dict[int, Failure] = {}
        self._fresh: set[bytes] = set()
        self._refusals: set[str] = set()  # of the last two steps, whose clients are in the sum

    def run(self, jobs: Mapping[int, Question]) -> list[Result | Failure]:
        """In the order of the jobs: the mean as the update of everybody in the sum, or why not."""
        try:
            mean = self._mean(jobs)
        except (TooFew, ProtocolError) as error:
            why = "; ".join([str(error), *self.server.blame(), *sorted(self._refusals)])
            blamed = {client: Failure(client, why) for client in jobs}
            return list((blamed | self.failures).values())
        for line in self.server.blame():
            self.warn(f"{line} (the sum was opened without it)")
        return [
            self.failures.get(client) or replace(self.trained[client], update=mean)
            for client in jobs
        ]

    def _mean(self, jobs: Mapping[int, Question]) -> Tensors:
        server = self.server
        noted = {client: job._replace(heading=self._noting(job)) for client, job in jobs.items()}
        signed = self._step(noted, self._keys)
        known = server.collect({u: one.keys for u, one in signed.items()})
        beside = secure_messages.pack_keys({u: signed[u] for u in known})
        dealt = self._step(self._questions("share", dict.fromkeys(known, beside)), self._dealing)
        given = {u: secure_messages.pack_letters(rows) for u, rows in server.route(dealt).items()}
        self._step(self._questions("mask", given), self._words)
        survivors = server.survivors()
        total = server.total(self._answers(survivors, self._signatures(survivors)))
        return self.form.update(self.terms.mean(total, len(survivors)))

    def _signatures(self, survivors: list[int]) -> dict[int, bytes]:
        """That all have been told the same; of those who answer, as below."""
        beside = secure_messages.pack_survivors(survivors)
        found: dict[int, bytes] = {}
        questions = self._questions("agree", dict.fromkeys(survivors, beside))
        for client, signature in self._outcomes(questions, _signature):
            if isinstance(signature, Failure):
                self.warn(f"client {client} did not agree who is in the sum: {signature.reason}")
                self._refusals.add(signature.reason)
            else:
                found[client] = signature
        if len(found) < self.terms.needed:
            raise TooFew(
                f"secure sum: {len(found)} clients agreed who is in it, {self.terms.needed} needed"
            )
        return found

    def _answers(self, survivors: list[int], signatures: dict[int, bytes]) -> dict[int, Answer]:
        """Of those who answer: the others are in the sum as well, and have not failed."""
        beside = secure_messages.pack_opening(survivors, signatures)
        answers: dict[int, Answer] = {}
        try:
            questions = self._questions("unmask", dict.fromkeys(sorted(signatures), beside))
            for client, found in self._outcomes(questions, _answer):
                if isinstance(found, Failure):
                    self.warn(f"client {client} did not help to open the sum: {found.reason}")
                    self._refusals.add(found.reason)
                else:
                    answers[client] = found
        except Lost as lost:
            self.warn(f"{lost}, while the sum was being opened")
        return answers

    # What a client may answer ---------------------------------------------------------------------

    def _keys(self, told: Result) -> secure_messages.Signed:
        # Once it is in the sum, refusing it would be a record that is not true.
        if told.weight != 1:
            raise Damaged("a weight other than 1, where everybody counts the same")
        if reason := misreported(told.metrics, self.reports):
            raise Damaged(reason)
        found = secure_messages.read_keys(told.update)
        if set(found) != {told.client}:
            raise Damaged("keys of other clients")
        keys = found[told.client].keys
        # One who sends what nobody can agree with would make all others give up.
        if len({*keys}) < len(keys) or self._fresh & {*keys}:
            raise Damaged("keys that are not fresh")
        if not all(masks.usable(key) for key in keys):
            raise Damaged("keys that nobody can agree with")
        if doubt := self.doubts(told.client, found[told.client], self._broadcast):
            raise Damaged(doubt)
        self._fresh |= {*keys}
        self.trained[told.client] = replace(told, update={})
        return found[told.client]

    def _dealing(self, told: Result) -> Dealing:
        dealt = secure_messages.read_dealing(told.update)
        everybody = set(self.server.known)
        if {told.client, *dealt.letters} != everybody or told.client in dealt.letters:
            raise Damaged("letters to others than those with keys")
        if set(dealt.commitments) != everybody:
            raise Damaged("commitments to shares of others than those with keys")
        return dealt

    def _words(self, told: Result) -> None:
        self.server.add(told.client, secure_messages.read_vector(told.update, self.form.size))

    def _noting(self, job: Question) -> Callable[[str, str], messages.Job | messages.Step]:
        def heading(nonce: str, digest: str) -> messages.Job | messages.Step:
            self._broadcast = digest
            return job.heading(nonce, digest)

        return heading

    # Questions and answers ------------------------------------------------------------------------

    def _questions(self, step: str, beside: Mapping[int, Tensors]) -> dict[int, Question]:
        def heading(client: int, nonce: str, digest: str) -> messages.Step:
            return messages.Step(nonce, client, self.exchange, step, digest)

        return {u: Question(u, given, partial(heading, u)) for u, given in beside.items()}

    def _step(
        self, questions: Mapping[int, Question], read: Callable[[Result], Found]
    ) -> dict[int, Found]:
        """What came back and can be used; everybody else has failed."""
        good: dict[int, Found] = {}
        for client, found in self._outcomes(questions, read):
            if isinstance(found, Failure):
                self.failures[client] = found
            else:
                good[client] = found
        return good

    def _outcomes(
        self, questions: Mapping[int, Question], read: Callable[[Result], Found]
    ) -> Iterator[tuple[int, Found | Failure]]:
        limit = ROOM + 4 * self.form.size + 4 * secure_messages.LETTER * len(questions)
        for client, outcome in self.ask(questions, self.deadline, limit):
            if isinstance(outcome, Failure):
                yield client, outcome
                continue
            try:
                yield client, read(outcome)
            except (Damaged, ProtocolError) as error:
                yield client, Failure(client, f"its answer is malformed: {error}")


def _answer(told: Result) -> Answer:
    return secure_messages.read_answer(told.update)


def _signature(told: Result) -> bytes:
    found = secure_messages.read_signatures(told.update)
    if set(found) != {told.client}:
        raise Damaged("signatures of others")
    return found[told.client]
