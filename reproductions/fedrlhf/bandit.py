"""A bandit small enough to enumerate: Lemmas 4.1 and 4.2 exactly, Theorem 4.2 where it applies.

K clients, S states that come equally often, the actions "high" and "not high", which pay ±r_k(s)
with r_k = R0_k + λ H_k, and a number θ_s per state:

    J_k(θ) = mean over s of r_k(s) (2 p(θ_s) − 1)     a step: r_k(s) p'/p with chance p(θ_s), else
                                                      r_k(s) p'/(1 − p), in a random state s

`softmax` is p = σ(θ), the usual policy, of which no μ > 0 holds everywhere. `sine` is
p = (1 + sin θ)/2: between θ = 0 and θ = π it keeps the Polyak-Łojasiewicz condition with
μ = min r̄ / (2S), r̄ the clients' mean, which is above 0. So Theorem 4.2 can be tried as it is
stated: with as many clients and rounds as it asks for and as much feedback as it allows.

A client's τ steps have (2S)^τ outcomes, a round of all of them that to the power K: the lemmas'
expectations are sums over these. G and σ are the largest at any point that a client may step from.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedrl.algorithms.fedrlhf.ratings.bound import Constants
from fedrl.algorithms.fedrlhf.ratings.lemmas import (
    distance_bound,
    least_gain,
    repaired_gain,
    sample_complexity,
)

Floats = NDArray[np.float64]
Kind = Literal["softmax", "sine"]
BEND = {"softmax": 1 / (6 * 3**0.5), "sine": 0.5}
"""The largest |p''|."""
REPEATS = 100
"""Runs behind a mean gap."""
SAFE = 0.8
"""Of the feedback that Theorem 4.2 allows at λ = 0, so much is given."""
CROWD = 10**12
"""Clients that are as good as infinitely many."""
LOWER = 1.5
"""By so much μ is lowered at a time."""


@dataclass(frozen=True)
class Bandit:
    rewards: Floats  # r_k(s) [K, S]
    feedback: float = 0.0  # λ H_max
    kind: Kind = "softmax"
    bend: float = 0.0  # L, if a larger one is assumed than is needed

    def high(self, theta: Floats) -> Floats:
        """p."""
        if self.kind == "sine":
            return np.asarray((1 + np.sin(theta)) / 2)
        return np.asarray(0.5 * (1 + np.tanh(theta / 2)))

    def steep(self, theta: Floats) -> Floats:
        """p'."""
        if self.kind == "sine":
            return np.asarray(np.cos(theta) / 2)
        high = self.high(theta)
        return high * (1 - high)

    @property
    def smoothness(self) -> float:
        """L, of every J_k and everywhere."""
        largest = float(np.abs(self.rewards).max())
        return self.bend or 2 * BEND[self.kind] * largest / self.rewards.shape[1]

    def value(self, theta: Floats, rewards: Floats) -> Floats:
        """J of these rewards [S], at θ [..., S]."""
        return np.asarray((rewards * (2 * self.high(theta) - 1)).mean(-1))

    def gradient(self, theta: Floats, rewards: Floats) -> Floats:
        return 2 * rewards * self.steep(theta) / self.rewards.shape[1]

    def moment(self, theta: Floats, rewards: Floats) -> Floats:
        """E‖ĝ‖² of a step from θ [...]."""
        high, steep = self.high(theta), self.steep(theta)
        return np.asarray((rewards**2 * steep**2 * (1 / high + 1 / (1 - high))).mean(-1))

    def gap(self, theta: Floats) -> Floats:
        mean = self.rewards.mean(0)
        return np.abs(mean).mean() - self.value(theta, mean)


def outcomes(
    bandit: Bandit, client: int, theta: Floats, steps: int, lr: float
) -> Iterator[tuple[Floats, Floats]]:
    """After 0, 1, … τ steps of a client, all that may have happened: chances [O] and θ [O, S]."""
    rewards, states = bandit.rewards[client], bandit.rewards.shape[1]
    chances, points = np.ones(1), theta[None]
    yield chances, points
    for _ in range(steps):
        more_chances, more_points = [], []
        for state, action in itertools.product(range(states), (0, 1)):
            high, steep = bandit.high(points[:, state]), bandit.steep(points[:, state])
            taken = high if action else 1 - high
            after = points.copy()
            after[:, state] += lr * rewards[state] * steep / taken
            more_chances.append(chances * taken / states)
            more_points.append(after)
        chances, points = np.concatenate(more_chances), np.concatenate(more_points)
        yield chances, points


def enumerated(bandit: Bandit, theta: Floats, steps: int, crowd: bool = False) -> dict[str, float]:
    """Both lemmas for one round from θ, by all of its outcomes; with a `crowd` every client stands
    for so many that their mean has no noise."""
    clients = CROWD if crowd else len(bandit.rewards)
    lr = 1 / (bandit.smoothness * steps)
    largest, noise, distance = 0.0, 0.0, 0.0
    ends = []
    for client, rewards in enumerate(bandit.rewards):
        *before, (chances, points) = outcomes(bandit, client, theta, steps, lr)
        for _, there in before:
            square = (bandit.gradient(there, rewards) ** 2).sum(-1)
            largest = max(largest, float(square.max()))
            noise = max(noise, float((bandit.moment(there, rewards) - square).max()))
        distance = max(distance, float(chances @ ((points - theta) ** 2).sum(-1)))
        ends.append((chances, points))
    mean = bandit.rewards.mean(0)
    chances, total = np.ones(1), np.zeros((1, theta.size))
    for some, points in ends:
        if crowd:  # the mean of so many is its expectation
            some, points = np.ones(1), (some @ points)[None]
        chances = (chances[:, None] * some).ravel()
        total = (total[:, None] + points).reshape(-1, theta.size)
    gain = float(chances @ bandit.value(total / len(ends), mean) - bandit.value(theta, mean))
    slope = float((bandit.gradient(theta, mean) ** 2).sum())
    constants = Constants(
        bandit.smoothness, 1.0, largest**0.5, noise**0.5, float(bandit.gap(theta)),
        bandit.feedback, clients, steps,
    )  # fmt: skip
    return {
        "distance": distance, "distance_bound": distance_bound(constants), "gain": gain,
        "paper": least_gain(constants, slope), "repaired": repaired_gain(constants, slope),
    }  # fmt: skip


# Theorem 4.2


def trained(bandit: Bandit, rounds: int, steps: int, seed: int) -> tuple[Floats, Floats, float]:
    """Of runs from θ_0 = 0 with η = 1/(Lτ): the mean gap after every round [T + 1], that of θ_avg
    after T, and the least ‖∇J‖²/(2 gap) at any θ_t."""
    random = np.random.default_rng(seed)
    clients, states = bandit.rewards.shape
    lr, mean = 1 / (bandit.smoothness * steps), bandit.rewards.mean(0)
    theta = np.zeros((REPEATS, states))
    total, gaps, least = np.zeros_like(theta), [], np.inf
    pick = np.arange(states)
    for _ in range(rounds):
        gap = bandit.gap(theta)
        slope = (bandit.gradient(theta, mean) ** 2).sum(-1)
        far = gap > 1e-9
        least = min(least, float((slope[far] / (2 * gap[far])).min(initial=np.inf)))
        gaps.append(float(gap.mean()))
        total += theta
        own = np.repeat(theta[:, None], clients, 1)
        for _ in range(steps):
            here = random.integers(states, size=own.shape[:2])[..., None] == pick
            high, steep = bandit.high(own), bandit.steep(own)
            taken = np.where(random.random(own.shape) < high, high, 1 - high)
            own = own + lr * here * bandit.rewards * steep / taken
        theta = own.mean(1)
    gaps.append(float(bandit.gap(theta).mean()))
    return np.array(gaps), bandit.gap(total / rounds), least


def asked_for(base: Floats, share: float, steps: int, seed: int) -> dict[str, float]:
    """A sine bandit with clients, rounds and feedback as Theorem 4.2 has them for ε, a share of the
    gap at λ = 0; what came out. `base` [S] is R0, and clients differ by their feedback alone.

    L, G and σ are the largest that this feedback allows. μ is kept at every θ_t of the runs: where
    they met a lower one, more clients and rounds are asked for by a lower one.
    """
    random, states = np.random.default_rng(seed), base.size
    epsilon, least, pl = share * float(base.mean()), 0.0, float(base.min()) / (2 * states)
    while least < pl:
        pl /= LOWER
        felt = SAFE * pl * epsilon / (3 * float(base.max()) / states)
        most = base + felt
        constants = Constants(
            float(most.max()) / states, pl, float((most**2).sum() ** 0.5) / states,
            float((most**2).mean() ** 0.5), float(most.mean()), felt, 1, steps,
        )  # fmt: skip
        needed = sample_complexity(constants, epsilon)
        assert felt <= needed.feedback, "more feedback than the theorem allows"
        paid = base + felt * random.uniform(-1, 1, (needed.clients, states))
        bandit = Bandit(paid, felt, "sine", constants.smoothness)
        gaps, averaged, least = trained(bandit, needed.rounds, steps, seed)
    soon = np.flatnonzero(np.cumsum(gaps[:-1]) / np.arange(1, len(gaps)) <= epsilon)
    return {
        "share": share, "steps": steps, "epsilon": epsilon, "rounds": needed.rounds,
        "clients": needed.clients, "samples": needed.total, "feedback": felt,
        "gap": float(gaps[:-1].mean()), "averaged": float(averaged.mean()),
        "took": float(needed.clients * (soon[0] + 1)) if len(soon) else float("nan"),
    }  # fmt: skip


# What is recorded


def measure(rules: Mapping[str, Any]) -> dict[str, Any]:
    """Rounds that are enumerated, and runs of Theorem 4.2: `rules` are the verdicts' [theory]."""
    lemmas, theorem = [], []
    for draw in range(rules["bandits"]):
        random = np.random.default_rng(draw)
        intrinsic, felt = random.uniform(-1, 1, (2, 2, 2))  # K = 2, S = 2
        theta = random.normal(size=2)
        for steps, lam, crowd in itertools.product((1, 2, 4), (0.0, 0.5), (False, True)):
            bandit = Bandit(intrinsic + lam * felt, lam * float(np.abs(felt).max()))
            found = enumerated(bandit, theta, steps, crowd)
            lemmas.append({"draw": draw, "steps": steps, "lam": lam, "crowd": crowd, **found})
        base = random.uniform(0.5, 1, 2)
        for steps, share in itertools.product((1, 5), rules["gaps"]):
            theorem.append({"draw": draw, **asked_for(base, share, steps, draw)})
    return {"lemmas": lemmas, "theorem": theorem}


def column(rows: Sequence[Mapping[str, Any]], name: str) -> Floats:
    return np.array([row[name] for row in rows], float)
