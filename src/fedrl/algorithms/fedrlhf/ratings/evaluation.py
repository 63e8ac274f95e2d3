"""How networks are evaluated: a client's own by the client, the server's on held-out ratings.

A server's network without rows of users (`users = "private"`) knows nobody: it has one row, which
stands for everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fedrl.algorithms.fedrlhf.ratings import metrics
from fedrl.algorithms.fedrlhf.ratings.client_data import (
    ClientRatings,
    Person,
    catalogue,
    people_of,
    states,
)
from fedrl.core.types import Metrics, UserError
from fedrl.envs.ratings import OwnRatings, World
from fedrl.feedback import rating_network as network
from fedrl.feedback.rating_kernels import Examples, Single

Networks = Sequence[network.Weights]


class Evaluation(NamedTuple):
    """On this world; `high` gives π(high | s) [n] of a network."""

    world: World
    private: bool
    high: Callable[[network.Weights, Examples], np.ndarray]

    def personal(self, data: ClientRatings, own: network.Weights, sent: network.Weights) -> Metrics:
        """What a client tells of its own policy: how it does on held-out ratings, and P_k.

        P_k is over all movies that the client rated, and against the policy that it was sent; once
        more over the held-out ones alone, the states of `personal/return`. Where it is the clients
        who evaluate, also how the policy does that they were sent.
        """
        genres = catalogue(self.world, data.people[0].owner).genres
        rows = []
        for row, person in zip(data.users.tolist(), data.people, strict=True):
            held = states(person.ratings, row, genres, "held")
            every = states(person.ratings, row, genres, "all").examples
            far = metrics.divergence(self.high(own, every), self.high(sent, every))
            there = self.high(own, held.examples), self.high(sent, held.examples)
            rows.append(metrics.PersonalRow(held, *there, far))
        found = metrics.mean_personal(rows)
        if isinstance(self.world, OwnRatings) and self.world.held_out == "clients":
            found |= metrics.mean_held(rows)
        return found

    def correct(self, data: ClientRatings, weights: network.Weights) -> np.ndarray:
        """Of every rating that a client holds out, whether the network is right [n]."""
        genres = catalogue(self.world, data.people[0].owner).genres
        rows = []
        for row, person in zip(data.users.tolist(), data.people, strict=True):
            held = states(person.ratings, row, genres, "held")
            rows.append(metrics.correct(self.high(weights, held.examples), held.rating))
        return np.concatenate(rows).astype(float)

    def of_users(self, networks: Networks, owners: Sequence[Sequence[int]]) -> Metrics:
        """The server's networks on what the users hold out who were dealt to their clients."""
        pairs = [(one, owner) for one, group in zip(networks, owners) for owner in group]
        return metrics.mean_metrics([self._of_user(one, owner) for one, owner in pairs])

    def public(self, networks: Networks) -> Metrics:
        """The server's networks on ratings of nobody's."""
        assert isinstance(self.world, OwnRatings)
        folder = self.world.plain
        if not folder.users:
            raise UserError("partition.folder: public holds no ratings to evaluate on")
        people = [Person("", -1, user) for user in folder.users]
        return metrics.mean_public(
            [self._judged(one, person, folder.genres) for one in networks for person in people]
        )

    def by_client(self, weights: network.Weights) -> np.ndarray:
        """Accuracy on what each client holds out [N]."""
        accuracies = []
        for owner in range(self.world.clients):
            genres = catalogue(self.world, owner).genres
            rows = [self._judged(weights, one, genres) for one in people_of(self.world, owner)]
            accuracies.append(metrics.accuracy(rows))
        return np.array(accuracies)

    def _of_user(self, weights: network.Weights, owner: int) -> Metrics:
        (person,) = people_of(self.world, owner)
        genres = catalogue(self.world, owner).genres
        train = states(person.ratings, self._row(person), genres, "train")
        held, high = self._judged(weights, person, genres)
        return metrics.user_metrics(held, high, train, self.high(weights, train.examples))

    def _judged(self, weights: network.Weights, person: Person, genres: Single) -> metrics.Judged:
        held = states(person.ratings, self._row(person), genres, "held")
        return metrics.Judged(held, self.high(weights, held.examples))

    def _row(self, person: Person) -> int:
        return 0 if self.private else person.owner
