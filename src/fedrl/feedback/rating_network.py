"""The network of policies and of reward models: embeddings, genres, two hidden layers.

    x = (user's embedding, movie's embedding, genres)
    h1 = relu(x W1 + b1)    h2 = relu(h1 W2 + b2)    out = h2 W3ᵀ + b3

A network is two tables and the dense layers, which is also what is sent. A client computes on a
vector of its own rows alone: its users' embeddings, those of the movies it trains on, the dense
layers. Adam moves a number only once it has had a gradient, so leaving the other rows out changes
nothing, and a step costs what the client's movies do, not the catalogue.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedrl.core.types import Tensors
from fedrl.feedback import rating_kernels as kernels
from fedrl.feedback.rating_kernels import Examples, Ints, Single, Sizes

Weights = Mapping[str, Single]
"""The tables `user` and `movie`, a row for each, and the dense `layers` as one vector."""
SPREAD = 0.05
"""Of embeddings at first, uniform within ±; small, so that a movie never seen says little."""


class AdamMemory(NamedTuple):
    """What Adam remembers of a vector's earlier steps."""

    moments: Single  # [2, P]: means of gradients and of their squares
    steps: Ints  # [1]


def adam_memory(state: Tensors | None, size: int) -> AdamMemory:
    """As a client has kept it, or nothing yet; a copy, for steps to change."""
    if state is None or "moments" not in state:
        return AdamMemory(np.zeros((2, size), np.float32), np.zeros(1, np.int64))
    return AdamMemory(np.array(state["moments"]), np.array(state["steps"]))


def init_weights(sizes: Sizes, seed: int) -> Weights:
    """A network's first weights: dense layers uniform within ± 1/√inputs, biases as well."""
    random = np.random.default_rng(seed)
    d, h1, h2 = 2 * sizes.embedding + sizes.genres, sizes.first, sizes.second
    counts = ((d + 1) * h1, d), ((h1 + 1) * h2, h1), ((h2 + 1) * sizes.outputs, h2)
    dense = [random.uniform(-1, 1, count) / math.sqrt(inputs) for count, inputs in counts]
    tables = {
        name: init_rows((count, sizes.embedding), random)
        for name, count in (("user", sizes.users), ("movie", sizes.movies))
    }
    return tables | {"layers": np.concatenate(dense).astype(np.float32)}


def init_rows(shape: tuple[int, int], random: np.random.Generator) -> Single:
    """First rows of an embedding."""
    return random.uniform(-SPREAD, SPREAD, shape).astype(np.float32)


def pack(weights: Weights, users: Ints, movies: Ints) -> Single:
    """These rows and the dense layers as one vector, which is a copy."""
    user, movie = weights["user"][users], weights["movie"][movies]
    return np.concatenate([user.ravel(), movie.ravel(), weights["layers"]]).astype(np.float32)


def unpack(vector: Single, sizes: Sizes) -> Weights:
    """The vector's parts, as tables."""
    cut = sizes.users * sizes.embedding
    end = cut + sizes.movies * sizes.embedding
    return {
        "user": vector[:cut].reshape(sizes.users, sizes.embedding),
        "movie": vector[cut:end].reshape(sizes.movies, sizes.embedding),
        "layers": vector[end:],
    }


def outputs(weights: Weights, sizes: Sizes, examples: Examples) -> Single:
    """[n, outputs] of all these states, from the tables of a network."""
    users, user = np.unique(examples.user, return_inverse=True)
    movies, movie = np.unique(examples.movie, return_inverse=True)
    part = sizes._replace(users=len(users), movies=len(movies))
    rows = Examples(user.astype(np.int64), movie.astype(np.int64), examples.genres)
    return kernels.part_outputs(pack(weights, users, movies), part, rows)
