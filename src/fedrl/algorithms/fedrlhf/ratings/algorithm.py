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
`rows = "holders"` (ours) a row's mean is over those who hold it; see `holdings`.

With `method = "policy-gradient"` the network's outputs are no values but preferences, and a step is
REINFORCE, R_k(s, a) ∇ log π(a | s), on the same bandit (`feedback/rating_policy.py`): what the
paper's theorems are about, with `optimizer = "sgd"` and `local_steps` to the letter
(`fedrlhf_bound.py`). With `average` the mean of θ_0 … θ_{T-1} is returned.

The predicted score is π(high | s) = σ((Q(s, high) − Q(s, not high)) / T); a person sees it in stars
(`personal.stars`). There is no next state, so the target of Q-learning is the reward itself, and
only of the action that was taken. R0 is what watching says (`envs.movielens`), never the rating;
with λ = 0 this is plain federated learning from R0, to the bit.

What leaves a client: the change of θ and the numbers in `reports`. Answers, questions and the
reward model stay. θ's change is the paper's message; its rows tell the server which movies a client
trained on, which only secure aggregation would hide.

Where we differ from the authors' release: evaluation on held-out ratings only; scores and ratings
on one scale; genres by the catalogue's order; feedback by the ids it was given for; the reward
model's output is in the target, with a weight λ per client; the label is no reward. Adam starts
anew in every round of a federation; who learns alone keeps its moments (`optimizer_state`). The
paper does not say how many questions are asked, how noisy the answers are, the batch, T or λ: these
are settings.

`reward = "labels"` is for comparison: the true label as the reward of the action that was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from fedrl.algorithms.fedrlhf.ratings import metrics as personal
from fedrl.algorithms.fedrlhf.ratings import policy as reinforce
from fedrl.algorithms.fedrlhf.ratings import rating_queries
from fedrl.algorithms.fedrlhf.ratings.client_data import Holding, holding, marks, over_holders
from fedrl.algorithms.fedrlhf.ratings.client_data import states as own_states
from fedrl.algorithms.fedrlhf.ratings.settings import Settings
from fedrl.core import seeding
from fedrl.core.threads import kernel_threads
from fedrl.core.types import SHARE, Job, Metrics, Range, Result, Spec, Tensors, UserError
from fedrl.envs.movielens.world import HIGH, World
from fedrl.feedback import logged, reward_model
from fedrl.feedback import rating_kernels as kernels
from fedrl.feedback import rating_network as network
from fedrl.feedback.records import Contrary, Source
from fedrl.feedback.simulated import Simulated

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
        self, settings: Settings, world: World, client_env_ids: Sequence[Sequence[int]]
    ) -> None:
        self.settings, self.world, self.client_env_ids = settings, world, client_env_ids
        files = settings.feedback_file
        if len(settings.lam) not in (1, world.clients):
            raise UserError(
                f"algorithm.lam has {len(settings.lam)} weights; name one, or one for each of the "
                f"{world.clients} clients"
            )
        if settings.feedback == "logged" and world.clients > 1 and CLIENT not in files:
            raise UserError(
                f"algorithm.feedback_file is {files!r}, the same for {world.clients} clients: put "
                f"{CLIENT} where a client's number is to stand"
            )
        weights = settings.lam * (world.clients if len(settings.lam) == 1 else 1)
        self.holdings = [holding(world, pool, weights) for pool in client_env_ids]
        self.heaviest = float(max(len(mine.appeal) for mine in self.holdings))
        self.by_holders = settings.rows == "holders"
        self.counts = frozenset(f"held/{name}" for name in ROWS if self.by_holders)
        first, second = settings.hidden
        genres = world.genres.shape[1]
        self.sizes = kernels.Sizes(
            world.clients, len(world.movies), settings.embedding, genres, first, second, outputs=2
        )

    # The server

    def init(self, seed: int) -> Tensors:
        first: Tensors = dict(network.draw(self.sizes, seeding.derive(seed, "network")))
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
        if self.by_holders:
            least = 1 / (
                len(self.client_env_ids) * self.heaviest
            )  # the lightest one among all others
            rows = {name: over_holders(mean[name], mean["held"][name], least) for name in ROWS}
            change |= rows
        after: Tensors = {name: state[name] + change[name] for name in PARTS}
        if self.settings.average:  # of θ_0 … θ_{t-1} when θ_t is reached
            past = state["average"]
            after["average"] = {
                p: past[p] + (state[p] - past[p]) / np.float32(round) for p in PARTS
            }
        return after

    # A client

    def local(self, job: Job) -> Result:
        return self._learn(job, *self.listen(job))

    def poisoned(self, job: Job) -> Result:
        """A client's work if its person said the opposite; where none is heard, its rewards do."""
        asked = self.settings.feedback != "none" and self.settings.reward != "labels"
        heard = asked and bool(self.holdings[job.client].weight.any())
        return self._learn(job, *self.listen(job, contrary=heard), sign=1 if heard else -1)

    def _learn(
        self, job: Job, memory: rating_queries.Memory, model: np.ndarray, sign: int = 1
    ) -> Result:
        mine = self.holdings[job.client]
        own, told, adam = self.improve(job, mine, sign * self.rewards(mine, model))
        kept: Tensors = {"personal": own, **self.remembered(memory, model), **adam}
        here = self.personal_policy(job.broadcast, kept, job.client)
        update: Tensors = {name: here[name] - job.broadcast[name] for name in PARTS}
        if self.by_holders:
            held = zip(ROWS, (mine.users, mine.movies), strict=True)
            update["held"] = {name: marks(own, len(here[name])) for name, own in held}
        metrics = told | self.personal_metrics(job, here)
        before = 0 if job.state is None else int(job.state["heard"][0])
        metrics["env/answers"] = float(max(0, len(memory.answered) - before))
        return Result(job.client, update, float(len(mine.appeal)), kept, metrics)

    def remembered(self, memory: rating_queries.Memory, model: np.ndarray) -> Tensors:
        """What is kept of feedback; of a living person's answers only how many there are.

        They and the reward model, which follows from them, are made anew from the private folder.
        """
        heard = np.array([len(memory.answered)])
        if self.settings.feedback == "live":
            return {"heard": heard, "answers": memory.save_questions()}
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
        mine, start = self.holdings[0], self.init(0)
        shape = self.liking(mine)
        model = reward_model.draw(shape, 0)
        answer = rating_queries.answers(
            rating_queries.Memory({rating_queries.Asked(0, -1, 4.0): 0.0}, [])
        )
        reward_model.fit(model, shape, mine.train, answer, 1, 0.0, 0)
        self.improve(Job(0, start, None, 0), mine, self.rewards(mine, model))

    def listen(self, job: Job, contrary: bool = False) -> tuple[rating_queries.Memory, np.ndarray]:
        """Ask the client's person, and fit its reward model to all that was said so far."""
        settings, mine = self.settings, self.holdings[job.client]
        memory = rating_queries.restore(None if job.state is None else job.state["answers"])
        model = self.reward_model(job)
        if settings.feedback == "none":
            return memory, model
        scores = personal.stars(self.policy(job.broadcast, self.numbered(mine)))
        counts = settings.rate, settings.compare
        person = self.source(mine)
        source = (lambda user: Contrary(person(user))) if contrary else person
        memory = rating_queries.ask(mine, memory, scores, counts, source, job.seed)
        if memory.answered:
            model = reward_model.fit(
                model, self.liking(mine), mine.train, rating_queries.answers(memory),
                settings.reward_epochs, settings.reward_lr, job.seed,
            )  # fmt: skip
        return memory, model

    def reward_model(self, job: Job) -> np.ndarray:
        """As the client left it, or one that was told nothing.

        A living person may have taken answers back, which no fit can unlearn: then it is always
        the latter, and learns from the answers that stand.
        """
        if job.state is not None and "model" in job.state:
            return np.asarray(job.state["model"])
        shape = self.liking(self.holdings[job.client])
        return reward_model.draw(shape, seeding.derive(job.seed, "reward_model"))

    def liking(self, mine: Holding) -> kernels.Sizes:
        """Of the client's reward model."""
        return reward_model.sizes(len(mine.users), len(mine.movies), self.sizes.genres)

    def source(self, mine: Holding) -> Callable[[int], Source]:
        """Who answers for each of the client's users."""
        settings = self.settings

        def person(user: int) -> Source:
            if settings.feedback == "logged":
                return self.log(user)
            if settings.feedback == "live":
                from fedrl.feedback import live

                return live.source(Path(settings.feedback_folder), user)
            own = np.flatnonzero(mine.users[mine.train.user] == user)
            known = {mine.key(place): float(mine.stars[place]) for place in own.tolist()}
            return Simulated(known, settings.noise)

        return person

    def log(self, user: int) -> Source:
        """Read where the client computes: other machines do not have its file."""
        return logged.source(Path(self.settings.feedback_file.replace(CLIENT, str(user))))

    def rewards(self, mine: Holding, model: np.ndarray) -> np.ndarray:
        """R_k(s, a) [n, 2] on the client's training movies."""
        if self.settings.reward == "labels":
            high = np.where(mine.stars >= HIGH, np.float32(1), np.float32(-1))
        else:
            said = reward_model.feedback(model, self.liking(mine), mine.train)
            high = mine.appeal + mine.weight * said
        return np.stack([-high, high], 1)

    def improve(self, job: Job, mine: Holding, rewards: np.ndarray) -> tuple[Any, Metrics, Tensors]:
        """Steps from θ_t: the client's rows of the network, how it went, and Adam's memory."""
        settings = self.settings
        sizes = self.sizes._replace(users=len(mine.users), movies=len(mine.movies))
        vector = network.pack(job.broadcast, mine.users, mine.movies)
        random = seeding.generator(job.seed, "local")
        count = len(mine.appeal)
        if settings.local_steps:
            order = random.integers(0, count, (1, settings.local_steps * settings.batch))
        else:
            order = np.stack([random.permutation(count) for _ in range(settings.local_epochs)])
        rules = kernels.Rules(settings.batch, settings.lr, temperature=settings.temperature)
        adam, chances = network.recalled(job.state, vector.size), random.random(order.shape)
        steps = vector, sizes, mine.train, rewards, order, chances, rules, *adam
        if settings.method == "q-learning":
            reward, loss = kernels.learn_values(*steps)
        else:
            reward, loss = reinforce.learn_policy(*steps, settings.optimizer == "sgd")
        told = {"train/reward": reward, "train/loss": loss, "env/steps": float(order.size)}
        kept = settings.optimizer_state == "kept" and settings.optimizer == "adam"
        return network.unpack(vector, sizes), told, adam._asdict() if kept else {}

    # Evaluation

    def numbered(self, mine: Holding) -> kernels.Examples:
        """The client's training movies as the server numbers them."""
        train = mine.train
        return kernels.Examples(mine.users[train.user], mine.movies[train.movie], train.genres)

    def policy(self, weights: Mapping[str, Any], examples: kernels.Examples) -> np.ndarray:
        """π(high | s) [n]."""
        q = network.outputs(weights, self.sizes, examples).astype(np.float64)
        return 0.5 * (1 + np.tanh(0.5 * (q[:, 1] - q[:, 0]) / self.settings.temperature))

    def personal_policy(self, theta: Tensors, kept: Tensors, client: int) -> Tensors:
        """The client's own network; of movies that it never trained on it knows what θ does."""
        mine, own = self.holdings[client], kept["personal"]
        here = {name: np.array(theta[name]) for name in PARTS}
        here["user"][mine.users], here["movie"][mine.movies] = own["user"], own["movie"]
        return here | {"layers": own["layers"]}

    def personal_metrics(self, job: Job, own: Tensors) -> Metrics:
        """What a client tells of its own policy: how it does on held-out ratings, and P_k.

        P_k is over all movies on the client's shelf, and against the policy that it received; once
        more over the held-out ones alone, the states of `personal/return`.
        """
        right = held = 0
        ranks, returns, apart, apart_held = [], [], [], []
        for owner in self.client_env_ids[job.client]:
            seen = own_states(self.world, owner, "held")
            high = self.policy(own, seen.examples)
            right, held = right + personal.correct(high, seen.rating), held + len(high)
            ranks.append(personal.spearman(high, seen.rating))
            returns.append(personal.intrinsic(high, seen.appeal))
            every = own_states(self.world, owner, "all").examples
            common = self.policy(job.broadcast, every)
            apart.append(personal.divergence(self.policy(own, every), common))
            common = self.policy(job.broadcast, seen.examples)
            apart_held.append(personal.divergence(high, common))
        known = [rank for rank in ranks if np.isfinite(rank)]
        return {
            "personal/accuracy": right / held,
            "personal/correct": float(right),  # the mean over clients, by that of held_out, is the
            "personal/held_out": float(held),  # accuracy weighted by examples
            "personal/return": float(np.mean(returns)),
            "personal/divergence": float(np.mean(apart)),
            "personal/divergence_held": float(np.mean(apart_held)),
        } | ({"personal/spearman": float(np.mean(known))} if known else {})

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        """The server's networks on their clients' held-out ratings; see `personal.combined`."""
        rows = [self.assess(state, user) for state, group in zip(states, owners) for user in group]
        return personal.combined(rows)

    def assess(self, state: Tensors, owner: int) -> Metrics:
        """One user's numbers under a server's network."""
        held, train = (own_states(self.world, owner, part) for part in ("held", "train"))
        final = state["average"] if self.settings.average else state
        high, train_high = (self.policy(final, part.examples) for part in (held, train))
        return personal.assess(held, high, train, train_high)

    def evaluate_clients(self, state: Tensors, seed: int, episodes: int) -> np.ndarray:
        """Held-out accuracy of every client; all ratings count, `episodes` does not."""
        rows = [self.assess(state, owner) for owner in range(self.world.clients)]
        return np.array([row["correct"] / row["held_out"] for row in rows])


def build(
    settings: Settings, world: World, rounds: int, client_env_ids: Sequence[Sequence[int]]
) -> FedRLHF:
    return FedRLHF(settings, world, client_env_ids)
