"""The policy-gradient update: one pass of clipped steps over a rollout's samples.

The average over a minibatch is exact however it is cut into microbatches, and the mean of the
minibatches' gradients is the gradient of all samples: what their sizes differ by is weighed.

Everything here computes in evaluation mode, the learner too: the sampler's log-probabilities and
the reference's are those of the whole model, and a learner that dropped a tenth of it at random
would find ratios far from 1 before its first step. Supervised warm starts form no ratio and keep
their model's dropout (`pretrain.supervised`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedrl.llm.lora import without_adapters
from fedrl.llm.model_types import LanguageModel
from fedrl.llm.rl.batches import Batching, microbatches, minibatches
from fedrl.llm.rl.logprobs import answer_logprobs, hidden_states, learner_rows, token_logprobs
from fedrl.llm.rl.loss import Loss, Objective, TokenStep, clipped_loss, k3, token_weights
from fedrl.llm.rollout import Sample


@dataclass(frozen=True)
class ProximalTerm:
    """FedProx's: every step pulls towards the parameters that the round began with."""

    mu: float
    start: Sequence[Tensor]


CriticLoss = Callable[[Tensor, list[int]], Tensor]
"""From the hidden state before each answer [B, d] and the samples' numbers to a loss per sample."""


def update(
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    samples: Sequence[Sample],
    advantages: Sequence[float],
    loss: Loss,
    batching: Batching,
    reference: LanguageModel | None = None,
    proximal: ProximalTerm | None = None,
    critic_loss: CriticLoss | None = None,
    objective: Objective | None = None,
) -> dict[str, float]:
    """One pass over the samples; the numbers to log are means over tokens.

    `reference` may be a model with adapters, this one too: it answers without them.

    The mean of `critic_loss` over the samples is added, weighed alike. `objective` is stepped
    instead of the clipped loss.
    """
    model.eval()
    if reference is not None:
        reference.eval()
    device = next(model.parameters()).device
    sums, norms = torch.zeros(5, device=device), []
    tokens = sum(len(sample.answer) for sample in samples)
    cut = minibatches(len(samples), batching)
    share = token_weights(samples, loss.average, len(cut)) if cut else []
    for numbers in cut:
        optimizer.zero_grad(set_to_none=True)
        for part in microbatches(numbers, samples, batching.microbatch, batching.pass_tokens):
            chosen = [samples[i] for i in part]
            batch = learner_rows(model, chosen, batching.pad, device)
            far = None
            if reference is not None and loss.kl:
                with torch.no_grad(), without_adapters(reference):
                    far, _ = answer_logprobs(reference, batch, loss.temperature)
            hidden = hidden_states(model, batch)
            now, entropy = token_logprobs(model, hidden, batch, loss.temperature)
            old = torch.tensor([x for s in chosen for x in s.logprobs], device=device)
            advantage, each = torch.tensor(
                [[advantages[i] for i in part], [share[i] for i in part]], device=device
            )[:, batch.row]
            if objective is None:
                total = (clipped_loss(now, old, far, entropy, advantage, loss) * each).sum()
            else:
                here = len(part) / len(numbers)
                total = objective(
                    TokenStep(now, old, far, entropy, advantage, batch.row, each, here, loss,
                              objective.weights)
                )  # fmt: skip
            if critic_loss is not None:
                value = critic_loss(hidden[batch.before], part).sum()
                total = total + value * len(cut) / len(samples)
            total.backward()
            sums += _logged_sums(now.detach(), old, far, entropy.detach(), total.detach(), loss)
        norms.append(_prepare_gradients(optimizer, model, batching.max_grad_norm, proximal))
        optimizer.step()
    names = ("ratio_far", "entropy", "kl", "drift")
    means = dict(zip(names, (sums[:4] / max(tokens, 1)).tolist(), strict=True))
    steps = max(len(norms), 1)
    return means | {
        "loss": float(sums[4]) / steps,
        "gradient_norm": float(sum(norms, torch.zeros(()).to(device))) / steps,
    }


def _logged_sums(
    now: Tensor, old: Tensor, far: Tensor | None, entropy: Tensor, total: Tensor, loss: Loss
) -> Tensor:
    """Sums of a microbatch; they stay on the device, so that logging does not wait for it."""
    outside = ((now - old).exp() - 1).abs() > loss.clip
    kl = torch.zeros_like(total) if far is None else k3(now, far).sum()
    return torch.stack([outside.sum(), entropy.sum(), kl, (old - now).sum(), total])


def _prepare_gradients(
    optimizer: torch.optim.Optimizer,
    model: LanguageModel,
    max_grad_norm: float,
    proximal: ProximalTerm | None,
) -> Tensor:
    """Add FedProx's pull and clip; gives the norm before clipping of the first group.

    Each group of the optimizer is clipped by itself: a critic's large error must not shrink the
    policy's step.
    """
    if proximal is not None:
        learning = [p for p in model.parameters() if p.requires_grad]
        for parameter, start in zip(learning, proximal.start, strict=True):
            if parameter.grad is not None:  # else it does not move, and there is nothing to pull
                parameter.grad.add_(parameter.detach() - start, alpha=proximal.mu)
    norms = [
        nn.utils.clip_grad_norm_(group["params"], max_grad_norm) for group in optimizer.param_groups
    ]
    return norms[0]
