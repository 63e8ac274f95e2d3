"""Updates, and lies among them, for rules of aggregation."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import strategies as st

from fedrl.aggregation import robust, rules
from fedrl.aggregation.settings import Settings
from fedrl.core import tree

SIZE = 11


NAMES = [n for n in rules.AGGREGATORS.builtin if rules.find(n).Settings is Settings]
"""Rules that share the keys of `[aggregate]`, which `rules.get` takes."""
PER_ATTACKER = {"krum": 2, "multi-krum": 2, "bulyan": 4}


def stream(vectors):
    """Vectors of SIZE numbers as nested updates, with weights that no robust rule may read."""
    return [
        ({"outer": {"a": v[:6].reshape(2, 3)}, "b": v[6:].astype(v.dtype)}, 1.0 + i)
        for i, v in enumerate(np.asarray(vectors))
    ]


def vector(update):
    return np.concatenate([np.ravel(leaf) for _, leaf in tree.leaves(update)])


def drawn(seed, count):
    return np.random.default_rng(seed).standard_normal((count, SIZE))


def in_order(vectors):
    """As `vector` orders them: leaves by name, "b" before "outer/a"."""
    return np.hstack([vectors[:, 6:], vectors[:, :6]])


RULES = {
    "median": robust.median,
    "trimmed": partial(robust.trimmed, share=0.2),
    "krum": partial(robust.krum, byzantine=1),
    "multi-krum": partial(robust.multi_krum, byzantine=1),
    "bulyan": partial(robust.bulyan, byzantine=1),
    "norm-bound": robust.norm_bound,
}


LIES = st.sampled_from(["huge", "near", "one number", "together", "too large to subtract"])


def lies(kind, honest, count, rng):
    """What `count` liars send who know everything."""
    centre, spread = honest.mean(axis=0), honest.std(axis=0)
    if kind == "huge":
        return 1e30 * rng.standard_normal((count, SIZE))
    if kind == "near":  # as far as one may hope not to be found out
        return centre + 1.5 * spread * rng.choice([-1, 1], SIZE) * np.ones((count, 1))
    if kind == "one number":
        wrong = np.repeat(centre[None], count, axis=0)
        wrong[:, rng.integers(SIZE)] += 1e3
        return wrong
    if kind == "together":
        return np.repeat(centre[None] + 3 * np.abs(honest).max(), count, axis=0)
    return np.full((count, SIZE), 1.7e308) * rng.choice([-1, 1], (count, 1))
