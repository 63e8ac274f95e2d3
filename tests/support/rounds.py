"""Small federations in memory: play rounds, keep what was logged, compare states."""

from __future__ import annotations

import numpy as np

from fedrl.aggregation import mean as aggregate
from fedrl.core import tree
from fedrl.engines.in_process import InProcess
from fedrl.federation import round_loop
from fedrl.federation.client_sampling import Settings
from fedrl.federation.round_loop import Round, Snapshot
from support.toy import Toy


class Memory:
    """A store that keeps everything in memory and can start from a snapshot."""

    def __init__(self, start: Snapshot | None = None) -> None:
        self.start = start
        self.rounds: list[Round] = []
        self.last: Snapshot | None = None

    def load(self):
        return self.start

    def log(self, done):
        self.rounds.append(done)

    def log_clients(self, records):
        self.failures = records

    def checkpoint(self, snapshot):
        self.last = snapshot


def play(algorithm, rounds=4, engine=None, store=None, mean=aggregate.mean, more=None,
         warn=lambda line: None, **fields):  # fmt: skip
    store = store or Memory()
    round_loop.run(
        Settings(**({"clients": 6} | fields)),
        algorithm,
        engine or InProcess(algorithm),
        mean,
        store,
        seed=3,
        rounds=rounds,
        warn=warn,
        **(more or {}),
    )
    return store


def same(a, b):
    assert tree.flatten(a).keys() == tree.flatten(b).keys()
    for (_, x), (_, y) in zip(tree.leaves(a), tree.leaves(b)):
        np.testing.assert_array_equal(x, y)


SECRET = "the mug is in drawer 4"


class Talkative(Toy):
    """A client whose error quotes its task."""

    error: Exception = KeyError(SECRET)

    def local(self, job):
        if job.client == 2:
            raise self.error
        return super().local(job)
