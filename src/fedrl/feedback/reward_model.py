"""A client's private reward model: a small network that learns what its person likes.

u(s) is the utility of a state, in the unit of the scores that people are asked about and counted
from where "high" begins: a model that has been told nothing says 0, and so changes nothing. All
answers so far speak of the same u:

    rate      to a score p a person says "too low" with probability σ((u − p − slack) / scale),
              "too high" with σ((p − slack − u) / scale), else "right": an ordered logit, so that
              answers to other scores, and "right" as well, tell of u
    compare   the first is preferred with probability σ((u₁ − u₂) / scale) (Bradley and Terry); no
              preference teaches nothing, because a simulated person says 0 where the model's order
              is right and a living one where neither is better

H = tanh(u) lies in [−1, 1], as the theory wants it (Assumption 6). An answer between two whole ones
counts for both, in proportion.

The network and the answers are the client's own: it keeps them in its private state and never sends
them.
"""

from __future__ import annotations

import numpy as np

from fedrl.core.seeding import generator
from fedrl.feedback import rating_kernels as kernels
from fedrl.feedback import rating_network as network
from fedrl.feedback.rating_kernels import Answers, Examples, Ints, Rules, Single, Sizes

EMBEDDING, HIDDEN = 16, (32, 16)
BATCH, DECAY = 32, 0.01


def sizes(users: int, movies: int, genres: int) -> Sizes:
    return Sizes(users, movies, EMBEDDING, genres, *HIDDEN, 1)


def init(shape: Sizes, seed: int) -> Single:
    """One that was told nothing: its last layer is zero."""
    vector = network.pack(
        network.init_weights(shape, seed), np.arange(shape.users), np.arange(shape.movies)
    )
    vector[-HIDDEN[1] - 1 :] = 0
    return vector


def predict(weights: Single, shape: Sizes, examples: Examples) -> Single:
    """H [n]: what the person is expected to say of choosing "high"."""
    return np.tanh(kernels.part_outputs(weights, shape, examples)[:, 0])


def fit(
    weights: Single,
    shape: Sizes,
    examples: Examples,
    answers: Answers,
    epochs: int,
    lr: float,
    seed: int,
) -> Single:
    """The weights after these epochs over all answers."""
    weights = weights.copy()
    kernels.learn_utility(
        weights, shape, examples, answers, passes(len(answers.first), epochs, seed),
        Rules(BATCH, lr, DECAY),
    )  # fmt: skip
    return weights


def passes(count: int, epochs: int, seed: int) -> Ints:
    random = generator(seed, "reward_model/order")
    return np.stack([random.permutation(count) for _ in range(epochs)])
