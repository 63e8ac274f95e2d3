"""A node's side: takes the messages of its SuperNode, has a worker process do the jobs, answers.

The SuperNode holds the connection to the SuperLink; this process is its executor, on loopback. The
algorithm lives in a worker process (`worker_pool.py`), so that a job that hangs can be stopped at
its deadline and the model stays loaded between rounds. What leaves the machine is the declared
update, its weight and metrics, or a reason in one line; the client's state stays in the node's
folder. For a secure sum (`secure_aggregation/client.py`) not even the update leaves it as it is,
and all sums are of one set of clients (`opened_sums.py`). A node with an ε of its own counts every
answer (`client_ledger.py`).

What it checks before it answers: that a job is its own, new and complete (`_work`), what the recipe
asks of it (`node_policy.py`), which sum it is for and what was told before (`_job`).
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import fedrl
from fedrl.core import seeding, serialization
from fedrl.core.private_files import StateError
from fedrl.core.types import Algorithm, Failure, Job, Result, Tensors, TooFew, UserError
from fedrl.engines.flower import messages
from fedrl.engines.flower.adapter import HOME, records
from fedrl.engines.flower.client_state_store import ClientStateStore, with_history, without_history
from fedrl.engines.in_process import debugging, one_line, reason
from fedrl.engines.worker_pool import WorkerPool
from fedrl.privacy.client_ledger import Budget, Ledger, job_name
from fedrl.privacy.secure_aggregation import Terms
from fedrl.privacy.secure_aggregation import messages as secure_messages
from fedrl.privacy.secure_aggregation.client import SigningClient
from fedrl.privacy.secure_aggregation.identity import Identity
from fedrl.privacy.secure_aggregation.opened_sums import Asked, OpenedSums
from fedrl.privacy.secure_aggregation.protocol import ProtocolError

OWN = frozenset({"states", HOME, "secret", "key", "opened", "ledger", "memory", "supernode"})
"""Names in a node's folder that are the node's own, whatever their endings: no recipe's."""
UNTOLD = "its client gave no update (its own log says why)"


class Refused(Exception):
    """What this node does not do for a recipe, in one line that may be told to the server."""


@dataclass(frozen=True)
class Plan:
    """What a node takes from a recipe: how to build the algorithm, and how to send.

    With `terms` the algorithm gives vectors for a secure sum (`clients/masked_updates.py`).
    `budget` is the node's own ε, if it has one, `reports` whether the recipe alone asks for metrics
    beside a sum, `seed` is the recipe's.
    """

    build: Callable[[], Algorithm]
    half: bool
    piece: int
    warm: bool
    terms: Terms | None = None
    budget: Budget | None = None
    reports: bool = False
    seed: int = 0


def say(line: str) -> None:
    """For the organisation that runs the node; nothing of it travels.

    Names in it may be the coordinator's, which must not write lines of their own here.
    """
    printable = "".join(c if c.isprintable() else " " for c in line)
    print(f"{time.strftime('%H:%M:%S')} {printable}", file=sys.stderr, flush=True)


@dataclass
class NodeClient:
    """One client of a federation, on its own machine.

    `plan` reads a recipe with this node's own paths. `regroup` lets secure sums be of other clients
    than before.
    """

    number: int
    folder: Path
    plan: Callable[[str], Plan]
    log: Callable[[str], None] = say
    identity: Identity = field(default_factory=Identity)
    regroup: bool = False
    _recipe: str = ""
    _workers: WorkerPool | None = None
    _seen: set[str] = field(default_factory=set)
    _sum: tuple[SigningClient, Plan] | None = None

    def answer(self, content: records.Content) -> records.Content:
        """The reply to a message, whatever it is."""
        try:
            text, pieces = records.opened(content)
            asked = messages.from_json(text, messages.Who, messages.Job, messages.Step)
        except serialization.Damaged as error:
            self.log(f"refused a message: {error}")
            return records.content(messages.to_json(messages.Answer("", self.number, str(error))))
        if isinstance(asked, messages.Who):
            name = messages.Name(asked.nonce, self.number, fedrl.__version__)
            return records.content(messages.to_json(name))
        assert isinstance(asked, messages.Job | messages.Step)
        heading, body = self._work(asked, pieces)
        if heading.reason:
            what = f"run {asked.run}" if isinstance(asked, messages.Job) else "a secure sum"
            self.log(f"{what}: no update: {heading.reason}")
        return records.content(messages.to_json(heading), records.body(body))

    def _work(
        self, asked: messages.Job | messages.Step, pieces: list[bytes]
    ) -> tuple[messages.Answer, list[bytes]]:
        answer = partial(messages.Answer, asked.nonce, self.number)
        if asked.client != self.number:
            return answer(f"this node is client {self.number}"), []
        if asked.nonce in self._seen:
            return answer("this job was done before"), []
        self._seen.add(asked.nonce)
        try:
            given = serialization.unpack(serialization.join(pieces, asked.digest))
            result, plan = (
                self._step(asked, given)
                if isinstance(asked, messages.Step)
                else self._job(asked, given)
            )
            if isinstance(result, Failure):
                return answer(result.reason), []
            data = serialization.pack(result.update, plan.half)
        except (serialization.Damaged, StateError, ProtocolError, Refused, TooFew) as error:
            return answer(str(error)), []
        except UserError as error:  # about settings and files of this machine: for its owner
            self.log(str(error))
            why = str(error) if debugging() else "the node's own log says why"
            return answer(f"its worker could not start ({why})"), []
        except Exception as error:  # noqa: BLE001 - whatever fails here costs one update
            self.log(one_line(error))
            return answer(reason(error)), []
        body = serialization.cut(data, plan.piece)
        heading = answer(
            weight=messages.weight_of(result.weight),
            metrics=messages.sendable(result.metrics),
            kept=result.state is not None,
            digest=serialization.checksum(body),
        )
        return heading, body

    def _job(self, asked: messages.Job, broadcast: Tensors) -> tuple[Result | Failure, Plan]:
        """A round's work: the update, or keys for the sum that it will be part of."""
        self._sum = None
        plan = self.plan(asked.recipe)
        self._check_terms(plan, asked)
        spend = self._spend(plan, asked)
        states = ClientStateStore(self.folder / "states")
        kept = states.load(asked.run, asked.state) if asked.state else None
        state, history = without_history(kept)
        about = secure_messages.digest(
            asked.recipe, asked.digest, asked.terms, asked.round, asked.attempt
        )
        job = Job(self.number, broadcast, state, asked.seed, asked.round, asked.attempt)
        result = self._compute(plan, asked.recipe, job, asked.deadline)
        if isinstance(result, Failure):
            return self._failed(result, plan, spend), plan
        if result.state is not None:
            new = result.state
            if plan.terms is not None:  # only then does the state follow from the job
                new = with_history(new, history, about)
            states.save(asked.run, asked.nonce, new, asked.keep, asked.state)
        if plan.terms is not None:
            vector = result.update[secure_messages.VECTOR]
            remember = partial(self._remember, plan, asked)
            if asked.exchange in self._seen:  # signatures hold for one sum
                raise ProtocolError("a sum of this name was begun before")
            self._seen.add(asked.exchange)
            member = SigningClient(
                asked.exchange, self.number, plan.terms, vector, remember, spend, self.identity,
                about, history, alike=plan.budget is None and not self.regroup,
            )  # fmt: skip
            self._sum = member, plan
            result = replace(result, update=member.advertise())
        else:
            spend()
        return result, plan

    def _failed(self, failure: Failure, plan: Plan, spend: Callable[[], None]) -> Failure:
        """What failed on some data and not on other tells about it: an answer like all others."""
        if plan.budget is None:
            return failure
        self.log(failure.reason)
        spend()
        return Failure(failure.client, UNTOLD)

    def _spend(self, plan: Plan, asked: messages.Job) -> Callable[[], None]:
        """What charges the answer to the node's own ε; refused now if it could not be."""
        if (budget := plan.budget) is None:
            return lambda: None
        ledger = Ledger(self.folder, budget.epsilon, budget.delta)
        alone = plan.terms is not None and self.identity.peers is None
        about = job_name(asked.seed, asked.digest), budget.part if alone else budget.noise
        ledger.check(*about)
        return partial(ledger.charge, *about)

    def _check_terms(self, plan: Plan, asked: messages.Job) -> None:
        """Refuse a job that is not for the kind of sum that this node takes part in.

        Two sums with another seed of one client alone would differ by what it does with them.
        """
        if self.identity.peers is not None and plan.terms is None:
            raise Refused("privacy.secure: this node knows its peers, and only adds up with them")
        if self.identity.peers is not None and plan.reports:
            raise Refused("privacy.reports: this node knows its peers, and tells only their sum")
        terms = secure_messages.sendable(plan.terms)
        if bool(asked.exchange) != bool(plan.terms) or asked.terms != terms:
            raise ProtocolError("its own settings of [privacy] ask for another secure sum, or none")
        if plan.terms is None:
            return
        if asked.seed != seeding.local(plan.seed, asked.round, asked.attempt, self.number):
            raise ProtocolError("its seed does not follow from the recipe's, round and attempt")
        if plan.budget is None:
            self._opened().check(_turn(asked))

    def _remember(self, plan: Plan, asked: messages.Job, survivors: Collection[int]) -> None:
        """Where every sum is counted there may be any number of them."""
        if plan.budget is None:
            self._opened().add(f"{asked.seed} {asked.digest}", survivors, _turn(asked))

    def _opened(self) -> OpenedSums:
        return OpenedSums(self.folder / "opened.json", self.regroup)

    def _step(self, asked: messages.Step, given: Tensors) -> tuple[Result, Plan]:
        if self._sum is None or self._sum[0].exchange != asked.exchange:
            raise ProtocolError("its node knows no such sum: another began, or it was restarted")
        member, plan = self._sum
        return Result(self.number, member.answer(asked.step, given)), plan

    def _compute(self, plan: Plan, recipe: str, job: Job, deadline: float) -> Result | Failure:
        if self._workers is None or self._recipe != recipe:
            self.close()
            self._workers, self._recipe = WorkerPool(plan.build, count=1), recipe
        try:
            (result,) = self._workers.run([job], deadline)
            return result
        except UserError:  # it did not start: the next one may, when its owner has seen to it
            self.close()
            raise
        finally:
            if not plan.warm:
                self.close()

    def interrupt(self) -> bool:
        """From another thread: give up the job under way, if any, whose answer nobody can get."""
        return (workers := self._workers) is not None and workers.interrupt()

    def close(self) -> None:
        if self._workers is not None:
            self._workers.close()
            self._workers = None


def _turn(asked: messages.Job) -> Asked:
    """Whatever the run is called: the driver chooses that, too."""
    recipe = hashlib.sha256(asked.recipe.encode()).hexdigest()
    return Asked(recipe, asked.round, asked.attempt)
