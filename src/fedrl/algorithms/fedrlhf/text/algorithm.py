"""FedRLHF for texts: clients write movie reviews on, each to its own taste, and share one model.

Paper: "FedRLHF: a convergence-guaranteed federated framework for privacy-preserving and
personalized RLHF", Algorithm 1 with PPO on IMDb (section 6.2, appendix D.2).

    round t     broadcast θ_t, a language model with a value head
      client k  θ ← θ_t; `batches` times: draw beginnings of its own reviews, write each on with θ,
                judge every text by R_k = λ_k R_sentiment + (1 − λ_k) R0 (`judging`),
                passes of PPO with a KL penalty to the first model θ_0 (`llm.writing`)
                sends θ − θ_t; P_k = mean over tokens of KL(θ ‖ θ_t) on held-out prompts
      server    θ_{t+1} = θ_t + mean (θ − θ_t)

The prompt is part of the text that is judged. R0 is fluency under θ_0, never under the policy. With
λ_k = 0 a client does plain reinforcement learning on R0, to the bit, whatever its feedback says: it
fits no sentiment model and asks nobody.

What leaves a client: the change of θ and the numbers in `reports`. λ_k is no secret: it follows
from the reported reward, sentiment and intrinsic, and the server's recipe has it. Reviews, texts,
labels, answers and the sentiment model stay. Clients keep from round to round what people have
answered, in their private folders, and Adam's moments where they learn alone (`optimizer_state`);
sentiment models are fitted anew, from the client's own labels, to the same numbers.

Evaluation is on the same `queries` beginnings of each client's held-out reviews, with the same
random numbers in every round: of each client's own policy after its training (personal/…), by the
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
from typing import Any

import numpy as np

from fedrl.algorithms.fedrlhf.text import preference_queries
from fedrl.algorithms.fedrlhf.text import prompts as beginnings
from fedrl.algorithms.fedrlhf.text import reward as judging
from fedrl.algorithms.fedrlhf.text.prompts import Beginning
from fedrl.algorithms.fedrlhf.text.reward import Judge, Judges
from fedrl.algorithms.fedrlhf.text.settings import Settings
from fedrl.core import seeding
from fedrl.core.registry import missing_extra
from fedrl.core.types import SHARE, Job, Metrics, Range, Result, Spec, Tensors, UserError
from fedrl.envs.imdb.world import World
from fedrl.llm.warmstart_record import shown_tasks

SHARES = (
    "train/reward", "train/sentiment", "train/intrinsic", "train/repeated", "train/ratio_far",
    "personal/reward", "personal/sentiment", "personal/intrinsic", "personal/repeated",
)  # fmt: skip


class FedRLHFText:
    """See the module's docstring. The model on `self` is a workbench: calls set its weights."""

    initial_exchange = False
    reports = frozenset(
        {
            "train/reward", "train/sentiment", "train/intrinsic", "train/kl", "train/loss",
            "train/value_loss", "train/entropy", "train/ratio_far", "train/gradient_norm",
            "train/repeated", "train/tokens", "train/answers",
            "personal/reward", "personal/sentiment", "personal/intrinsic", "personal/repeated",
            "personal/divergence", "env/samples", "env/tokens",
        }
    )  # fmt: skip

    def __init__(
        self, settings: Settings, world: World, client_env_ids: Sequence[Sequence[int]]
    ) -> None:
        self.settings, self.world, self.client_env_ids = settings, world, client_env_ids
        if len(settings.lam) not in (1, world.clients):
            raise UserError(
                f"algorithm.lam has {len(settings.lam)} weights; name one, or one for each of the "
                f"{world.clients} clients"
            )
        self.weights = settings.lam * (world.clients if len(settings.lam) == 1 else 1)
        self.reviews = [
            float(sum(len(world.train[owner]) for owner in pool)) for pool in client_env_ids
        ]
        self.heaviest = max(self.reviews)
        texts = settings.batches * settings.batch
        self.ranges = dict.fromkeys(SHARES, SHARE) | {
            "train/tokens": Range(0, settings.answer_tokens),
            "env/samples": Range(0, texts, whole=True),
            "env/tokens": Range(0, texts * settings.answer_tokens, whole=True),
        }
        self.queries = [
            beginnings.queries(world, owner, settings.queries, settings.prompt_tokens)
            for owner in range(world.clients)
        ]
        beginnings.check_apart(world, self.queries, shown_tasks(settings.model))
        self._writer: Any = None
        self._judges: Judges | None = None

    # The server

    def init(self, seed: int) -> Tensors:
        return {"theta": self.writer.first(seed)}

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
        writer, start, owners = self.writer, job.broadcast["theta"], self.client_env_ids[job.client]
        if self.settings.feedback == "live":
            self.ask(start, owners, job.seed)
        judges = {owner: self.judges.of(owner) for owner in owners}

        def worth(batch: Any, written: Any) -> tuple[np.ndarray, Metrics]:
            paid = judging.pay_all(judges, batch.owners, written.texts, written.likelihood)
            return sign * paid.reward, judging.means(paid)

        batches = self.batches(owners, job.seed)
        metrics, moments = writer.train(start, batches, worth, job.seed, job.state)
        now = writer.policy.weights()
        rows, samples = [], []
        for owner in owners:
            written = self.write(owner)
            rows.append(assess(judges[owner], written))
            samples += written.samples
        metrics |= {f"personal/{name}": value for name, value in averaged(rows).items()}
        metrics["personal/divergence"] = writer.divergence(samples, start)
        if self.settings.feedback != "sentiment":
            metrics["train/answers"] = float(self.answers(owners))
        update = {name: now[name] - start[name] for name in start}
        weight = self.reviews[job.client]
        return Result(job.client, update, weight, moments or None, metrics)

    def batches(self, owners: Sequence[int], seed: int) -> Iterator[Any]:
        """Beginnings of these clients' training reviews, as the model reads them."""
        from fedrl.algorithms.fedrlhf.text.trainer import Batch

        settings = self.settings
        drawn = beginnings.batches(self.world, owners, settings.batch, settings.prompt_tokens, seed)
        for batch in itertools.islice(drawn, settings.batches):
            yield Batch([one.owner for one in batch], self.prompts(batch))

    def prompts(self, batch: Sequence[Beginning]) -> list[list[int]]:
        found: list[list[int]] = self.writer.prompts(
            [one.text for one in batch], [one.length for one in batch]
        )
        return found

    def ask(self, theta: Tensors, owners: Sequence[int], seed: int) -> None:
        """Put pairs of texts of θ before the people of these clients."""
        settings = self.settings
        self.writer.load(theta)
        for owner in self.people(owners):
            chosen = beginnings.some(
                self.world, owner, settings.compare, settings.prompt_tokens, seed
            )
            pairs = [prompt for prompt in self.prompts(chosen) for _ in range(2)]
            noise = self.writer.generator(seeding.derive(seed, "pairs", client=owner))
            written = self.writer.write(pairs, noise)
            paid = self.judges.of(owner).pay(written.texts, written.likelihood)
            asked = preference_queries.questions(written.texts, paid.sentiment.tolist())
            preference_queries.ask(settings.feedback_folder, owner, asked)

    def people(self, owners: Sequence[int]) -> list[int]:
        """Those whose feedback counts."""
        return [owner for owner in owners if self.weights[owner]]

    def answers(self, owners: Sequence[int]) -> int:
        """What people of these clients have answered so far."""
        folder = self.settings.feedback_folder
        return sum(len(preference_queries.answered(folder, owner)) for owner in self.people(owners))

    # Evaluation

    def write(self, owner: int) -> Any:
        """Texts from this client's queries with the weights that are set, always by the same random
        numbers."""
        prompts = self.prompts(self.queries[owner]) * self.settings.eval_texts
        generator = self.writer.generator(seeding.derive(0, "evaluation", client=owner))
        return self.writer.write(prompts, generator)

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        """The server's models on their clients' queries: means over clients, and each client's.

        `seed` is not read: every round writes by the same random numbers.
        """
        rows: dict[int, Metrics] = {}
        for state, group in zip(states, owners, strict=True):
            rows |= self.assessed(state, group)
        found = {f"eval/{name}": value for name, value in averaged(list(rows.values())).items()}
        for owner, row in rows.items():
            found |= {f"eval/{name}_client{owner}": value for name, value in row.items()}
        return found

    def assessed(self, state: Tensors, owners: Sequence[int]) -> dict[int, Metrics]:
        self.writer.load(state["theta"])
        return {owner: assess(self.judges.of(owner), self.write(owner)) for owner in owners}

    def evaluate_clients(self, state: Tensors, seed: int, episodes: int) -> np.ndarray:
        """Mean reward of every client on its queries, which are fixed: `episodes` is not read."""
        rows = self.assessed(state, range(self.world.clients))
        return np.array([row["reward"] for row in rows.values()])

    def save(self, theta: Tensors, out: Path) -> None:
        """The model with these weights as an ordinary folder."""
        from fedrl.llm.export import save

        settings = self.settings
        save(settings.model, settings.lora_rank, settings.lora_alpha, theta, out)

    # Where it happens

    def warm_up(self) -> None:
        """In a worker, what is wrong with the model is said at once, not as a client's error."""
        assert self.writer
        if self.settings.feedback == "sentiment" and self.settings.sentiment != "builtin":
            assert self.judges.classifier

    @property
    def writer(self) -> Any:
        """The model is loaded when it is first needed, in the process that needs it."""
        if self._writer is None:
            try:
                from fedrl.algorithms.fedrlhf.text.trainer import Writer

                self._writer = Writer(self.settings)
            except ModuleNotFoundError as error:
                raise missing_extra(error, 'algorithm.name = "fedrlhf-text"', "llm") from error
        return self._writer

    @property
    def judges(self) -> Judges:
        if self._judges is None:
            self._judges = Judges(self.settings, self.weights, self.world.train, self.writer.human)
        return self._judges

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_writer": None, "_judges": None}


def assess(judge: Judge, written: Any) -> Metrics:
    """What a client makes of texts."""
    paid = judge.pay(written.texts, written.likelihood)
    return judging.means(paid) | {"repeated": written.repeated}


def averaged(rows: Sequence[Mapping[str, float]]) -> Metrics:
    """Means over clients, of each number over those that have it."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: float(np.mean([row[name] for row in rows if name in row])) for name in names}


def build(
    settings: Settings, world: World, rounds: int, client_env_ids: Sequence[Sequence[int]]
) -> FedRLHFText:
    return FedRLHFText(settings, world, client_env_ids)
