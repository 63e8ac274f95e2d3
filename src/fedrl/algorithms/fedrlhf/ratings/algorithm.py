"""FedRLHF: reinforcement learning from human feedback that never leaves its client.

Paper: "FedRLHF: a convergence-guaranteed federated framework for privacy-preserving and
personalized RLHF", Algorithm 1, with Q-learning on movie ratings (section 6.1, appendix D.1).

    round t     broadcast θ_t, a network Q(s, a): s = (user, movie, genres), a ∈ {not high, high}
      client k  asks its person about predictions of θ_t on movies that it trains on
                fits its reward model to all answers so far; H_k = its output, in [−1, 1]
                R_k(s, a) = ±(R0_k(s) + λ_k H_k(s)), plus for "high" and minus for "not high"
                θ ← θ_t; epochs over its movies: acts by π = softmax(Q / T), Q(s, a) → R_k(s, a)
                keeps θ as its personal policy π_k, sends θ − θ_t
      server    θ_{t+1} = θ_t + mean (θ − θ_t), weighted by examples (aggregate.name)

The paper's mean is over all clients. A client that has no rating of a movie sends 0 for that row of
the embeddings, and a user's row has one client: of K it gets a K-th of what that one learned. With
`rows = "holders"` (ours) a row's mean is over those who hold it; see `client_data`.

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

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from fedrl.algorithms.fedrlhf.feedback_weights import client_weights
from fedrl.algorithms.fedrlhf.ratings import metrics, rating_queries
from fedrl.algorithms.fedrlhf.ratings.client_data import (
    ClientRatings,
    client_ratings,
    mean_over_holders,
    row_marks,
    user_states,
)
from fedrl.algorithms.fedrlhf.ratings.policy import learn
from fedrl.algorithms.fedrlhf.ratings.rating_queries import QueryMemory, RatingQuery
from fedrl.algorithms.fedrlhf.ratings.settings import Settings
from fedrl.core import seeding
from fedrl.core.threads import kernel_threads
from fedrl.core.types import SHARE, Job, Metrics, Range, Result, Spec, Tensors, UserError
from fedrl.envs.ratings import HIGH, RatingsWorld
from fedrl.feedback import rating_network as network
from fedrl.feedback import reward_model
from fedrl.feedback.queries import FeedbackSource, OppositeSource
from fedrl.feedback.rating_kernels import Examples, Rules, Sizes
from fedrl.feedback.sources import logged
from fedrl.feedback.sources.simulated import SimulatedPerson

PARTS = ("user", "movie", "layers")
ROWS = ("user", "movie")
"""Tables of which a client holds some rows: its users' and those of movies that it trains on."""
CLIENT = "{client}"


class FedRLHF:
    """See the module's docstring."""

    initial_exchange = False
    sends_parameters = False  # though changes are named as the parameters are
    held_apart = frozenset(ROWS)
    without_counts = 'algorithm.rows = "all"'
    reports = frozenset(
        {
            "train/reward", "train/loss", "personal/accuracy", "personal/correct",
            "personal/held_out", "personal/spearman", "personal/return", "personal/divergence",
            "personal/divergence_held", "env/steps", "env/answers",
        }
    )  # fmt: skip
    ranges: Mapping[str, Range] = {
        "personal/accuracy": SHARE, "personal/spearman": Range(-1.001, 1.001)
    }  # fmt: skip

    def __init__(
        self, settings: Settings, world: RatingsWorld, client_env_ids: Sequence[Sequence[int]]
    ) -> None:
        self.settings, self.world, self.client_env_ids = settings, world, client_env_ids
        weights = client_weights(settings.lam, world.clients)
        file = settings.feedback_file
        if settings.feedback == "logged" and world.clients > 1 and CLIENT not in file:
            raise UserError(
                f"algorithm.feedback_file is {file!r}, the same for {world.clients} clients: put "
                f"{CLIENT} where a client's number is to stand"
            )
        self.client_data = [client_ratings(world, owners, weights) for owners in client_env_ids]
        self.heaviest = float(max(len(data.appeal) for data in self.client_data))
        self.by_holders = settings.rows == "holders"
        self.counts = frozenset(f"held/{name}" for name in ROWS if self.by_holders)
        first, second = settings.hidden
        genres = world.genres.shape[1]
        self.sizes = Sizes(
            world.clients, len(world.movies), settings.embedding, genres, first, second, outputs=2
        )

    # The server

    def init(self, seed: int) -> Tensors:
        first: Tensors = dict(network.init_weights(self.sizes, seeding.derive(seed, "network")))
        return first | ({"average": dict(first)} if self.settings.average else {})

    def broadcast(self, state: Tensors, round: int) -> Tensors:
        return {name: state[name] for name in PARTS}

    def declare(self, broadcast: Tensors) -> dict[str, Spec]:
        specs = {name: Spec(broadcast[name].shape, "float32") for name in PARTS}
        if self.by_holders:
            specs |= {f"held/{name}": Spec(specs[name].shape[:1], "float32") for name in ROWS}
        return specs

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        change = {name: mean[name] for name in PARTS}
        if self.by_holders:  # at least the share of the lightest one among all others
            least = 1 / (len(self.client_env_ids) * self.heaviest)
            for name in ROWS:
                change[name] = mean_over_holders(mean[name], mean["held"][name], least)
        after: Tensors = {name: state[name] + change[name] for name in PARTS}
        if self.settings.average:  # of θ_0 … θ_{t-1} when θ_t is reached
            past = state["average"]
            after["average"] = {
                p: past[p] + (state[p] - past[p]) / np.float32(round) for p in PARTS
            }
        return after

    # A client

    def local(self, job: Job) -> Result:
        return self._learn(job, *self.learn_feedback(job))

    def poisoned(self, job: Job) -> Result:
        """A client's work if its person said the opposite; where none is heard, its rewards do."""
        asks = self.settings.feedback != "none" and self.settings.reward != "labels"
        heard = asks and bool(self.client_data[job.client].weight.any())
        return self._learn(job, *self.learn_feedback(job, heard), sign=1 if heard else -1)

    def _learn(self, job: Job, memory: QueryMemory, model: np.ndarray, sign: int = 1) -> Result:
        data = self.client_data[job.client]
        own, trained, adam = self.improve(job, data, sign * self.rewards(data, model))
        kept: Tensors = {"personal": own, **self.kept_feedback(memory, model), **adam}
        policy = self.personal_policy(job.broadcast, kept, job.client)
        update: Tensors = {name: policy[name] - job.broadcast[name] for name in PARTS}
        if self.by_holders:
            held = zip(ROWS, (data.users, data.movies), strict=True)
            update["held"] = {name: row_marks(rows, len(policy[name])) for name, rows in held}
        before = 0 if job.state is None else int(job.state["heard"][0])
        answers = float(max(0, len(memory.answered) - before))
        reported = trained | self.personal_metrics(job, policy) | {"env/answers": answers}
        return Result(job.client, update, float(len(data.appeal)), kept, reported)

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
        self.improve(Job(0, start, None, 0), data, self.rewards(data, model))

    def learn_feedback(self, job: Job, opposite: bool = False) -> tuple[QueryMemory, np.ndarray]:
        """Ask the client's person, and fit its reward model to all answers so far."""
        settings, data = self.settings, self.client_data[job.client]
        memory = rating_queries.restore(None if job.state is None else job.state["answers"])
        model = self.reward_model(job)
        if settings.feedback == "none":
            return memory, model
        scores = metrics.stars(self.probability_high(job.broadcast, self.train_examples(data)))
        counts = settings.rating_queries, settings.preference_queries
        person = self.feedback_source(data)
        source = (lambda user: OppositeSource(person(user))) if opposite else person
        memory = rating_queries.ask(data, memory, scores, counts, source, job.seed)
        if memory.answered:
            model = reward_model.fit(
                model, self.reward_model_sizes(data), data.train,
                rating_queries.answer_arrays(memory), settings.reward_epochs, settings.reward_lr,
                job.seed,
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
        settings = self.settings

        def person(user: int) -> FeedbackSource:
            if settings.feedback == "logged":  # read here: other machines do not have its file
                return logged.source(Path(settings.feedback_file.replace(CLIENT, str(user))))
            if settings.feedback == "live":
                from fedrl.feedback.sources import live

                return live.source(Path(settings.feedback_folder), user)
            own = np.flatnonzero(data.users[data.train.user] == user)
            known = {data.key(place): float(data.stars[place]) for place in own.tolist()}
            return SimulatedPerson(known, settings.noise)

        return person

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
        settings = self.settings
        sizes = self.sizes._replace(users=len(data.users), movies=len(data.movies))
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
        reward, loss = learn(
            vector, sizes, data.train, rewards, order, chances, rules, adam.moments, adam.steps
        )
        trained = {"train/reward": reward, "train/loss": loss, "env/steps": float(order.size)}
        kept = settings.optimizer_state == "kept" and settings.optimizer == "adam"
        return network.unpack(vector, sizes), trained, adam._asdict() if kept else {}

    # Evaluation

    def train_examples(self, data: ClientRatings) -> Examples:
        """The client's training movies as the server numbers them."""
        train = data.train
        return Examples(data.users[train.user], data.movies[train.movie], train.genres)

    def probability_high(self, weights: network.Weights, examples: Examples) -> np.ndarray:
        """π(high | s) [n]."""
        q = network.outputs(weights, self.sizes, examples).astype(np.float64)
        return 0.5 * (1 + np.tanh(0.5 * (q[:, 1] - q[:, 0]) / self.settings.temperature))

    def personal_policy(self, theta: Tensors, kept: Tensors, client: int) -> Tensors:
        """The client's own network; of movies that it never trained on it knows what θ does."""
        data, own = self.client_data[client], kept["personal"]
        policy = {name: np.array(theta[name]) for name in PARTS}
        policy["user"][data.users], policy["movie"][data.movies] = own["user"], own["movie"]
        return policy | {"layers": own["layers"]}

    def personal_metrics(self, job: Job, own: Tensors) -> Metrics:
        """What a client tells of its own policy: how it does on held-out ratings, and P_k.

        P_k is over all movies that the client rated, and against the policy that it received; once
        more over the held-out ones alone, the states of `personal/return`.
        """
        rows = []
        for owner in self.client_env_ids[job.client]:
            held = user_states(self.world, owner, "held")
            every = user_states(self.world, owner, "all")
            high = self.probability_high(own, held.examples)
            apart = [
                metrics.divergence(policy, self.probability_high(job.broadcast, states.examples))
                for policy, states in (
                    (self.probability_high(own, every.examples), every),
                    (high, held),
                )
            ]
            rows.append(metrics.PersonalRow(held, high, *apart))
        return metrics.mean_personal(rows)

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        """The server's networks on their clients' held-out ratings; see `metrics.mean_metrics`."""
        pairs = [(state, user) for state, group in zip(states, owners) for user in group]
        return metrics.mean_metrics([self.user_metrics(state, user) for state, user in pairs])

    def user_metrics(self, state: Tensors, owner: int) -> Metrics:
        """One user's numbers under a server's network."""
        held = user_states(self.world, owner, "held")
        train = user_states(self.world, owner, "train")
        final = state["average"] if self.settings.average else state
        high, train_high = (self.probability_high(final, part.examples) for part in (held, train))
        return metrics.user_metrics(held, high, train, train_high)

    def evaluate_clients(self, state: Tensors, seed: int, episodes: int) -> np.ndarray:
        """Held-out accuracy of every client; all ratings count, `episodes` does not."""
        rows = [self.user_metrics(state, owner) for owner in range(self.world.clients)]
        return np.array([row["correct"] / row["held_out"] for row in rows])


def build(
    settings: Settings, world: RatingsWorld, rounds: int, client_env_ids: Sequence[Sequence[int]]
) -> FedRLHF:
    return FedRLHF(settings, world, client_env_ids)
