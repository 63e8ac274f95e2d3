"""FedRLHF for texts: clients write movie reviews on, each to its own taste, and share one model.

Paper: "FedRLHF: a convergence-guaranteed federated framework for privacy-preserving and
personalized RLHF", Algorithm 1 with PPO on IMDb (section 6.2, appendix D.2).

    round t     broadcast θ_t, a language model with a value head
      client k  θ ← θ_t; `batches` times: draw prompts from its own reviews, complete each with θ,
                reward every text by R_k = λ_k R_sentiment + (1 − λ_k) R0 (`reward`),
                passes of PPO with a KL penalty to the first model θ_0 (`trainer`)
                sends θ − θ_t; P_k = mean over tokens of KL(θ ‖ θ_t) on held-out prompts
      server    θ_{t+1} = θ_t + mean (θ − θ_t)

The prompt is part of the text that is rewarded. R0 is fluency under θ_0, never under the policy.
With λ_k = 0 a client does plain reinforcement learning on R0, to the bit, whatever its feedback
says: it fits no sentiment model and asks nobody.

What leaves a client: the change of θ and the numbers in `reports`. λ_k is no secret: it follows
from the reported reward, sentiment and intrinsic, and the server's recipe has it. Reviews, texts,
labels, answers and the sentiment model stay. Clients keep from round to round what people have
answered, in their private folders, and Adam's moments where they learn alone (`optimizer_state`);
sentiment models are fitted anew, from the client's own labels, to the same numbers.

Evaluation is on the same `eval_prompts` of each client's held-out reviews, with the same random
numbers in every round: of each client's own policy after its training (personal/…), by the
client, and of the global model (eval/…, and eval/…_client3 of client 3). The latter is central: it
reads clients' held-out reviews, labels and answers, as only a simulation can. A deployment would
send the model to its clients and let them evaluate it.

Where we differ from the paper: R0 has a formula, where the paper has none; one advantage per text;
the KL penalty is in the loss; sentiment by a model of the client's own labels, unless a classifier
is named; Adam starts anew in every round of a federation. The paper says neither how many texts a
client writes in a round nor how strong the KL penalty is: these are settings.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedrl.algorithms.fedrlhf.feedback_weights import client_weights
from fedrl.algorithms.fedrlhf.text import preference_queries
from fedrl.algorithms.fedrlhf.text import prompts as prompting
from fedrl.algorithms.fedrlhf.text.prompts import Prompt
from fedrl.algorithms.fedrlhf.text.reward import ClientRewards, TextReward, rewards_by_owner
from fedrl.algorithms.fedrlhf.text.settings import Settings
from fedrl.core import seeding
from fedrl.core.registry import missing_extra
from fedrl.core.types import SHARE, Job, Metrics, Range, Result, Spec, Tensors
from fedrl.envs.reviews import ReviewsWorld
from fedrl.llm.warmstart_record import shown_tasks

if TYPE_CHECKING:
    from fedrl.algorithms.fedrlhf.text.trainer import Completions, PromptBatch, TextTrainer

SHARES = (
    "train/reward", "train/sentiment", "train/intrinsic", "train/repeated", "train/ratio_far",
    "personal/reward", "personal/sentiment", "personal/intrinsic", "personal/repeated",
)  # fmt: skip


class FedRLHFText:
    """See the module's docstring. The model on `self` is a workbench: calls set its weights."""

    initial_exchange = False
    reports = frozenset(
        {
            *SHARES, "train/kl", "train/loss", "train/value_loss", "train/entropy",
            "train/gradient_norm", "train/tokens", "train/answers", "personal/divergence",
            "env/samples", "env/tokens",
        }
    )  # fmt: skip

    def __init__(
        self, settings: Settings, world: ReviewsWorld, client_env_ids: Sequence[Sequence[int]]
    ) -> None:
        self.settings, self.world, self.client_env_ids = settings, world, client_env_ids
        self.weights = client_weights(settings.lam, world.clients)
        self.reviews = [
            float(sum(len(world.train[owner]) for owner in owners)) for owners in client_env_ids
        ]
        self.heaviest = max(self.reviews)
        texts = settings.batches * settings.batch
        self.ranges = dict.fromkeys(SHARES, SHARE) | {
            "train/tokens": Range(0, settings.answer_tokens),
            "env/samples": Range(0, texts, whole=True),
            "env/tokens": Range(0, texts * settings.answer_tokens, whole=True),
        }
        self.eval_prompts = [
            prompting.eval_prompts(world, owner, settings.eval_prompts, settings.prompt_tokens)
            for owner in range(world.clients)
        ]
        prompting.check_apart(world, self.eval_prompts, shown_tasks(settings.model))
        self._trainer: TextTrainer | None = None
        self._rewards: ClientRewards | None = None

    # The server

    def init(self, seed: int) -> Tensors:
        return {"theta": self.trainer.actor.initial_weights(seed)}

    def broadcast(self, state: Tensors, round: int) -> Tensors:
        return {"theta": state["theta"]}

    def declare(self, broadcast: Tensors) -> dict[str, Spec]:
        return {name: Spec(a.shape, str(a.dtype)) for name, a in broadcast["theta"].items()}

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        return {"theta": {name: state["theta"][name] + mean[name] for name in state["theta"]}}

    # A client

    def local(self, job: Job) -> Result:
        return self._learn(job)

    def poisoned(self, job: Job) -> Result:
        """A client's work if all its rewards had the other sign."""
        return self._learn(job, sign=-1)

    def _learn(self, job: Job, sign: int = 1) -> Result:
        trainer, start = self.trainer, job.broadcast["theta"]
        owners = self.client_env_ids[job.client]
        if self.settings.feedback == "live":
            self.ask(start, owners, job.seed)
        rewards = {owner: self.rewards.of(owner) for owner in owners}

        def reward(batch: PromptBatch, texts: Completions) -> tuple[np.ndarray, Metrics]:
            paid = rewards_by_owner(rewards, batch.owners, texts.texts, texts.likelihood)
            return sign * paid.reward, paid.means()

        batches = self.batches(owners, job.seed)
        metrics, moments = trainer.train(start, batches, reward, job.seed, job.state)
        now = trainer.policy.weights()
        rows, samples = [], []
        for owner in owners:
            completions = self.complete_eval_prompts(owner)
            rows.append(text_metrics(rewards[owner], completions))
            samples += completions.samples
        metrics |= {f"personal/{name}": value for name, value in averaged(rows).items()}
        metrics["personal/divergence"] = trainer.divergence(samples, start)
        if self.settings.feedback != "sentiment":
            metrics["train/answers"] = float(self.answer_count(owners))
        update = {name: now[name] - start[name] for name in start}
        weight = self.reviews[job.client]
        return Result(job.client, update, weight, moments or None, metrics)

    def batches(self, owners: Sequence[int], seed: int) -> Iterator[PromptBatch]:
        """Prompts of these clients' training reviews, as the model reads them."""
        from fedrl.algorithms.fedrlhf.text.trainer import PromptBatch

        size, tokens = self.settings.batch, self.settings.prompt_tokens
        drawn = prompting.prompt_batches(self.world, owners, size, tokens, seed)
        for batch in itertools.islice(drawn, self.settings.batches):
            yield PromptBatch([prompt.owner for prompt in batch], self.prompt_tokens(batch))

    def prompt_tokens(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        texts, lengths = [prompt.text for prompt in prompts], [prompt.length for prompt in prompts]
        return self.trainer.prompts(texts, lengths)

    def ask(self, theta: Tensors, owners: Sequence[int], seed: int) -> None:
        """Put pairs of texts of θ before the people of these clients."""
        count, lengths = self.settings.preference_queries, self.settings.prompt_tokens
        self.trainer.actor.load(theta)
        for owner in self.people(owners):
            prompts = prompting.query_prompts(self.world, owner, count, lengths, seed)
            pairs = [prompt for prompt in self.prompt_tokens(prompts) for _ in range(2)]
            noise = self.trainer.actor.generator(seeding.derive(seed, "pairs", client=owner))
            written = self.trainer.complete(pairs, noise)
            expected = self.rewards.of(owner).rewards(written.texts, written.likelihood).sentiment
            queries = preference_queries.preference_queries(written.texts, expected.tolist())
            preference_queries.ask(self.settings.feedback_folder, owner, queries)

    def people(self, owners: Sequence[int]) -> list[int]:
        """Those whose feedback counts."""
        return [owner for owner in owners if self.weights[owner]]

    def answer_count(self, owners: Sequence[int]) -> int:
        """How much people of these clients have answered so far."""
        folder = self.settings.feedback_folder
        return sum(len(preference_queries.answered(folder, owner)) for owner in self.people(owners))

    # Evaluation

    def complete_eval_prompts(self, owner: int) -> Completions:
        """Texts from this client's held-out prompts with the weights that are set, always by the
        same random numbers."""
        prompts = self.prompt_tokens(self.eval_prompts[owner]) * self.settings.eval_completions
        generator = self.trainer.actor.generator(seeding.derive(0, "evaluation", client=owner))
        return self.trainer.complete(prompts, generator)

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        """The server's models on their clients' prompts: means over clients, and each client's.

        `seed` is not read: every round writes by the same random numbers.
        """
        rows: dict[int, Metrics] = {}
        for state, group in zip(states, owners, strict=True):
            rows |= self.client_metrics(state, group)
        means = {f"eval/{name}": value for name, value in averaged(list(rows.values())).items()}
        for owner, row in rows.items():
            means |= {f"eval/{name}_client{owner}": value for name, value in row.items()}
        return means

    def client_metrics(self, state: Tensors, owners: Sequence[int]) -> dict[int, Metrics]:
        self.trainer.actor.load(state["theta"])
        return {
            owner: text_metrics(self.rewards.of(owner), self.complete_eval_prompts(owner))
            for owner in owners
        }

    def evaluate_clients(self, state: Tensors, seed: int, episodes: int) -> np.ndarray:
        """Mean reward of every client on its prompts, which are fixed: `episodes` is not read."""
        rows = self.client_metrics(state, range(self.world.clients))
        return np.array([row["reward"] for row in rows.values()])

    def save(self, theta: Tensors, out: Path) -> None:
        """The model with these weights as an ordinary folder."""
        from fedrl.llm.export import save

        settings = self.settings
        save(settings.model, settings.lora_rank, settings.lora_alpha, theta, out)

    # Where it happens

    def warm_up(self) -> None:
        """In a worker, what is wrong with the model is said at once, not as a client's error."""
        assert self.trainer
        if self.settings.feedback == "sentiment" and self.settings.sentiment != "builtin":
            assert self.rewards.classifier

    @property
    def trainer(self) -> TextTrainer:
        """The model is loaded when it is first needed, in the process that needs it."""
        if self._trainer is None:
            try:
                from fedrl.algorithms.fedrlhf.text.trainer import TextTrainer

                self._trainer = TextTrainer(self.settings)
            except ModuleNotFoundError as error:
                raise missing_extra(error, 'algorithm.name = "fedrlhf-text"', "llm") from error
        return self._trainer

    @property
    def rewards(self) -> ClientRewards:
        if self._rewards is None:
            likelihood = self.trainer.human_likelihood
            train = self.world.train
            self._rewards = ClientRewards(self.settings, self.weights, train, likelihood)
        return self._rewards

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_trainer": None, "_rewards": None}


def text_metrics(reward: TextReward, completions: Completions) -> Metrics:
    """What a client makes of texts."""
    paid = reward.rewards(completions.texts, completions.likelihood)
    return paid.means() | {"repeated": completions.repeated}


def averaged(rows: Sequence[Mapping[str, float]]) -> Metrics:
    """Means over clients, of each number over those that have it."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: float(np.mean([row[name] for row in rows if name in row])) for name in names}


def build(
    settings: Settings, world: ReviewsWorld, rounds: int, client_env_ids: Sequence[Sequence[int]]
) -> FedRLHFText:
    return FedRLHFText(settings, world, client_env_ids)
