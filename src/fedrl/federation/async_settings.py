"""The table `[async_buffer]`, and which federations and methods it has a meaning for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedrl import privacy
from fedrl.aggregation import rules
from fedrl.core import tree
from fedrl.core.abilities import sends_parameters
from fedrl.core.limits import not_negative
from fedrl.core.types import Algorithm, Tensors, UserError
from fedrl.federation import client_sampling

LARGEST = 10.0
"""Of σ: beyond it, times of one client and of another no longer compare."""


@dataclass(frozen=True)
class Settings:
    """Asynchronous rounds: a server step as soon as a buffer of updates is full."""

    # K: updates that make a server step; 0 waits for the whole cohort, as ever.
    size: int = 0
    # How an update counts that began τ server steps ago: sqrt: 1/√(1+τ) of it. none: all of it.
    staleness: Literal["sqrt", "none"] = "sqrt"
    # Time that each client takes for a job on the simulated clock; one number per client.
    times: tuple[float, ...] = ()
    # Or σ of the log-normal distribution, with median 1, that the seed draws these times from.
    spread: float = 0.0
    # σ of a log-normal factor, with median 1, on the time of every single job.
    jitter: float = 0.0

    def __post_init__(self) -> None:
        not_negative(self, "async_buffer.", "size", "spread", "jitter")
        if not all(0 < own < math.inf for own in self.times):
            raise UserError("async_buffer.times must be above 0")
        if max(self.spread, self.jitter) > LARGEST:
            raise UserError(f"async_buffer.spread and jitter are exponents: at most {LARGEST:g}")
        if self.times and self.spread:
            raise UserError(
                "async_buffer.times and spread both say how fast clients are: remove one"
            )
        if not self.size and (self.timed or self.staleness != "sqrt"):
            raise UserError(
                "async_buffer.staleness, times, spread and jitter need async_buffer.size: set it "
                "too"
            )

    @property
    def timed(self) -> bool:
        return bool(self.times or self.spread or self.jitter)

    def check(self, fed: client_sampling.Settings, private: privacy.Settings, engine: str) -> None:
        """Refuse what has no meaning, or would not keep a promise, without common rounds."""
        if not self.size:
            return
        if fed.kind != "federated":
            raise UserError(
                "async_buffer.size is for clients that share a model, but federation.kind is "
                f'"{fed.kind}": remove it'
            )
        if self.size > fed.clients_per_round:
            raise UserError(
                f"async_buffer.size is {self.size}, but only {fed.clients_per_round} clients work "
                "at a time: lower it, or raise federation.cohort or clients"
            )
        if private.noise or private.secure:
            key = "noise" if private.noise else "secure"
            raise UserError(
                f"privacy.{key} is for clients that are asked together, and async_buffer.size lets "
                "each come when it is ready: remove one (privacy.clip works with both)"
            )
        if self.timed and engine != "inprocess":
            raise UserError(
                "async_buffer.times, spread and jitter are for a simulated clock, and with engine "
                f'= "{engine}" clients take the time that they take: remove them'
            )
        if self.times and len(self.times) != fed.clients:
            raise UserError(
                f"async_buffer.times has {len(self.times)} numbers; name one for each of the "
                f"{fed.clients} clients"
            )

    def check_rule(self, rule: rules.Chosen, clients: int) -> None:
        """Refuse buffers that all liars together could rule."""
        need = rule.need(self.size)
        if not 0 < self.size < need.least:
            return
        if need.byzantine is None:
            raise UserError(
                f'aggregate.name = "{rule.name}" needs {need.least} updates, and async_buffer.size '
                f"is {self.size}: raise it"
            )
        raise UserError(
            f'aggregate.name = "{rule.name}" needs {need.least} updates against {need.byzantine} '
            f"Byzantine among {clients} clients, who may all be in one buffer, and "
            f"async_buffer.size is {self.size}: raise it, or lower aggregate.byzantine"
        )

    def scale(self, staleness: int) -> float:
        """s(τ)."""
        return 1.0 if self.staleness == "none" else 1.0 / math.sqrt(1.0 + staleness)


def check_method(algorithm: Algorithm, beta: float = 1.0) -> None:
    """Refuse methods whose step would be wrong with updates from older broadcasts."""
    name = "algorithm.name"
    if sends_parameters(algorithm):
        raise UserError(
            f"async_buffer.size needs changes, but this {name} sends values: a value from an older "
            "broadcast would undo the steps since. Set async_buffer.size = 0"
        )
    if algorithm.initial_exchange:
        raise _mixed(
            f"this {name} begins with an estimate of all clients and goes on from it", beta
        )


def check_broadcast(algorithm: Algorithm, sent: Tensors, beta: float = 1.0) -> None:
    """A client may start from the parameters that it changes, and from nothing else.

    Whatever more is sent (the iterate before, a common direction) belongs to one round, and what
    clients of different rounds make of it does not add up.
    """
    shapes = {n: leaf.shape for n, leaf in tree.leaves(sent) if isinstance(leaf, np.ndarray)}
    declared = [spec.shape for spec in algorithm.declare(sent).values()]
    if sorted(shapes.values()) != sorted(declared):
        parts = ", ".join(sorted({name.partition(tree.SEPARATOR)[0] for name in shapes}))
        raise _mixed(f"its clients start from more than what they change ({parts})", beta)


def _mixed(why: str, beta: float) -> UserError:
    other = ", or algorithm.beta = 1 where that gives a method without an anchor"
    return UserError(
        f"async_buffer.size would mix updates of several rounds, but {why}: set "
        "async_buffer.size = 0" + (other if beta != 1 else "")
    )
