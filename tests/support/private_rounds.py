"""Private federations in memory."""

from __future__ import annotations

from functools import partial

import pytest

from fedrl import privacy
from fedrl.aggregation import mean as aggregate
from fedrl.clients.local_noise import Private
from fedrl.engines.in_process import InProcess
from fedrl.federation import round_loop
from fedrl.federation.client_sampling import Settings, first_cohort
from fedrl.privacy.mechanism import Mechanism
from support.rounds import Memory
from support.toy import Toy

pytest.importorskip("dp_accounting", reason="ε needs the extra privacy")


SEED = 3


def play(
    algorithm=None, rounds=4, store=None, rule=aggregate.mean, ledger=None, said=None,
    client_side=True, fed=None, **fields,
):  # fmt: skip
    algorithm, store = algorithm or Toy(), store or Memory()
    settings, fed = (
        privacy.Settings(**fields),
        Settings(**({"clients": 6} | (fed or {}))),
    )
    guarded = Private(algorithm, settings)
    mechanism = Mechanism(
        settings, guarded, SEED, fed.clients, fed.clients_per_round,
        partial(first_cohort, fed, SEED), ledger,
    )  # fmt: skip
    running = guarded if client_side else algorithm  # or clients that ignore the bound
    round_loop.run(
        fed, running, InProcess(running), rule, store, seed=SEED, rounds=rounds,
        warn=(said if said is not None else []).append, privacy=mechanism,
    )  # fmt: skip
    return store


def epsilons(store):
    return [done.metrics["privacy/epsilon"] for done in store.rounds]


def theta(store):
    return store.last.states[0]["theta"]["a"]
