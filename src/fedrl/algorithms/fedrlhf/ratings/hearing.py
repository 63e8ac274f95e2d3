"""What a client asks its people, and the reward model that it fits to all they have answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedrl.algorithms.fedrlhf.ratings import metrics, people, rating_queries
from fedrl.algorithms.fedrlhf.ratings.client_data import ClientRatings
from fedrl.algorithms.fedrlhf.ratings.rating_queries import QueryMemory
from fedrl.algorithms.fedrlhf.ratings.settings import Settings
from fedrl.core import seeding
from fedrl.core.types import Job
from fedrl.feedback import rating_network as network
from fedrl.feedback import reward_model
from fedrl.feedback.queries import FeedbackSource, OppositeSource
from fedrl.feedback.rating_kernels import Examples, Sizes


class Hearing:
    """The part of FedRLHF that is about feedback; all of it stays on the client."""

    settings: Settings
    client_data: Sequence[ClientRatings]

    @property
    def sizes(self) -> Sizes:
        """Of the network that all share."""
        raise NotImplementedError

    def train_examples(self, data: ClientRatings) -> Examples:
        """The client's training movies as the server numbers them."""
        train = data.train
        return Examples(data.users[train.user], data.movies[train.movie], train.genres)

    def probability_high(
        self, weights: network.Weights, examples: Examples, sizes: Sizes | None = None
    ) -> np.ndarray:
        """π(high | s) [n]; `sizes` of a client's own rows alone."""
        q = network.outputs(weights, sizes or self.sizes, examples).astype(np.float64)
        return 0.5 * (1 + np.tanh(0.5 * (q[:, 1] - q[:, 0]) / self.settings.temperature))

    def learn_feedback(self, job: Job, opposite: bool = False) -> tuple[QueryMemory, np.ndarray]:
        """Ask the client's person, and fit its reward model to all answers so far."""
        data = self.client_data[job.client]
        memory = rating_queries.restore(None if job.state is None else job.state["answers"])
        model = self.reward_model(job)
        if self.settings.feedback == "none":
            return memory, model
        scores = metrics.stars(self.probability_high(job.broadcast, self.train_examples(data)))
        return self.hear(data, memory, model, scores, job.seed, opposite)

    def hear(
        self, data: ClientRatings, memory: QueryMemory, model: np.ndarray, scores: np.ndarray,
        seed: int, opposite: bool = False, among: np.ndarray | None = None,
    ) -> tuple[QueryMemory, np.ndarray]:  # fmt: skip
        """What is known after people were asked about these scores [n], or some `among` them."""
        settings, person = self.settings, self.feedback_source(data)
        source = (lambda user: OppositeSource(person(user))) if opposite else person
        counts = settings.rating_queries, settings.preference_queries
        memory = rating_queries.ask(
            data, memory, scores, counts, source, seed, among, settings.most_queries,
            not settings.ask_again,
        )  # fmt: skip
        if memory.answered:
            model = reward_model.fit(
                model, self.reward_model_sizes(data), data.train,
                rating_queries.answer_arrays(memory), settings.reward_epochs, settings.reward_lr,
                seed,
            )  # fmt: skip
        return memory, model

    def reward_model(self, job: Job) -> np.ndarray:
        """As the client left it, or one that was told nothing.

        A living person may have taken answers back, which no fit can unlearn: then it is always
        the latter, and learns from the answers that stand.
        """
        if job.state is not None and "model" in job.state:
            return np.asarray(job.state["model"])
        sizes = self.reward_model_sizes(self.client_data[job.client])
        return reward_model.init(sizes, seeding.derive(job.seed, "reward_model"))

    def reward_model_sizes(self, data: ClientRatings) -> Sizes:
        return reward_model.sizes(len(data.users), len(data.movies), self.sizes.genres)

    def feedback_source(self, data: ClientRatings) -> Callable[[int], FeedbackSource]:
        """Who answers for each of the client's users."""
        return people.feedback_source(self.settings, data)
