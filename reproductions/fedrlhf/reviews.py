"""FedRLHF on reviews: every client's rewards by round, and whether they follow its λ_k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedrl.runs.read import Run
from reproductions.fedrlhf.results import by_client, clients_of, curve
from reproductions.results import BySeed, Trained

REWARDS = {"intrinsic": "R0, fluency", "sentiment": "sentiment", "reward": "combined"}
NAMES = {
    "fedrlhf": "FedRLHF",
    "centralized": "centralized",
    "paper": "FedRLHF, the paper's step size",
    "centralized-paper": "centralized, the paper's step size",
    "loglikelihood": "FedRLHF, R0 of the log-likelihood",
    "gpt2": "FedRLHF, GPT-2's architecture",
}


def weights(one: Trained) -> list[float]:
    return [float(lam) for lam in one.cell.recipe["algorithm"]["lam"]]


def own(one: Trained, metric: str, client: int, number: int) -> BySeed:
    """By seed, what a client told of its own policy after its training in this round."""
    found = clients_of(one, f"personal/{metric}", number)
    return {seed: told[client] for seed, told in found.items() if client in told}


def samples(one: Trained, metric: str = "eval/reward") -> tuple[np.ndarray, np.ndarray]:
    """Texts written in training by round [points], and the metric, the global mean reward by
    default [seeds, points]."""
    rounds, values = curve(one, metric)
    first = max(one.runs.values(), key=lambda run: max(run.rounds), default=None)
    if first is None:
        return np.empty(0), np.empty((0, 0))
    return np.array([first.rounds[r].get("env/samples", 0.0) for r in rounds.tolist()]), values


def changes(one: Trained, metric: str) -> dict[int, list[float]]:
    """By seed, the change of every client's own reward, of seeds that have all of them.

    From the model that all began with, on that client's queries, to the client's own policy after
    the last round: clients' reviews and sentiment models differ, so that levels do, too.
    """
    clients, last = range(len(weights(one))), one.cell.rounds
    return known({seed: [changed(run, metric, client, last, 0) for client in clients]
                  for seed, run in one.runs.items()})  # fmt: skip


def trained_changes(one: Trained, metric: str) -> dict[int, list[float]]:
    """By seed, what a round of every client's own training does.

    In a round all clients begin with one model: what sets them apart is their own training, which
    the changes since round 0 mix with what the others have taught.
    """
    clients = range(len(weights(one)))
    return known({seed: [by_training(one, run, metric, client) for client in clients]
                  for seed, run in one.runs.items()})  # fmt: skip


def known(rows: Mapping[int, list[float]]) -> dict[int, list[float]]:
    return {seed: row for seed, row in rows.items() if np.isfinite(row).all()}


def by_training(one: Trained, run: Run, metric: str, client: int) -> float:
    """How a client's own training moves what its texts are worth to it, mean over rounds."""
    rounds = range(1, one.cell.rounds + 1)
    return float(np.mean([changed(run, metric, client, n, n - 1) for n in rounds]))


def changed(run: Run, metric: str, client: int, number: int, before: int) -> float:
    """From the global model after round `before` to the client's own policy in round `number`, on
    the client's queries; NaN where one of them is not known."""
    own_policy = by_client(run, f"personal/{metric}", number).get(client, np.nan)
    return float(own_policy - shared(run, metric, client, before))


def shared(run: Run, metric: str, client: int, number: int) -> float:
    """What the global model's texts are worth to a client after a round; NaN if not known."""
    return run.rounds.get(number, {}).get(f"eval/{metric}_client{client}", np.nan)


def ranked(one: Trained, values: Mapping[int, Sequence[float]]) -> np.ndarray:
    """Spearman's correlation with λ_k, of every seed that has a value for each client."""
    from fedrl.algorithms.fedrlhf.ratings.metrics import spearman

    whole = [np.array(row) for row in values.values() if np.isfinite(row).all()]
    return np.array([spearman(row, np.array(weights(one))) for row in whole])


def rounds_of(one: Trained, metric: str, client: int) -> np.ndarray:
    """[seeds, rounds + 1] of seeds that have all rounds; round 0 is the model that all began
    with."""
    rounds = range(1, one.cell.rounds + 1)
    rows = []
    for run in one.runs.values():
        told = [by_client(run, f"personal/{metric}", number) for number in rounds]
        if all(client in values for values in told):
            rows.append([shared(run, metric, client, 0), *(values[client] for values in told)])
    return np.array(rows).reshape(len(rows), one.cell.rounds + 1)
