"""FedRLHF: reinforcement learning from human feedback that never leaves its client.

Paper: "FedRLHF: a convergence-guaranteed federated framework for privacy-preserving and
personalized RLHF", Algorithm 1, with Q-learning on movie ratings (section 6.1, appendix D.1).

    round t     broadcast θ_t, a network Q(s, a): s = (user, movie, genres), a ∈ {not high, high}
      client k  asks its person about predictions of θ_t on movies that it trains on (`ask`: before
                every step, of θ on that step's movies, as the paper does: `step_feedback`)
                fits its reward model to all answers so far; H_k = its output, in [−1, 1]
                R_k(s, a) = ±(R0_k(s) + λ_k H_k(s)), plus for "high" and minus for "not high"
                θ ← θ_t; epochs over its movies: acts by π = softmax(Q / T), Q(s, a) → R_k(s, a)
                keeps θ as its personal policy π_k, sends θ − θ_t
      server    θ_{t+1} = θ_t + mean (θ − θ_t), weighted by examples (aggregate.name)

The paper's mean is over all clients. A client that has no rating of a movie sends 0 for that row of
the embeddings, and a user's row has one client: of K it gets a K-th of what that one learned. With
`rows = "holders"` (ours) a row's mean is over those who hold it; see `client_data`. With
`users = "private"` (ours) θ has no rows of users: a client keeps those of its own, drawn in its
first round, and nobody else sees them; to a network without one's row one's row is zero.

With `method = "policy-gradient"` the network's outputs are no values but preferences, and a step is
REINFORCE, R_k(s, a) ∇ log π(a | s), on the same bandit (`policy`): what the paper's theorems are
about, with `optimizer = "sgd"` and `local_steps` to the letter (`bound`). With `average` the mean
of θ_0 … θ_{T-1} is returned.

The predicted score is π(high | s) = σ((Q(s, high) − Q(s, not high)) / T); a person sees it in stars
(`metrics.stars`). There is no next state, so the target of Q-learning is the reward itself, and
only of the action that was taken. R0 is what watching says (`envs.movielens`), never the rating;
with λ = 0 this is plain federated learning from R0, to the bit.

What leaves a client: the change of θ and the numbers in `reports`. Queries, answers and the
reward model stay. θ's change is the paper's message; its rows tell the server which movies a client
trained on, which only secure aggregation would hide.

Where we differ from the authors' release: evaluation on held-out ratings only; scores and ratings
on one scale; genres by the catalogue's order; feedback by the ids it was given for; the reward
model's output is in the target, with a weight λ per client; the label is no reward. Adam starts
anew in every round of a federation; who learns alone keeps its moments (`optimizer_state`). The
paper does not say how many queries are made, how noisy the answers are, the batch, T or λ: these
are settings.

`reward = "labels"` is for comparison: the true label as the reward of the action that was taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np

from fedrl.algorithms.fedrlhf.feedback_weights import client_weights
from fedrl.algorithms.fedrlhf.ratings import local_steps, people, rating_queries, user_rows
from fedrl.algorithms.fedrlhf.ratings.client_data import (
    ClientRatings,
    catalogue,
    client_ratings,
    mean_over_holders,
    movies_digest,
    row_marks,
)
from fedrl.algorithms.fedrlhf.ratings.evaluation import Evaluation
from fedrl.algorithms.fedrlhf.ratings.hearing import Hearing
from fedrl.algorithms.fedrlhf.ratings.rating_queries import QueryMemory, RatingQuery
from fedrl.algorithms.fedrlhf.ratings.recommendations import write_effect
from fedrl.algorithms.fedrlhf.ratings.settings import Settings
from fedrl.core import seeding
from fedrl.core.lazy_sequence import LazySequence
from fedrl.core.threads import kernel_threads
from fedrl.core.types import SHARE, Job, Metrics, Range, Result, Spec, Tensors, UserError
from fedrl.envs.ratings import HIGH, OwnRatings, World
from fedrl.feedback import rating_network as network
from fedrl.feedback import reward_model
from fedrl.feedback.rating_kernels import Sizes

PARTS = ("user", "movie", "layers")
ROWS = ("user", "movie")
"""Tables of which a client holds some rows: its users' and those of movies that it trains on."""


class FedRLHF(Hearing):
    """See the module's docstring."""

    initial_exchange = False
    sends_parameters = False  # though changes are named as the parameters are
    without_counts = 'algorithm.rows = "all"'
    reports = frozenset(
        {
            "train/reward", "train/loss", "personal/accuracy", "personal/correct",
            "personal/held_out", "personal/spearman", "personal/return", "personal/divergence",
            "personal/divergence_held", "held/accuracy", "held/ratings", "env/steps",
            "env/answers",
        }
    )  # fmt: skip
    ranges: Mapping[str, Range] = {
        "personal/accuracy": SHARE, "personal/spearman": Range(-1.001, 1.001),
        "held/accuracy": SHARE,
    }  # fmt: skip

    def __init__(
        self, settings: Settings, world: World, client_env_ids: Sequence[Sequence[int]]
    ) -> None:
        self.settings, self.world, self.client_env_ids = settings, world, client_env_ids
        self.private = settings.users == "private"
        self.own = world if isinstance(world, OwnRatings) else None
        if self.own is not None and not self.private:
            raise UserError(
                'partition.strategy is "own", whose users nobody else may know: set '
                'algorithm.users = "private"'
            )
        weights = client_weights(settings.lam, world.clients)
        people.check(settings, world.clients)

        def read(client: int) -> ClientRatings:
            return client_ratings(world, client_env_ids[client], weights, self.private)

        count = len(client_env_ids)
        self.client_data: Sequence[ClientRatings] = (
            LazySequence(count, read) if self.own is not None else [read(k) for k in range(count)]
        )
        self.sent = PARTS[1:] if self.private else PARTS
        self.sent_rows = ROWS[1:] if self.private else ROWS
        self.held_apart = frozenset(self.sent_rows)
        self.by_holders = settings.rows == "holders"
        self.counts = frozenset(f"held/{name}" for name in self.sent_rows if self.by_holders)

    @cached_property
    def heaviest(self) -> float:
        if self.own is not None:
            return self.own.heaviest
        return float(max(len(data.appeal) for data in self.client_data))

    @cached_property
    def sizes(self) -> Sizes:
        """Of the network that all share."""
        users, known = 0 if self.private else self.world.clients, catalogue(self.world)
        size, (first, second) = self.settings.embedding, self.settings.hidden
        return Sizes(
            users, len(known.movies), size, known.genres.shape[1], first, second, outputs=2
        )

    def agreement(self, client: int | None = None) -> dict[str, str]:
        """Of the movies, by their ids and genres: they say what rows of the network mean."""
        return {"catalogue": movies_digest(catalogue(self.world, client).movies)}

    # The server

    def init(self, seed: int) -> Tensors:
        weights = network.init_weights(self.sizes, seeding.derive(seed, "network"))
        first: Tensors = {name: weights[name] for name in self.sent}
        return first | ({"average": dict(first)} if self.settings.average else {})

    def broadcast(self, state: Tensors, round: int) -> Tensors:
        return {name: state[name] for name in self.sent}

    def declare(self, broadcast: Tensors) -> dict[str, Spec]:
        specs = {name: Spec(broadcast[name].shape, "float32") for name in self.sent}
        marked = self.sent_rows if self.by_holders else ()
        return specs | {f"held/{name}": Spec(specs[name].shape[:1], "float32") for name in marked}

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        change = {name: mean[name] for name in self.sent}
        if self.by_holders:  # at least the share of the lightest one among all others
            least = 1 / (len(self.client_env_ids) * self.heaviest)
            for name in self.sent_rows:
                change[name] = mean_over_holders(mean[name], mean["held"][name], least)
        after: Tensors = {name: state[name] + change[name] for name in self.sent}
        if self.settings.average:  # of θ_0 … θ_{t-1} when θ_t is reached
            past = state["average"]
            after["average"] = {
                p: past[p] + (state[p] - past[p]) / np.float32(round) for p in self.sent
            }
        return after

    # A client

    def local(self, job: Job) -> Result:
        job = self.with_users(job)
        return self._learn(job, *self.learn_feedback(job))

    def poisoned(self, job: Job) -> Result:
        """A client's work if its person said the opposite; where none is heard, its rewards do."""
        job = self.with_users(job)
        heard = self.hears(job.client)
        return self._learn(job, *self.learn_feedback(job, heard), sign=1 if heard else -1)

    def hears(self, client: int) -> bool:
        """Whether anybody's answers have a weight."""
        asks = self.settings.feedback != "none" and self.settings.reward != "labels"
        return asks and bool(self.client_data[client].weight.any())

    def with_users(self, job: Job) -> Job:
        """With the client's own rows, where these are private."""
        if not self.private:
            return job
        return user_rows.restored(job, self.client_data[job.client], self.settings.embedding)

    def _learn(self, job: Job, memory: QueryMemory, model: np.ndarray, sign: int = 1) -> Result:
        data = self.client_data[job.client]
        own, trained, adam = self.improve(job, data, sign * self.rewards(data, model))
        kept: Tensors = {"personal": own, **self.kept_feedback(memory, model), **adam}
        self.write_effect(job, data, kept, memory)
        return self.result(job, data, kept, trained, len(memory.answered))

    def write_effect(
        self, job: Job, data: ClientRatings, kept: Tensors, memory: QueryMemory
    ) -> None:
        """Show a living person what the answers changed (see `recommendations`)."""

        def without() -> Tensors:
            unheard = self.rewards(data, self.reward_model(job))  # live: one that was told nothing
            own, _, _ = self.improve(job, data, unheard)
            return self.personal_policy(job.broadcast, {"personal": own}, job.client)

        genres = catalogue(self.world, data.people[0].owner).genres
        policy = self.personal_policy(job.broadcast, kept, job.client)
        write_effect(
            self.settings, data, self.probability_high, genres, memory, job.round, without, policy
        )

    def result(
        self, job: Job, data: ClientRatings, kept: Tensors, trained: Metrics, heard: int
    ) -> Result:
        """What a client keeps and sends, of whose users so many answers were `heard` by now."""
        policy = self.personal_policy(job.broadcast, kept, job.client)
        update: Tensors = {name: policy[name] - job.broadcast[name] for name in self.sent}
        if self.by_holders:
            update |= self.counted(data, policy, kept)
        before = 0 if job.state is None else int(job.state["heard"][0])
        personal = self.evaluation().personal(data, policy, job.broadcast)
        reported = trained | personal | {"env/answers": float(max(0, heard - before))}
        return Result(job.client, update, float(len(data.appeal)), kept, reported)

    def counted(self, data: ClientRatings, policy: Tensors, kept: Tensors) -> Tensors:
        """Marks of the rows that a client holds, to be added up."""
        held = {"user": data.users, "movie": data.movies}
        return {"held": {name: row_marks(held[name], len(policy[name])) for name in self.sent_rows}}

    def kept_feedback(self, memory: QueryMemory, model: np.ndarray) -> Tensors:
        """What is kept of feedback; of a living person's answers only how many there are.

        They and the reward model, which follows from them, are made anew from the private folder.
        """
        heard = np.array([len(memory.answered)])
        if self.settings.feedback == "live":
            return {"heard": heard, "answers": memory.save_queries()}
        return {"heard": heard, "answers": memory.save(), "model": model}

    def local_many(self, jobs: Sequence[Job]) -> list[Result]:
        """A thread per client: the kernels release Python's lock."""
        threads = min(len(jobs), kernel_threads())
        if threads == 1:
            return [self.local(job) for job in jobs]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(self.local, jobs))

    def warm_up(self) -> None:
        """Compile, or load what was compiled before, without asking anybody."""
        data, start = self.client_data[0], self.init(0)
        sizes = self.reward_model_sizes(data)
        model = reward_model.init(sizes, 0)
        memory = QueryMemory({RatingQuery(0, -1, 4.0): 0.0}, [])
        answers = rating_queries.answer_arrays(memory)
        reward_model.fit(model, sizes, data.train, answers, 1, 0.0, 0)
        job = self.with_users(Job(0, start, None, 0))
        self.improve(job, data, self.rewards(data, model))

    def rewards(self, data: ClientRatings, model: np.ndarray) -> np.ndarray:
        """R_k(s, a) [n, 2] on the client's training movies."""
        if self.settings.reward == "labels":
            high = np.where(data.stars >= HIGH, np.float32(1), np.float32(-1))
        else:
            feedback = reward_model.predict(model, self.reward_model_sizes(data), data.train)
            high = data.appeal + data.weight * feedback
        return np.stack([-high, high], 1)

    def improve(
        self, job: Job, data: ClientRatings, rewards: np.ndarray
    ) -> tuple[network.Weights, Metrics, Tensors]:
        """Steps from θ_t: the client's rows of the network, how it went, and Adam's memory."""
        return local_steps.improve(self.settings, self.sizes, job, data, rewards)

    # Evaluation

    def personal_policy(self, theta: Tensors, kept: Tensors, client: int) -> Tensors:
        """The client's own network; of movies that it never trained on it knows what θ does."""
        data, own = self.client_data[client], kept["personal"]
        policy = {name: np.array(theta[name]) for name in ROWS}
        policy["user"][data.users], policy["movie"][data.movies] = own["user"], own["movie"]
        return policy | {"layers": own["layers"]}

    def evaluation(self) -> Evaluation:
        return Evaluation(self.world, self.private, self.probability_high)

    def final(self, state: Tensors) -> Tensors:
        """The network that is evaluated; to one without rows of users everybody is a stranger."""
        weights: Tensors = state["average"] if self.settings.average else state
        stranger = np.zeros((1, self.settings.embedding), np.float32)
        return {**weights, "user": stranger} if self.private else weights

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        """The server's networks on their clients' held-out ratings; see `metrics.mean_metrics`.

        Where clients bring their own, on nobody's, or not at all: clients say it themselves.
        """
        networks = [self.final(state) for state in states]
        if self.own is None:
            return self.evaluation().of_users(networks, owners)
        return self.evaluation().public(networks) if self.own.held_out == "public" else {}

    def judge(self, job: Job) -> np.ndarray:
        """Of every rating that a client holds out, whether the network that it was sent, with the
        rows that it keeps, says the right thing [n]."""
        weights = self.with_users(job).broadcast
        return self.evaluation().correct(self.client_data[job.client], weights)

    def evaluate_clients(self, state: Tensors, seed: int, episodes: int) -> np.ndarray:
        """Held-out accuracy of every client; all ratings count, `episodes` does not."""
        return self.evaluation().by_client(self.final(state))


def build(
    settings: Settings, world: World, rounds: int, client_env_ids: Sequence[Sequence[int]]
) -> FedRLHF:
    if settings.policy == "linear":
        from fedrl.algorithms.fedrlhf.ratings.linear import LinearFedRLHF

        return LinearFedRLHF(settings, world, client_env_ids)
    if settings.ask == "step":
        from fedrl.algorithms.fedrlhf.ratings.step_feedback import FedRLHFByStep

        return FedRLHFByStep(settings, world, client_env_ids)
    return FedRLHF(settings, world, client_env_ids)
