"""What a client makes of the texts of a model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedrl.algorithms.fedrlhf.text.reward import Floats, TextReward
from fedrl.core.types import Metrics

if TYPE_CHECKING:
    from fedrl.algorithms.fedrlhf.text.trainer import Completions

SHARES = (
    "train/reward", "train/sentiment", "train/intrinsic", "train/repeated", "train/ratio_far",
    "personal/reward", "personal/sentiment", "personal/intrinsic", "personal/repeated",
    "held/reward", "held/sentiment", "held/intrinsic", "held/repeated",
)  # fmt: skip
LOSSES = (
    "train/loss", "train/policy_loss", "train/value_loss", "train/kl_loss",
    "personal/loss", "personal/value_loss", "personal/kl", "held/loss", "held/value_loss",
    "held/kl",
)  # fmt: skip
REPORTS = frozenset(
    {
        *SHARES, *LOSSES, "train/kl", "train/entropy", "train/gradient_norm", "train/tokens",
        "train/answers", "personal/divergence", "env/samples", "env/tokens",
    }
)  # fmt: skip
"""All that a client tells of a round."""

Losses = Callable[["Completions", Floats], Metrics]
"""Of texts and what they are paid."""


def text_metrics(
    reward: TextReward, completions: Completions, losses: Losses | None = None
) -> Metrics:
    """Means over these texts."""
    paid = reward.rewards(completions.texts, completions.likelihood)
    told = {} if losses is None else losses(completions, paid.reward)
    return paid.means() | {"repeated": completions.repeated} | told


def averaged(rows: Collection[Mapping[str, float]], prefix: str) -> Metrics:
    """Means over clients, of each number over those that have it; `prefix` before their names."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {
        prefix + name: float(np.mean([row[name] for row in rows if name in row])) for name in names
    }


def judged(reward: TextReward, completions: Completions, each: int) -> Floats:
    """Of every prompt that was written on `each` times, one after all others, the mean reward."""
    paid = reward.rewards(completions.texts, completions.likelihood)
    return np.asarray(paid.reward.reshape(each, -1).mean(0))
