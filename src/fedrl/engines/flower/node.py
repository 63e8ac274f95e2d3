"""A node's side: takes the messages of its SuperNode, has a worker process do the jobs, answers.

The SuperNode holds the connection to the SuperLink; this process is its executor, on loopback. The
algorithm lives in a worker process (`worker_pool.py`), so that a job that hangs can be stopped at
its deadline and the model stays loaded between rounds. What leaves the machine is the declared
update, its weight and metrics, or a reason in one line; the client's state stays in the node's
folder. For a secure sum (`secure_aggregation/client.py`) not even the update leaves it as it is,
and all sums are of one set of clients (`opened_sums.py`). A node with an ε of its own counts every
answer (`client_ledger.py`), and every node writes it into its audit log (`node_audit.py`) before it
leaves.

What it checks before it answers: that a job is its own, new and complete (`_work`), what the recipe
asks of it (`plan`: `policy_check.py`, `approval.py`), which sum it is for and what was told before
(`_job`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import fedrl
from fedrl.core import seeding, serialization
from fedrl.core.private_files import StateError
from fedrl.core.types import Failure, Job, JsonValue, Result, Tensors, TooFew, UserError
from fedrl.engines.flower import messages, own_data_book
from fedrl.engines.flower.adapter import records
from fedrl.engines.flower.client_state_store import ClientStateStore, with_history, without_history
from fedrl.engines.flower.kept_model import keep_if_possible
from fedrl.engines.flower.node_audit import GAVE, STEPS, NodeAudit, Told
from fedrl.engines.flower.node_plan import Plan, PolicyChanged, Refused
from fedrl.engines.flower.node_story import not_done
from fedrl.engines.flower.node_worker import NodeWorker
from fedrl.engines.flower.owner_log import in_words, say
from fedrl.engines.flower.policy import Policy, Unreadable
from fedrl.engines.in_process import debugging, reason, shareable
from fedrl.privacy.client_ledger import Ledger, job_name
from fedrl.privacy.secure_aggregation import messages as secure_messages
from fedrl.privacy.secure_aggregation.client import SigningClient
from fedrl.privacy.secure_aggregation.identity import Identity
from fedrl.privacy.secure_aggregation.opened_sums import Asked, OpenedSums
from fedrl.privacy.secure_aggregation.protocol import ProtocolError

LAST_STEP = "unmask"
SUM_SECONDS = 600.0
"""After a step of a secure sum in which the next one comes, or its driver is gone."""
UNTOLD = "its client gave no update (its own log says why)"


@dataclass
class NodeClient:
    """One client of a federation, on its own machine.

    `plan` reads a recipe with this node's own paths, and refuses what its policy does not allow.
    `rules` is that policy as it is now, `acquaint` its identity with the keys that its peers have
    now. `begins` is told of work that this node takes on, which is not all that it is asked for.
    `regroup` lets secure sums be of other clients than before, `keep_model` keeps what the
    node was sent, for its owner.
    """

    number: int
    folder: Path
    plan: Callable[[str], Plan]
    log: Callable[[str], None] = say
    identity: Identity = field(default_factory=Identity)
    regroup: bool = False
    keep_model: bool = False
    audit: NodeAudit | None = None
    rules: Callable[[], Policy] = Policy
    acquaint: Callable[[Identity], Identity] = lambda known: known
    begins: Callable[[messages.Ready | messages.Job], None] = lambda asked: None
    _worker: NodeWorker = field(default_factory=NodeWorker)
    _spare: Tensors | None = None  # a broadcast that is not needed once its worker has it
    _seen: set[str] = field(default_factory=set)
    _sum: tuple[SigningClient, Plan, messages.Job] | None = None
    _members: list[int] = field(default_factory=list)  # of the sum, by its last step
    _ledger: Ledger | None = None
    _noise: float = 0.0
    sent: int = 0  # bytes of the last answer
    _sum_until: float = 0.0  # when the sum under way is given up, if its end is not seen
    _data: str = ""  # digest of what the client brings, as it was when its worker began

    def answer(self, content: records.Content) -> records.Content:
        """The reply to a message, whatever it is."""
        try:
            text, pieces = records.streamed(content)
            asked = messages.from_json(
                text, messages.Who, messages.Ready, messages.Job, messages.Step
            )
        except serialization.Damaged as error:
            self.log(f"refused a message: {error}")
            told = Told(messages.Answer("", self.number, str(error)), records.NOTHING, "refused")
            return records.content(messages.to_json(self._written(told, None, 0).heading))
        if isinstance(asked, messages.Who):
            name = messages.Name(asked.nonce, self.number, fedrl.__version__)
            return records.content(messages.to_json(name))
        assert isinstance(asked, messages.Asked)
        counted = records.Counted(pieces)
        told = self._written(self._work(asked, counted), asked, counted.bytes)
        heading, body, event, own = told
        self.sent = body.size
        ongoing = self._sum is not None and not (
            isinstance(asked, messages.Step) and asked.step == LAST_STEP
        )
        self._sum_until = time.monotonic() + SUM_SECONDS if ongoing else 0.0
        if heading.reason:
            beside = f" [{own}]" if own else ""
            self.log(f"{not_done(asked, refused=event == 'refused')}: {heading.reason}{beside}")
        return records.content(messages.to_json(heading), body.body)

    def _written(self, told: Told, asked: messages.Asked | None, received: int) -> Told:
        """The same answer once it is in the audit log; what cannot be written there is not told."""
        heading, body, event, own = told
        fields: dict[str, JsonValue] = {"received": received, "sent": body.size}
        job = None if isinstance(asked, messages.Step) else asked
        if isinstance(asked, messages.Step):
            fields["members"] = list(self._members)
            if self._sum is not None and self._sum[0].exchange == asked.exchange:
                job = self._sum[2]
        try:
            if event in GAVE:
                fields["noise"] = self._noise
                if self._ledger is not None:
                    fields |= self._audit.counted(self._ledger.spent())
            self._audit.answered(event, job, heading.reason, own, **fields)
        except Exception as error:  # noqa: BLE001 - what is not written down is not told
            self.log(f"nothing was answered, for {self.folder} is not written: {in_words(error)}")
            why = str(error) if isinstance(error, StateError) else "its audit log cannot be written"
            answer = messages.Answer(heading.nonce, self.number, why)
            return Told(answer, records.NOTHING, "refused")
        return told

    @property
    def _audit(self) -> NodeAudit:
        if self.audit is None:
            self.audit = NodeAudit(self.folder, self.number)
        return self.audit

    def _work(self, asked: messages.Asked, pieces: Iterable[records.Bytes]) -> Told:
        answer = partial(messages.Answer, asked.nonce, self.number)

        def refused(why: str, event: str = "refused", final: bool = False, own: str = "") -> Told:
            return Told(answer(why, refused=final), records.NOTHING, event, own)

        if asked.client != self.number:
            return refused(f"this node is client {self.number}")
        if asked.nonce in self._seen:
            return refused("this job was done before")
        self._seen.add(asked.nonce)
        try:  # apart from the rest: who cannot fetch a piece has no answer at all
            given = serialization.unpack_pieces(pieces, asked.digest)
        except serialization.Damaged as error:
            return refused(str(error))
        try:
            if isinstance(asked, messages.Ready):
                result, plan = self._prepare(asked)
                event = "ready"
            elif isinstance(asked, messages.Step):
                result, plan = self._step(asked, given)
                event = STEPS[asked.step]
            else:
                result, plan = self._job(asked, given)
                event = "keys" if asked.exchange else "update"
            if isinstance(result, Failure):
                return refused(result.reason, "failed")
            packed = serialization.Packed(result.update, plan.precision)
            body = records.sealed(packed, plan.piece)
        except (serialization.Damaged, StateError, ProtocolError, Refused, TooFew) as error:
            final, own = getattr(error, "final", False), getattr(error, "own", "")
            return refused(str(error), final=final, own=own)
        except Unreadable as error:
            self.log(str(error))
            return refused("this node's policy cannot be read (its own log says why)", final=True)
        except UserError as error:  # about settings and files of this machine: for its owner
            self.log(str(error))
            told = debugging() or shareable(error)
            why = str(error) if told else "the node's own log says why"
            return refused(f"its worker could not start ({why})", "failed")
        except Exception as error:  # noqa: BLE001 - whatever fails here costs one update
            self.log(in_words(error))
            return refused(reason(error), "failed")
        heading = answer(
            weight=messages.weight_of(result.weight),
            metrics=messages.sendable(result.metrics),
            kept=result.state is not None,
            digest=body.digest,
        )
        return Told(heading, body, event)

    def _prepare(self, asked: messages.Ready) -> tuple[Result | Failure, Plan]:
        """Build what the first job will need. Who counts its answers says nothing of its own."""
        plan = self.plan(asked.recipe)
        self._require_peers(plan)
        if plan.budget is None:
            self._check_data(plan, asked)
            self.begins(asked)
            self._start(plan, asked.recipe)
        return Result(self.number, {}), plan

    def _job(self, asked: messages.Job, broadcast: Tensors) -> tuple[Result | Failure, Plan]:
        """A round's work: the update, or keys for the sum that it will be part of."""
        self._sum = None
        plan = self.plan(asked.recipe)
        self.identity = self.acquaint(self.identity)
        self._check_terms(plan, asked)
        spend = self._spend(plan, asked)
        states = ClientStateStore(self.folder / "states")
        kept = states.load(asked.run, asked.state, plan.origin) if asked.state else None
        state, history = without_history(kept)
        about = secure_messages.digest(
            asked.recipe, asked.digest, asked.terms, asked.round, asked.attempt
        )
        job = Job(self.number, broadcast, state, asked.seed, asked.round, asked.attempt)
        self._check_data(plan, asked)
        self.begins(asked)
        self._spare = None if self._keeps(plan) else broadcast
        result = self._compute(plan, asked.recipe, job, asked.deadline)
        self._require_same_policy(plan)
        if isinstance(result, Failure):
            return self._failed(result, plan, spend), plan
        if self._data:
            own_data_book.remember(self.folder, asked.run, self._data)
        if result.state is not None:
            new = result.state
            if plan.terms is not None:  # only then does the state follow from the job
                new = with_history(new, history, about)
            states.save(asked.run, asked.nonce, new, asked.keep, asked.state, plan.origin)
        if self._keeps(plan):
            keep_if_possible(self.folder, self.number, asked, broadcast, self.log)
        if plan.terms is not None:
            vector = result.update[secure_messages.VECTOR]
            remember = partial(self._remember, plan, asked)
            if asked.exchange in self._seen:  # signatures hold for one sum
                raise ProtocolError("a sum of this name was begun before")
            self._seen.add(asked.exchange)
            member = SigningClient(
                asked.exchange, self.number, plan.terms, vector, remember, spend, self.identity,
                about, history, alike=plan.budget is None and not self._regroups(plan),
            )  # fmt: skip
            self._sum = member, plan, asked
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
        self._ledger, self._noise = None, plan.noise
        if (budget := plan.budget) is None:
            return lambda: None
        self._ledger = ledger = Ledger(self.folder, budget.epsilon, budget.delta)
        self._audit.counted(ledger.spent())
        alone = plan.terms is not None and self.identity.peers is None
        about = job_name(asked.seed, asked.digest), budget.part if alone else budget.noise
        ledger.check(*about)
        return partial(ledger.charge, *about)

    def _check_terms(self, plan: Plan, asked: messages.Job) -> None:
        """Refuse a job that is not for the kind of sum that this node takes part in.

        Two sums with another seed of one client alone would differ by what it does with them.
        """
        self._require_peers(plan)
        if plan.rounds is not None and asked.round > plan.rounds:
            raise Refused(f"round {asked.round} of a recipe with {plan.rounds} (rounds)")
        terms = secure_messages.sendable(plan.terms)
        if bool(asked.exchange) != bool(plan.terms) or asked.terms != terms:
            raise ProtocolError("its own settings of [privacy] ask for another secure sum, or none")
        if plan.terms is None:
            return
        if asked.seed != seeding.local(plan.seed, asked.round, asked.attempt, self.number):
            raise ProtocolError("its seed does not follow from the recipe's, round and attempt")
        if plan.budget is None:
            self._opened(plan).check(_turn(asked))

    def _require_peers(self, plan: Plan) -> None:
        if self.identity.peers is not None and plan.terms is None:
            raise Refused("privacy.secure: this node knows its peers, and only adds up with them")
        if self.identity.peers is not None and plan.reports:
            raise Refused("privacy.reports: this node knows its peers, and tells only their sum")

    def _check_data(self, plan: Plan, asked: messages.Ready | messages.Job) -> None:
        """Before a worker opens it. One that is at work looks itself at what it reads."""
        if plan.data is None:
            self._data = ""
        elif not self._worker.is_for(plan, asked.recipe):
            self._data = own_data_book.check(self.folder, asked.run, plan.data)

    def _remember(self, plan: Plan, asked: messages.Job, survivors: Collection[int]) -> None:
        """Where every sum is counted there may be any number of them."""
        if plan.budget is None:
            self._opened(plan).add(f"{asked.seed} {asked.digest}", survivors, _turn(asked))

    def _opened(self, plan: Plan) -> OpenedSums:
        return OpenedSums(self.folder / "opened.json", self._regroups(plan))

    def _keeps(self, plan: Plan) -> bool:
        """Whether the broadcast is needed after its worker has it."""
        return self.keep_model or plan.policy.keep_model

    def _regroups(self, plan: Plan) -> bool:
        return self.regroup or plan.policy.regroup

    def _step(self, asked: messages.Step, given: Tensors) -> tuple[Result, Plan]:
        if self._sum is None or self._sum[0].exchange != asked.exchange:
            raise ProtocolError("its node knows no such sum: another began, or it was restarted")
        member, plan, _ = self._sum
        self._require_same_policy(plan)
        answer = member.answer(asked.step, given)
        self._members = secure_messages.members(asked.step, given, self.number)
        return Result(self.number, answer), plan

    def _require_same_policy(self, plan: Plan) -> None:
        """Training may take hours, in which its owner may have thought again."""
        if self.rules() != plan.policy:
            raise PolicyChanged("its policy has changed since this job began")

    def _start(self, plan: Plan, recipe: str) -> None:
        self._worker.start(plan, recipe)

    def _compute(self, plan: Plan, recipe: str, job: Job, deadline: float) -> Result | Failure:
        return self._worker.run(plan, recipe, job, deadline, job.broadcast is self._spare)

    def in_sum(self) -> bool:
        """Whether messages of a secure sum are still to come: to this process, under this key."""
        return time.monotonic() < self._sum_until

    def interrupt(self) -> bool:
        """From another thread: give up the job under way, if any, whose answer nobody can get."""
        return self._worker.interrupt()

    def close(self) -> None:
        self._worker.close()


def _turn(asked: messages.Job) -> Asked:
    """Whatever the run is called: the driver chooses that, too."""
    recipe = hashlib.sha256(asked.recipe.encode()).hexdigest()
    return Asked(recipe, asked.round, asked.attempt)
