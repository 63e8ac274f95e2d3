"""How well a policy fits one person: accuracy, rank correlation, and how far it is its own.

A policy is π(high | s) [n] on states of one user; everything here is about such vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrl.algorithms.fedrlhf.ratings.client_data import States
from fedrl.core.types import Metrics
from fedrl.envs.ratings import HIGH

Floats = NDArray[np.floating]
EDGE = (HIGH - 0.5 + HIGH) / 2
"""Stars between the last rating that is not high and the first that is."""
LOWEST, HIGHEST = 0.5, 5.0


def stars(high: Floats) -> Floats:
    """π(high) in [0, 1] as stars: 0 is half a star, 1 is five, and 1/2 lies on the edge of high.

    Linear between these, so that "high" is chosen exactly where more than the edge is shown. A
    score in (0, 1) as it is, compared with ratings from 0.5 to 5, would always be too low.
    """
    below = LOWEST + (EDGE - LOWEST) * 2 * np.minimum(high, 0.5)
    return below + (HIGHEST - EDGE) * 2 * np.maximum(high - 0.5, 0)


def correct_count(high: Floats, rating: Floats) -> int:
    """States whose more likely action is right."""
    return int(((high > 0.5) == (rating >= HIGH)).sum())


def majority_correct(known: Floats, rating: Floats) -> int:
    """States that the more frequent class of the `known` ratings gets right."""
    often = np.full(rating.shape, float((known >= HIGH).mean() > 0.5))
    return correct_count(often, rating)


def spearman(score: Floats, rating: Floats) -> float:
    """Rank correlation, ties sharing their mean rank; NaN where one side is constant."""
    a, b = _ranks(score), _ranks(rating)
    a, b = a - a.mean(), b - b.mean()
    size = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / size) if size > 0 else float("nan")


def _ranks(values: Floats) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def divergence(own: Floats, common: Floats) -> float:
    """P_k: the mean over states of KL(π_k(·|s) ‖ π(·|s)) (definition 5.2)."""
    tiny = 1e-12
    p = np.clip(np.asarray(own, np.float64), tiny, 1 - tiny)
    q = np.clip(np.asarray(common, np.float64), tiny, 1 - tiny)
    return float((p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))).mean())


def expected_intrinsic(high: Floats, appeal: Floats) -> float:
    """J⁰_k: the policy's expected intrinsic reward, "high" paid the appeal, "not high" minus it."""
    return float((np.asarray(appeal, np.float64) * (2 * high - 1)).mean())


class PersonalRow(NamedTuple):
    """One user under its client's own policy: on held-out states, and how far that is from θ_t."""

    held: States
    high: Floats  # the policy there
    divergence: float  # P_k over all movies that the user rated
    divergence_held: float


def mean_personal(rows: Sequence[PersonalRow]) -> Metrics:
    """A client's report on its own policy, over its users."""
    correct = sum(correct_count(row.high, row.held.rating) for row in rows)
    count = sum(len(row.high) for row in rows)
    ranks = [spearman(row.high, row.held.rating) for row in rows]
    known = [rank for rank in ranks if np.isfinite(rank)]
    returns = [expected_intrinsic(row.high, row.held.appeal) for row in rows]
    return {
        "personal/accuracy": correct / count,
        "personal/correct": float(correct),  # the mean over clients, by that of held_out, is the
        "personal/held_out": float(count),  # accuracy weighted by examples
        "personal/return": float(np.mean(returns)),
        "personal/divergence": float(np.mean([row.divergence for row in rows])),
        "personal/divergence_held": float(np.mean([row.divergence_held for row in rows])),
    } | ({"personal/spearman": float(np.mean(known))} if known else {})


def user_metrics(held: States, high: Floats, train: States, train_high: Floats) -> Metrics:
    """One user's numbers: of a policy on held-out states, and beside it on those trained on."""
    return {
        "held_out": float(len(high)),
        "correct": float(correct_count(high, held.rating)),
        "majority": float(majority_correct(train.rating, held.rating)),
        "spearman": spearman(high, held.rating),
        "return": expected_intrinsic(high, held.appeal),
        "trained": float(len(train_high)),
        "train_correct": float(correct_count(train_high, train.rating)),
    }


def mean_metrics(rows: Sequence[Metrics]) -> Metrics:
    """Means over several users.

    Accuracies and the rank correlation are weighted by examples; `eval/return` is J_g, the mean
    over clients of the expected intrinsic reward (definition 5.3). `eval/majority` is the accuracy
    of each client's more frequent class among the ratings that it trains on. `eval/train_accuracy`
    is on these, which is no evaluation: it shows what a protocol that forgets to hold ratings out
    would report.
    """
    sums = {name: sum(row[name] for row in rows) for name in rows[0]}
    means = {
        "eval/accuracy": sums["correct"] / sums["held_out"],
        "eval/majority": sums["majority"] / sums["held_out"],
        "eval/train_accuracy": sums["train_correct"] / sums["trained"],
        "eval/return": sums["return"] / len(rows),
    }
    clear = [row for row in rows if np.isfinite(row["spearman"])]
    if clear:
        ranks, weights = zip(*[(row["spearman"], row["held_out"]) for row in clear])
        means["eval/spearman"] = float(np.average(ranks, weights=weights))
    return means
