"""Clients that fail on purpose: a rehearsal of what a run does when real ones do.

`[faults] clients = [2], kind = "hang"` makes client 2 hang in every round; `rate` makes it happen
in a share of the rounds, the same share whatever the engine.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedrl.clients.wrapped_algorithm import Wrapped
from fedrl.core import tree
from fedrl.core.types import Algorithm, Job, Result, Shareable, Tensors, UserError

Kind = Literal["raise", "hang", "exit", "nan", "inf", "shape", "dtype"]


@dataclass(frozen=True)
class Settings:
    """Which clients fail, how, and in which share of their rounds."""

    # Numbers of the clients that fail; none by default.
    clients: tuple[int, ...] = ()
    # raise: an exception. hang: no answer. exit: the process dies. nan, inf, shape, dtype: a
    # malformed update.
    kind: Kind = "raise"
    # Share of its rounds in which such a client fails.
    rate: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise UserError(f"faults.rate is {self.rate}; it is a share from 0 to 1")


class Faulty(Wrapped):
    """An algorithm some of whose clients fail; everything else is the algorithm's own."""

    def __init__(self, algorithm: Algorithm, settings: Settings) -> None:
        super().__init__(algorithm)
        self.settings = settings

    def local(self, job: Job) -> Result:
        s = self.settings
        if job.client not in s.clients or np.random.default_rng(job.seed).uniform() >= s.rate:
            return self.algorithm.local(job)
        if s.kind == "raise":
            raise RuntimeError(Shareable("a fault on purpose (faults.kind = raise)"))
        if s.kind == "hang":
            time.sleep(3600)
        if s.kind == "exit":
            raise SystemExit(3)
        return replace(result := self.algorithm.local(job), update=spoil(result.update, s.kind))


def spoil(update: Tensors, kind: Kind) -> Tensors:
    """The update with its first tensor made unusable."""
    flat = tree.flatten(update)
    name, leaf = next(iter(flat.items()))
    if kind in ("nan", "inf"):
        leaf = np.array(leaf)
        leaf.flat[0] = np.nan if kind == "nan" else np.inf
    elif kind == "shape":
        leaf = np.zeros((*leaf.shape, 2), leaf.dtype)
    elif kind == "dtype":
        leaf = leaf.astype(np.float16)
    return tree.unflatten(flat | {name: leaf})
