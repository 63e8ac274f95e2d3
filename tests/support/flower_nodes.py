"""A SuperLink and nodes in this process: the engine and the nodes are real, the network is not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from pathlib import Path

from fedrl.config.flower import Settings
from fedrl.core.narrow_numbers import Precision
from fedrl.core.types import Algorithm, Job, Result
from fedrl.engines.flower.connection import Connection, Lost
from fedrl.engines.flower.engine import FlowerEngine, Recipe
from fedrl.engines.flower.node import NodeClient
from fedrl.engines.flower.node_plan import Plan
from fedrl.engines.flower.superlink_client import Arrived, Outgoing
from fedrl.engines.in_process import attempt

Spoil = Callable[[Arrived], "Arrived | None"]
PIECE = 100


class Inline(NodeClient):
    """A client that computes here instead of in a worker process."""

    def _start(self, plan: Plan, recipe: str) -> None:
        plan.build()

    def _compute(self, plan: Plan, recipe: str, job: Job, deadline: float) -> Result:
        return attempt(plan.build(), job)


def in_small_pieces(**settings: object) -> Settings:
    """Of messages; smaller ones than people may choose."""
    chosen = Settings(**({"wait": 0.5} | settings))  # type: ignore[arg-type]
    if "piece_mb" not in settings:
        object.__setattr__(chosen, "piece_mb", PIECE / 1e6)
    return chosen


class Net:
    """Nodes by their ids; `spoil` sees every answer to a job and may change or lose it."""

    def __init__(self, algorithm: Algorithm, folder: Path, clients: int,
                 precision: Precision = "float32"):  # fmt: skip
        self.algorithm = algorithm
        plan = Plan(lambda: algorithm, precision, PIECE, True)
        self.members = {
            100 + c: Inline(c, folder / str(c), lambda recipe: plan, log=lambda line: None)
            for c in range(clients)
        }
        self.spoil: Spoil = lambda answer: answer
        self.lost: list[str] = []  # calls that find the SuperLink gone, by name
        self.sent: list[Outgoing] = []
        self.links = 0
        self.number = itertools.count()
        self.answers: dict[str, Arrived] = {}

    def open(self, connection: Connection, seconds: float, warn: Callable[[str], None]) -> Net:
        self.links += 1
        self.answers = {}
        return self

    def _check(self, name: str) -> None:
        if name in self.lost:
            self.lost.remove(name)
            raise Lost("the SuperLink cannot be reached (test)")

    def push(self, messages: list[Outgoing]) -> list[str]:
        self._check("push")
        numbers = []
        for message in messages:
            number = f"m{next(self.number)}"
            content = self.members[message.node].answer(message.content)
            answer: Arrived | None = Arrived(number, message.node, content, "")
            if '"kind": "job"' in message.content["fedrl"]["text"]:
                self.sent.append(message)
                answer = self.spoil(answer)
            if answer is not None:
                self.answers[number] = answer
            numbers.append(number)
        return numbers

    def pull(self, messages: Collection[str], limit: int) -> list[Arrived]:
        if messages:
            self._check("pull")
        here = [m for m in messages if m in self.answers]
        return [self.answers.pop(here[-1])] if here else []  # one at a time, the last one first

    def nodes(self) -> set[int]:
        return set(self.members)

    def forget(self, messages: Collection[str]) -> None: ...

    def close(self, finished: bool) -> None: ...

    def engine(self, warn: Callable[[str], None] = print, **settings: object) -> FlowerEngine:
        once = bool(settings.pop("once", False))
        chosen = in_small_pieces(**settings)
        recipe = Recipe("run", "", keep=3)
        return FlowerEngine(
            self.algorithm, recipe, Connection("x:1"), chosen, warn, self.open, once=once
        )
