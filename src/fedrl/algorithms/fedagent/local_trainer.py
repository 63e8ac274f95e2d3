"""FedAgent's local epochs: what a client does with θ_t in one round.

    θ ← θ_t
    τ times    draw a batch of the client's own tasks
               rollout: play each G times with θ
               rewards: success or the world's score
               advantages within each task's group (`llm.rl.advantages`), or GAE with a critic
               one pass of clipped policy gradients over the step samples (`llm.rl`)
                                          both are the method's to say otherwise (`LearningRule`)
    send θ − θ_t

Nothing is remembered from one call to the next: every call sets the weights first (`llm.actor`).
What a client keeps between its rounds, AdamW's moments, goes in and comes out.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np
import torch

from fedrl.algorithms.fedagent.settings import Settings
from fedrl.core.types import Metrics, Tensors, UserError
from fedrl.envs.text import Graded, Task, TextWorld
from fedrl.llm import lora
from fedrl.llm.actor import Actor
from fedrl.llm.generation.select import select_sampler
from fedrl.llm.model_setup import compile_layers, prepare_model
from fedrl.llm.model_types import LanguageModel
from fedrl.llm.out_of_memory import explain_out_of_memory
from fedrl.llm.policy import SPREAD, Policy, choose_device, load
from fedrl.llm.prompts.prompt_format import world_format
from fedrl.llm.rl import anchored_momentum, optimizer_state, policy_gradient, ppo
from fedrl.llm.rl.advantages import (
    NO_ADVANTAGE,
    negate_rewards,
    set_penalties,
    set_success_rewards,
    subtract_penalties,
    zero_advantage_share,
)
from fedrl.llm.rl.batches import Batching
from fedrl.llm.rl.loss import Loss, Objective, TokenStep, TrainedWeights
from fedrl.llm.rollout import AgentLoop, Rollout, collect_rollout


class LearningRule(Protocol):
    """What a method says of a client's learning: `FedAgent`'s hooks."""

    every_sample: bool

    def advantage(self, rollout: Rollout) -> np.ndarray: ...
    def loss(self, now: TokenStep) -> torch.Tensor: ...


class Trained(NamedTuple):
    """What a round gave beside the weights, which the model holds."""

    metrics: Metrics
    direction: Tensors  # the mean of the directions that were stepped; only with β < 1
    moments: Tensors  # what the optimiser remembers, where clients keep it


def trained_model(model: LanguageModel, settings: Settings) -> LanguageModel:
    """The model with what the settings add."""
    return prepare_model(
        model, settings.lora_rank, settings.lora_alpha, settings.estimator == "ppo",
        settings.save_memory,
    )  # fmt: skip


class LocalTrainer:
    """Plays and learns as the settings say."""

    def __init__(self, settings: Settings, world: TextWorld) -> None:
        if not settings.model:
            raise UserError("algorithm.model is empty; name a model folder (`fedrl warmstart`)")
        self.settings = settings
        graded = isinstance(world, Graded) and world.graded
        self.pays_success = settings.reward == "success" or (
            settings.reward == "auto" and not graded
        )
        with explain_out_of_memory():
            self._load_models(settings)
        self.loop = AgentLoop(
            world,
            world_format(settings.format, world, settings.thinking),
            self.policy.tokenizer,
            settings.answer_tokens,
            settings.prompt_tokens,
        )

    def _load_models(self, settings: Settings) -> None:
        loaded = load(settings.model, choose_device(settings.device), settings.device == SPREAD)
        self.critic = ppo.Critic(lr=settings.critic_lr) if settings.estimator == "ppo" else None
        model = trained_model(loaded.model, settings)
        policy = replace(loaded, model=model)
        self.reference: LanguageModel | None = None
        if settings.kl:  # adapters leave the model that the run began with as it was
            self.reference = model if lora.has_adapters(model) else copy.deepcopy(model)
        self.previous = lora.copy_trained(model) if settings.beta < 1 else None
        longest = settings.prompt_tokens + settings.answer_tokens
        self.actor = Actor(policy, select_sampler(settings.rollouts, policy, longest))
        if settings.compile:  # after the copies, which must not call this model's body
            compile_layers(model)

    @property
    def policy(self) -> Policy:
        return self.actor.policy

    def train(
        self,
        rule: LearningRule,
        broadcast: Tensors,
        share: Sequence[str],
        seed: int,
        moments: Tensors | None = None,
        poisoned: bool = False,
    ) -> Trained:
        """τ epochs on these tasks, from the broadcast θ; the model then holds the result.

        `poisoned` gives every reward the other sign; `moments` are the optimiser's of an earlier
        round.
        """
        settings = self.settings
        with explain_out_of_memory(self.policy.model):
            self.actor.load(broadcast["theta"])
            rng, generator = np.random.default_rng(seed), self.actor.generator(seed)
            optimizer = LocalOptimizer(self, rule, broadcast, generator, moments)
            epochs = []
            for _ in range(settings.local_epochs):
                tasks = [share[i] for i in rng.integers(len(share), size=settings.tasks)]
                rollout = collect_rollout(
                    self.loop, self.actor.sampler, tasks, settings.temperature, generator,
                    settings.group,
                )  # fmt: skip
                assert rollout.version == self.actor.version, "rollout made with other weights"
                rollout = rollout.scored_only()
                scores = list(rollout.returns)
                if self.pays_success:
                    set_success_rewards(rollout)
                set_penalties(rollout, settings.invalid_penalty)
                if poisoned:
                    negate_rewards(rollout)
                epochs.append(epoch_metrics(rollout, scores, optimizer.update(rollout)))
                self.actor.sync_sampler()
            return Trained(round_metrics(epochs), optimizer.direction(), optimizer.moments())

    def play(
        self, theta: Tensors, ids: Sequence[str], seed: int, transcripts: bool = False
    ) -> Rollout:
        """One episode of each task at the evaluation's temperature."""
        with explain_out_of_memory():
            self.actor.load(theta)
            return collect_rollout(
                self.loop, self.actor.sampler, ids, self.settings.eval_temperature,
                self.actor.generator(seed), transcripts=transcripts,
            )  # fmt: skip

    def evaluate(self, theta: Tensors, tasks: Sequence[Task], seed: int) -> Metrics:
        rollout = self.play(theta, [task.id for task in tasks], seed)
        won = np.array(rollout.won, float)
        kinds = np.array([task.category for task in tasks])
        return {
            "eval/success": float(won.mean()),
            "eval/return": float(np.mean(rollout.returns)),
            "eval/steps": float(np.mean(rollout.lengths)),
            "eval/invalid": float(np.sum(rollout.invalid) / max(len(rollout.samples), 1)),
            "eval/truncated": float(np.mean(rollout.truncated)),
        } | {
            f"eval/success_{kind}": float(won[kinds == kind].mean()) for kind in sorted(set(kinds))
        }


class LocalOptimizer:
    """AdamW and what its steps need, for the epochs of one round; `moments` of earlier ones."""

    def __init__(
        self,
        trainer: LocalTrainer,
        rule: LearningRule,
        broadcast: Tensors,
        generator: torch.Generator,
        moments: Tensors | None,
    ) -> None:
        settings, policy = trainer.settings, trainer.policy
        self.trainer, self.settings, self.rule = trainer, settings, rule
        weights = TrainedWeights(policy.trained(), broadcast["theta"])
        self.objective = Objective(rule.loss, weights)
        self.loss = Loss(
            settings.clip, settings.kl, settings.entropy, settings.temperature, settings.average
        )
        self.batching = Batching(
            policy.pad, settings.minibatch, settings.microbatch, settings.max_grad_norm, generator
        )
        self.proximal: policy_gradient.ProximalTerm | None = None
        if settings.prox:
            start = [p.detach().clone() for p in policy.trained().values()]
            self.proximal = policy_gradient.ProximalTerm(settings.prox, start)
        self.optimizer = torch.optim.AdamW(
            policy.trained().values()
            if trainer.critic is None
            else ppo.parameter_groups(policy.model, settings.lr, trainer.critic),
            settings.lr,
            weight_decay=settings.weight_decay,
        )
        optimizer_state.restore(self.optimizer, policy.trained(), moments)
        self.anchor = self._anchor(broadcast)
        self.directions: list[list[torch.Tensor]] = []

    @torch.no_grad()
    def _anchor(self, broadcast: Tensors) -> anchored_momentum.Anchor | None:
        """FedSVRPG-M's: the model of the round before, and the server's direction u."""
        previous, settings = self.trainer.previous, self.settings
        if previous is None:
            return None
        trained = self.trainer.policy.trained()
        named = dict(previous.named_parameters())
        for name in trained:
            named[name].copy_(torch.from_numpy(broadcast["previous"][name]))
        u = [torch.from_numpy(broadcast["u"][name]).to(p.device) for name, p in trained.items()]
        return anchored_momentum.Anchor(
            previous, u, settings.beta, settings.weight_clip, settings.temperature
        )

    def update(self, rollout: Rollout) -> dict[str, float]:
        """One pass over the rollout's samples."""
        if self.trainer.critic is not None:
            return self._update_with_critic(rollout, self.trainer.critic)
        settings, model = self.settings, self.trainer.policy.model
        advantages = self.rule.advantage(rollout)
        compared = {"zero_advantage": zero_advantage_share(advantages, rollout)}
        if settings.by_episode:
            lengths = np.array([rollout.lengths[s.episode] for s in rollout.samples])
            advantages = advantages * np.mean(rollout.lengths) / lengths
        advantages = subtract_penalties(advantages, rollout)
        useful = np.flatnonzero(np.abs(advantages) > NO_ADVANTAGE)
        if (
            settings.kl or settings.entropy or self.rule.every_sample
        ):  # these count for every sample
            useful = np.arange(len(advantages))
        samples, weights = [rollout.samples[i] for i in useful], advantages[useful].tolist()
        if self.anchor is None:
            return compared | policy_gradient.update(
                model, self.optimizer, samples, weights, self.loss, self.batching,
                self.trainer.reference, self.proximal, None, self.objective,
            )  # fmt: skip
        logged, direction = anchored_momentum.update(
            model, self.optimizer, samples, weights, self.anchor, self.batching
        )
        self.directions.append(direction)
        return compared | logged

    def _update_with_critic(self, rollout: Rollout, critic: ppo.Critic) -> dict[str, float]:
        """PPO: advantages by GAE over the critic's values, both learned in one pass."""
        model, batching = self.trainer.policy.model, self.batching
        targets = ppo.gae_targets(model, rollout, critic, batching.pad, batching.microbatch)
        compared = {"zero_advantage": zero_advantage_share(targets.advantages, rollout)}
        targets = targets._replace(advantages=subtract_penalties(targets.advantages, rollout))
        return compared | ppo.update(
            model, self.optimizer, rollout.samples, targets, critic, self.loss, batching,
            self.trainer.reference, self.proximal, self.objective,
        )  # fmt: skip

    def moments(self) -> Tensors:
        """What the optimiser remembers, where a client keeps it: copies cost what they hold."""
        if self.settings.optimizer_state != "kept":
            return {}
        return optimizer_state.optimizer_moments(self.optimizer, self.trainer.policy.trained())

    def direction(self) -> Tensors:
        """The mean of the anchored directions, by the parameters' names."""
        if not self.directions:
            return {}
        means = [torch.stack(parts).mean(0) for parts in zip(*self.directions, strict=True)]
        names = self.trainer.policy.trained()
        return {name: m.float().cpu().numpy() for name, m in zip(names, means, strict=True)}


def epoch_metrics(rollout: Rollout, scores: Sequence[float], learned: dict[str, float]) -> Metrics:
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


def round_metrics(epochs: Sequence[Metrics]) -> Metrics:
    """Means over the epochs; of `env/`, which counts, sums."""
    columns = {name: [epoch[name] for epoch in epochs] for name in epochs[0]}
    return {
        name: float(sum(column) if name.startswith("env/") else np.mean(column))
        for name, column in columns.items()
    }
