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
labels, answers and the sentiment model stay. Clients keep nothing from round to round but what
people have answered, in their private folders; sentiment models are fitted anew where they are
needed, from the client's own labels, to the same numbers.

Evaluation is on the same `queries` beginnings of each client's held-out reviews, with the same
random numbers in every round: of each client's own policy after its training (personal/…), by the
client, and of the global model (eval/…, and eval/…_client3 of client 3). The latter is central: it
reads clients' held-out reviews, labels and answers, as only a simulation can. A deployment would
send the model to its clients and let them evaluate it.

Where we differ from the paper: R0 has a formula, where the paper has none; one advantage per text;
the KL penalty is in the loss; sentiment by a model of the client's own labels, unless a classifier
is named; Adam starts anew in every round. The paper says neither how many texts a client writes in
a round nor how strong the KL penalty is: these are settings.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedrl import seeding
from fedrl.algorithms import beginnings, comparing, judging
from fedrl.algorithms.beginnings import Beginning
from fedrl.algorithms.fedagent import shown
from fedrl.algorithms.judging import Judge, Judges
from fedrl.envs.imdb import World
from fedrl.limits import above_zero, at_least_one, not_negative
from fedrl.registry import missing_extra
from fedrl.types import FilePath, Job, Metrics, ModelName, Result, Spec, Tensors, UserError, Word


@dataclass(frozen=True)
class Settings:
    """How a client writes and learns, and what for."""

    name: Literal["fedrlhf-text"] = "fedrlhf-text"
    # Model folder (`fedrl warmstart` writes one), GGUF file or Hugging Face id.
    model: ModelName = ""
    # Rank of LoRA's adapters: all that is then trained and sent. 0 trains the whole model.
    lora_rank: int = 0
    # Adapters count lora_alpha / lora_rank times; only read if lora_rank is above 0.
    lora_alpha: int = 32
    # λ: weight of the feedback, from 0 to 1, that of R0 being 1 − λ; one for all clients, or one
    # for each.
    lam: tuple[float, ...] = (0.5,)
    # Who gives it: a sentiment model, a person (`fedrl feedback`), or the answers that people have
    # given in an earlier run.
    feedback: Literal["sentiment", "live", "logged"] = "sentiment"
    # The sentiment model: builtin (fitted by each client to its own labels), or the folder or id of
    # a Hugging Face classifier; only read if feedback is "sentiment".
    sentiment: ModelName = "builtin"
    # Where clients' private folders are, for people to answer in; only read if live or logged.
    feedback_folder: FilePath = ""
    # Pairs of texts that a client asks its person about in a round; only read if live.
    compare: int = 10
    # Batches of texts that a client writes and learns from in a round.
    batches: int = 40
    # Texts per batch. Every review of the client's begins one before any begins a second; a
    # centralized client's batches are of one owner each, in turn.
    batch: int = 16
    # Shortest and longest beginning of a review, in tokens.
    prompt_tokens: tuple[int, ...] = (2, 8)
    # Most tokens that are written on.
    answer_tokens: int = 32
    # Sampling temperature, in training and evaluation.
    temperature: float = 1.0
    # Passes of PPO over a batch.
    ppo_epochs: int = 2
    # Texts per step of Adam.
    minibatch: int = 16
    # Texts per forward pass: less memory, the same result.
    microbatch: int = 16
    # Learning rate of Adam, which starts anew in every round.
    lr: float = 1e-5
    # That of the value head.
    critic_lr: float = 1e-3
    # ε: how far the ratio of new to old probability may pay.
    clip: float = 0.2
    # Largest norm of a minibatch's gradient.
    clip_norm: float = 1.0
    # Weight in the loss of the KL divergence to the model that the run began with.
    kl: float = 0.05
    # Held-out beginnings per client that are evaluated on, always the same.
    queries: int = 30
    # Texts that are written on from each of them.
    eval_texts: int = 1
    # Compute activations again on the way back instead of keeping them: less memory, more time.
    save_memory: bool = False
    # Compile the learner with torch.compile: a minute at first, then twice as fast on a GPU.
    compile: bool = False
    # Where the model runs: auto (a GPU if there is one, each worker its own), cpu, cuda, cuda:1.
    device: Word = "auto"
    # What writes: plain (any model), cuda (our engine, Llama and Qwen2 kinds), or auto: cuda on a
    # GPU for the models it knows, else plain.
    rollouts: Literal["auto", "plain", "cuda"] = "auto"

    def __post_init__(self) -> None:
        at_least_one(
            self, "algorithm.", "batches", "batch", "answer_tokens", "ppo_epochs", "minibatch",
            "microbatch", "queries", "eval_texts", "compare",
        )  # fmt: skip
        not_negative(self, "algorithm.", "lora_rank", "kl")
        above_zero(
            self, "algorithm.", "lr", "critic_lr", "temperature", "clip", "clip_norm", "lora_alpha"
        )
        if self.batch < 2:
            raise UserError(
                "algorithm.batch is 1, but a text's advantage is over others of its batch: at "
                "least 2"
            )
        lengths = self.prompt_tokens
        if len(lengths) != 2 or not 1 <= lengths[0] <= lengths[1]:
            raise UserError(
                f"algorithm.prompt_tokens is {list(lengths)}; name the shortest and the longest "
                "beginning, at least 1 token each"
            )
        if not self.lam or not all(0 <= weight <= 1 for weight in self.lam):
            raise UserError(
                f"algorithm.lam is {list(self.lam)}; name one weight or one per client, from 0 to 1"
            )
        if not self.sentiment:
            raise UserError('algorithm.sentiment is empty; use "builtin" or name a classifier')
        if self.feedback != "sentiment" and not self.feedback_folder:
            raise UserError(
                f'algorithm.feedback_folder is empty, but algorithm.feedback is "{self.feedback}"'
            )
        if self.device == "spread":
            raise UserError('algorithm.device is "spread", which only fedagent knows; use "auto"')


class FedRLHFText:
    """See the module's docstring. The model on `self` is a workbench: calls set its weights."""

    opening = False
    reports = frozenset(
        {
            "train/reward", "train/sentiment", "train/intrinsic", "train/kl", "train/loss",
            "train/value_loss", "train/entropy", "train/ratio_far", "train/gradient_norm",
            "train/repeated", "train/tokens", "train/answers",
            "personal/reward", "personal/sentiment", "personal/intrinsic", "personal/repeated",
            "personal/divergence", "env/samples", "env/tokens",
        }
    )  # fmt: skip

    def __init__(self, settings: Settings, world: World, pools: Sequence[Sequence[int]]) -> None:
        self.settings, self.world, self.pools = settings, world, pools
        if len(settings.lam) not in (1, world.clients):
            raise UserError(
                f"algorithm.lam has {len(settings.lam)} weights; name one, or one for each of the "
                f"{world.clients} clients"
            )
        self.weights = settings.lam * (world.clients if len(settings.lam) == 1 else 1)
        self.queries = [
            beginnings.queries(world, owner, settings.queries, settings.prompt_tokens)
            for owner in range(world.clients)
        ]
        beginnings.check_apart(world, self.queries, shown(settings.model))
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
        writer, start, owners = self.writer, job.broadcast["theta"], self.pools[job.client]
        if self.settings.feedback == "live":
            self.ask(start, owners, job.seed)
        judges = {owner: self.judges.of(owner) for owner in owners}

        def worth(batch: Any, written: Any) -> tuple[np.ndarray, Metrics]:
            paid = judging.pay_all(judges, batch.owners, written.texts, written.likelihood)
            return sign * paid.reward, judging.means(paid)

        metrics = writer.train(start, self.batches(owners, job.seed), worth, job.seed)
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
        weight = float(sum(len(self.world.train[owner]) for owner in owners))
        return Result(job.client, update, weight, metrics=metrics)

    def batches(self, owners: Sequence[int], seed: int) -> Iterator[Any]:
        """Beginnings of these clients' training reviews, as the model reads them."""
        from fedrl.llm.writing import Batch

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
            asked = comparing.questions(written.texts, paid.sentiment.tolist())
            comparing.ask(settings.feedback_folder, owner, asked)

    def people(self, owners: Sequence[int]) -> list[int]:
        """Those whose feedback counts."""
        return [owner for owner in owners if self.weights[owner]]

    def answers(self, owners: Sequence[int]) -> int:
        """What people of these clients have answered so far."""
        folder = self.settings.feedback_folder
        return sum(len(comparing.answered(folder, owner)) for owner in self.people(owners))

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

        save(self.settings, theta, out)

    # Where it happens

    def warm_up(self) -> None:
        """In a worker, what is wrong with the model is said at once, not as a client's error."""
        assert self.writer

    @property
    def writer(self) -> Any:
        """The model is loaded when it is first needed, in the process that needs it."""
        if self._writer is None:
            try:
                from fedrl.llm.writing import Writer

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
    settings: Settings, world: World, rounds: int, pools: Sequence[Sequence[int]]
) -> FedRLHFText:
    return FedRLHFText(settings, world, pools)
