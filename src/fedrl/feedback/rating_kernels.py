"""The kernels of `rating_network`, compiled: forward, gradient, Adam, and the reward model's loss.

    x = (user's embedding, movie's embedding, genres)
    h1 = relu(x W1 + b1)    h2 = relu(h1 W2 + b2)    out = h2 W3ᵀ + b3

The reward model's loss stands on it here (`learn_utility`), the policy's in
`algorithms.fedrlhf.ratings.policy`. The gradient is written out by hand, and a client's round is
one compiled call: its batches are far too small for a framework's calls at every step. Everything
is in one file, so that the compiled program can be kept between runs. The products are BLAS's, on
one thread (`fedrl.core.threads`).

All weights are one vector: embeddings of users, of movies, then the dense layers by the formula.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy  # noqa: F401 - numba's products of matrices are its BLAS: without it Python dies
from numba import njit
from numpy.typing import NDArray

Single = NDArray[np.float32]
Ints = NDArray[np.int64]
Layers = tuple[Single, Single, Single, Single, Single, Single]

FIRST_DECAY, SECOND_DECAY, TINY = 0.9, 0.999, 1e-8
"""Adam's β1, β2 and ε, as its paper has them."""

_ZERO, _ONE, _LEAST = np.float32(0), np.float32(1), np.float32(1e-30)
_compiled = njit(cache=True, error_model="numpy", nogil=True)
# No flag promises finite numbers: a diverged network has to give NaN.
_fused = njit(cache=True, error_model="numpy", nogil=True, fastmath={"contract", "nsz"})


class Sizes(NamedTuple):
    """Of a network, or of a client's part of it: then users and movies are those it holds."""

    users: int
    movies: int
    embedding: int
    genres: int
    first: int
    second: int
    outputs: int


class Examples(NamedTuple):
    """States: rows of the tables of users and movies, and the movies' genres."""

    user: Ints  # [n]
    movie: Ints  # [n]
    genres: Single  # [n, G]


class Answers(NamedTuple):
    """Row by row; `second` is −1 where a score was rated, and `score` is 0 where two compared."""

    first: Ints  # [R], places in the examples
    second: Ints  # [R]
    score: Single  # [R], on the scale of the utility
    value: Single  # [R], in [−1, 1]


class Rules(NamedTuple):
    """How to learn: of the steps, of the policy's losses, of the reward model's."""

    batch: int
    lr: float
    decay: float = 0.0  # pulls all weights to 0, by lr·decay per step (AdamW)
    plain: bool = False  # steps without Adam, of the policy
    reinforce: bool = False  # REINFORCE instead of Q-learning
    temperature: float = 1.0  # of the policy
    scale: float = 0.5  # of the logistic noise in a person's answers
    slack: float = 0.5  # half the width of "right"


class Work(NamedTuple):
    """Scratch for B states; `gradient` is of the whole vector."""

    picks: Ints  # [B], which examples
    x: Single  # [B, d]
    h1: Single  # [B, H1]
    h2: Single  # [B, H2]
    out: Single  # [B, outputs]
    d1: Single  # [B, H1], derivatives of the loss
    d2: Single  # [B, H2]
    dout: Single  # [B, outputs]
    gradient: Single  # [P]


@_compiled
def part_outputs(weights: Single, sizes: Sizes, examples: Examples) -> Single:
    work = scratch(sizes, examples.user.size, np.empty(0, np.float32))
    work.picks[:] = np.arange(examples.user.size)
    forward(weights, sizes, examples, work)
    return work.out


@_compiled
def scratch(sizes: Sizes, count: int, gradient: Single) -> Work:
    d = 2 * sizes.embedding + sizes.genres
    return Work(
        np.zeros(count, np.int64),
        np.empty((count, d), np.float32),
        np.empty((count, sizes.first), np.float32),
        np.empty((count, sizes.second), np.float32),
        np.empty((count, sizes.outputs), np.float32),
        np.empty((count, sizes.first), np.float32),
        np.empty((count, sizes.second), np.float32),
        np.zeros((count, sizes.outputs), np.float32),
        gradient,
    )


@_compiled
def layers(vector: Single, sizes: Sizes) -> Layers:
    """Views of the dense part: W1 [d, H1], b1, W2 [H1, H2], b2, W3 [outputs, H2], b3."""
    d, h1, h2, out = 2 * sizes.embedding + sizes.genres, sizes.first, sizes.second, sizes.outputs
    o = (sizes.users + sizes.movies) * sizes.embedding
    p = o + d * h1
    q = p + h1
    r = q + h1 * h2
    s = r + h2
    t = s + out * h2
    return (
        vector[o:p].reshape(d, h1),
        vector[p:q],
        vector[q:r].reshape(h1, h2),
        vector[r:s],
        vector[s:t].reshape(out, h2),
        vector[t:],
    )


@_fused
def add_row(out: Single, factor: np.float32, row: Single) -> None:
    for j in range(out.size):
        out[j] += factor * row[j]


@_fused
def rectify(rows: Single, bias: Single) -> None:
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            z = rows[i, j] + bias[j]
            rows[i, j] = z if z > _ZERO else z * _ZERO  # NaN stays NaN


@_fused
def gate(rows: Single, heights: Single, bias: Single) -> None:
    """Where relu was flat nothing comes back; what does is also the bias's gradient."""
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            rows[i, j] = rows[i, j] if heights[i, j] > _ZERO else _ZERO
            bias[j] += rows[i, j]


@_compiled
def forward(weights: Single, sizes: Sizes, examples: Examples, work: Work) -> None:
    """Outputs of the examples `work.picks`."""
    w1, b1, w2, b2, w3, b3 = layers(weights, sizes)
    size = sizes.embedding
    for b in range(work.picks.size):
        user = examples.user[work.picks[b]] * size
        movie = (sizes.users + examples.movie[work.picks[b]]) * size
        work.x[b, :size] = weights[user : user + size]
        work.x[b, size : 2 * size] = weights[movie : movie + size]
        work.x[b, 2 * size :] = examples.genres[work.picks[b]]
    np.dot(work.x, w1, work.h1)
    rectify(work.h1, b1)
    np.dot(work.h1, w2, work.h2)
    rectify(work.h2, b2)
    for b in range(work.picks.size):
        work.out[b] = b3
        for a in range(sizes.outputs):
            for j in range(sizes.second):
                work.out[b, a] += work.h2[b, j] * w3[a, j]


@_compiled
def backward(weights: Single, sizes: Sizes, examples: Examples, work: Work) -> None:
    """The gradient of a loss whose derivative by the outputs is `work.dout`."""
    w1, _, w2, _, w3, _ = layers(weights, sizes)
    g1, c1, g2, c2, g3, c3 = layers(work.gradient, sizes)
    size = sizes.embedding
    work.gradient[:] = _ZERO
    work.d2[:] = _ZERO
    for b in range(work.picks.size):
        for a in range(sizes.outputs):
            slope = work.dout[b, a]
            add_row(work.d2[b], slope, w3[a])
            add_row(g3[a], slope, work.h2[b])
            c3[a] += slope
    gate(work.d2, work.h2, c2)
    np.dot(work.h1.T, work.d2, g2)
    np.dot(work.d2, w2.T, work.d1)
    gate(work.d1, work.h1, c1)
    np.dot(work.x.T, work.d1, g1)
    inward = np.dot(work.d1, w1[: 2 * size].T)
    for b in range(work.picks.size):
        user = examples.user[work.picks[b]] * size
        movie = (sizes.users + examples.movie[work.picks[b]]) * size
        add_row(work.gradient[user : user + size], _ONE, inward[b, :size])
        add_row(work.gradient[movie : movie + size], _ONE, inward[b, size:])


@_fused
def adam(
    weights: Single, gradient: Single, first: Single, second: Single, rules: Rules, count: int
) -> None:
    """Step number `count`, from 1."""
    keep, keep2 = np.float32(FIRST_DECAY), np.float32(SECOND_DECAY)
    new, new2 = np.float32(1 - FIRST_DECAY), np.float32(1 - SECOND_DECAY)
    step = np.float32(rules.lr / (1 - FIRST_DECAY**count))
    scale = np.float32(1 / (1 - SECOND_DECAY**count))
    shrink, tiny = np.float32(1 - rules.lr * rules.decay), np.float32(TINY)
    for i in range(weights.size):
        g = gradient[i]
        m, v = keep * first[i] + new * g, keep2 * second[i] + new2 * (g * g)
        # Means that are no longer fed would decay into numbers that processors are slow with.
        m = _ZERO if abs(m) < _LEAST else m
        v = _ZERO if v < _LEAST else v
        first[i], second[i] = m, v
        weights[i] = shrink * weights[i] - step * m / (np.sqrt(scale * v) + tiny)


@_compiled
def logistic(z: float) -> float:
    return 0.5 * (1 + math.tanh(0.5 * z))


@_compiled
def utility_slopes(work: Work, answers: Answers, picks: Ints, rules: Rules) -> float:
    """The loss of these answers (see `reward_model`), and its slopes by the utilities u.

    The first half of `work` are the answers' first examples, the second half their second ones.
    """
    count, total = picks.size, 0.0
    work.dout[:] = _ZERO
    for b in range(count):
        value = float(answers.value[picks[b]])
        size, up = abs(value), value > 0
        u = float(work.out[b, 0])
        if answers.second[picks[b]] < 0:
            away = u - float(answers.score[picks[b]])
            low = logistic((away - rules.slack) / rules.scale)
            high = logistic((-away - rules.slack) / rules.scale)
            total -= size * math.log(max(low if up else high, 1e-30))
            total -= (1 - size) * math.log(max(1 - low - high, 1e-30))
            push = low - 1 if up else 1 - high
            slope = size * push + (1 - size) * (low - high)
        else:
            ahead = u - float(work.out[count + b, 0])
            chosen = logistic((-ahead if up else ahead) / rules.scale)
            total -= size * math.log(max(chosen, 1e-30))
            slope = size * (1 - chosen) * (1 if up else -1)
            work.dout[count + b, 0] = -slope / (rules.scale * count)
        work.dout[b, 0] = slope / (rules.scale * count)
    return total


@_compiled
def learn_utility(
    weights: Single, sizes: Sizes, examples: Examples, answers: Answers, order: Ints, rules: Rules
) -> float:
    """Steps of Adam on a person's answers, `order` [epochs, R]; the last epoch's mean loss."""
    gradient, first = np.zeros_like(weights), np.zeros_like(weights)
    second = np.zeros_like(weights)
    epochs, count = order.shape
    batch = min(rules.batch, count)
    whole = scratch(sizes, 2 * batch, gradient)
    rest = scratch(sizes, 2 * (count % batch), gradient)
    steps, loss = 0, 0.0
    for epoch in range(epochs):
        loss = 0.0
        for start in range(0, count, batch):
            work = whole if start + batch <= count else rest
            size = work.picks.size // 2
            picks = order[epoch, start : start + size]
            for b in range(size):
                other = answers.second[picks[b]]
                work.picks[b] = answers.first[picks[b]]
                work.picks[size + b] = work.picks[b] if other < 0 else other
            forward(weights, sizes, examples, work)
            loss += utility_slopes(work, answers, picks, rules)
            backward(weights, sizes, examples, work)
            steps += 1
            adam(weights, gradient, first, second, rules, steps)
    return loss / count
