"""A DQN of two hidden layers, compiled: values, gradients, Adam, TD updates and distillation.

    h1 = relu(x W1 + b1)    h2 = relu(h1 W2 + b2)    Q = h2 W3ᵀ + b3

Written out by hand, because the network is tiny: an update of 32 transitions is seven products of
20 microseconds at most, and calling a framework at every step costs as much again. With the world
compiled too (`episodes`), a client's whole round is one call. The products are BLAS's, which
has to compute on one thread (`fedrl.core.threads`), or a resumed run may differ in its last bits.

All weights are one vector [P], in the order of the formula, W3 by rows of actions: Adam, averaging
and the copy to the delayed weights are then one loop over numbers.

`learner._asdict()` saves a client to the last bit, random numbers too (`q_learning_kernels`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy  # noqa: F401 - numba's products of matrices are its BLAS: without it Python dies
from numba import njit

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

Shape = tuple[int, int, int, int]
"""Numbers of a state, units of the two layers, actions."""
Layers = tuple[Single, Single, Single, Single, Single, Single]

FIRST_DECAY, SECOND_DECAY, TINY = 0.9, 0.999, 1e-8
"""Adam's β1, β2 and ε, as its paper has them."""

_ZERO, _LEAST = np.float32(0), np.float32(1e-30)
# As in `td_kernels`: no flag promises finite numbers, a diverged network has to give NaN.
_FUSED = frozenset({"contract", "nsz"})
_compiled = njit(cache=True, error_model="numpy", nogil=True)
_fused = njit(cache=True, error_model="numpy", nogil=True, fastmath=set(_FUSED))
_summing = njit(cache=True, error_model="numpy", nogil=True, fastmath={"reassoc", *_FUSED})
_part = njit(error_model="numpy", nogil=True)  # not cached: it reads another file


class Learner(NamedTuple):
    """All that a client carries; the replay and the counters are those of `q_learning_kernels`."""

    online: Single  # [P]
    target: Single  # [P], the delayed weights
    first: Single  # [P], Adam's mean of gradients
    second: Single  # [P], and of their squares
    states: Single  # [capacity, d]
    actions: Ints  # [capacity]
    rewards: Single  # [capacity]
    nexts: Single  # [capacity, d]
    terminal: Flags  # [capacity]
    counters: Words  # [COUNTERS]; Adam counts its steps by UPDATES
    epsilon: Floats  # [1]


class Work(NamedTuple):
    """Scratch of updates of B states: s in the first B rows, s' in the others."""

    x: Single  # [2B, d]
    h1: Single  # [2B, H1]
    h2: Single  # [2B, H2]
    q: Single  # [2B, |A|]
    d1: Single  # [B, H1], of the loss by h1; before that h1 of the delayed weights
    d2: Single  # [B, H2]
    dq: Single  # [B, |A|]
    gradient: Single  # [P]
    picks: Ints  # [B]


def size(shape: Shape) -> int:
    d, h1, h2, actions = shape
    return (d + 1) * h1 + (h1 + 1) * h2 + (h2 + 1) * actions


def draw_weights(shape: Shape, seed: int) -> Single:
    """Each layer's numbers uniform within ± 1/√inputs, biases as well."""
    d, h1, h2, actions = shape
    random = np.random.default_rng(seed)
    counts = ((d + 1) * h1, d), ((h1 + 1) * h2, h1), ((h2 + 1) * actions, h2)
    parts = [random.uniform(-1, 1, count) / math.sqrt(inputs) for count, inputs in counts]
    return np.concatenate(parts).astype(np.float32)


def fresh(shape: Shape, weights: Single, capacity: int, seed: int, epsilon: float = 1.0) -> Learner:
    """A client that has seen nothing."""
    online, target = (np.array(weights, np.float32) for _ in range(2))
    first, second = (np.zeros(weights.size, np.float32) for _ in range(2))
    memory = empty_memory(shape[0], capacity, seed, epsilon)
    return Learner(online, target, first, second, *memory)


@_compiled
def work(shape: Shape, batch: int) -> Work:
    d, h1, h2, actions = shape
    return Work(
        np.empty((2 * batch, d), np.float32),
        np.empty((2 * batch, h1), np.float32),
        np.empty((2 * batch, h2), np.float32),
        np.empty((2 * batch, actions), np.float32),
        np.empty((batch, h1), np.float32),
        np.empty((batch, h2), np.float32),
        np.empty((batch, actions), np.float32),
        np.empty((d + 1) * h1 + (h1 + 1) * h2 + (h2 + 1) * actions, np.float32),
        np.empty(batch, np.int64),
    )


@_compiled
def layers(weights: Single, shape: Shape) -> Layers:
    """Views of the vector: W1 [d, H1], b1, W2 [H1, H2], b2, W3 [|A|, H2], b3."""
    d, h1, h2, actions = shape
    p = d * h1
    q = p + h1
    r = q + h1 * h2
    s = r + h2
    t = s + actions * h2
    return (
        weights[:p].reshape(d, h1),
        weights[p:q],
        weights[q:r].reshape(h1, h2),
        weights[r:s],
        weights[s:t].reshape(actions, h2),
        weights[t:],
    )


@_fused
def add_row(out: Single, factor: np.float32, row: Single) -> None:
    for j in range(out.size):
        out[j] += factor * row[j]


@_summing
def dot(row: Single, other: Single) -> np.float32:
    total = _ZERO
    for j in range(row.size):
        total += row[j] * other[j]
    return total


@_fused
def rectify(row: Single, bias: Single) -> None:
    for j in range(row.size):
        z = row[j] + bias[j]
        row[j] = z if z > _ZERO else z * _ZERO  # NaN stays NaN


@_fused
def gate(row: Single, height: Single) -> None:
    """Where relu was flat, nothing comes back."""
    for j in range(row.size):
        row[j] = row[j] if height[j] > _ZERO else _ZERO


@_compiled
def hidden(out: Single, x: Single, weight: Single, bias: Single) -> None:
    np.dot(x, weight, out)
    for i in range(out.shape[0]):
        rectify(out[i], bias)


@_compiled
def values(weights: Single, shape: Shape, x: Single, h1: Single, h2: Single, q: Single) -> None:
    """Q [n, |A|] of states x [n, d]; h1 and h2 are what `backward` needs of the way there."""
    w1, b1, w2, b2, w3, b3 = layers(weights, shape)
    hidden(h1, x, w1, b1)
    hidden(h2, h1, w2, b2)
    for i in range(q.shape[0]):
        for a in range(q.shape[1]):
            q[i, a] = b3[a] + dot(h2[i], w3[a])


@_compiled
def backward(weights: Single, shape: Shape, work: Work) -> None:
    """The gradient [P] of a loss whose derivative by Q of the first B rows is `work.dq`."""
    _, _, w2, _, w3, _ = layers(weights, shape)
    g1, c1, g2, c2, g3, c3 = layers(work.gradient, shape)
    count = work.dq.shape[0]
    h1, h2, d1, d2 = work.h1[:count], work.h2[:count], work.d1, work.d2
    work.gradient[:] = _ZERO
    d2[:] = _ZERO
    for b in range(count):
        for a in range(work.dq.shape[1]):
            slope = work.dq[b, a]
            if slope != _ZERO:
                add_row(d2[b], slope, w3[a])
                add_row(g3[a], slope, h2[b])
                c3[a] += slope
        gate(d2[b], h2[b])
        add_row(c2, np.float32(1), d2[b])
    np.dot(h1.T, d2, g2)
    np.dot(d2, w2.T, d1)
    for b in range(count):
        gate(d1[b], h1[b])
        add_row(c1, np.float32(1), d1[b])
    np.dot(work.x[:count].T, d1, g1)


@_fused
def adam(
    weights: Single, gradient: Single, first: Single, second: Single, lr: float, count: float
) -> None:
    """Step number `count`, from 1."""
    keep, keep2 = np.float32(FIRST_DECAY), np.float32(SECOND_DECAY)
    new, new2 = np.float32(1 - FIRST_DECAY), np.float32(1 - SECOND_DECAY)
    step = np.float32(lr / (1 - FIRST_DECAY**count))
    scale = np.float32(1 / (1 - SECOND_DECAY**count))
    tiny = np.float32(TINY)
    for i in range(weights.size):
        g = gradient[i]
        m, v = keep * first[i] + new * g, keep2 * second[i] + new2 * (g * g)
        # The means of a unit that has died would decay into numbers that processors are slow with.
        m = _ZERO if abs(m) < _LEAST else m
        v = _ZERO if v < _LEAST else v
        first[i], second[i] = m, v
        weights[i] -= step * m / (np.sqrt(scale * v) + tiny)


@_compiled
def best(row: Single) -> int:
    return int(np.argmax(row))


@_compiled
def td_slopes(learner: Learner, shape: Shape, rules: Rules, work: Work) -> None:
    """dL/dQ(s_b, ·) into `work.dq`; L is the mean over the batch of δ²/2, linear beyond `huber`.

    δ_b = Q(s_b, a_b) - r_b - γ (1 - terminal_b) Q⁻(s'_b, a*), a* by Q or, if not double, by Q⁻.
    """
    batch = work.picks.size
    for b in range(batch):
        work.x[b] = learner.states[work.picks[b]]
        work.x[batch + b] = learner.nexts[work.picks[b]]
    values(learner.target, shape, work.x[batch:], work.d1, work.d2, work.dq)
    values(learner.online, shape, work.x, work.h1, work.h2, work.q)
    for b in range(batch):
        row, delayed = work.picks[b], work.dq[b]
        goal = rules.sign * np.float64(learner.rewards[row])
        if not learner.terminal[row]:
            goal += rules.gamma * delayed[best(work.q[batch + b] if rules.double else delayed)]
        error = work.q[b, learner.actions[row]] - goal
        if rules.huber > 0:
            error = min(max(error, -rules.huber), rules.huber)
        delayed[:] = _ZERO
        delayed[learner.actions[row]] = error / batch


@_part
def td_update(learner: Learner, shape: Shape, rules: Rules, work: Work) -> None:
    """One step of Adam on the transitions `work.picks` of the replay.

    A gradient longer than `max_grad_norm` is shortened to it, as a whole, before Adam sees it.
    """
    td_slopes(learner, shape, rules, work)
    backward(learner.online, shape, work)
    if rules.max_grad_norm > 0:
        norm = math.sqrt(dot(work.gradient, work.gradient))
        if norm > rules.max_grad_norm:
            work.gradient[:] *= np.float32(rules.max_grad_norm / norm)
    learner.counters[UPDATES] += ONE
    count = float(learner.counters[UPDATES])
    adam(learner.online, work.gradient, learner.first, learner.second, rules.lr, count)


@_compiled
def soften(q: Single, temperature: float, out: Single) -> None:
    """softmax(Q / T) of every row."""
    for i in range(q.shape[0]):
        top, total = q[i].max(), 0.0
        for a in range(q.shape[1]):
            out[i, a] = math.exp((q[i, a] - top) / temperature)
            total += out[i, a]
        for a in range(q.shape[1]):
            out[i, a] /= total


@_compiled
def distill(
    weights: Single,
    shape: Shape,
    x: Single,
    teacher: Single,
    steps: int,
    lr: float,
    temperature: float,
) -> None:
    """Steps of Adam, from moments of zero, on the mean KL(teacher ‖ softmax(Q(x) / T)) [m, |A|]."""
    count = x.shape[0]
    scratch = work(shape, count)
    scratch.x[:count] = x
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    h1, h2, q = scratch.h1[:count], scratch.h2[:count], scratch.q[:count]
    for step in range(steps):
        values(weights, shape, scratch.x[:count], h1, h2, q)
        soften(q, temperature, scratch.dq)
        for i in range(count):
            for a in range(q.shape[1]):
                scratch.dq[i, a] = (scratch.dq[i, a] - teacher[i, a]) / (temperature * count)
        backward(weights, shape, scratch)
        adam(weights, scratch.gradient, first, second, lr, float(step + 1))
