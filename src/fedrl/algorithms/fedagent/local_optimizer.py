"""The optimizer of a client's round: AdamW over what is shared, what the client keeps for itself
and the critic, and passes over a rollout's samples by the method's advantages and loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from fedrl.algorithms.fedagent.settings import Settings
from fedrl.core.types import Tensors
from fedrl.llm import lora
from fedrl.llm.learner.decoder import packs
from fedrl.llm.memory import pass_tokens
from fedrl.llm.rl import anchored_momentum, optimizer_state, policy_gradient, ppo
from fedrl.llm.rl.advantages import NO_ADVANTAGE, subtract_penalties, zero_advantage_share
from fedrl.llm.rl.batches import Batching
from fedrl.llm.rl.logprobs import learner_logprobs
from fedrl.llm.rl.loss import Loss, Objective, TokenStep, TrainedWeights
from fedrl.llm.rollout import Rollout, Sample

if TYPE_CHECKING:
    from torch.optim.optimizer import ParamsT

    from fedrl.algorithms.fedagent.local_trainer import LocalTrainer


class LearningRule(Protocol):
    """What a method says of a client's learning: `FedAgent`'s hooks."""

    every_sample: bool

    def advantage(self, rollout: Rollout) -> np.ndarray: ...
    def loss(self, now: TokenStep) -> torch.Tensor: ...


def parameter_groups(trained: Mapping[str, torch.nn.Parameter], settings: Settings) -> ParamsT:
    """What is shared, what the client keeps for itself, and the critic, each with its rate. Each is
    clipped by itself: what one client keeps does not shrink its step for all."""
    adapters = settings.lora_lr or settings.lr
    rates = {
        "shared": adapters if settings.lora_rank else settings.lr,
        "personal": adapters,
        "critic": settings.critic_lr,
    }
    parts: dict[str, list[torch.nn.Parameter]] = {}
    for name, parameter in trained.items():
        part = "critic" if name.startswith("value.") else "shared"
        parts.setdefault("personal" if lora.is_personal(name) else part, []).append(parameter)
    return [{"params": parts[part], "lr": rates[part]} for part in rates if part in parts]


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
        tokens = settings.pass_tokens or None
        if tokens is None and packs(policy.model):
            tokens = pass_tokens(sum(p.numel() for p in policy.model.parameters()))
        self.batching = Batching(
            policy.pad, settings.minibatch, settings.microbatch, settings.max_grad_norm, generator,
            tokens,
        )  # fmt: skip
        self.proximal: policy_gradient.ProximalTerm | None = None
        if settings.prox:
            start = [p.detach().clone() for p in policy.trained().values()]
            self.proximal = policy_gradient.ProximalTerm(settings.prox, start)
        self.optimizer = torch.optim.AdamW(
            parameter_groups(policy.trained(), settings),
            weight_decay=settings.weight_decay,
            fused=policy.device.type == "cuda" or None,  # one kernel; elsewhere PyTorch's choice
        )
        self._highest_rates = [group["lr"] for group in self.optimizer.param_groups]
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

    def update(self, rollout: Rollout, rate_share: float = 1.0) -> dict[str, float]:
        """`ppo_epochs` passes over the rollout's samples with so much of the learning rates; the
        numbers to log are means over the passes."""
        for group, highest in zip(self.optimizer.param_groups, self._highest_rates, strict=True):
            group["lr"] = highest * rate_share
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
            started, gap = self._old_logprobs(samples)
            passes = [
                policy_gradient.update(
                    model, self.optimizer, started, weights, self.loss, self.batching,
                    self.trainer.reference, self.proximal, None, self.objective,
                )
                for _ in range(settings.ppo_epochs)
            ]  # fmt: skip
            return compared | gap | means(passes)
        logged, direction = anchored_momentum.update(
            model, self.optimizer, samples, weights, self.anchor, self.batching
        )
        self.directions.append(direction)
        return compared | logged

    def _update_with_critic(self, rollout: Rollout, critic: ppo.Critic) -> dict[str, float]:
        """PPO: advantages by GAE over the critic's values, both learned in the same passes."""
        model, batching = self.trainer.policy.model, self.batching
        targets = ppo.gae_targets(
            model, rollout, critic, batching.pad, batching.microbatch, None, batching.pass_tokens
        )
        compared = {"zero_advantage": zero_advantage_share(targets.advantages, rollout)}
        targets = targets._replace(advantages=subtract_penalties(targets.advantages, rollout))
        samples, gap = self._old_logprobs(rollout.samples)
        passes = [
            ppo.update(
                model, self.optimizer, samples, targets, critic, self.loss, batching,
                self.trainer.reference, self.proximal, self.objective,
            )
            for _ in range(self.settings.ppo_epochs)
        ]  # fmt: skip
        return compared | gap | means(passes)

    def _old_logprobs(self, samples: Sequence[Sample]) -> tuple[Sequence[Sample], dict[str, float]]:
        """The samples with the log-probabilities that ratios start from, and how far the sampler's
        are from the learner's, where these are asked for."""
        if self.settings.old_logprobs == "sampler":
            return samples, {}
        own = learner_logprobs(
            self.trainer.policy.model, samples, self.batching, self.settings.temperature
        )
        apart = [
            abs(a - b)
            for sample, mine in zip(samples, own, strict=True)
            for a, b in zip(sample.logprobs, mine, strict=True)
        ]
        taken = [replace(sample, logprobs=mine) for sample, mine in zip(samples, own, strict=True)]
        return taken, {"sampler_gap": float(np.mean(apart)) if apart else 0.0}

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


def means(passes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of what each pass logged."""
    return {name: float(np.mean([log[name] for log in passes])) for name in passes[0]}
