"""Trajectories of table policies in random MDPs: LANES pairs of (seed, client) walk at once.

What makes it quick:

- A direction depends on a trajectory only through n(s,a), the visits (log-weight and score), and
  G(s,a) = Σ_{t at (s,a)} Ψ_t. With C_t the discounted reward earned before t and T the whole
  return, Ψ_t = T - C_t, so both are summed up on the way and no trajectory is stored.
- One 64-bit number draws the action (upper half) and the next state (lower half) from alias tables.
  A column's threshold and its other outcome share one 64-bit word, so the choice compiles to a
  conditional move: no branch that a random number would mispredict.
- A walk is bound by latency, so LANES pairs walk at once. Their states are blocks of one table: a
  `row` is (lane·S + s)·A, a `slot` is (row + a)·S. A short last chunk repeats its last pair.

Numbers are splitmix64 of (seed, position), so a pair depends on nothing but its own inputs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fedrl.algorithms import splitmix64
from fedrl.algorithms.splitmix64 import GOLDEN, mix, uniform
from fedrl.core.numba_cache import cached

SOURCES = (splitmix64,)
"""Modules that `path` is compiled from, beside this one."""

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

LANES = 4
ALPHA, PLACE, FIRST, HEAD = 0, 1, 2, 3
"""Draws before a trajectory's steps: HAPG's α, the environment (of a pooled client), s_0."""

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_inlined = njit(forceinline=True, error_model="numpy")
"""A call would push every field of every array of a tuple: dearer than these bodies."""


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


@_inlined
def fill(numbers: Words, lane: int, seed: np.uint64, index: int) -> None:
    """The random numbers of a pair's trajectory `index`."""
    start = mix(seed) + np.uint64(index * numbers.shape[1]) * GOLDEN
    for i in range(numbers.shape[1]):
        numbers[lane, i] = mix(start + np.uint64(i + 1) * GOLDEN)


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


@cached(*SOURCES)
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
