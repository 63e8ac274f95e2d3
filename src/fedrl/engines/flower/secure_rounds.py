"""The driver's side of a secure sum: its five steps as questions to nodes.

    job      broadcast →          train, then fresh public keys, signed    (advertise)
    share    everybody's keys →   a sealed letter for everybody, commitments
    mask     letters →            the masked vector
    agree    who is in the sum →  a signature                              (consistency check)
    unmask   all signatures →     shares that open the sum and nothing else

All that the driver gets of one client is in the right column. It passes letters on that it cannot
read, adds masked vectors as they come, and opens the sum of those who sent them. Training comes
first because it is what fails most: who drops out there costs the others nothing, and only one who
drops out between keys and vector costs the server masks to make up for.

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
from typing import TypeVar

from fedrl.core.serialization import Damaged
from fedrl.core.types import Failure, Result, Tensors, TooFew
from fedrl.core.update_refusal import misreported
from fedrl.engines.flower import messages
from fedrl.engines.flower.connection import Lost
from fedrl.engines.flower.node_calls import NodeCalls, Outcome, Question
from fedrl.privacy.clipping import Layout
from fedrl.privacy.secure_aggregation import Terms, masks
from fedrl.privacy.secure_aggregation import messages as secure_messages
from fedrl.privacy.secure_aggregation.protocol import Answer, Dealing, ProtocolError
from fedrl.privacy.secure_aggregation.server import Server

Read = TypeVar("Read")

ROOM = 2**20
"""Bytes that an answer may have beside its vector, letters or shares."""


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
        calls: NodeCalls,
        reports: Collection[str],
        doubts: Doubts,
    ) -> None:
        self.exchange, self.terms, self.form = exchange, terms, form
        self.doubts = doubts
        self._broadcast = ""  # its checksum, which nodes sign
        self.reports = reports
        self.deadline, self.ask, self.warn = deadline, calls.ask, calls.warn
        self.server = Server(terms.needed, form.size)
        self.trained: dict[int, Result] = {}
        self.failures: dict[int, Failure] = {}
        self._fresh: set[bytes] = set()
        self._refusals: set[str] = set()  # of the last two steps, whose clients are in the sum

    def run(self, jobs: Mapping[int, Question]) -> list[Outcome]:
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
        known = server.collect({client: keys.keys for client, keys in signed.items()})
        beside = secure_messages.pack_keys({u: signed[u] for u in known})
        dealt = self._step(self._questions("share", dict.fromkeys(known, beside)), self._dealing)
        given = {u: secure_messages.pack_letters(rows) for u, rows in server.route(dealt).items()}
        self._step(self._questions("mask", given), self._masked_vector)
        survivors = server.survivors()
        total = server.total(self._answers(survivors, self._signatures(survivors)))
        return self.form.update(self.terms.mean(total, len(survivors)))

    def _signatures(self, survivors: list[int]) -> dict[int, bytes]:
        """That all have been told the same; of those who answer, as below."""
        beside = secure_messages.pack_survivors(survivors)
        questions = self._questions("agree", dict.fromkeys(survivors, beside))
        signatures = self._given(questions, _signature, "did not agree who is in the sum")
        if len(signatures) < self.terms.needed:
            raise TooFew(
                f"secure sum: {len(signatures)} clients agreed who is in it, {self.terms.needed} "
                "needed"
            )
        return signatures

    def _answers(self, survivors: list[int], signatures: dict[int, bytes]) -> dict[int, Answer]:
        """Of those who answer: the others are in the sum as well, and have not failed."""
        beside = secure_messages.pack_opening(survivors, signatures)
        questions = self._questions("unmask", dict.fromkeys(sorted(signatures), beside))
        answers: dict[int, Answer] = {}
        try:
            self._given(questions, _shares, "did not help to open the sum", answers)
        except Lost as lost:
            self.warn(f"{lost}, while the sum was being opened")
        return answers

    def _given(
        self,
        questions: Mapping[int, Question],
        read: Callable[[Result], Read],
        refused: str,
        given: dict[int, Read] | None = None,
    ) -> dict[int, Read]:
        """What those gave who did not refuse; put into `given` as it comes."""
        given = {} if given is None else given
        for client, answer in self._outcomes(questions, read):
            if isinstance(answer, Failure):
                self.warn(f"client {client} {refused}: {answer.reason}")
                self._refusals.add(answer.reason)
            else:
                given[client] = answer
        return given

    # What a client may answer ---------------------------------------------------------------------

    def _keys(self, answer: Result) -> secure_messages.Signed:
        # Once it is in the sum, refusing it would be a record that is not true.
        if answer.weight != 1:
            raise Damaged("a weight other than 1, where everybody counts the same")
        if reason := misreported(answer.metrics, self.reports):
            raise Damaged(reason)
        signed = _own(answer, secure_messages.read_keys(answer.update), "keys of other clients")
        # One who sends what nobody can agree with would make all others give up.
        if len({*signed.keys}) < len(signed.keys) or self._fresh & {*signed.keys}:
            raise Damaged("keys that are not fresh")
        if not all(masks.usable(key) for key in signed.keys):
            raise Damaged("keys that nobody can agree with")
        if doubt := self.doubts(answer.client, signed, self._broadcast):
            raise Damaged(doubt)
        self._fresh |= {*signed.keys}
        self.trained[answer.client] = replace(answer, update={})
        return signed

    def _dealing(self, answer: Result) -> Dealing:
        dealing = secure_messages.read_dealing(answer.update)
        everybody = set(self.server.known)
        if {answer.client, *dealing.letters} != everybody or answer.client in dealing.letters:
            raise Damaged("letters to others than those with keys")
        if set(dealing.commitments) != everybody:
            raise Damaged("commitments to shares of others than those with keys")
        return dealing

    def _masked_vector(self, answer: Result) -> None:
        vector = secure_messages.read_vector(answer.update, self.form.size)
        self.server.add(answer.client, vector)

    def _noting(self, job: Question) -> Callable[[str, str], messages.Asked]:
        def heading(nonce: str, digest: str) -> messages.Asked:
            self._broadcast = digest
            return job.heading(nonce, digest)

        return heading

    # Questions and answers ------------------------------------------------------------------------

    def _questions(self, step: str, beside: Mapping[int, Tensors]) -> dict[int, Question]:
        def heading(client: int, nonce: str, digest: str) -> messages.Step:
            return messages.Step(nonce, client, self.exchange, step, digest)

        return {u: Question(u, given, partial(heading, u)) for u, given in beside.items()}

    def _step(
        self, questions: Mapping[int, Question], read: Callable[[Result], Read]
    ) -> dict[int, Read]:
        """What came back and can be used; everybody else has failed."""
        good: dict[int, Read] = {}
        for client, answer in self._outcomes(questions, read):
            if isinstance(answer, Failure):
                self.failures[client] = answer
            else:
                good[client] = answer
        return good

    def _outcomes(
        self, questions: Mapping[int, Question], read: Callable[[Result], Read]
    ) -> Iterator[tuple[int, Read | Failure]]:
        limit = ROOM + 4 * self.form.size + 4 * secure_messages.LETTER * len(questions)
        for client, outcome in self.ask(questions, self.deadline, limit):
            if isinstance(outcome, Failure):
                yield client, outcome
                continue
            try:
                yield client, read(outcome)
            except (Damaged, ProtocolError) as error:
                yield client, Failure(client, f"its answer is malformed: {error}")


def _shares(answer: Result) -> Answer:
    return secure_messages.read_answer(answer.update)


def _signature(answer: Result) -> bytes:
    signatures = secure_messages.read_signatures(answer.update)
    return _own(answer, signatures, "signatures of others")


def _own(answer: Result, given: Mapping[int, Read], wrong: str) -> Read:
    """What a client gave for itself, and for nobody else."""
    if set(given) != {answer.client}:
        raise Damaged(wrong)
    return given[answer.client]
