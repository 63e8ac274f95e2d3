"""Nodes in this process that add up secretly, with a hand on every message of every step."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedrl import privacy
from fedrl.aggregation import mean as aggregate
from fedrl.clients.local_noise import Private
from fedrl.clients.masked_updates import SecureClient
from fedrl.core import seeding, serialization
from fedrl.core.narrow_numbers import Precision
from fedrl.core.types import Algorithm, Failure, Job, Result, Tensors
from fedrl.engines.flower.adapter import records
from fedrl.engines.flower.connection import Connection, Lost
from fedrl.engines.flower.engine import FlowerEngine, Recipe
from fedrl.engines.flower.superlink_client import Arrived, Outgoing
from fedrl.engines.in_process import InProcess
from fedrl.federation import round_loop
from fedrl.federation.client_sampling import Settings, first_cohort
from fedrl.privacy.mechanism import Mechanism
from fedrl.privacy.secure_aggregation import Terms, quantise
from support.flower_nodes import Net, in_small_pieces
from support.rounds import Memory
from support.toy import Toy

CLIENTS = 5
CLIP = 1.5
SEED = 3
STEPS = ("job", "share", "mask", "agree", "unmask")
Change = Callable[[Arrived], "Arrived | None"]


class Seen(NamedTuple):
    """One message: of which step and client, its heading and the tensors beside it."""

    step: str
    client: int
    heading: dict
    tensors: Tensors
    raw: bytes


def opened(step: str, client: int, content: records.RecordDict) -> Seen:
    text, pieces = records.opened(content)
    data = b"".join(pieces)
    tensors = serialization.unpack(data) if data else {}
    return Seen(step, client, json.loads(text), tensors, text.encode() + data)


class SecretNet(Net):
    """`changes[step, client]` may change or lose an answer; `gone` are steps that lose the link.

    With `regroup` its nodes open sums of changing clients.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        folder: Path,
        clients: int = CLIENTS,
        precision: Precision = "float32",
        regroup: bool = False,
        **fields: object,
    ) -> None:
        self.settings = privacy.Settings(**({"clip": CLIP, "secure": True} | fields))  # type: ignore[arg-type]
        self.terms = Terms.of(self.settings, clients)
        self.honest = Private(algorithm, self.settings)
        super().__init__(
            SecureClient(self.honest, self.settings, self.terms), folder, clients, precision
        )
        plan = replace(self.members[100].plan(""), terms=self.terms, seed=SEED)
        for node in self.members.values():
            node.plan = lambda recipe: plan
            node.regroup = regroup
        self.changes: dict[tuple[str, int], Change] = {}
        self.gone: list[tuple[str, int]] = []  # (step, messages of it that still get through)
        self.questions: list[tuple[Seen, Outgoing]] = []
        self.answers_seen: list[Seen] = []
        self.precision = precision

    def push(self, messages_: Sequence[Outgoing]) -> list[str]:
        numbers = []
        for message in messages_:
            client = message.node - 100
            about = opened("", client, message.content)
            step = about.heading.get("step", about.heading["kind"])
            if self.gone and self.gone[0][0] == step:
                name, left = self.gone.pop(0)
                if not left:
                    raise Lost("the SuperLink cannot be reached (test)")
                self.gone.insert(0, (name, left - 1))
            (number,) = super().push([message])
            if step in STEPS:
                self.questions.append((about._replace(step=step), message))
                arrived: Arrived | None = self.answers.pop(number)
                self.answers_seen.append(opened(step, client, arrived.content))
                if (step, client) in self.changes:
                    arrived = self.changes[step, client](arrived)
                if arrived is not None:
                    self.answers[number] = arrived
            numbers.append(number)
        return numbers

    def engine(self, warn: Callable[[str], None] = print, **settings: object) -> FlowerEngine:
        chosen = in_small_pieces(**({"precision": self.precision} | settings))
        return FlowerEngine(
            self.honest,
            Recipe("run", "", keep=3),
            Connection("x:1"),
            chosen,
            warn,
            self.open,
            self.terms,
        )


def train(
    engine: round_loop.Engine,
    algorithm: Algorithm,
    settings: privacy.Settings,
    rounds: int = 3,
    said: list[str] | None = None,
    **fields: object,
) -> Memory:
    """`algorithm` is the protected one. An engine that is not InProcess makes the sums itself."""
    fed = Settings(**({"clients": CLIENTS} | fields))  # type: ignore[arg-type]
    chosen = partial(first_cohort, fed, SEED)
    summed = not isinstance(engine, InProcess)
    mechanism = Mechanism(
        settings, algorithm, SEED, fed.clients, fed.clients_per_round, chosen, summed=summed
    )
    store = Memory()
    warn = (said if said is not None else []).append
    round_loop.run(
        fed, algorithm, engine, aggregate.mean, store, seed=SEED, rounds=rounds, warn=warn,
        privacy=mechanism,
    )  # fmt: skip
    return store


def rehearsed(algorithm: Algorithm, settings: privacy.Settings, **fields: object) -> Memory:
    """The same in one process."""
    guarded = Private(algorithm, settings)
    return train(InProcess(guarded), guarded, settings, **fields)  # type: ignore[arg-type]


def over(net: SecretNet, said: list[str] | None = None, **fields: object) -> Memory:
    warn = (said if said is not None else []).append
    return train(net.engine(warn), net.honest, net.settings, said=said, **fields)


def jobs(net: SecretNet, round: int = 7, attempt: int = 0) -> list[Job]:
    """Of the same round and attempt, the same jobs: nodes open them once."""
    sent = Toy(CLIENTS).broadcast(Toy(CLIENTS).init(0), 1)
    return [turned(Job(c, sent, None, 0), round, attempt) for c in range(CLIENTS)]


def turned(job: Job, round: int, attempt: int = 0) -> Job:
    """As the round loop asks it in another round or attempt."""
    seed = seeding.local(SEED, round, attempt, job.client)
    return replace(job, seed=seed, round=round, attempt=attempt)


def vectors(net: SecretNet, round: int = 7, attempt: int = 0) -> np.ndarray:
    """What the clients of `jobs` add up, in plain sight."""
    found = [net.honest.local(job).update for job in jobs(net, round, attempt)]
    return np.array([np.concatenate([u["a"], u["b"].ravel()]) for u in found])


def mean_of(found: list[Result | Failure]) -> np.ndarray:
    """The one update that all clients in the sum come with."""
    results = [outcome for outcome in found if isinstance(outcome, Result)]
    assert all(result.update is results[0].update for result in results)
    return np.concatenate([results[0].update["a"], results[0].update["b"].ravel()])


def close(found: np.ndarray, expected: np.ndarray) -> None:
    assert np.abs(found - expected).max() <= quantise.step(CLIP, CLIENTS) + 1e-6  # float32 leaves


def no_answer(arrived: Arrived) -> None:
    return None
