"""CoveragePartition (FedAgent, Algorithm 3): items spread over clients of unlike sizes.

    x_k ~ Beta(μξ, (1−μ)ξ)                   μ: where the mean size lies between lowest and highest
    u_k = lowest + x_k (highest − lowest)    scaled to sum T, rounded to whole sizes n_k
    every item goes to q_i ∈ {⌊T/N⌋, ⌈T/N⌉} distinct clients, drawn ∝ what each still needs

Where we differ:
- The mean in μ is T/K, the mean that is handed out; another one would be scaled away.
- Where scaling leaves the bounds, the scale is the one whose clipped sizes sum to T.
- Items come in random order. In the order of ids, which often begin with the category, large
  clients would get more of the last categories.
- A client that needs every item that is left gets it. The rest of the draw could otherwise strand
  it; with this rule no draw ever fails (see `place`).
"""

from __future__ import annotations

import numpy as np

from fedrl.core import seeding


def sizes(clients: int, total: int, lowest: int, highest: int, xi: float, seed: int) -> np.ndarray:
    """n_k [K]: whole sizes between the bounds that sum to `total`; K·lowest ≤ total ≤ K·highest."""
    mean = total / clients
    if not lowest < mean < highest:  # Beta's end points: every client has the same
        return np.full(clients, lowest if mean <= lowest else highest)
    mu = (mean - lowest) / (highest - lowest)
    share = np.array(
        [
            seeding.generator(seed, "partition size", client=client).beta(mu * xi, (1 - mu) * xi)
            for client in range(clients)
        ]
    )
    return round_to_sum(lowest + share * (highest - lowest), total, lowest, highest)


def round_to_sum(wanted: np.ndarray, total: int, lowest: int, highest: int) -> np.ndarray:
    """Sizes in proportion to `wanted` where the bounds allow, whole, with exactly this sum."""
    # A share of 0 cannot be scaled up; that small it never shows.
    wanted = np.maximum(wanted, 1e-9 * max(highest, 1))
    low, high = 0.0, max(highest, 1) / wanted.min()
    scale = total / wanted.sum()
    for _ in range(200):
        scaled = np.clip(scale * wanted, lowest, highest)
        if abs(scaled.sum() - total) <= 1e-9 * max(total, 1):
            break
        low, high = (scale, high) if scaled.sum() < total else (low, scale)
        scale = (low + high) / 2
    whole = np.floor(scaled + 1e-9).astype(np.int64)
    missing = total - int(whole.sum())
    by_remainder = np.argsort(whole - scaled, kind="stable")
    whole[by_remainder[:missing]] += 1
    return whole


def place(counts: np.ndarray, items: int, rng: np.random.Generator) -> list[np.ndarray]:
    """For every client the items (of 0 … items − 1) that it gets: `counts[k]` distinct ones.

    Every item lies in ⌊T/N⌋ or ⌈T/N⌉ clients, T = Σ counts. Why no draw fails: with R items left
    whose numbers of clients differ by at most one, what is left can be placed if and only if no
    client needs more than R items (Gale and Ryser). Clients that need exactly R are taken first;
    they are never more than the item has places, since together they need at most what is left.
    """
    total = int(counts.sum())
    fewest, more = divmod(total, items) if items else (0, 0)
    order = rng.permutation(items)
    places = np.full(items, fewest)
    places[rng.permutation(items)[:more]] += 1
    order, places = order[places > 0], places[places > 0]

    need = counts.astype(np.int64)
    ends = np.cumsum(need)
    placed = np.empty(total, dtype=np.int64)
    first = np.empty(len(counts), dtype=np.int64)
    for left, item, wide in zip(range(len(order), 0, -1), order, places.tolist(), strict=True):
        sure = np.flatnonzero(need == left)
        if sure.size:
            others = need.copy()
            others[sure] = 0
            chosen = np.concatenate([sure, draw(others, wide - sure.size, first, rng)])
        else:
            chosen = draw(need, wide, first, rng)
        placed[ends[chosen] - need[chosen]] = item
        need[chosen] -= 1
    return np.split(placed, ends[:-1])


def draw(
    weights: np.ndarray, count: int, first: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """`count` distinct indices, one after another with probability ∝ weight.

    Drawn with replacement, repeats dropped: the same law, and with `place`'s bound on the weights
    at most count · (1 + log count) draws on average. `first` is scratch of the weights' length.
    """
    if count == 0:
        return np.empty(0, dtype=np.int64)
    edges = np.cumsum(weights)
    drawn = np.empty(0, dtype=np.int64)
    while True:
        tries = rng.integers(edges[-1], size=count + count // 8 + 4)
        drawn = np.concatenate([drawn, np.searchsorted(edges, tries, side="right")])
        position = np.arange(len(drawn))
        first[drawn[::-1]] = position[::-1]  # the last one written is the first one drawn
        drawn = drawn[first[drawn] == position]
        if len(drawn) >= count:
            return drawn[:count]
