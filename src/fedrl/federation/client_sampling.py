"""Who takes part: which clients share a server's state, whose data each holds, and the cohorts.

Baselines are other federations of the same algorithm. Federated: one group of all. Independent: a
group per client. Local: one client alone. Centralized: one client that holds everybody's data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedrl.core import seeding
from fedrl.core.limits import at_least_one
from fedrl.core.types import UserError


@dataclass(frozen=True)
class Settings:
    """Who takes part, and what a round does about clients that fail."""

    # federated: all share one model. centralized: one client with everybody's data, in a text world
    # with all training tasks (it does one client's steps per round: raise algorithm.trajectories
    # for the samples of all of them).
    # local: one client alone. independent: every client alone.
    kind: Literal["federated", "centralized", "local", "independent"] = "federated"
    # N: number of clients.
    clients: int = 5
    # M: clients per round, drawn without replacement; 0 takes all of them.
    cohort: int = 0
    # The client that learns alone; only read when kind is "local".
    client: int = 0
    # Smallest share of a round's clients whose updates must be usable.
    quorum: float = 0.5
    # How often a round below the quorum is tried again with a new cohort before the run stops.
    retries: int = 2
    # Seconds that a client may take; 0 is no limit. Needs engine = "workers" or "flower".
    deadline: float = 0.0

    def __post_init__(self) -> None:
        at_least_one(self, "federation.", "clients")
        if not 0 <= self.cohort <= self.clients:
            raise UserError(
                f"federation.cohort is {self.cohort}; it must lie between 0 (all) and "
                f"federation.clients = {self.clients}"
            )
        if not 0 <= self.client < self.clients:
            raise UserError(
                f"federation.client is {self.client}; clients are numbered 0 to {self.clients - 1}"
            )
        if self.cohort and self.kind != "federated":
            raise UserError(
                f"federation.cohort is {self.cohort}, but nothing is sampled when federation.kind "
                f'is "{self.kind}": set it to 0'
            )
        if not 0 <= self.quorum <= 1:
            raise UserError(f"federation.quorum is {self.quorum}; it is a share from 0 to 1")
        if self.retries < 0 or self.deadline < 0:
            raise UserError("federation.retries and federation.deadline must not be negative")

    @property
    def clients_per_round(self) -> int:
        """Clients per round that share one server state."""
        return (self.cohort or self.clients) if self.kind == "federated" else 1


def groups(settings: Settings) -> list[list[int]]:
    """Clients that share one server state."""
    if settings.kind == "independent":
        return [[client] for client in range(settings.clients)]
    if settings.kind == "local":
        return [[settings.client]]
    if settings.kind == "centralized":
        return [[0]]
    return [list(range(settings.clients))]


def client_env_ids(settings: Settings) -> list[list[int]]:
    """Whose data each client holds: its own, or everybody's for the one centralized client."""
    if settings.kind == "centralized":
        return [list(range(settings.clients))]
    return [[client] for client in range(settings.clients)]


def draw_cohort(clients: list[int], size: int, seed: int, number: int, attempt: int) -> list[int]:
    """Clients of this round, in ascending order: sums then do not depend on the draw's order."""
    if not size or size >= len(clients):
        return clients
    draw = seeding.generator(seed, f"cohort/{attempt}", number)
    return sorted(int(c) for c in draw.choice(clients, size, replace=False))


def first_cohort(settings: Settings, seed: int, number: int) -> list[int]:
    """Clients of a federated round before any of it is tried again."""
    return draw_cohort(list(range(settings.clients)), settings.cohort, seed, number, 0)
