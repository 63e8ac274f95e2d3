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


def correct(high: Floats, rating: Floats) -> NDArray[np.bool_]:
    """Whether the more likely action is right [n]."""
    return np.asarray((high > 0.5) == (rating >= HIGH))


def correct_count(high: Floats, rating: Floats) -> int:
    """States whose more likely action is right."""
    return int(correct(high, rating).sum())


def majority_correct(known: Floats, rating: Floats) -> int:
    """States that the more frequent class of the `known` ratings gets right."""
    often = np.full(rating.shape, float((known >= HIGH).mean() > 0.5))
    return correct_count(often, rating)


def spearman(score: Floats, rating: Floats) -> float:
    """Rank correlation, ties sharing their mean rank; NaN where one side is constant."""
    from scipy.stats import spearmanr  # takes a while to load

    constant = np.ptp(score) == 0 or np.ptp(rating) == 0
    return float("nan") if constant else float(spearmanr(score, rating).statistic)


def divergence(own: Floats, common: Floats) -> float:
    """P_k: the mean over states of KL(π_k(·|s) ‖ π(·|s)) (definition 5.2)."""
    tiny = 1e-12
    p = np.clip(np.asarray(own, np.float64), tiny, 1 - tiny)
    q = np.clip(np.asarray(common, np.float64), tiny, 1 - tiny)
    return float((p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))).mean())


def expected_intrinsic(high: Floats, appeal: Floats) -> float:
    """J⁰_k: the policy's expected intrinsic reward, "high" paid the appeal, "not high" minus it."""
    return float((np.asarray(appeal, np.float64) * (2 * high - 1)).mean())


class Judged(NamedTuple):
    """One user's held-out states, and a policy there."""

    held: States
    high: Floats


class PersonalRow(NamedTuple):
    """One user under its client's own policy: on held-out states, and how far that is from θ_t."""

    held: States
    high: Floats  # the policy there
    common: Floats  # and θ_t
    divergence: float  # P_k over all movies that the user rated


def mean_personal(rows: Sequence[PersonalRow]) -> Metrics:
    """A client's report on its own policy, over its users; of those with one rating none is held
    out."""
    found = {"personal/divergence": float(np.mean([row.divergence for row in rows]))}
    rows = [row for row in rows if len(row.high)]
    if not rows:
        return found | {"personal/held_out": 0.0}
    right = sum(correct_count(row.high, row.held.rating) for row in rows)
    count = sum(len(row.high) for row in rows)
    ranks = [spearman(row.high, row.held.rating) for row in rows]
    known = [rank for rank in ranks if np.isfinite(rank)]
    returns = [expected_intrinsic(row.high, row.held.appeal) for row in rows]
    return {
        "personal/accuracy": right / count,
        "personal/correct": float(right),  # the mean over clients, by that of held_out, is the
        "personal/held_out": float(count),  # accuracy weighted by examples
        "personal/return": float(np.mean(returns)),
        **found,
        "personal/divergence_held": float(
            np.mean([divergence(row.high, row.common) for row in rows])
        ),
    } | ({"personal/spearman": float(np.mean(known))} if known else {})


def mean_held(rows: Sequence[PersonalRow]) -> Metrics:
    """A client's report on the network that it was sent."""
    rated = [Judged(row.held, row.common) for row in rows if len(row.common)]
    count = float(sum(len(row.high) for row in rated))
    return {"held/accuracy": accuracy(rated), "held/ratings": count} if rated else {}


def accuracy(rows: Sequence[Judged]) -> float:
    """Over all states of all these users; NaN where there are none."""
    count = sum(len(row.high) for row in rows)
    right = sum(correct_count(row.high, row.held.rating) for row in rows)
    return right / count if count else float("nan")


def mean_public(rows: Sequence[Judged]) -> Metrics:
    """Over users whom nobody trains on, as `mean_metrics` has it; `eval/majority` is of their
    ratings' more frequent class, which is the same for all of them."""
    rating = np.concatenate([row.held.rating for row in rows])
    weights = [len(row.high) for row in rows]
    ranks = [spearman(row.high, row.held.rating) for row in rows]
    returns = [expected_intrinsic(row.high, row.held.appeal) for row in rows]
    clear = np.isfinite(ranks)
    means = {
        "eval/accuracy": accuracy(rows),
        "eval/majority": majority_correct(rating, rating) / len(rating),
        "eval/return": float(np.mean(returns)),
    }
    if clear.any():
        means["eval/spearman"] = float(
            np.average(np.array(ranks)[clear], weights=np.array(weights)[clear])
        )
    return means


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
