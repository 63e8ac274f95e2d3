"""The workbench of a client: the model, its sampler and its learner, put to work for one round.

Nothing is remembered from one call to the next: every call sets the weights first. The sampler
reads the weights by version, so that a rollout can never be made with older ones than the learner
believes.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from fedrl.core.types import Metrics, Shareable, Tensors, UserError
from fedrl.envs.text import Task, TextWorld
from fedrl.llm import lora
from fedrl.llm.generation import choose as answering
from fedrl.llm.generation.hf import Sampler
from fedrl.llm.policy import SPREAD, choose_device, load
from fedrl.llm.prompts import formats
from fedrl.llm.rl import anchored_momentum, optimizer_state, ppo
from fedrl.llm.rl import loss as learner
from fedrl.llm.rl.advantages import (
    ESTIMATORS,
    NOTHING,
    negate_rewards,
    pay_success,
    penalise,
    penalised,
    zero_groups,
)
from fedrl.llm.rollout import Play, Rollout, play
from fedrl.llm.weights import Merged


class Anchor(NamedTuple):
    """FedSVRPG-M's: the model of the round before, and the server's direction u."""

    previous: Tensors
    u: Tensors


class Trained(NamedTuple):
    """What a round gave beside the weights, which the model holds."""

    metrics: Metrics
    direction: Tensors  # the mean of the directions that were stepped; only with an anchor
    moments: Tensors  # what the optimiser remembers


class OutOfMemory(UserError):
    """The GPU's memory was too small; the message says what needs less."""


@contextlib.contextmanager
def advice(model: nn.Module | None = None) -> Iterator[None]:
    """Running out of the GPU's memory becomes a line that names what to change."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        if model is not None:
            model.zero_grad(set_to_none=True)  # half a step's: the next client starts without
        raise OutOfMemory(
            Shareable(
                "out of GPU memory: lower algorithm.microbatch, set algorithm.save_memory, or "
                "train adapters with algorithm.lora_rank"
            )
        ) from error


def equipped(model: Any, settings: Any) -> Any:
    """The model with what the settings add: adapters, a critic, activation checkpointing."""
    if settings.lora_rank:
        model = lora.adapt(model, settings.lora_rank, settings.lora_alpha)
    if settings.estimator == "ppo":
        ppo.attach(model)
    if settings.save_memory:
        learner.save_memory(model)
    return model


class Bench:
    """Plays and learns as the settings of `fedagent` say."""

    def __init__(self, settings: Any, world: TextWorld) -> None:
        if not settings.model:
            raise UserError("algorithm.model is empty; name a model folder (`fedrl warmstart`)")
        self.settings = settings
        with advice():
            self._set_up(settings)
        format = formats.choose(settings.format, world.name, settings.thinking)
        self.how = Play(
            world, format, self.policy.tokenizer, settings.answer_tokens, world.max_steps,
            settings.prompt_tokens,
        )  # fmt: skip
        self.version = 0

    def _set_up(self, settings: Any) -> None:
        loaded = load(settings.model, choose_device(settings.device), settings.device == SPREAD)
        self.policy = replace(loaded, model=equipped(loaded.model, settings))
        model = self.policy.model
        self.critic = ppo.Critic(lr=settings.critic_lr) if settings.estimator == "ppo" else None
        self.reference: Any = None
        if settings.kl:  # adapters leave the model that the run began with as it was
            self.reference = model if lora.has_adapters(model) else copy.deepcopy(model)
        self.previous: Any = lora.twin(model) if settings.beta < 1 else None
        self.sampler: Any = answering.choose(settings, self.policy)
        if settings.compile:  # after the copies, which must not call this model's body
            learner.compiled(model)

    def first(self, seed: int) -> Tensors:
        """What the server begins with: the folder's weights, or new adapters by the run's seed."""
        if self.settings.lora_rank:
            lora.draw(self.policy.model, seed)
        return self.policy.weights()

    def train(
        self,
        theta: Tensors,
        share: Sequence[str],
        seed: int,
        anchor: tuple[Tensors, Tensors] | None = None,
        poisoned: bool = False,
        moments: Tensors | None = None,
    ) -> Trained:
        """τ epochs on these tasks, from `theta`; the model then holds the result.

        `poisoned` turns every reward round; `moments` are the optimiser's of an earlier round.
        """
        there = Anchor(*anchor) if anchor else None
        with advice(self.policy.model):
            return self._train(theta, share, seed, there, poisoned, moments)

    def _train(
        self,
        theta: Tensors,
        share: Sequence[str],
        seed: int,
        anchor: Anchor | None,
        poisoned: bool,
        moments: Tensors | None,
    ) -> Trained:
        settings, policy = self.settings, self.policy
        self.load(theta)
        rng = np.random.default_rng(seed)
        generator = torch.Generator(policy.device).manual_seed(seed % 2**63)
        course = Course(self, theta, generator, anchor, moments)
        logs = []
        for _ in range(settings.local_epochs):
            tasks = [share[i] for i in rng.integers(len(share), size=settings.tasks)]
            rollout = play(
                self.how, self.sampler, tasks, settings.temperature, generator, settings.group
            )
            assert rollout.version == self.version, "rollout made with other weights"
            scores = list(rollout.returns)
            if settings.reward == "success":
                pay_success(rollout)
            penalise(rollout, settings.invalid_penalty)
            if poisoned:
                negate_rewards(rollout)
            logs.append(told(rollout, scores, course.learn(rollout)))
            self.moved()
        totals = {k: float(sum(log[k] for log in logs)) for k in logs[0] if k.startswith("env/")}
        mean = {k: float(np.mean([log[k] for log in logs])) for k in logs[0]}
        return Trained(mean | totals, course.direction(), course.moments())

    def play(
        self, theta: Tensors, ids: Sequence[str], seed: int, transcripts: bool = False
    ) -> Rollout:
        """One episode of each task at the evaluation's temperature."""
        generator = torch.Generator(self.policy.device).manual_seed(seed % 2**63)
        temperature = self.settings.eval_temperature
        with advice():
            self.load(theta)
            return play(
                self.how, self.sampler, ids, temperature, generator, transcripts=transcripts
            )

    def evaluate(self, theta: Tensors, tasks: Sequence[Task], seed: int) -> Metrics:
        rollout = self.play(theta, [task.id for task in tasks], seed)
        won = np.array(rollout.won, float)
        kinds = np.array([task.category for task in tasks])
        found = {
            "eval/success": float(won.mean()),
            "eval/return": float(np.mean(rollout.returns)),
            "eval/steps": float(np.mean(rollout.lengths)),
            "eval/invalid": float(np.sum(rollout.invalid) / max(len(rollout.samples), 1)),
            "eval/truncated": float(np.mean(rollout.truncated)),
        }
        return found | {
            f"eval/success_{kind}": float(won[kinds == kind].mean()) for kind in sorted(set(kinds))
        }

    def load(self, theta: Tensors) -> None:
        self.policy.set_weights(theta)
        self.moved()

    def moved(self) -> None:
        """Tell the sampler of new weights: the plain one shares them, others keep a copy."""
        self.version += 1
        model = self.policy.model.eval()
        shares = isinstance(self.sampler, Sampler)
        self.sampler.push(None if shares else Merged(model), self.version)


class Course:
    """The optimiser and what it needs, for the epochs of one round; `moments` of earlier ones."""

    def __init__(
        self,
        bench: Bench,
        theta: Tensors,
        generator: torch.Generator,
        anchor: Anchor | None,
        moments: Tensors | None,
    ) -> None:
        settings, policy = bench.settings, bench.policy
        self.bench, self.settings, self.generator = bench, settings, generator
        self.weights = learner.Loss(
            settings.clip, settings.kl, settings.entropy, settings.temperature, settings.average
        )
        self.pull: learner.Pull = (0.0, ())
        if settings.prox:
            start = [p.detach().clone() for p in policy.trained().values()]
            self.pull = (settings.prox, start)
        groups: Any = policy.trained().values()
        if bench.critic is not None:
            groups = ppo.groups(policy.model, settings.lr, bench.critic)
        self.optimizer = torch.optim.AdamW(groups, settings.lr, weight_decay=settings.weight_decay)
        optimizer_state.restore(self.optimizer, policy.trained(), moments)
        self.u: list[torch.Tensor] = []
        if anchor is not None:
            assert bench.previous is not None
            named = dict(bench.previous.named_parameters())
            with torch.no_grad():
                for name in theta:
                    named[name].copy_(torch.from_numpy(anchor.previous[name]))
            self.u = [
                torch.from_numpy(anchor.u[name]).to(p.device)
                for name, p in policy.trained().items()
            ]
        self.stepped: list[list[torch.Tensor]] = []

    def learn(self, rollout: Rollout) -> dict[str, float]:
        """One pass over the rollout's samples."""
        settings, bench = self.settings, self.bench
        model, pad = bench.policy.model, bench.policy.pad
        sizes = (
            pad,
            settings.minibatch,
            settings.microbatch,
            settings.max_grad_norm,
            self.generator,
        )
        if bench.critic is not None:
            targets = ppo.judge(model, rollout, bench.critic, pad, settings.microbatch)
            compared = {"zero_advantage": zero_groups(targets.advantages, rollout)}
            targets = targets._replace(advantages=penalised(targets.advantages, rollout))
            return compared | ppo.update(
                model, self.optimizer, rollout.samples, targets, bench.critic, self.weights, *sizes,
                bench.reference, self.pull,
            )  # fmt: skip
        advantages = ESTIMATORS[settings.estimator](rollout)
        compared = {"zero_advantage": zero_groups(advantages, rollout)}
        if settings.by_episode:
            lengths = np.array([rollout.lengths[s.episode] for s in rollout.samples])
            advantages = advantages * np.mean(rollout.lengths) / lengths
        advantages = penalised(advantages, rollout)
        useful = np.flatnonzero(np.abs(advantages) > NOTHING)
        if settings.kl or settings.entropy:  # these count for every sample
            useful = np.arange(len(advantages))
        samples, judged = [rollout.samples[i] for i in useful], advantages[useful].tolist()
        if bench.previous is not None:
            found, mean = anchored_momentum.update(
                model, bench.previous, self.optimizer, samples, judged, self.u, settings.beta,
                settings.weight_clip, settings.temperature, *sizes,
            )  # fmt: skip
            self.stepped.append(mean)
            return compared | found
        return compared | learner.update(
            model, self.optimizer, samples, judged, self.weights, *sizes, bench.reference, self.pull
        )

    def moments(self) -> Tensors:
        """What the optimiser remembers, where a client keeps it: copies cost what they hold."""
        if self.settings.optimizer_state != "kept":
            return {}
        return optimizer_state.taken(self.optimizer, self.bench.policy.trained())

    def direction(self) -> Tensors:
        """The mean of the anchored directions, by the parameters' names."""
        if not self.stepped:
            return {}
        means = [torch.stack(parts).mean(0) for parts in zip(*self.stepped, strict=True)]
        names = self.bench.policy.trained()
        return {name: m.float().cpu().numpy() for name, m in zip(names, means, strict=True)}


def told(rollout: Rollout, scores: Sequence[float], learned: dict[str, float]) -> Metrics:
    """What a client reports of an epoch: means and counts, nothing of a single episode."""
    answers = max(len(rollout.samples), 1)
    acted = {sample.episode for sample in rollout.samples if sample.command}
    return {
        "train/success": float(np.mean(rollout.won)),
        "train/return": float(np.mean(scores)),
        "train/steps": float(np.mean(rollout.lengths)),
        "train/invalid": float(np.sum(rollout.invalid)) / answers,
        "train/no_think": sum(bool(s.command) and not s.valid for s in rollout.samples) / answers,
        "train/truncated": float(np.mean(rollout.truncated)),
        "train/no_act": 1 - len(acted) / len(rollout.won),
        "env/steps": float(len(rollout.samples)),
        "env/episodes": float(len(rollout.won)),
        "env/tokens": float(rollout.tokens),
    } | {f"train/{name}": float(value) for name, value in learned.items()}
