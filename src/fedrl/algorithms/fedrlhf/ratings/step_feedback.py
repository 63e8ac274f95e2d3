"""FedRLHF on ratings that asks before every step (`ask = "step"`), as the paper's Algorithm 1 does.

      client k  θ ← θ_t; for every minibatch B of its movies:
                  asks its person about predictions of θ on B (line 8)
                  fits its reward model to all answers so far; H_k = its output
                  R_k = R0_k + λ_k H_k (line 9), a step on B (lines 10 and 11)

With `ask = "round"` a client asks once, about θ_t and all its movies, and H_k stays for its steps.
Where a round is one step on all movies, both are the same to the bit. A person is asked as often as
there are steps, `rating_queries` and `preference_queries` at most each time; what was answered is
not asked again.
"""

from __future__ import annotations

import numpy as np

from fedrl.algorithms.fedrlhf.ratings import local_steps, metrics, rating_queries
from fedrl.algorithms.fedrlhf.ratings.algorithm import FedRLHF
from fedrl.algorithms.fedrlhf.ratings.client_data import ClientRatings
from fedrl.algorithms.fedrlhf.ratings.rating_queries import QueryMemory
from fedrl.core import seeding
from fedrl.core.types import Job, Result, Tensors
from fedrl.feedback import rating_network as network
from fedrl.feedback.rating_kernels import Ints


class FedRLHFByStep(FedRLHF):
    """See the module's docstring."""

    def local(self, job: Job) -> Result:
        return self._by_steps(self.with_users(job))

    def poisoned(self, job: Job) -> Result:
        heard = self.hears(job.client)
        return self._by_steps(self.with_users(job), heard, sign=1 if heard else -1)

    def _by_steps(self, job: Job, opposite: bool = False, sign: int = 1) -> Result:
        data = self.client_data[job.client]
        person = _Turns(self, job, data, opposite)

        def shaped(own: network.Weights, places: Ints) -> np.ndarray:
            return sign * self.rewards(data, person.ask(own, places))

        own, trained, adam = local_steps.improve(self.settings, self.sizes, job, data, shaped)
        feedback = self.kept_feedback(person.memory, person.model)
        kept: Tensors = {"personal": own, **feedback, **adam}
        self.write_effect(job, data, kept, person.memory)
        return self.result(job, data, kept, trained, len(person.memory.answered))


class _Turns:
    """What a client has heard and made of it, step by step."""

    memory: QueryMemory
    model: np.ndarray

    def __init__(
        self, algorithm: FedRLHFByStep, job: Job, data: ClientRatings, opposite: bool
    ) -> None:
        self.algorithm, self.job, self.data, self.opposite = algorithm, job, data, opposite
        self.memory = rating_queries.restore(None if job.state is None else job.state["answers"])
        self.model = algorithm.reward_model(job)
        self.steps = 0

    def ask(self, own: network.Weights, places: Ints) -> np.ndarray:
        """The reward model after a turn about these places, with the client's rows by then."""
        algorithm, data, seed = self.algorithm, self.data, self.job.seed
        if algorithm.settings.feedback == "none":
            return self.model
        sizes = algorithm.sizes._replace(users=len(data.users), movies=len(data.movies))
        scores = metrics.stars(algorithm.probability_high(own, data.train, sizes))
        turn = seeding.derive(seed, "step", self.steps) if self.steps else seed
        self.steps += 1
        self.memory, self.model = algorithm.hear(
            data, self.memory, self.model, scores, turn, self.opposite, places
        )
        return self.model
