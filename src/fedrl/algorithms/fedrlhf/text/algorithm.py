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
A sentiment model judges every batch as it is written; a person is asked once a round about texts of
θ_t, or before every batch about texts of θ, as the paper's Algorithm 1 has it (`ask`).
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
send the model to its clients and let them evaluate it: with `partition.strategy = "own"`, where
clients bring their reviews, they do (held/…), or the coordinator has reviews of nobody's.

Where we differ from the paper: R0 has a formula, where the paper has none; one advantage per text;
the KL penalty is in the loss; sentiment by a model of the client's own labels, unless a classifier
is named; Adam starts anew in every round of a federation. The paper says neither how many texts a
client writes in a round nor how strong the KL penalty is: these are settings.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from fedrl.algorithms.fedrlhf.feedback_weights import client_weights
from fedrl.algorithms.fedrlhf.text import preference_queries
from fedrl.algorithms.fedrlhf.text import prompts as prompting
from fedrl.algorithms.fedrlhf.text.effect import SHOWN, write_effect
from fedrl.algorithms.fedrlhf.text.metrics import (
    REPORTS,
    SHARES,
    Losses,
    averaged,
    judged,
    text_metrics,
)
from fedrl.algorithms.fedrlhf.text.prompts import Prompt
from fedrl.algorithms.fedrlhf.text.review_model import ReviewModel
from fedrl.algorithms.fedrlhf.text.reward import ClientRewards, TextReward, rewards_by_owner
from fedrl.algorithms.fedrlhf.text.settings import Settings
from fedrl.core import seeding
from fedrl.core.data_outline import DataOutline, outlined
from fedrl.core.lazy_sequence import LazySequence
from fedrl.core.types import SHARE, Job, Metrics, Range, Result, Spec, Tensors, UserError
from fedrl.envs.reviews import OwnReviews, World
from fedrl.feedback.store import Folder, client_folder
from fedrl.llm.prompts.prompt_format import require_tokens
from fedrl.llm.warmstart_record import shown_tasks

if TYPE_CHECKING:
    from fedrl.algorithms.fedrlhf.text.trainer import Completions, PromptBatch


class FedRLHFText(ReviewModel):
    """See the module's docstring. The model on `self` is a workbench: calls set its weights."""

    initial_exchange = False
    reports = REPORTS

    def __init__(
        self, settings: Settings, world: World, client_env_ids: Sequence[Sequence[int]]
    ) -> None:
        self.settings, self.world, self.client_env_ids = settings, world, client_env_ids
        self.own = world if isinstance(world, OwnReviews) else None
        self.weights = client_weights(settings.lam, world.clients)
        if self.own is not None:  # the last one judges what is nobody's
            heard = settings.feedback == "sentiment"
            self.weights += (float(np.mean(self.weights)) if heard else 0.0,)
        texts = settings.batches * settings.batch
        self.ranges = dict.fromkeys(SHARES, SHARE) | {
            "train/tokens": Range(0, settings.answer_tokens),
            "env/samples": Range(0, texts, whole=True),
            "env/tokens": Range(0, texts * settings.answer_tokens, whole=True),
        }
        self.eval_prompts: Sequence[Sequence[Prompt]] = LazySequence(
            len(self.weights), partial(prompting.eval_prompts, world, settings)
        )
        if self.own is None:
            self.eval_prompts = list(self.eval_prompts)
            prompting.check_apart(world, self.eval_prompts, shown_tasks(settings.model))
        self._trainer = None
        self._rewards: ClientRewards | None = None

    @cached_property
    def heaviest(self) -> float:
        if self.own is not None:
            return self.own.heaviest
        return max(self._review_count(client) for client in range(len(self.client_env_ids)))

    def _review_count(self, client: int) -> float:
        return float(sum(len(self.world.train[owner]) for owner in self.client_env_ids[client]))

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
        live, by_step = self.settings.feedback == "live", self.settings.ask == "step"
        if live and not by_step:
            trainer.actor.load(start)
            self.ask(owners, job.seed)
        people = self.people(self._holding_out(owners)) if live else []
        if people:
            trainer.actor.load(start)
        came = {owner: self.shown_completions(owner) for owner in people}
        folders = {o: Folder(client_folder(self.settings.feedback_folder, o)) for o in people}
        heard = {owner: folder.given() for owner, folder in folders.items()}
        rewards = {owner: self.rewards.of(owner) for owner in owners}
        asked = [] if self._judged() else self._holding_out(owners)  # about what it was sent
        held = averaged(self.client_metrics(job.broadcast, asked).values(), "held/")

        def reward(batch: PromptBatch, texts: Completions) -> tuple[np.ndarray, Metrics]:
            paid = rewards_by_owner(rewards, batch.owners, texts.texts, texts.likelihood)
            return sign * paid.reward, paid.means()

        batches = self.batches(owners, job.seed)
        if live and by_step:
            batches = self.asking(batches, rewards, job.seed)
        metrics, moments = trainer.train(start, batches, reward, job.seed, job.state)
        now = trainer.policy.weights()
        metrics |= held
        for owner in people:
            prompts, learned = self.shown_completions(owner)
            about = folders[owner], heard[owner], job.round
            write_effect(*about, prompts, came[owner][1], learned)
        rows, samples = [], []
        for owner in self._holding_out(owners):
            completions = self.complete_eval_prompts(owner)
            rows.append(text_metrics(rewards[owner], completions, self._losses))
            samples += completions.samples
        metrics |= averaged(rows, "personal/")
        if samples:
            metrics["personal/divergence"] = trainer.divergence(samples, start)
        if self.settings.feedback != "sentiment":
            folder = self.settings.feedback_folder
            metrics["train/answers"] = preference_queries.count(folder, self.people(owners))
        update = {name: now[name] - start[name] for name in start}
        weight = self._review_count(job.client)
        return Result(job.client, update, weight, moments or None, metrics)

    def _holding_out(self, owners: Sequence[int]) -> list[int]:
        """Those who have something to be evaluated on."""
        return [owner for owner in owners if self.eval_prompts[owner]]

    def judge(self, job: Job) -> np.ndarray:
        """What the model that a client was sent makes of each prompt that it holds out [n]."""
        self.trainer.actor.load(job.broadcast["theta"])
        scores = [np.zeros(0)]
        for owner in self._holding_out(self.client_env_ids[job.client]):
            written = self.complete_eval_prompts(owner, job.seed)
            scores.append(judged(self.rewards.of(owner), written, self.settings.eval_completions))
        return np.concatenate(scores)

    def batches(self, owners: Sequence[int], seed: int) -> Iterator[PromptBatch]:
        """Prompts of these clients' training reviews, as the model reads them."""
        from fedrl.algorithms.fedrlhf.text.trainer import PromptBatch

        size, tokens = self.settings.batch, self.settings.prompt_tokens
        together = self.settings.owners_per_batch
        drawn = prompting.prompt_batches(self.world, owners, size, tokens, seed, together)
        for batch in itertools.islice(drawn, self.settings.batches):
            yield PromptBatch([prompt.owner for prompt in batch], self.prompt_tokens(batch))

    def prompt_tokens(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        texts, lengths = [prompt.text for prompt in prompts], [prompt.length for prompt in prompts]
        rows = self.trainer.prompts(texts, lengths)
        if not all(rows):
            require_tokens(rows, [f"a review of client {prompt.owner}" for prompt in prompts])
        return rows

    def asking(
        self, batches: Iterable[PromptBatch], rewards: dict[int, TextReward], seed: int
    ) -> Iterator[PromptBatch]:
        """The batches, and before each a turn with people, whose answers so far `rewards` get."""
        for number, batch in enumerate(batches):
            self.ask(list(rewards), seeding.derive(seed, "ask", number) if number else seed)
            rewards |= {owner: self.rewards.of(owner) for owner in rewards}
            yield batch

    def ask(self, owners: Sequence[int], seed: int) -> None:
        """Put pairs of texts of the weights that are set before the people of these clients."""
        count, lengths = self.settings.preference_queries, self.settings.prompt_tokens
        for owner in self.people(owners):
            prompts = prompting.query_prompts(self.world, owner, count, lengths, seed)
            pairs = [prompt for prompt in self.prompt_tokens(prompts) for _ in range(2)]
            noise = self.trainer.actor.generator(seeding.derive(seed, "pairs", client=owner))
            written = self.trainer.complete(pairs, noise)
            expected = self.rewards.of(owner).rewards(written.texts, written.likelihood).sentiment
            given = self.trainer.decoded(pairs[::2])
            queries = preference_queries.preference_queries(written.texts, expected.tolist(), given)
            preference_queries.ask(self.settings.feedback_folder, owner, queries)

    def people(self, owners: Sequence[int]) -> list[int]:
        """Those whose feedback counts."""
        return [owner for owner in owners if self.weights[owner]]

    # Evaluation

    def complete_eval_prompts(self, owner: int, seed: int = 0) -> Completions:
        """Texts from this client's held-out prompts with the weights that are set, always by the
        same random numbers."""
        prompts = self.prompt_tokens(self.eval_prompts[owner]) * self.settings.eval_completions
        generator = self.trainer.actor.generator(seeding.derive(seed, "evaluation", client=owner))
        return self.trainer.complete(prompts, generator)

    def shown_completions(self, owner: int) -> tuple[list[str], list[str]]:
        """Some held-out prompts of this client, and how the weights that are set go on from them:
        whole texts, always by the same random numbers."""
        prompts = self.prompt_tokens(self.eval_prompts[owner][:SHOWN])
        generator = self.trainer.actor.generator(seeding.derive(0, "effect", client=owner))
        written = self.trainer.complete(prompts, generator)
        return self.trainer.decoded(prompts), written.texts

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        """The server's models on their clients' prompts: means over clients, and each client's.

        `seed` is not read: every round writes by the same random numbers. Where clients bring their
        own, on nobody's prompts, or not at all: clients say it themselves.
        """
        if self.own is not None:
            return self._evaluate_public(states) if self._judged() else {}
        rows: dict[int, Metrics] = {}
        for state, group in zip(states, owners, strict=True):
            rows |= self.client_metrics(state, group)
        means = averaged(rows.values(), "eval/")
        for owner, row in rows.items():
            means |= {f"eval/{name}_client{owner}": value for name, value in row.items()}
        return means

    def _judged(self) -> Sequence[int]:
        """Owners of the prompts that the server's model is evaluated on."""
        if self.own is None:
            return range(self.world.clients)
        return [self.own.nobody] if self.own.held_out == "public" else []

    def _evaluate_public(self, states: Sequence[Tensors]) -> Metrics:
        (nobody,) = self._judged()
        if not self.eval_prompts[nobody]:
            raise UserError("partition.folder: public holds out no reviews to evaluate on")
        rows = [self.client_metrics(state, [nobody])[nobody] for state in states]
        return averaged(rows, "eval/")

    def client_metrics(self, state: Tensors, owners: Sequence[int]) -> dict[int, Metrics]:
        if owners:
            self.trainer.actor.load(state["theta"])
        pairs = ((owner, self.complete_eval_prompts(owner)) for owner in owners)
        return {
            owner: text_metrics(self.rewards.of(owner), texts, self._losses)
            for owner, texts in pairs
        }

    @property
    def _losses(self) -> Losses | None:
        return self.trainer.held_out_losses if self.settings.losses else None

    def evaluate_clients(self, state: Tensors, seed: int, episodes: int) -> np.ndarray:
        """Mean reward of every client on its prompts, which are fixed: `episodes` is not read."""
        clients = range(self.world.clients)
        rows = self.client_metrics(state, self._holding_out(clients))
        return np.array([rows[k]["reward"] if k in rows else np.nan for k in clients])

    # Where it happens

    def data_outline(self) -> DataOutline:
        clients = range(0 if self.own else len(self.client_env_ids))  # else their owners' to count
        trained = [r.id for reviews in (() if self.own else self.world.train) for r in reviews]
        evaluated = [prompt.id for owner in self._judged() for prompt in self.eval_prompts[owner]]
        held = [int(self._review_count(client)) for client in clients]
        return outlined("reviews", held, trained, evaluated)

    def agreement(self, client: int | None = None) -> dict[str, str]:
        """Of the model and its tokenizer; of a client's reviews nothing, which are read."""
        if self.own is not None and client is not None:
            assert self.own.train[client]
        return self._model_agreement

    def warm_up(self) -> None:
        """In a worker, what is wrong with the model is said at once, not as a client's error."""
        assert self.trainer
        if self.settings.feedback == "sentiment" and self.settings.sentiment != "builtin":
            assert self.rewards.classifier

    @property
    def rewards(self) -> ClientRewards:
        if self._rewards is None:
            likelihood = self.trainer.human_likelihood
            train = self.world.train
            self._rewards = ClientRewards(self.settings, self.weights, train, likelihood)
        return self._rewards

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_trainer": None, "_rewards": None}


def build(
    settings: Settings, world: World, rounds: int, client_env_ids: Sequence[Sequence[int]]
) -> FedRLHFText:
    return FedRLHFText(settings, world, client_env_ids)
