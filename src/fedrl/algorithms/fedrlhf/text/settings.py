"""What can be set of FedRLHF on texts (`fedrlhf-text`), and what contradicts itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedrl.core.limits import above_zero, at_least_one, not_negative
from fedrl.core.types import FilePath, ModelName, UserError, Word


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
    # Pairs of texts that a client asks its person about at a time; only read if live.
    preference_queries: int = 10
    # When it asks: once a round, about texts of the model that it was sent, or before every batch,
    # about texts of its own model by then (the paper's); only read if live. A sentiment model
    # judges every batch as it is.
    ask: Literal["round", "step"] = "round"
    # R0, each from 0 to 1: how likely a text is beside people's (fluency: at most 1, which texts as
    # likely as people's have), or its log-likelihood (the paper's) on a logistic curve, 1/2 for
    # texts as likely as people's, with the deviation of these as its unit: it can rise and fall.
    intrinsic: Literal["fluency", "loglikelihood"] = "fluency"
    # Batches of texts that a client writes and learns from in a round.
    batches: int = 40
    # Texts per batch. Every review of the client's begins one before any begins a second.
    batch: int = 16
    # Of how many owners a centralized client's batch has texts: they take turns, and advantages are
    # over an owner's own texts.
    owners_per_batch: int = 1
    # Shortest and longest prompt, the beginning of a review, in tokens.
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
    # Learning rate of Adam.
    lr: float = 1e-5
    # Adam's moments and step count between a client's rounds: kept by the client (8 bytes for each
    # trained parameter), or fresh in every round. auto: kept where every client learns alone
    # (centralized, local, independent), fresh where several share a model.
    optimizer_state: Literal["auto", "kept", "fresh"] = "auto"
    # That of the value head.
    critic_lr: float = 1e-3
    # ε: how far the ratio of new to old probability may pay.
    clip: float = 0.2
    # Largest norm of a minibatch's gradient.
    max_grad_norm: float = 1.0
    # Weight in the loss of the KL divergence to the model that the run began with.
    kl: float = 0.05
    # Whether the parts of PPO's loss are told: of the policy, the critic and the KL penalty in
    # training, and of the last two on held-out prompts.
    losses: bool = False
    # Held-out prompts per client that are evaluated on, always the same.
    eval_prompts: int = 30
    # Texts that are written on from each of them.
    eval_completions: int = 1
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
            "microbatch", "eval_prompts", "eval_completions", "preference_queries",
            "owners_per_batch",
        )  # fmt: skip
        not_negative(self, "algorithm.", "lora_rank", "kl")
        above_zero(
            self,
            "algorithm.",
            "lr",
            "critic_lr",
            "temperature",
            "clip",
            "max_grad_norm",
            "lora_alpha",
        )
        if self.batch < 2 * self.owners_per_batch:
            raise UserError(
                f"algorithm.batch is {self.batch}, but a text's advantage is over others of its "
                f"owner in its batch: at least {2 * self.owners_per_batch}"
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
                f'algorithm.feedback_folder is empty, but algorithm.feedback is "{self.feedback}": '
                "name one, as in --algorithm.feedback_folder private"
            )
        if self.feedback == "sentiment" and self.feedback_folder:
            raise UserError(
                f"algorithm.feedback_folder is {self.feedback_folder!r}, where people answer, but "
                'algorithm.feedback is "sentiment": set it to "live", or name no folder'
            )
        if self.device == "spread":
            raise UserError('algorithm.device is "spread", which only fedagent knows; use "auto"')
