"""FedRLHF with a linear policy: a recommender that is fitted to people's answers, and to them only.

Ours (`algorithm.policy = "linear"`), with the paper's federation and feedback in another order:
where the paper's client fits a reward model to its answers and then a network to the rewards, here
the model of what people like is the policy. It has few weights per person, because people give few
answers, and shares what people agree on.

    round t     broadcast w, movies' rows, and sums of earlier rounds: who holds, who watches
      client k  asks its people about movies that it trains on
                epochs over all answers so far: steps down F_k (`feedback.linear_utility`)
                keeps its people's rows, sends the changes of w and of movies' rows, and marks
      server    w += mean of the changes; a movie's row += their mean over its holders
                sums of the marks: how many hold a row, how many people watched a movie

π(high | s) = σ(u / T), and u is in stars, so that people are asked about the score that is
predicted. R0 and λ are not in it (of a client with λ = 0 nobody is asked), nor any rating that
nobody asked about. That people's rows are fitted first, and then what is shared with these fixed,
is FedAlt (Pillutla et al., "Federated learning with partial model personalization", 2022).

F = Σ_k F_k, because a client's F_k has its part of what is common: of a movie's penalty one n-th
where n clients hold its row, which the sum of marks tells it. One client alone learns F as it is.

How often a movie is watched is a feature: how many people train on it, those of whoever asks left
out (a movie would otherwise look more popular where it is trained on than where it is held out).
Which movies these are is a client's secret, so the counts are only ever sums: with `privacy.secure`
the server sees nothing else. In a plain sum (without it) the server sees every client's marks, and
the rows that a client changes tell it the same, so that across machines such runs are refused
(docs/privacy.md). With `rows = "all"` there are no counts, and no popularity.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from fedrl.algorithms.fedrlhf.ratings import rating_queries, user_rows
from fedrl.algorithms.fedrlhf.ratings.algorithm import FedRLHF
from fedrl.algorithms.fedrlhf.ratings.client_data import (
    MARK,
    ClientRatings,
    catalogue,
    mean_over_holders,
    row_marks,
)
from fedrl.algorithms.fedrlhf.ratings.metrics import EDGE
from fedrl.algorithms.fedrlhf.ratings.rating_queries import QueryMemory, RatingQuery
from fedrl.algorithms.fedrlhf.ratings.recommendations import write_effect
from fedrl.algorithms.fedrlhf.ratings.settings import Settings
from fedrl.core import seeding
from fedrl.core.types import Job, Metrics, Result, Spec, Tensors
from fedrl.envs.ratings import World
from fedrl.feedback import linear_utility as linear
from fedrl.feedback import rating_network as network
from fedrl.feedback.linear_utility import Shape, States
from fedrl.feedback.queries import OppositeSource
from fedrl.feedback.rating_kernels import Examples, Single, Sizes

SPREAD = 0.1
"""Deviation of movies' factors at first; people's are 0."""
SUMS = ("held", "watched")
"""By movie: clients that hold its row, and people who train on it."""


class LinearFedRLHF(FedRLHF):
    """See the module's docstring."""

    def __init__(
        self, settings: Settings, world: World, client_env_ids: Sequence[Sequence[int]]
    ) -> None:
        super().__init__(settings, world, client_env_ids)
        self.counts = frozenset(f"{name}/movie" for name in SUMS if self.by_holders)
        # Without counts, too: the rows that a client changes are those of movies it asked about.
        self.in_secret = self.counts | {"movie"}

    @cached_property
    def heaviest(self) -> float:
        """All weigh the same: what is added up are people and clients."""
        return 1.0

    @cached_property
    def shape(self) -> Shape:
        """Of the model that all share."""
        known = catalogue(self.world)
        return Shape(0, len(known.movies), known.genres.shape[1] + 2, self.settings.rank)

    # The server

    def init(self, seed: int) -> Tensors:
        _, (movies, width) = self.shape.rows
        rows = np.zeros((movies, width), np.float32)
        random = seeding.generator(seed, "factors")
        rows[:, 1:] = SPREAD * random.standard_normal((movies, width - 1))
        state: Tensors = {"movie": rows, "layers": np.zeros(self.shape.features, np.float32)}
        return state | {name: np.zeros(movies, np.float32) for name in SUMS}

    def broadcast(self, state: Tensors, round: int) -> Tensors:
        return {name: state[name] for name in (*self.sent, *SUMS)}

    def declare(self, broadcast: Tensors) -> dict[str, Spec]:
        specs = {name: Spec(broadcast[name].shape, "float32") for name in self.sent}
        return specs | {name: Spec(broadcast["held"].shape, "float32") for name in self.counts}

    def step_partial(self, state: Tensors, mean: Tensors, round: int, share: float) -> Tensors:
        """Sums of a part of the clients are scaled up to all, and replace that part of the old."""
        after = dict(state)
        change = {name: mean[name] for name in self.sent}
        if self.by_holders:
            clients = len(self.client_env_ids)
            there = clients * share
            change["movie"] = mean_over_holders(mean["movie"], mean["held"]["movie"], 1 / there)
            for name in SUMS:
                counted = np.round(mean[name]["movie"] / MARK * there) / np.float32(share)
                after[name] = state[name] + np.float32(share) * (counted - state[name])
        return after | {name: state[name] + change[name] for name in self.sent}

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        return self.step_partial(state, mean, round, 1.0)

    # A client

    def with_users(self, job: Job) -> Job:
        (_, width), _ = self.shape.rows
        return user_rows.restored(job, self.client_data[job.client], width, drawn=False)

    def local(self, job: Job) -> Result:
        return self._answered(self.with_users(job))

    def local_many(self, jobs: Sequence[Job]) -> list[Result]:
        """One after the other: asking people takes longer here than the kernels do."""
        return [self.local(job) for job in jobs]

    def poisoned(self, job: Job) -> Result:
        return self._answered(self.with_users(job), opposite=True)

    def _answered(self, job: Job, opposite: bool = False) -> Result:
        data, theta = self.client_data[job.client], job.broadcast
        memory = self.ask(job, opposite)
        after, trained = self.fit(job, data, memory)
        heard = 0 if job.state is None else int(job.state["heard"][0])
        kept: Tensors = {"personal": {"user": after["user"]}, **self.kept_answers(memory)}
        self.write_effect(job, data, kept, memory)
        rows = np.zeros_like(theta["movie"])
        rows[data.movies] = after["movie"] - theta["movie"][data.movies]
        update: Tensors = {"movie": rows, "layers": after["layers"] - theta["layers"]}
        if self.by_holders:
            update |= marks(data, memory, len(rows))
        policy = self.personal_policy(theta, kept, job.client)
        stranger = {**theta, "user": np.zeros_like(after["user"])}
        told = self.evaluation().personal(data, policy, stranger)
        answers = {"env/answers": float(max(0, len(memory.answered) - heard))}
        return Result(job.client, update, 1.0, kept, trained | told | answers)

    def write_effect(
        self, job: Job, data: ClientRatings, kept: Tensors, memory: QueryMemory
    ) -> None:
        """Without answers a person's rows are 0: to the policy everybody is a stranger then."""

        def without() -> Tensors:
            return {**job.broadcast, "user": np.zeros_like(kept["personal"]["user"])}

        genres = catalogue(self.world, data.people[0].owner).genres
        policy = self.personal_policy(job.broadcast, kept, job.client)
        write_effect(
            self.settings, data, self.probability_high, genres, memory, job.round, without, policy
        )

    def kept_answers(self, memory: QueryMemory) -> Tensors:
        """As `kept_feedback`, where there is no reward model."""
        live = self.settings.feedback == "live"
        queries = memory.save_queries() if live else memory.save()
        return {"heard": np.array([len(memory.answered)]), "answers": queries}

    def ask(self, job: Job, opposite: bool = False) -> QueryMemory:
        """All answers so far, and those to this round's queries."""
        settings, data = self.settings, self.client_data[job.client]
        memory = rating_queries.restore(None if job.state is None else job.state["answers"])
        states = self.states(job.broadcast, data)
        likes = linear.utilities(pack(job.broadcast, data), self.part(data), states)
        person = self.feedback_source(data)
        source = (lambda user: OppositeSource(person(user))) if opposite else person
        counts = settings.rating_queries, settings.preference_queries
        return rating_queries.ask(
            data, memory, EDGE + likes, counts, source, job.seed, most=settings.most_queries,
            once=not settings.ask_again,
        )  # fmt: skip

    def fit(
        self, job: Job, data: ClientRatings, memory: QueryMemory
    ) -> tuple[network.Weights, Metrics]:
        """The client's rows after its steps on all answers, its people's first; and how it went."""
        settings, shape = self.settings, self.part(data)
        vector, loss = pack(job.broadcast, data), 0.0
        if settings.feedback == "live":  # answers that were taken back leave nothing behind
            vector[: job.broadcast["user"].size] = 0.0
        if memory.answered:
            answers = rating_queries.answer_arrays(memory)
            states = self.states(job.broadcast, data)
            holders = job.broadcast["held"][data.movies].astype(np.float64)
            decays = settings.decay, settings.movie_decay
            weighs = linear.penalty(
                shape, states, answers, decays, holders, len(self.client_env_ids)
            )
            for own, steps in ((True, settings.local_epochs), (False, settings.movie_epochs)):
                loss = linear.learn(vector, shape, states, answers, weighs, settings.lr, steps, own)
        passes = settings.local_epochs + settings.movie_epochs
        trained = {"train/loss": loss, "env/steps": float(passes * len(memory.answered))}
        return linear.unpack(vector, shape), trained

    def part(self, data: ClientRatings) -> Shape:
        return self.shape._replace(users=len(data.users), movies=len(data.movies))

    def states(self, theta: Tensors, data: ClientRatings) -> States:
        """What the client trains on; each person's own watching is left out of how often a movie
        is watched."""
        train = data.train
        watched = popularity(theta["watched"], data.movies[train.movie], own=1)
        return States(train.user, train.movie, linear.features(train.genres, watched))

    def personal_policy(self, theta: Tensors, kept: Tensors, client: int) -> Tensors:
        """What all share as it was received, with the rows of the client's own people."""
        return {**theta, "user": kept["personal"]["user"]}

    def warm_up(self) -> None:
        data = self.client_data[0]
        memory = QueryMemory({RatingQuery(0, -1, 4.0): 0.0}, [])
        self.fit(self.with_users(Job(0, self.init(0), None, 0)), data, memory)

    # Evaluation

    def probability_high(
        self, weights: network.Weights, examples: Examples, sizes: Sizes | None = None
    ) -> np.ndarray:
        """π(high | s) [n], of movies that these people do not train on; the tables tell `sizes`."""
        watched = popularity(weights["watched"], examples.movie)
        states = States(examples.user, examples.movie, linear.features(examples.genres, watched))
        shape = self.shape._replace(users=len(weights["user"]))
        tables = (weights["user"].ravel(), weights["movie"].ravel(), weights["layers"])
        likes = linear.utilities(np.concatenate(tables), shape, states)
        return 0.5 * (1 + np.tanh(0.5 * likes / self.settings.temperature))

    def final(self, state: Tensors) -> Tensors:
        (_, width), _ = self.shape.rows
        return {**state, "user": np.zeros((1, width), np.float32)}


def pack(theta: Tensors, data: ClientRatings) -> Single:
    """The client's people's rows, those of its movies and what is common, as one vector."""
    movies = theta["movie"][data.movies]
    parts = (theta["user"].ravel(), movies.ravel(), theta["layers"])
    return np.concatenate(parts).astype(np.float32)


def marks(data: ClientRatings, memory: QueryMemory, count: int) -> Tensors:
    """Of the movies whose rows its answers are about, and of how many of its people watched."""
    asked = [place for query in memory.answered for place in query[:2] if place >= 0]
    held = data.movies[data.train.movie[np.array(asked, np.int64)]]
    people = np.bincount(data.movies[data.train.movie], minlength=count)
    return {
        "held": {"movie": row_marks(held, count)},
        "watched": {"movie": (MARK * people).astype(np.float32)},
    }


def popularity(watched: Single, movies: np.ndarray, own: int = 0) -> np.ndarray:
    """[n] in [0, 1] of these movies, on the scale of the most watched; `own` are left out."""
    most = np.log1p(max(float(watched.max(initial=0.0)), 1.0))
    return np.log1p(np.maximum(watched[movies] - own, 0)) / most
