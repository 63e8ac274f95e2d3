"""The local trainer of a client that writes: a language model completes prompts and learns by PPO
from what the texts are worth.

A text is one sample: the prompt is its situation, all new tokens are one action, the reward of the
whole text comes at the end. The critic values the prompt (`ppo`); advantages have mean 0 and
deviation 1 over the texts of one owner in a batch: over all, whose text it is would count as merit.
The KL divergence to the reference is a term of the loss, per token, as
for agents (`llm.rl.loss`), and no part of the reward. Its estimate from the tokens that were
written (k3) has the value of KL(π ‖ π_ref), but with the tokens fixed its gradient,
(1 − π_ref/π) ∇ log π, is on average that of KL(π_ref ‖ π): it holds on to all that the reference
writes.

The reference is the model that the run began with, and nothing ever trains it: a copy, or the model
without its adapters. It also says how likely a text is (`Completions.likelihood`), which no policy
can therefore talk up by changing itself. Nothing is remembered from one call to the next: every
call sets the weights first, or says that it uses those that are set.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedrl.algorithms.fedrlhf.text.settings import Settings
from fedrl.core.types import Metrics, Shareable, Tensors, UserError
from fedrl.llm import lora
from fedrl.llm.actor import Actor
from fedrl.llm.generation.select import select_sampler
from fedrl.llm.model_setup import checkpoint_activations, compile_layers
from fedrl.llm.out_of_memory import explain_out_of_memory
from fedrl.llm.policy import Policy, choose_device, load
from fedrl.llm.rl import optimizer_state, ppo
from fedrl.llm.rl.batches import Batching, Rows, to_rows
from fedrl.llm.rl.logprobs import answer_logprobs, hidden_states, log_distributions
from fedrl.llm.rl.loss import Loss
from fedrl.llm.rollout import Rollout, Sample

CHARACTERS_PER_TOKEN = 16
"""Of a text that are tokenized for a token that is wanted: three times the average."""
ROWS = 64
"""Texts per forward pass where nothing is trained."""
REPORTED = (
    "reward", "sentiment", "intrinsic", "loss", "policy_loss", "value_loss", "kl_loss", "entropy",
    "ratio_far", "gradient_norm",
)  # fmt: skip


class Completions(NamedTuple):
    """Texts of one model."""

    samples: list[Sample]
    texts: list[str]  # the prompt and its completion, as one text
    likelihood: np.ndarray  # mean log-probability of the new tokens under the reference [n]
    kl: float  # mean over the new tokens of log π − log π_ref
    penalty: float = 0.0  # and of the loss's own estimate of that divergence, k3

    @property
    def tokens(self) -> int:
        return sum(len(sample.answer) for sample in self.samples)

    @property
    def repeated(self) -> float:
        """Share of pairs of neighbouring new tokens that the same text had before.

        Repetition is likely under any language model: a likelihood that is paid for breeds it.
        """
        pairs = [list(zip(sample.answer, sample.answer[1:])) for sample in self.samples]
        shares = [1 - len(set(row)) / len(row) for row in pairs if row]
        return float(np.mean(shares)) if shares else 0.0


class PromptBatch(NamedTuple):
    """Prompts to learn from, as tokens, and whose they are."""

    owners: list[int]
    prompts: list[list[int]]


RewardFunction = Callable[[PromptBatch, Completions], tuple[np.ndarray, Metrics]]
"""What texts are worth [n], and numbers about it to report."""


class TextTrainer:
    """Writes and learns as the settings of `fedrlhf-text` say."""

    def __init__(self, settings: Settings) -> None:
        if not settings.model:
            raise UserError(
                "algorithm.model is empty; name a model folder (`fedrl warmstart imdb`)"
            )
        self.settings = settings
        with explain_out_of_memory():
            self._set_up(settings)

    def _set_up(self, settings: Settings) -> None:
        loaded = load(settings.model, choose_device(settings.device))
        adapters = lora.Adapters(settings.lora_rank, settings.lora_alpha)
        model = lora.with_adapters(loaded.model, adapters)
        adapted = lora.has_adapters(model)
        self.reference = model if adapted else copy.deepcopy(model).requires_grad_(False)
        ppo.add_value_head(model)
        if settings.save_memory:
            checkpoint_activations(model)
        policy = replace(loaded, model=model)
        self.critic = ppo.Critic(lr=settings.critic_lr)
        longest = settings.prompt_tokens[1] + settings.answer_tokens
        self.actor = Actor(policy, select_sampler(settings.rollouts, policy, longest))
        if settings.compile:  # after the copy, which must not call this model's body
            compile_layers(model)
        tokenizer = self.policy.tokenizer
        begin = tokenizer.bos_token_id
        begins = begin is not None and tokenizer("a")["input_ids"][:1] == [begin]
        self.before = [begin] if begins else []  # what this model expects before any text

    @property
    def policy(self) -> Policy:
        return self.actor.policy

    # Texts

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Of the beginning of each text, as far as prompts and what follows them may reach."""
        settings = self.settings
        most = CHARACTERS_PER_TOKEN * (settings.prompt_tokens[1] + settings.answer_tokens)
        read = self.policy.tokenizer([text[:most] for text in texts], add_special_tokens=False)
        return [list(row) for row in read["input_ids"]]

    def prompts(self, texts: Sequence[str], lengths: Sequence[int]) -> list[list[int]]:
        """The first tokens of each text."""
        pairs = zip(self.tokens(texts), lengths, strict=True)
        return [[*self.before, *row[:length]] for row, length in pairs]

    def decoded(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Tokens as people read them."""
        texts = self.policy.tokenizer.batch_decode(
            [list(row) for row in rows], skip_special_tokens=True
        )
        return list(texts)

    @explain_out_of_memory()
    def complete(self, prompts: Sequence[Sequence[int]], generator: torch.Generator) -> Completions:
        """Go on from each prompt with the weights that are set."""
        settings = self.settings
        answers = self.actor.sampler.generate(
            prompts, settings.answer_tokens, settings.temperature, generator
        )
        assert self.actor.sampler.version == self.actor.version, "written with other weights"
        samples = [
            Sample(i, 0, list(prompt), answers.tokens[i], answers.logprobs[i], "")
            for i, prompt in enumerate(prompts)
        ]
        whole = [[*sample.prompt, *sample.answer] for sample in samples]
        texts = self.policy.tokenizer.batch_decode(whole, skip_special_tokens=True)
        logs, rows = self._under_reference(samples)
        own = np.array([x for sample in samples for x in sample.logprobs])
        each, penalty = _means(logs, rows, len(samples)), np.exp(logs - own) - (logs - own) - 1
        return Completions(samples, texts, each, float((own - logs).mean()), float(penalty.mean()))

    @explain_out_of_memory()
    def human_likelihood(self, texts: Sequence[str]) -> np.ndarray:
        """Mean log-probability under the reference of what people wrote after a prompt of middle
        length, as far as a model would write [n]."""
        length = sum(self.settings.prompt_tokens) // 2
        samples: list[Sample] = []
        for row in self.tokens(texts):
            answer = row[length : length + self.settings.answer_tokens]
            if answer:
                prompt = [*self.before, *row[:length]]
                samples.append(Sample(len(samples), 0, prompt, answer, [], ""))
        if not samples:
            raise UserError(Shareable("none of its reviews is longer than a prompt"))
        logs, rows = self._under_reference(samples)
        return _means(logs, rows, len(samples))

    @torch.no_grad()
    def _under_reference(self, samples: Sequence[Sample]) -> tuple[np.ndarray, np.ndarray]:
        """Log-probability of every new token under the reference, and whose each is [tokens]."""
        logs, rows = [], []
        for start in range(0, len(samples), ROWS):
            batch = self._rows(samples[start : start + ROWS])
            with lora.without_adapters(self.reference):
                logprobs, _ = answer_logprobs(self.reference, batch, self.settings.temperature)
            logs.append(logprobs)
            rows.append(batch.row + start)
        return torch.cat(logs).cpu().double().numpy(), torch.cat(rows).cpu().numpy()

    def _rows(self, samples: Sequence[Sample]) -> Rows:
        return to_rows(samples, self.policy.pad, self.policy.device)

    # Learning

    def train(
        self,
        theta: Tensors,
        batches: Iterable[PromptBatch],
        reward: RewardFunction,
        seed: int,
        moments: Tensors | None = None,
    ) -> tuple[Metrics, Tensors]:
        """PPO from θ on these batches; the model keeps the new weights.

        Gives what to log, and what Adam remembers where clients keep it: `moments` of next time.
        """
        settings, model = self.settings, self.policy.model
        logs: list[Metrics] = []
        with explain_out_of_memory(model):
            self.actor.load(theta)
            generator = self.actor.generator(seed)
            optimizer = torch.optim.Adam(
                ppo.parameter_groups(model, settings.lr, self.critic), settings.lr
            )
            optimizer_state.restore(optimizer, self.policy.trained(), moments)
            for batch in batches:
                completions = self.complete(batch.prompts, generator)
                rewards, judged = reward(batch, completions)
                rollout = _rollout(completions.samples, rewards, self.actor.version)
                learned = self._learn(optimizer, rollout, batch.owners, generator)
                self.actor.sync_sampler()
                logs.append(_log(completions, judged | learned))
            kept = settings.optimizer_state == "kept"
            after = (
                optimizer_state.optimizer_moments(optimizer, self.policy.trained()) if kept else {}
            )
        names = dict.fromkeys(name for log in logs for name in log)
        rows = {name: [log[name] for log in logs if name in log] for name in names}
        metrics = {
            name: float(np.sum(row) if name.startswith("env/") else np.mean(row))
            for name, row in rows.items()
        }
        return metrics, after

    def _learn(
        self,
        optimizer: torch.optim.Optimizer,
        rollout: Rollout,
        owners: Sequence[int],
        generator: torch.Generator,
    ) -> dict[str, float]:
        """Passes of PPO over one batch of texts; means over the passes."""
        settings, model, pad = self.settings, self.policy.model, self.policy.pad
        targets = ppo.gae_targets(model, rollout, self.critic, pad, settings.microbatch, owners)
        weights = Loss(settings.clip, settings.kl, 0.0, settings.temperature)
        batching = Batching(
            pad, settings.minibatch, settings.microbatch, settings.max_grad_norm, generator
        )
        passes = [
            ppo.update(
                model, optimizer, rollout.samples, targets, self.critic, weights, batching,
                self.reference,
            )
            for _ in range(settings.ppo_epochs)
        ]  # fmt: skip
        means = {name: float(np.mean([log[name] for log in passes])) for name in passes[0]}
        if settings.losses:  # the whole is the sum of these
            means["kl_loss"] = settings.kl * means["kl"]
            means["policy_loss"] = means["loss"] - means["value_loss"] - means["kl_loss"]
        return means

    @explain_out_of_memory()
    def held_out_losses(self, written: Completions, rewards: np.ndarray) -> Metrics:
        """Of texts that were just written and are not learned from: the critic's mean error, the KL
        divergence, and the loss that both add up to.

        The policy's own part is 0 there: ratios are 1 and advantages have mean 0.
        """
        model, pad, part = self.policy.model, self.policy.pad, self.settings.microbatch
        values = ppo.sample_values(model, written.samples, pad, part)
        error = float(0.5 * ((values - rewards) ** 2).mean())
        total = error + self.settings.kl * written.penalty
        return {"loss": total, "value_loss": error, "kl": written.penalty}

    @explain_out_of_memory()
    @torch.no_grad()
    def divergence(self, samples: Sequence[Sample], theta: Tensors) -> float:
        """Mean over the new tokens of KL(π ‖ π_θ) between the weights that are set and θ, exact
        over the vocabulary; afterwards θ is set."""
        starts = range(0, len(samples), ROWS)
        batches = [self._rows(samples[start : start + ROWS]) for start in starts]
        own = [self._distributions(batch) for batch in batches]
        self.actor.load(theta)
        total = 0.0
        for batch, logs in zip(batches, own, strict=True):
            total += float((logs.exp() * (logs - self._distributions(batch))).sum())
        return total / sum(len(sample.answer) for sample in samples)

    def _distributions(self, batch: Rows) -> Tensor:
        """log π(· | all before it) at every new token [A, vocabulary]."""
        model, temperature = self.policy.model, self.settings.temperature
        return log_distributions(model, hidden_states(model, batch), batch, temperature)


def _means(values: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """Mean of each row's values [count]."""
    return np.bincount(rows, values, count) / np.bincount(rows, minlength=count)


def _rollout(samples: list[Sample], rewards: np.ndarray, version: int) -> Rollout:
    """Texts as episodes of one step."""
    paid = [float(reward) for reward in rewards]
    for sample, reward in zip(samples, paid, strict=True):
        sample.reward = reward
    count = len(samples)
    return Rollout(
        samples, list(range(count)), paid, [False] * count, [0] * count, [1] * count, version
    )


def _log(completions: Completions, learned: dict[str, float]) -> Metrics:
    return {f"train/{name}": learned[name] for name in REPORTED if name in learned} | {
        "train/kl": completions.kl,
        "train/repeated": completions.repeated,
        "train/tokens": completions.tokens / len(completions.samples),
        "env/samples": float(len(completions.samples)),
        "env/tokens": float(completions.tokens),
    }
