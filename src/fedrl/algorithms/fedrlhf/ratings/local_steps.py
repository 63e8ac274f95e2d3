"""A client's steps from θ_t, on a vector of its own rows of the network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedrl.algorithms.fedrlhf.ratings.client_data import ClientRatings
from fedrl.algorithms.fedrlhf.ratings.policy import learn
from fedrl.algorithms.fedrlhf.ratings.settings import Settings
from fedrl.core import seeding
from fedrl.core.types import Job, Metrics, Tensors
from fedrl.feedback import rating_network as network
from fedrl.feedback.rating_kernels import Ints, Rules, Sizes

Before = Callable[[network.Weights, Ints], np.ndarray]
"""Rewards R_k(s, a) [n, 2] by which a step is taken, from the client's rows by then and the places
of the step's movies."""


def improve(
    settings: Settings,
    shared: Sizes,
    job: Job,
    data: ClientRatings,
    rewards: np.ndarray | Before,
) -> tuple[network.Weights, Metrics, Tensors]:
    """The client's rows afterwards, how it went, and Adam's memory; `shared` are θ's sizes.

    `rewards` are those of all steps, or told before each.
    """
    sizes = shared._replace(users=len(data.users), movies=len(data.movies))
    vector = network.pack(job.broadcast, data.users, data.movies)
    random = seeding.generator(job.seed, "local")
    count = len(data.appeal)
    if settings.local_steps:
        order = random.integers(0, count, (1, settings.local_steps * settings.batch))
    else:
        order = np.stack([random.permutation(count) for _ in range(settings.local_epochs)])
    rules = Rules(
        settings.batch, settings.lr, plain=settings.optimizer == "sgd",
        reinforce=settings.method == "policy-gradient", temperature=settings.temperature,
    )  # fmt: skip
    adam, chances = network.adam_memory(job.state, vector.size), random.random(order.shape)

    def learned(paid: np.ndarray, *part: slice) -> tuple[float, float]:
        return learn(
            vector, sizes, data.train, paid, order[part], chances[part], rules, adam.moments,
            adam.steps,
        )  # fmt: skip

    if isinstance(rewards, np.ndarray):
        reward, loss = learned(rewards)
    else:
        for turn in range(len(order)):
            reward, loss = 0.0, 0.0
            for start in range(0, order.shape[1], settings.batch):
                part = slice(turn, turn + 1), slice(start, start + settings.batch)
                places = order[part][0]
                got, missed = learned(rewards(network.unpack(vector, sizes), places), *part)
                reward += got * len(places) / order.shape[1]
                loss += missed * len(places) / order.shape[1]
    trained = {"train/reward": reward, "train/loss": loss, "env/steps": float(order.size)}
    kept = settings.optimizer_state == "kept" and settings.optimizer == "adam"
    return network.unpack(vector, sizes), trained, adam._asdict() if kept else {}
