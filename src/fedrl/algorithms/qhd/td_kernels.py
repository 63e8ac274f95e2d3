"""Compiled hyperdimensional Q-learning: Q-values of a state, TD updates from a replay.

An update is 2·B·D cosines and little else, so they decide the speed:

- Angles are in turns. v = 1/4 - |t - rint(t)| folds t into [-1/4, 1/4], and sin(2πv) = cos(2πt) is
  an odd polynomial of degree 7 there (minimax, 6e-7; 8e-7 with float32's rounding).
- Features go in blocks of BLOCK, states in pairs: a block of ω, b and W is read into the first
  cache once for the whole batch, and a pair shares every number that it reads.
- Φ(s) of the batch is kept between the two halves of an update: loading it takes a third of the
  time of computing it again. Φ(s') is used at once, and the replay holds states, no features.
- D differs between clients without padding: a client is its own call, and every kernel releases
  Python's lock, so threads can run a client each.

Everything that persists between calls is in the arrays of a `Learner` (`q_learning_kernels`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numba.cpython.unsafe.tuple import tuple_setitem

from fedrl.algorithms.qhd import q_learning_kernels
from fedrl.algorithms.qhd.encoders import Lanes
from fedrl.algorithms.qhd.q_learning_kernels import (
    ONE,
    UPDATES,
    Flags,
    Floats,
    Ints,
    Rules,
    Single,
    Words,
    empty_memory,
)
from fedrl.core.numba_cache import cached

SOURCES = (q_learning_kernels,)
"""Modules that `td_update` is compiled from, beside this one."""

BLOCK = 512

_C1, _C3, _C5, _C7 = (np.float32(c) for c in (6.283164024, -41.33714294, 81.34076691, -70.99343109))
_QUARTER = np.float32(0.25)
# "contract" fuses a product and a sum; "reassoc" lets a sum run in as many lanes as the processor
# has. No flag promises finite numbers: a diverged W has to give NaN, not any number.
_FUSED = frozenset({"contract", "nsz"})
_compiled = njit(cache=True, error_model="numpy", nogil=True)
_fused = njit(cache=True, error_model="numpy", nogil=True, fastmath=set(_FUSED))
_summing = njit(cache=True, error_model="numpy", nogil=True, fastmath={"reassoc", *_FUSED})
_inlined = njit(forceinline=True, error_model="numpy", fastmath=set(_FUSED))


class Blocks(NamedTuple):
    """An encoder's lanes, cut into blocks of BLOCK; what fills the last block is never read.

    `origin` is a state of zeros as a tuple: its length is known when the kernels compile, so loops
    over the state's numbers unroll.
    """

    omega: Single  # [K, d, BLOCK], in turns
    phase: Single  # [K, BLOCK]
    scale: float
    origin: tuple[np.float32, ...]


class Learner(NamedTuple):
    """All that a client carries: W and W⁻ as rows, its replay (a ring), counters and ε."""

    online: Single  # [|A|, L]
    target: Single  # [|A|, L]
    states: Single  # [capacity, d]
    actions: Ints  # [capacity]
    rewards: Single  # [capacity]
    nexts: Single  # [capacity, d]
    terminal: Flags  # [capacity]
    counters: Words  # [COUNTERS]
    epsilon: Floats  # [1]


class Work(NamedTuple):
    """Scratch of an update: Φ(s) of the batch, Φ(s') of a pair, and sums by state and action."""

    kept: Single  # [K, B rounded up to even, BLOCK]
    ahead: Single  # [2, BLOCK]
    online: Floats  # [B + 1, |A|]
    target: Floats  # [B + 1, |A|]
    taken: Floats  # [B + 1]
    steps: Single  # [B], η δ D^{-1/2}
    picks: Ints  # [B]


def blocks(lanes: Lanes) -> Blocks:
    dimension, count = lanes.omega.shape
    number = -(-count // BLOCK)
    padded = np.zeros((dimension + 1, number * BLOCK), np.float32)
    padded[:dimension, :count] = lanes.omega
    padded[dimension, :count] = lanes.phase
    cut = padded.reshape(dimension + 1, number, BLOCK).transpose(1, 0, 2)
    omega, phase = np.ascontiguousarray(cut[:, :-1]), np.ascontiguousarray(cut[:, -1])
    return Blocks(omega, phase, lanes.scale, (np.float32(0),) * dimension)


def fresh(
    actions: int, lanes: int, dimension: int, capacity: int, seed: int, epsilon: float = 1.0
) -> Learner:
    """A client that has seen nothing: W = W⁻ = 0."""
    online, target = (np.zeros((actions, lanes), np.float32) for _ in range(2))
    return Learner(online, target, *empty_memory(dimension, capacity, seed, epsilon))


@_compiled
def work(number: int, batch: int, actions: int) -> Work:
    even = batch + batch % 2
    return Work(
        np.empty((number, even, BLOCK), np.float32),
        np.empty((2, BLOCK), np.float32),
        np.empty((even, actions)),
        np.empty((even, actions)),
        np.empty(even),
        np.empty(batch, np.float32),
        np.empty(batch, np.int64),
    )


@_inlined
def cosine(turns: np.float32) -> np.float32:
    v = _QUARTER - abs(turns - np.rint(turns))
    u = v * v
    return v * (_C1 + u * (_C3 + u * (_C5 + u * _C7)))


@_inlined
def take(states: Single, row: int, origin: tuple[np.float32, ...]) -> tuple[np.float32, ...]:
    """A row as a tuple: numbers in registers, which a store to an array cannot have changed."""
    state = origin
    for k in range(len(origin)):
        state = tuple_setitem(state, k, states[row, k])  # type: ignore[call-arg]
    return state


@_inlined
def angle(omega: Single, phase: Single, state: tuple[np.float32, ...], lane: int) -> np.float32:
    turns = phase[lane]
    for k in range(len(state)):
        turns += omega[k, lane] * state[k]
    return turns


@_fused
def encode_one(
    omega: Single, phase: Single, state: tuple[np.float32, ...], count: int, out: Single
) -> None:
    for j in range(count):
        out[j] = cosine(angle(omega, phase, state, j))


@_fused
def encode(
    omega: Single,
    phase: Single,
    first: tuple[np.float32, ...],
    second: tuple[np.float32, ...],
    count: int,
    out: Single,
    other: Single,
) -> None:
    """√D Φ of two states in one block; out and other are rows [BLOCK]."""
    for j in range(count):
        out[j] = cosine(angle(omega, phase, first, j))
        other[j] = cosine(angle(omega, phase, second, j))


@_summing
def readout(wave: Single, row: Single) -> np.float32:
    total = np.float32(0)
    for j in range(row.size):
        total += wave[j] * row[j]
    return total


@_summing
def readouts(
    wave: Single, other: Single, row: Single, target: Single
) -> tuple[np.float32, np.float32, np.float32, np.float32]:
    """Two states under W and W⁻ at once: four products for four loads."""
    a, b, c, d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    for j in range(row.size):
        x, y, online, delayed = wave[j], other[j], row[j], target[j]
        a += x * online
        b += x * delayed
        c += y * online
        d += y * delayed
    return a, b, c, d


@_fused
def add(row: Single, steps: Single, order: Ints, first: int, kept: Single) -> None:
    """row += Σ steps Φ(s_b) over the four transitions from `first` on."""
    p, q, r, s = steps[first], steps[first + 1], steps[first + 2], steps[first + 3]
    a, b = kept[order[first]], kept[order[first + 1]]
    c, d = kept[order[first + 2]], kept[order[first + 3]]
    for j in range(row.size):
        row[j] += p * a[j] + q * b[j] + r * c[j] + s * d[j]


@_compiled
def act(
    blocks: Blocks, online: Single, states: Single, row: int, ahead: Single, out: Floats
) -> None:
    """Q(s,·) [|A|] of s = states[row] into `out`; `ahead` is scratch [BLOCK]."""
    here = take(states, row, blocks.origin)
    out[:] = 0.0
    for k in range(blocks.phase.shape[0]):
        low = k * BLOCK
        high = min(low + BLOCK, online.shape[1])
        encode_one(blocks.omega[k], blocks.phase[k], here, high - low, ahead)
        for a in range(out.size):
            out[a] += readout(ahead, online[a][low:high])
    for a in range(out.size):
        out[a] *= blocks.scale


@cached(*SOURCES, nogil=True)
def td_update(blocks: Blocks, learner: Learner, picks: Ints, rules: Rules, work: Work) -> None:
    """One TD step on the transitions `picks` of the replay, their errors summed.

    δ_b = r_b + γ (1 - terminal_b) Q⁻(s'_b, argmax_a Q(s'_b, a)) - Q(s_b, a_b), and then
    w_a += η Σ_{b: a_b = a} δ_b Φ(s_b). All δ are computed before any weight moves. Sequential
    updates would give each transition the weights that the ones before it left: the same to first
    order in η, but they depend on the order, and one transition drawn twice counts less than twice.
    """
    lookahead(blocks, learner, picks, work)
    chooser = work.online if rules.double else work.target
    for b in range(picks.size):
        row, best = picks[b], 0
        for a in range(1, learner.online.shape[0]):
            if chooser[b, a] > chooser[b, best]:
                best = a
        goal = rules.sign * np.float64(learner.rewards[row])
        if not learner.terminal[row]:
            goal += rules.gamma * blocks.scale * work.target[b, best]
        error = goal - blocks.scale * work.taken[b]
        if rules.huber > 0:
            error = min(max(error, -rules.huber), rules.huber)
        work.steps[b] = np.float32(rules.lr * blocks.scale * error)
    if rules.max_grad_norm > 0:
        moved = np.zeros_like(learner.online)
        move(moved, learner.actions, picks, work)
        norm = np.sqrt(np.sum(moved.astype(np.float64) ** 2)) / rules.lr
        if norm > rules.max_grad_norm:
            work.steps[:] *= np.float32(rules.max_grad_norm / norm)
    move(learner.online, learner.actions, picks, work)
    learner.counters[UPDATES] += ONE


@_compiled
def lookahead(blocks: Blocks, learner: Learner, picks: Ints, work: Work) -> None:
    """Sums of Q(s_b, a_b), Q(s'_b, ·) and Q⁻(s'_b, ·), and Φ(s_b) of the whole batch."""
    online, target = learner.online, learner.target
    actions, lanes = online.shape
    work.online[:] = 0.0
    work.target[:] = 0.0
    work.taken[:] = 0.0
    for k in range(blocks.phase.shape[0]):
        low = k * BLOCK
        high = min(low + BLOCK, lanes)
        omega, phase, count = blocks.omega[k], blocks.phase[k], high - low
        for b in range(0, picks.size, 2):
            # an odd batch's last pair is one transition twice; its second half is not used
            i, j = picks[b], picks[min(b + 1, picks.size - 1)]
            here, there = work.kept[k, b], work.kept[k, b + 1]
            first = take(learner.states, i, blocks.origin)
            second = take(learner.states, j, blocks.origin)
            encode(omega, phase, first, second, count, here, there)
            work.taken[b] += readout(here, online[learner.actions[i]][low:high])
            work.taken[b + 1] += readout(there, online[learner.actions[j]][low:high])
            here, there = work.ahead[0], work.ahead[1]
            first = take(learner.nexts, i, blocks.origin)
            second = take(learner.nexts, j, blocks.origin)
            encode(omega, phase, first, second, count, here, there)
            for a in range(actions):
                p, q, r, s = readouts(here, there, online[a][low:high], target[a][low:high])
                work.online[b, a] += p
                work.target[b, a] += q
                work.online[b + 1, a] += r
                work.target[b + 1, a] += s


@_compiled
def move(rows: Single, taken: Ints, picks: Ints, work: Work) -> None:
    """w_a += Σ steps_b Φ(s_b) over the transitions with action a; `taken` are the replay's.

    Four at a time read and write W once; a group that is not full has steps of 0 on Φ(s_0).
    """
    actions, lanes = rows.shape
    order, ends = np.zeros(picks.size + 4 * actions, np.int64), np.zeros(actions + 1, np.int64)
    steps = np.zeros(order.size, np.float32)
    place = 0
    for a in range(actions):
        for b in range(picks.size):
            if taken[picks[b]] == a:
                order[place], steps[place] = b, work.steps[b]
                place += 1
        place = (place + 3) // 4 * 4
        ends[a + 1] = place
    for k in range(work.kept.shape[0]):
        low = k * BLOCK
        high = min(low + BLOCK, lanes)
        for a in range(actions):
            row = rows[a][low:high]
            for first in range(ends[a], ends[a + 1], 4):
                add(row, steps, order, first, work.kept[k])
