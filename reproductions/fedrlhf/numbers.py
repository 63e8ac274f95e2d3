"""The paper's own numbers, and how ours are shown beside them."""

from __future__ import annotations

import numpy as np

from reproductions.fedrlhf.results import BySeed
from reproductions.markdown import number

FIRST, LAST = (62.86, 3.45), (77.71, 2.64)
"""Its global accuracy in percent after rounds 1 and 5, K = 10, and the deviation over seeds."""
CLIENTS = (55.54, 75.28)
"""Its clients' accuracies in the last round, K = 10, from the worst to the best, in percent."""
RANKS = (0.0613, 0.6126)
"""The same for Spearman's correlation."""
REWARD = (0.52, 0.68)
"""Its global mean reward on IMDb, before and after five rounds."""
RISE = round(REWARD[1] - REWARD[0], 2)
SAMPLES = 1500
"""From where on FedRLHF lies above centralized training."""


def percent(values: BySeed) -> str:
    return number(100 * np.array(list(values.values())), 1) if values else "not measured"


def plain(values: BySeed, digits: int = 3) -> str:
    return number(np.array(list(values.values())), digits) if values else "not measured"


def scaled(values: BySeed, factor: float) -> dict[int, float]:
    return {seed: factor * one for seed, one in values.items()}
