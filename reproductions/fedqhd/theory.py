"""Theorem 1, Lemma 1 and Theorem 2, measured: an identity and two bounds, for random functions.

They speak of any Q* in the clients' common space, so that none has to be learned: Q* is a random
function of many random Fourier features. Per draw (encoders of different D, anchors, states, Q*):

    residual   Theorem 1: how much of what was compiled changes if the teacher's part outside a
               client's anchor features is taken away first, as a share of its largest value
    lemma      Lemma 1: max |Q̂_i − mean of the Q̂_j| / h̄_i, at most 1
    theorem    Theorem 2 as printed: max |Δ_i| / bound, at most 1
    repaired   the same with what its proof passes over: readouts that no anchor sees

each the largest over clients. In half of the draws clients are *aligned*: one encoder for all and
a Q* of its functions, as in Corollary 1. There h̄ is 0, and whatever the bound forgets shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product

import numpy as np

from fedrl.algorithms.qhd import encoders as rff
from fedrl.algorithms.qhd.federation_gap import federation_gap
from fedrl.algorithms.qhd.ridge import Compiler, residual
from fedrl.core import seeding
from fedrl.core.types import Json
from fedrl.runs.grid import short_hash
from reproductions.records import Store, rounded
from reproductions.runner import Task, record_values

PART = "anchors"
"""Whose command measures it: Figure 3 is about anchors, too."""
ANCHORS, RIDGES = (64, 192), (1e-3, 1e-9)
SIZES = (32, 48, 64, 96)
"""D of the clients; held-out states outnumber the widest by far."""
ROUNDING = 1e-9
DIMENSION, BANDWIDTH, ACTIONS, WIDE, HELD_OUT = 4, 0.3, 2, 512, 600


@dataclass(frozen=True)
class Draw:
    number: int
    anchors: int
    ridge: float
    aligned: bool

    @property
    def name(self) -> str:
        kind = "aligned" if self.aligned else "own"
        return f"theorems, {kind}, m {self.anchors}, ridge {self.ridge:g}, draw {self.number}"

    @property
    def key(self) -> tuple[str, str, str]:
        constants = [SIZES, DIMENSION, BANDWIDTH, ACTIONS, WIDE, HELD_OUT]
        return PART, self.name, short_hash([asdict(self), constants])


def draws(count: int) -> Iterator[Draw]:
    """Fewer anchors than the widest client has features, and more than any has."""
    for number in range(count):
        for anchors, ridge, aligned in product(ANCHORS, RIDGES, (False, True)):
            yield Draw(number, anchors, ridge, aligned)


def tasks(count: int, store: Store, worth: float) -> list[Task]:
    return [
        Task(*one.key, partial(record_values, partial(measure, one), *one.key, store), worth=worth)
        for one in draws(count)
    ]


def measure(one: Draw) -> list[Json]:
    seed = seeding.derive(one.number, "theorems")
    rng = np.random.default_rng(seed)
    states = rng.uniform(-1.0, 1.0, (one.anchors + HELD_OUT, DIMENSION))
    anchors = states[: one.anchors]
    widest = [(0, SIZES[-1])] * len(SIZES)
    clients = [
        rff.draw(DIMENSION, features, BANDWIDTH, seeding.derive(seed, f"client {at}"))
        for at, features in (widest if one.aligned else enumerate(SIZES))
    ]
    truth = rff.draw(DIMENSION, WIDE, BANDWIDTH, seeding.derive(seed, "truth"))
    truth = clients[0] if one.aligned else truth
    reference = rff.values(truth, rng.standard_normal((truth.features, ACTIONS)), states)
    gaps = federation_gap(clients, anchors, states[one.anchors :], reference, one.ridge)
    oracles = [fitted(encoder, states, reference) for encoder in clients]
    mean = np.mean(oracles, axis=0)
    apart = [float(np.abs(own - mean).max()) for own in oracles]
    found = {
        "residual": max(left_over(encoder, anchors, mean[: one.anchors], one.ridge)
                        for encoder in clients),
        "lemma": max(share(far, gap.mismatch) for far, gap in zip(apart, gaps, strict=True)),
        "theorem": max(share(gap.measured, gap.bound) for gap in gaps),
        "repaired": max(share(gap.measured, gap.repaired) for gap in gaps),
        "unseen": max(gap.unseen for gap in gaps),
    }  # fmt: skip
    return [rounded({"anchors": one.anchors, "ridge": one.ridge} | found)]


def share(measured: float, bound: float) -> float:
    """Of the bound; with a bound of 0, what is more than rounding is out of it."""
    return measured / max(bound, ROUNDING)


def fitted(encoder: rff.Encoder, states: rff.Array, reference: rff.Array) -> rff.Array:
    """Q̂_i on all states: the best fit of Q* in the client's features."""
    rows = rff.real_design(rff.design(encoder, states))
    return rows @ np.linalg.lstsq(rows, reference, rcond=None)[0]


def left_over(encoder: rff.Encoder, anchors: rff.Array, teacher: rff.Array, ridge: float) -> float:
    rows = rff.design(encoder, anchors)
    compiler = Compiler(rows, ridge)
    whole = compiler.compile(teacher)
    without = compiler.compile(teacher - residual(rows, teacher))
    return float(np.abs(whole - without).max() / np.abs(whole).max())
