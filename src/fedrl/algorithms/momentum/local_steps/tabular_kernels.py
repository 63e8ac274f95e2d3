"""Compiled local steps of the table policies: one call does K of them for many pairs.

A pair is one (seed, client); LANES of them share a chunk, whose trajectories `tabular_sampling`
walks. What is computed is in `gradient_estimators`; tests hold the two together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, prange

from fedrl.algorithms import splitmix64
from fedrl.algorithms.momentum.local_steps import tabular_sampling
from fedrl.algorithms.momentum.local_steps.tabular_sampling import (
    ALPHA,
    LANES,
    Floats,
    Tables,
    Words,
    collect,
    new_tables,
    read_policy,
    set_kernels,
    set_policy,
    start,
    walk,
)
from fedrl.algorithms.splitmix64 import uniform
from fedrl.core.numba_cache import cached

SOURCES = (tabular_sampling, splitmix64)
"""Modules that `run` is compiled from, beside this one."""

RETURN, WEIGHT_MEAN, WEIGHT_VAR, CLIPPED, STATS = 0, 1, 2, 3, 4
"""Columns of the statistics of a pair."""

_inlined = njit(forceinline=True, error_model="numpy")


class Pairs(NamedTuple):
    """θ_r, θ_{r-1}, u_r [B,S,A]; kernels [B,n,S,A,S] and rewards [B,n,S,A]; seeds [B]."""

    theta: Floats
    anchor: Floats
    u: Floats
    kernel: Floats
    reward: Floats
    seeds: Words


class Rules(NamedTuple):
    """What is the same for every pair; with `raw` the last direction comes back, not the change."""

    initial: Floats
    horizon: int
    gamma: float
    local_steps: int
    trajectories: int
    lr: float
    beta: float
    weight_clip: float
    hapg: bool
    direct: bool
    floor: float
    raw: bool


class Lanes(NamedTuple):
    """One [S,A] table per lane: θ_{r,k}, policies and their logarithms, the direction."""

    theta: Floats
    policy: Floats
    log_policy: Floats
    mixed: Floats
    policy_at: Floats
    log_at: Floats
    anchor_policy: Floats
    anchor_log: Floats
    direction: Floats
    weights: Floats
    stats: Floats


@_inlined
def add_gradient(
    factor: float, gains: Floats, policy: Floats, direct: bool, lane: int, out: Floats
) -> None:
    """out += factor · g(τ|θ), g = Σ_{s,a} G(s,a) ∇log π(a|s)."""
    states, actions = gains.shape
    for s in range(states):
        row = 0.0
        for a in range(actions):
            row += gains[s, a]
        for a in range(actions):
            if direct:
                out[lane, s, a] += factor * (gains[s, a] / policy[lane, s, a])
            else:
                out[lane, s, a] += factor * (gains[s, a] - policy[lane, s, a] * row)


@_inlined
def add_curvature(
    factor: float, tables: Tables, lanes: Lanes, lane: int, anchor: Floats, pair: int
) -> None:
    """direction += factor · Λ (Eq. 5) of a softmax table at θ(α), with v = θ_{r,k} - θ_{r-1}.

    Λ = ⟨∇log p, v⟩ g + ∇⟨g, v⟩, and for a table ⟨∇log p, v⟩ = Σ n (v - v̄) with v̄(s) = Σ_a π v,
    ∇⟨g, v⟩(s,a) = -G(s) π(a|s) (v(s,a) - v̄(s)) with G(s) = Σ_a G(s,a): no Hessian is formed.
    """
    theta, policy, gains = lanes.theta, lanes.policy_at, tables.gains
    states, actions = gains.shape
    along = 0.0
    for s in range(states):
        mean, row = 0.0, 0.0
        for a in range(actions):
            mean += policy[lane, s, a] * (theta[lane, s, a] - anchor[pair, s, a])
            row += gains[s, a]
        for a in range(actions):
            aside = theta[lane, s, a] - anchor[pair, s, a] - mean
            along += tables.counts[s, a] * aside
            lanes.direction[lane, s, a] -= factor * row * policy[lane, s, a] * aside
    add_gradient(factor * along, gains, policy, False, lane, lanes.direction)


@_inlined
def weight_of(counts: Floats, lane: int, log_over: Floats, log_under: Floats) -> float:
    """w = Π_t π_over(a_t|s_t) / π_under(a_t|s_t), in log space until the last exp."""
    total = 0.0
    for s in range(counts.shape[0]):
        for a in range(counts.shape[1]):
            total += counts[s, a] * (log_over[lane, s, a] - log_under[lane, s, a])
    return np.exp(total)


@njit(cache=True, error_model="numpy")
def project(tables: Floats, index: int, floor: float) -> None:
    """Rows of tables[index] to the nearest point of {x ≥ floor, Σ x = 1}, exactly.

    The shift solves Σ max(x - shift, floor) = 1: start with all entries free, and pin those that
    would fall below the floor until none does (they never come back: Michelot's algorithm).
    """
    _, states, actions = tables.shape
    for s in range(states):
        shift, free, before = -np.inf, actions + 1, actions + 2
        while free < before:
            before, free, total = free, 0, 0.0
            for a in range(actions):
                if tables[index, s, a] - shift > floor:
                    free += 1
                    total += tables[index, s, a]
            shift = (total + (actions - free) * floor - 1.0) / free
        for a in range(actions):
            tables[index, s, a] = max(tables[index, s, a] - shift, floor)


@_inlined
def interpolate(tables: Tables, lanes: Lanes, lane: int, anchor: Floats, pair: int) -> None:
    """FedHAPG-M's behaviour policy: θ(α) = α θ_{r-1} + (1-α) θ_{r,k}."""
    alpha = uniform(tables.numbers[lane, ALPHA])
    _, states, actions = anchor.shape
    for s in range(states):
        for a in range(actions):
            here, there = lanes.theta[lane, s, a], anchor[pair, s, a]
            lanes.mixed[lane, s, a] = alpha * there + (1.0 - alpha) * here
    read_policy(lanes.mixed, lane, False, lane, lanes.policy_at, lanes.log_at)
    set_policy(tables, lane, lanes.policy_at)


@_inlined
def add_trajectory(
    tables: Tables, lanes: Lanes, lane: int, index: int, pairs: Pairs, pair: int, rules: Rules
) -> None:
    """Adds the trajectory's share of u_{r,k}, all but the term (1-β) u_r."""
    collect(tables, lane)
    gains, out, share = tables.gains, lanes.direction, 1.0 / rules.trajectories
    weight = 1.0  # β = 1 anchors nothing: no weight is computed
    if rules.hapg:
        weight = weight_of(tables.counts, lane, lanes.log_policy, lanes.log_at)
    elif rules.beta < 1.0:
        weight = weight_of(tables.counts, lane, lanes.anchor_log, lanes.log_policy)
    if rules.weight_clip > 0.0 and weight > rules.weight_clip:
        weight = rules.weight_clip
        lanes.stats[lane, CLIPPED] += 1.0
    lanes.weights[lane, index] = weight
    lanes.stats[lane, RETURN] += tables.returns[lane]
    if rules.hapg:
        add_gradient(share * rules.beta * weight, gains, lanes.policy, False, lane, out)
        add_curvature(share * (1.0 - rules.beta), tables, lanes, lane, pairs.anchor, pair)
    else:
        add_gradient(share, gains, lanes.policy, rules.direct, lane, out)
        if rules.beta < 1.0:
            factor = -share * (1.0 - rules.beta) * weight
            add_gradient(factor, gains, lanes.anchor_policy, rules.direct, lane, out)


@_inlined
def begin_step(
    tables: Tables, lanes: Lanes, lane: int, pairs: Pairs, pair: int, rules: Rules
) -> None:
    """A local step's policy, and the part (1-β) u_r of its direction."""
    read_policy(lanes.theta, lane, rules.direct, lane, lanes.policy, lanes.log_policy)
    if not rules.hapg:
        set_policy(tables, lane, lanes.policy)
    _, states, actions = pairs.u.shape
    for s in range(states):
        for a in range(actions):
            kept = (1.0 - rules.beta) * pairs.u[pair, s, a] if rules.beta < 1.0 else 0.0
            lanes.direction[lane, s, a] = kept


@_inlined
def end_step(lanes: Lanes, lane: int, rules: Rules) -> None:
    """θ_{r,k+1} = θ_{r,k} + η u_{r,k}."""
    _, states, actions = lanes.theta.shape
    for s in range(states):
        for a in range(actions):
            lanes.theta[lane, s, a] += rules.lr * lanes.direction[lane, s, a]
    if rules.direct:
        project(lanes.theta, lane, rules.floor)


@cached(*SOURCES)
def run_chunk(first: int, pairs: Pairs, rules: Rules, out: Floats, stats: Floats) -> None:
    """K local steps of the LANES pairs from `first` on."""
    batch, places, states, actions, _ = pairs.kernel.shape
    tables = new_tables(places, states, actions, rules.horizon)
    total = rules.local_steps * rules.trajectories
    t = np.zeros((9, LANES, states, actions))
    weights, sums = np.empty((LANES, total)), np.zeros((LANES, STATS))
    lanes = Lanes(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], weights, sums)
    chunk = np.minimum(np.arange(first, first + LANES), batch - 1)
    for lane in range(LANES):
        pair = chunk[lane]
        lanes.theta[lane] = pairs.theta[pair]
        set_kernels(tables, lane, pairs.kernel, pairs.reward, pair)
        if rules.beta < 1.0 and not rules.hapg:
            read_policy(
                pairs.anchor, pair, rules.direct, lane, lanes.anchor_policy, lanes.anchor_log
            )
    for index in range(total):
        for lane in range(LANES):
            pair = chunk[lane]
            start(tables, lane, rules.initial, actions, pairs.seeds[pair], index)
            if index % rules.trajectories == 0:
                begin_step(tables, lanes, lane, pairs, pair, rules)
            if rules.hapg:
                interpolate(tables, lanes, lane, pairs.anchor, pair)
        walk(tables, np.uint64(states), np.uint64(actions), rules.gamma)
        for lane in range(LANES):
            add_trajectory(tables, lanes, lane, index, pairs, chunk[lane], rules)
            if (index + 1) % rules.trajectories == 0 and not rules.raw:
                end_step(lanes, lane, rules)
    for lane in range(LANES):
        pair = chunk[lane]
        out[pair] = lanes.direction[lane] if rules.raw else lanes.theta[lane] - pairs.theta[pair]
        stats[pair] = sums[lane] / total
        stats[pair, WEIGHT_MEAN] = weights[lane].mean()
        stats[pair, WEIGHT_VAR] = weights[lane].var()


@cached(*SOURCES, parallel=True)
def run(pairs: Pairs, rules: Rules) -> tuple[Floats, Floats]:
    """Δ (or the direction) [B,S,A] and statistics [B,STATS] of every pair."""
    out = np.empty_like(pairs.theta)
    stats = np.empty((pairs.theta.shape[0], STATS))
    for chunk in prange((pairs.theta.shape[0] + LANES - 1) // LANES):
        run_chunk(chunk * LANES, pairs, rules, out, stats)
    return out, stats
