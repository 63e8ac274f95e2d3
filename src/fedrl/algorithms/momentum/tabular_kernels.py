"""Compiled local rounds of the table policies: one call does K local steps of many pairs.

A pair is one (seed, client). What makes it quick:

- A direction depends on a trajectory only through n(s,a), the visits (log-weight and score), and
  G(s,a) = Σ_{t at (s,a)} Ψ_t. With C_t the discounted reward earned before t and T the whole
  return, Ψ_t = T - C_t, so both are summed up on the way and no trajectory is stored.
- One 64-bit number draws the action (upper half) and the next state (lower half) from alias tables.
  A column's threshold and its other outcome share one 64-bit word, so the choice compiles to a
  conditional move: no branch that a random number would mispredict.
- A walk is bound by latency, so LANES pairs walk at once. Their states are blocks of one table: a
  `row` is (lane·S + s)·A, a `slot` is (row + a)·S. A short last chunk repeats its last pair.

Numbers are splitmix64 of (seed, position), so a pair depends on nothing but its own inputs.
Everything compiled is in this one file, because numba's cache looks for changes in one file only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

LANES = 4
ALPHA, PLACE, FIRST, HEAD = 0, 1, 2, 3
"""Draws before a trajectory's steps: HAPG's α, the environment (of a pooled client), s_0."""

RETURN, WEIGHT_MEAN, WEIGHT_VAR, CLIPPED, STATS = 0, 1, 2, 3, 4
"""Columns of the statistics of a pair."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_compiled = njit(cache=True, error_model="numpy")
_inlined = njit(forceinline=True, error_model="numpy")
"""A call would push every field of every array of a tuple: dearer than these bodies."""


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


class Tables(NamedTuple):
    """What the walkers of a chunk read and add to, by row or by slot; n and G of one trajectory."""

    policy: Words
    kernel: Words
    rewards: Floats
    numbers: Words
    rows: Words
    places: Words
    visits: Floats
    before: Floats
    returns: Floats
    left: Floats
    order: NDArray[np.int64]
    counts: Floats
    gains: Floats


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
def mix(z: np.uint64) -> np.uint64:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@_inlined
def fill(numbers: Words, lane: int, seed: np.uint64, index: int) -> None:
    """The random numbers of a pair's trajectory `index`."""
    start = mix(seed) + np.uint64(index * numbers.shape[1]) * _GOLDEN
    for i in range(numbers.shape[1]):
        numbers[lane, i] = mix(start + np.uint64(i + 1) * _GOLDEN)


@_inlined
def uniform(number: np.uint64) -> float:
    return float(number >> np.uint64(11)) * 2.0**-53


@_inlined
def alias_row(
    tables: Tables, size: int, words: Words, first: int, target: int, stride: int
) -> None:
    """Walker's table of the probabilities tables.left[:size]; outcome j is target + j·stride.

    words[first + j] = threshold << 32 | other outcome; below the threshold it is column j itself.
    """
    left, order = tables.left, tables.order
    small, large = np.int64(0), np.int64(size)
    for j in range(size):
        left[j] *= size
        # what is full up to rounding keeps this word
        words[first + j] = _LOW << _HALF | np.uint64(target + j * stride)
        # written to both ends, kept at one: a branch here would be mispredicted
        light = np.int64(left[j] < 1.0)
        order[small] = j
        order[large - 1] = j
        small += light
        large -= 1 - light
    while small > 0 and large < size:
        small -= 1
        column, donor = order[small], order[large]
        threshold = np.uint64(left[column] * 4294967296.0)
        words[first + column] = threshold << _HALF | np.uint64(target + donor * stride)
        left[donor] -= 1.0 - left[column]
        # a donor that is used up moves from the large end of `order` to the small one
        light = np.int64(left[donor] < 1.0)
        order[small] = donor
        small += light
        large += light


@_inlined
def new_tables(places: int, states: int, actions: int, horizon: int) -> Tables:
    block = LANES * states * actions * states
    return Tables(
        policy=np.empty(LANES * states * actions, np.uint64),
        kernel=np.empty(places * block, np.uint64),
        rewards=np.zeros(places * block),
        numbers=np.empty((LANES, HEAD + horizon), np.uint64),
        rows=np.empty(LANES, np.uint64),
        places=np.empty(LANES, np.uint64),
        visits=np.zeros(block),
        before=np.zeros(block),
        returns=np.zeros(LANES),
        left=np.empty(max(states, actions)),
        order=np.empty(max(states, actions), np.int64),
        counts=np.empty((states, actions)),
        gains=np.empty((states, actions)),
    )


@_inlined
def set_kernels(tables: Tables, lane: int, kernel: Floats, reward: Floats, pair: int) -> None:
    """A pair's environments, at place·block + slot + next state."""
    _, places, states, actions, _ = kernel.shape
    for place in range(places):
        for s in range(states):
            for a in range(actions):
                slot = (((place * LANES + lane) * states + s) * actions + a) * states
                tables.rewards[slot] = reward[pair, place, s, a]
                for j in range(states):
                    tables.left[j] = kernel[pair, place, s, a, j]
                alias_row(tables, states, tables.kernel, slot, lane * states * actions, actions)


@_inlined
def set_policy(tables: Tables, lane: int, policy: Floats) -> None:
    _, states, actions = policy.shape
    for s in range(states):
        row = (lane * states + s) * actions
        for a in range(actions):
            tables.left[a] = policy[lane, s, a]
        alias_row(tables, actions, tables.policy, row, row * states, states)


@_inlined
def start(
    tables: Tables, lane: int, initial: Floats, actions: int, seed: np.uint64, index: int
) -> None:
    """Random numbers, environment and s_0 of a pair's trajectory `index`."""
    numbers = tables.numbers
    fill(numbers, lane, seed, index)
    block = np.uint64(tables.visits.size)
    places = np.uint64(tables.rewards.size) // block
    tables.places[lane] = (((numbers[lane, PLACE] >> _HALF) * places) >> _HALF) * block
    rest, s = uniform(numbers[lane, FIRST]), 0
    while s < initial.size - 1 and rest >= initial[s]:
        rest -= initial[s]
        s += 1
    tables.rows[lane] = np.uint64((lane * initial.size + s) * actions)


@_inlined
def read_policy(
    theta: Floats, index: int, direct: bool, lane: int, policy: Floats, log_policy: Floats
) -> None:
    """π_θ and log π_θ of the table theta[index], into those of a lane."""
    _, states, actions = theta.shape
    for s in range(states):
        if direct:
            for a in range(actions):
                policy[lane, s, a] = theta[index, s, a]
                log_policy[lane, s, a] = np.log(theta[index, s, a])
            continue
        top, total = theta[index, s, 0], 0.0
        for a in range(1, actions):
            top = max(top, theta[index, s, a])
        for a in range(actions):
            policy[lane, s, a] = np.exp(theta[index, s, a] - top)
            total += policy[lane, s, a]
        shift = top + np.log(total)
        for a in range(actions):
            policy[lane, s, a] /= total
            log_policy[lane, s, a] = theta[index, s, a] - shift


@_inlined
def step(
    row: np.uint64,
    number: np.uint64,
    policy_words: Words,
    kernel_words: Words,
    states: np.uint64,
    actions: np.uint64,
    lane_row: np.uint64,
    place_slot: np.uint64,
) -> tuple[np.uint64, np.uint64]:
    """(slot of the action taken, row of the next state)."""
    upper = (number >> _HALF) * actions
    column = row + (upper >> _HALF)
    word = policy_words[column]
    slot = column * states if (upper & _LOW) < (word >> _HALF) else word & _LOW
    lower = (number & _LOW) * states
    target = lower >> _HALF
    word = kernel_words[place_slot + slot + target]
    own = lane_row + target * actions
    return slot, own if (lower & _LOW) < (word >> _HALF) else word & _LOW


@_inlined
def walk(tables: Tables, s: np.uint64, a: np.uint64, gamma: float) -> None:
    """One trajectory of every lane: adds n and Σ C_t by slot, sets the discounted returns T."""
    numbers, rewards, visits, before = tables.numbers, tables.rewards, tables.visits, tables.before
    row0, row1, row2, row3 = tables.rows[0], tables.rows[1], tables.rows[2], tables.rows[3]
    at0, at1, at2, at3 = tables.places[0], tables.places[1], tables.places[2], tables.places[3]
    lane1 = s * a
    lane2, lane3 = lane1 + lane1, lane1 + lane1 + lane1
    sum0, sum1, sum2, sum3 = 0.0, 0.0, 0.0, 0.0
    pw, kw = tables.policy, tables.kernel
    discount = 1.0
    for t in range(HEAD, numbers.shape[1]):
        slot0, row0 = step(row0, numbers[0, t], pw, kw, s, a, np.uint64(0), at0)
        slot1, row1 = step(row1, numbers[1, t], pw, kw, s, a, lane1, at1)
        slot2, row2 = step(row2, numbers[2, t], pw, kw, s, a, lane2, at2)
        slot3, row3 = step(row3, numbers[3, t], pw, kw, s, a, lane3, at3)
        visits[slot0] += 1.0
        visits[slot1] += 1.0
        visits[slot2] += 1.0
        visits[slot3] += 1.0
        before[slot0] += sum0
        before[slot1] += sum1
        before[slot2] += sum2
        before[slot3] += sum3
        sum0 += discount * rewards[at0 + slot0]
        sum1 += discount * rewards[at1 + slot1]
        sum2 += discount * rewards[at2 + slot2]
        sum3 += discount * rewards[at3 + slot3]
        discount *= gamma
    returns = tables.returns
    returns[0], returns[1], returns[2], returns[3] = sum0, sum1, sum2, sum3


@_inlined
def collect(tables: Tables, lane: int) -> None:
    """n(s,a) and G(s,a) = n T - Σ C_t of one lane; clears what the walk added."""
    states, actions = tables.counts.shape
    for s in range(states):
        for a in range(actions):
            slot = ((lane * states + s) * actions + a) * states
            count = tables.visits[slot]
            tables.counts[s, a] = count
            tables.gains[s, a] = count * tables.returns[lane] - tables.before[slot]
            tables.visits[slot] = 0.0
            tables.before[slot] = 0.0


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


@_compiled
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
def aim(tables: Tables, lanes: Lanes, lane: int, anchor: Floats, pair: int) -> None:
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
def begin(tables: Tables, lanes: Lanes, lane: int, pairs: Pairs, pair: int, rules: Rules) -> None:
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
def end(lanes: Lanes, lane: int, rules: Rules) -> None:
    """θ_{r,k+1} = θ_{r,k} + η u_{r,k}."""
    _, states, actions = lanes.theta.shape
    for s in range(states):
        for a in range(actions):
            lanes.theta[lane, s, a] += rules.lr * lanes.direction[lane, s, a]
    if rules.direct:
        project(lanes.theta, lane, rules.floor)


@_compiled
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
                begin(tables, lanes, lane, pairs, pair, rules)
            if rules.hapg:
                aim(tables, lanes, lane, pairs.anchor, pair)
        walk(tables, np.uint64(states), np.uint64(actions), rules.gamma)
        for lane in range(LANES):
            add_trajectory(tables, lanes, lane, index, pairs, chunk[lane], rules)
            if (index + 1) % rules.trajectories == 0 and not rules.raw:
                end(lanes, lane, rules)
    for lane in range(LANES):
        pair = chunk[lane]
        out[pair] = lanes.direction[lane] if rules.raw else lanes.theta[lane] - pairs.theta[pair]
        stats[pair] = sums[lane] / total
        stats[pair, WEIGHT_MEAN] = weights[lane].mean()
        stats[pair, WEIGHT_VAR] = weights[lane].var()


@njit(parallel=True, cache=True, error_model="numpy")
def run(pairs: Pairs, rules: Rules) -> tuple[Floats, Floats]:
    """Δ (or the direction) [B,S,A] and statistics [B,STATS] of every pair."""
    out = np.empty_like(pairs.theta)
    stats = np.empty((pairs.theta.shape[0], STATS))
    for chunk in prange((pairs.theta.shape[0] + LANES - 1) // LANES):
        run_chunk(chunk * LANES, pairs, rules, out, stats)
    return out, stats


@_compiled
def path(
    theta: Floats,
    direct: bool,
    kernel: Floats,
    initial: Floats,
    seed: np.uint64,
    horizon: int,
    index: int,
) -> tuple[float, np.int64, NDArray[np.int64], NDArray[np.int64]]:
    """Trajectory `index` of a pair that acts by θ: (α, environment, s_t [H], a_t [H])."""
    places, states, actions, _ = kernel.shape
    tables = new_tables(places, states, actions, horizon)
    policy = np.empty((1, states, actions))
    read_policy(theta.reshape(policy.shape), 0, direct, 0, policy, np.empty_like(policy))
    set_policy(tables, 0, policy)
    set_kernels(tables, 0, kernel.reshape((1, *kernel.shape)), kernel[..., 0][np.newaxis], 0)
    start(tables, 0, initial, actions, seed, index)
    cells = np.empty(horizon, np.int64)
    row, place, numbers = tables.rows[0], tables.places[0], tables.numbers
    s, a, zero = np.uint64(states), np.uint64(actions), np.uint64(0)
    for t in range(horizon):
        slot, row = step(row, numbers[0, HEAD + t], tables.policy, tables.kernel, s, a, zero, place)
        cells[t] = np.int64(slot // s)
    number = np.int64(place // np.uint64(tables.visits.size))
    return uniform(numbers[0, ALPHA]), number, cells // actions, cells % actions
