"""Who trained a model, for its card: counted from what the run logged of every client and round.

A card that repeated the recipe's number of clients would be signed and false where some of them
refused, or were away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from fedrl.config.schema import Config
from fedrl.core.types import Json
from fedrl.runs import read
from fedrl.runs.private_run import secret_cohorts

MOST_NAMED = 10
"""Clients that are named by their numbers."""


def whose(path: Path, config: Config, round: int) -> tuple[str, str]:
    """How many clients trained the model of this round, in a few words and in a line."""
    clients = config.federation.clients
    invited = _count(clients)
    if config.federation.kind != "federated":
        return invited, invited
    invited_line = f"{clients} invited, {config.federation.clients_per_round} in a round"
    sampled = config.federation.clients_per_round < clients
    if sampled and secret_cohorts(config):
        return invited, f"{invited_line}; who was in which is the secret that ε counts on"
    answers = counted(read.client_records(path), round)
    rounds = {number for number, _ in answers}
    if not rounds:
        return f"{invited} (none has trained yet)", f"{invited_line}; none has trained yet"
    trained = [client for (_, client), good in answers.items() if good]
    times = {client: trained.count(client) for client in range(clients)}
    active = sum(map(bool, times.values()))
    short = invited if active == clients else f"{active} of {invited} that were invited"
    if sampled:
        missing = len(answers) - len(trained)
        line = f"{active} trained; {missing} of {len(answers)} answers did not come, or not count"
        return short, f"{invited_line}; {line}"
    groups = (
        ("in every round", [c for c, n in times.items() if n >= len(rounds)]),
        ("in some rounds", [c for c, n in times.items() if 0 < n < len(rounds)]),
        ("in none", [c for c, n in times.items() if not n]),
    )
    named = active < clients or len(groups[0][1]) < clients
    told = [f"{len(who)} trained {when}{_named(who) * named}" for when, who in groups if who]
    return short, f"{invited_line}; {', '.join(told)}"


def counted(records: Iterable[Json], last: int) -> dict[tuple[int, int], bool]:
    """Whether a client's answer counted in a round, by the attempt that the round came about in."""
    attempts: dict[int, int] = {}
    found: dict[tuple[int, int], bool] = {}
    for record in records:
        number, attempt = int(record["round"]), int(record.get("attempt", 1))
        if number > last:
            continue
        if attempt > attempts.get(number, 0):
            found = {key: good for key, good in found.items() if key[0] != number}
            attempts[number] = attempt
        key = number, int(record["client"])
        found[key] = found.get(key, False) or record.get("status") == "ok"
    return found


def _named(clients: Sequence[int]) -> str:
    if len(clients) > MOST_NAMED:
        return ""
    one = "client" if len(clients) == 1 else "clients"
    return f" ({one} {', '.join(map(str, clients))})"


def _count(clients: int) -> str:
    return f"{clients} client{'s' * (clients != 1)}"
