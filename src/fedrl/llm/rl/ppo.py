"""PPO with a critic: a linear value head on the model's hidden state, GAE over the steps.

    δ_t = r_t + γ V(s_{t+1}) − V(s_t),   A_t = Σ_{h≥t} (γλ)^(h−t) δ_h,   target = A_t + V(s_t)

The critic values a step, not a token: V(s_t) is read at the last token of the prompt, where the
agent knows its situation and has said nothing yet. The action is the whole answer, the world pays
per step, and one advantage per step sample is what every other estimator gives too; values inside
an answer would only add predictions of what the agent is about to say.

The head reads the hidden state without changing it: only the policy's objective moves the policy,
and no weight has to balance the two. It is the model's submodule `value`, so its parameters
("value.weight", "value.bias") travel and are averaged with the rest. An episode cut off by the step
limit ends with value 0, as the task ends there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedrl.llm.model_types import LanguageModel
from fedrl.llm.rl import policy_gradient
from fedrl.llm.rl.advantages import last_steps_first, normalised
from fedrl.llm.rl.batches import Batching, microbatches
from fedrl.llm.rl.logprobs import hidden_states, learner_rows
from fedrl.llm.rl.loss import Loss, Objective
from fedrl.llm.rollout import Rollout, Sample
from fedrl.llm.weights import decoder_and_head

if TYPE_CHECKING:
    from torch.optim.optimizer import ParamsT


@dataclass(frozen=True)
class Critic:
    """How values are learned; numbers as in the papers' release."""

    lr: float = 1e-5
    clip: float = 0.5  # how far a value may pay to move from what it was
    gamma: float = 1.0
    trace: float = 1.0  # λ of GAE


class Targets(NamedTuple):
    """Per step sample: what the actor and the critic learn from."""

    advantages: np.ndarray  # of mean 0 and deviation 1 over the rollout
    returns: np.ndarray
    values: np.ndarray  # of the model that played


def add_value_head(model: LanguageModel) -> None:
    """Give the model its value head; it says 0 until it has learned."""
    weight = decoder_and_head(model)[1].weight
    head = nn.Linear(weight.shape[1], 1, device=weight.device)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    model.add_module("value", head)


def parameter_groups(model: nn.Module, lr: float, critic: Critic) -> ParamsT:
    """Of the optimizer: the policy, then the critic with its own rate."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    actor = [p for name, p in named if not name.startswith("value.")]
    head = [p for name, p in named if name.startswith("value.")]
    return [{"params": actor, "lr": lr}, {"params": head, "lr": critic.lr}]


def state_values(model: nn.Module, hidden: Tensor) -> Tensor:
    """V [B] of hidden states [B, d]."""
    return model.get_submodule("value")(hidden.detach().float())[:, 0]


@torch.no_grad()
def sample_values(
    model: LanguageModel,
    samples: Sequence[Sample],
    pad: int,
    microbatch: int,
    tokens: int | None = None,
) -> np.ndarray:
    """V at the end of every sample's prompt [samples], by passes of at most so many tokens."""
    device = next(model.parameters()).device
    values = np.zeros(len(samples))
    for part in microbatches(range(len(samples)), samples, microbatch, tokens):
        batch = learner_rows(model, [samples[i] for i in part], pad, device)
        values[part] = state_values(model, hidden_states(model, batch)[batch.before]).cpu()
    return values


def gae(rollout: Rollout, values: np.ndarray, gamma: float, trace: float) -> np.ndarray:
    """Generalised advantage estimates over the steps of every episode [samples]."""
    advantages = np.zeros(len(rollout.samples))
    next_value, next_advantage = np.zeros(len(rollout.groups)), np.zeros(len(rollout.groups))
    for i in last_steps_first(rollout):
        sample = rollout.samples[i]
        delta = sample.reward + gamma * next_value[sample.episode] - values[i]
        advantages[i] = delta + gamma * trace * next_advantage[sample.episode]
        next_value[sample.episode], next_advantage[sample.episode] = values[i], advantages[i]
    return advantages


def gae_targets(
    model: LanguageModel,
    rollout: Rollout,
    critic: Critic,
    pad: int,
    microbatch: int,
    groups: Sequence[int] | None = None,
    tokens: int | None = None,
) -> Targets:
    """Advantages and returns of a rollout by the model's own values (`sample_values`).

    Advantages have mean 0 and deviation 1 over the rollout, or over each of the samples' `groups`.
    """
    before = sample_values(model, rollout.samples, pad, microbatch, tokens)
    raw = gae(rollout, before, critic.gamma, critic.trace)
    alike = [0] * len(raw) if groups is None else groups
    return Targets(normalised(raw, alike, scale=True), raw + before, before)


def value_loss(now: Tensor, old: Tensor, target: Tensor, clip: float) -> Tensor:
    """½ max((V − R)², (V_old + clip(V − V_old) − R)²) per sample [B]."""
    near = old + (now - old).clamp(-clip, clip)
    return 0.5 * torch.maximum((now - target) ** 2, (near - target) ** 2)


def update(
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    samples: Sequence[Sample],
    targets: Targets,
    critic: Critic,
    loss: Loss,
    batching: Batching,
    reference: LanguageModel | None = None,
    proximal: policy_gradient.ProximalTerm | None = None,
    objective: Objective | None = None,
) -> dict[str, float]:
    """One pass over the samples for actor and critic, as `policy_gradient.update`."""
    device = next(model.parameters()).device
    error = torch.zeros((), device=device)

    def critic_loss(hidden: Tensor, numbers: list[int]) -> Tensor:
        now = state_values(model, hidden)
        known = np.stack([targets.values[numbers], targets.returns[numbers]])
        old, target = torch.tensor(known, dtype=now.dtype, device=device)
        each = value_loss(now, old, target, critic.clip)
        error.add_(each.detach().sum())
        return each

    logged = policy_gradient.update(
        model, optimizer, samples, targets.advantages.tolist(), loss, batching, reference, proximal,
        critic_loss, objective,
    )  # fmt: skip
    return logged | {"value_loss": float(error) / max(len(samples), 1)}
