"""Two attacks on a trained model as functions of numbers: membership inference and exposure.

**Membership.** Somebody who knows a record asks whether it was trained on. Carlini et al.
("Membership inference attacks from first principles", 2022) train reference models on random halves
of all records and compare, record by record, the likelihood of the target's statistic among
references that had the record and among those that had not. Here every run of a cell is a target
once, and all others are its references.

**Exposure.** Carlini et al. ("The secret sharer", 2019) put a secret into the training data and
rank it, by what the model says, among all secrets that it could have been:

    exposure = log2 |R| − log2 rank      in bits; of a secret that is first, log2 |R|

Of a rank that is as likely as any other it is about log2 e = 1.44 on average, and not 0.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

SMALLEST = 1e-6
"""Deviation of a statistic that does not vary, as a share of the deviation of all: the references
may agree to the bit, and the target all the same be off by a rounding."""


def auc(members: Floats, others: Floats) -> float:
    """The chance that a member's score is above that of somebody else; a tie counts half."""
    ranks = stats.rankdata(np.concatenate([members, others]))
    count = len(members)
    above = ranks[:count].sum() - count * (count + 1) / 2
    return float(above / (count * len(others)))


def hits(members: Floats, others: Floats, alarms: float) -> float:
    """The share of members that is found where at most a share `alarms` of the others is taken for
    one (TPR at an FPR)."""
    allowed = math.floor(alarms * len(others) + 1e-9)
    threshold = np.sort(others)[::-1][allowed] if allowed < len(others) else -np.inf
    return float((members > threshold).mean())


def likelihood_ratios(statistics: Floats, member: Bools) -> Floats:
    """log p(statistic | member) − log p(statistic | not) [runs, records], each run's by the others.

    Both are normal, with means of the record's own and one deviation for all records each, because
    few references do not tell a record's own (the paper's advice). The means of n references are
    themselves off: that is the 1/n in the variance. Of a record whose references all had it, or
    none, the other mean is as far away as on average.
    """
    return np.array([_ratios(statistics, member, target) for target in range(len(statistics))])


def _ratios(statistics: Floats, member: Bools, target: int) -> Floats:
    others = np.arange(len(statistics)) != target
    known, having = statistics[others], member[others]
    (n_in, mean_in, squares_in), (n_out, mean_out, squares_out) = (
        _moments(known, group) for group in (having, ~having)
    )
    both = (n_in > 0) & (n_out > 0)
    shift = float((mean_in - mean_out)[both].mean()) if both.any() else 0.0
    mean_in = np.where(n_in > 0, mean_in, mean_out + shift)
    mean_out = np.where(n_out > 0, mean_out, mean_in - shift)
    free_in, free_out = (int(np.maximum(n - 1, 0).sum()) for n in (n_in, n_out))
    n_in, n_out = np.where(n_in > 0, n_in, n_out), np.where(n_out > 0, n_out, n_in)
    least = SMALLEST * (float(known.std()) or 1.0)
    wide_in = math.sqrt((squares_in if free_in else squares_out) / max(free_in or free_out, 1))
    wide_out = math.sqrt((squares_out if free_out else squares_in) / max(free_out or free_in, 1))
    return _log_normal(statistics[target], mean_in, max(wide_in, least), n_in) - _log_normal(
        statistics[target], mean_out, max(wide_out, least), n_out
    )


def _moments(known: Floats, group: Bools) -> tuple[NDArray[np.int64], Floats, float]:
    """By record how many references are of the group and their mean; all squares around it."""
    count = group.sum(0)
    mean = np.where(group, known, 0.0).sum(0) / np.maximum(count, 1)
    return count, mean, float(np.where(group, (known - mean) ** 2, 0.0).sum())


def _log_normal(value: Floats, mean: Floats, spread: float, count: NDArray[np.int64]) -> Floats:
    wide = spread * np.sqrt(1 + 1 / np.maximum(count, 1))
    return np.asarray(stats.norm.logpdf(value, mean, wide))


def exposure(scores: Floats, secret: int) -> float:
    """Bits, of the secret at this place among all that it could be, the most likely first.

    Among those with the same score its place is random, and this is the mean over it.
    """
    above = int((scores > scores[secret]).sum())
    equal = int((scores == scores[secret]).sum())
    ranks = np.arange(above + 1, above + equal + 1)
    return float(math.log2(len(scores)) - np.log2(ranks).mean())


def chance_exposure(alternatives: int) -> float:
    """Mean exposure of a secret that nothing is known about."""
    return exposure(np.zeros(alternatives), 0)


def gaussian_hits(alarms: float, noise: float, exchanges: int) -> float:
    """The most members that any attack finds at this rate of false alarms, where noise of z clips
    was added in each of so many exchanges and all that a client holds is replaced: the trade-off of
    two normal distributions 2√T/z deviations apart (Dong, Roth and Su 2022)."""
    if not noise:
        return 1.0
    apart = 2 * math.sqrt(exchanges) / noise
    return float(stats.norm.cdf(stats.norm.ppf(alarms) + apart))
