"""The policy-gradient learner: clipped ratio, KL to the reference model, entropy.

One row is one environment step: prompt and answer. Only the answers' positions go through the
output layer, because its width (the vocabulary) is most of a small model's arithmetic. The average
over a minibatch is exact however it is cut into microbatches, and the mean of the minibatches'
gradients is the gradient of all samples: their sizes differ by one at most (a small rest would take
an Adam step as long as any, on the noise of a few samples), and what they differ by is weighed.

On a GPU the model's body computes in bfloat16 while the weights stay in float32. The output layer
computes in float32 everywhere: a bfloat16 logit of 10 is off by up to 0.03, which the ratio of new
to old probability would take for a change of the policy.

Everything here computes in evaluation mode, the learner too: the sampler's log-probabilities and
the reference's are those of the whole model, and a learner that dropped a tenth of it at random
would find ratios far from 1 before its first step. Supervised warm starts form no ratio and keep
their model's dropout (`imitate`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fedrl.core.types import UserError
from fedrl.llm.generation.hf import padded
from fedrl.llm.lora import bare
from fedrl.llm.rollout import Sample
from fedrl.llm.weights import parts

COMPILED = "_compiled_for_learning"


class Rows(NamedTuple):
    """A batch of B step samples with A answer tokens; positions are in the flattened [B · T]."""

    ids: Tensor  # [B, T]
    mask: Tensor  # [B, T]
    at: Tensor  # [A] positions whose next token is an answer's token
    target: Tensor  # [A] the answers' tokens
    row: Tensor  # [A] which row each belongs to
    before: Tensor  # [B] position of the last token of each prompt


def rows(samples: Sequence[Sample], pad: int, device: torch.device) -> Rows:
    """Masks come from lengths, so `pad` may be any token, also one that answers use."""
    ids, mask, _ = padded([[*s.prompt, *s.answer] for s in samples], pad)
    width = ids.shape[1]
    at: list[int] = []
    target: list[int] = []
    row: list[int] = []
    before = [i * width + len(sample.prompt) - 1 for i, sample in enumerate(samples)]
    for i, sample in enumerate(samples):
        at += range(before[i], before[i] + len(sample.answer))
        target += sample.answer
        row += [i] * len(sample.answer)
    numbers = (torch.tensor(part) for part in (at, target, row, before))
    return Rows(*(part.to(device) for part in (ids, mask, *numbers)))


def states(model: nn.Module, batch: Rows) -> Tensor:
    """The last hidden state at every position [B · T, d]."""
    kind = batch.ids.device.type
    with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
        body = parts(model)[0]
        body = vars(body).get(COMPILED, body)
        out = body(input_ids=batch.ids, attention_mask=batch.mask, use_cache=False)
    # A model that is spread over GPUs ends on another one than it began on.
    return out.last_hidden_state.flatten(0, 1).to(batch.ids.device)


def scores(
    model: nn.Module, hidden: Tensor, batch: Rows, temperature: float
) -> tuple[Tensor, Tensor]:
    """Log-probability of every answer token [A], and the entropy at its position [A]."""
    head = parts(model)[1]
    logits = head(hidden[batch.at].to(head.weight.dtype)).to(hidden.device).float()
    logs = (logits / temperature).log_softmax(-1)
    entropy = -(logs.exp() * logs).sum(-1)
    return logs.gather(-1, batch.target[:, None])[:, 0], entropy


def logprobs(model: nn.Module, batch: Rows, temperature: float) -> tuple[Tensor, Tensor]:
    """`scores` of the model's own hidden states."""
    return scores(model, states(model, batch), batch, temperature)


def save_memory(model: nn.Module) -> None:
    """Activation checkpointing: layers are computed again on the way back instead of kept.

    Not by transformers' switch, which does nothing in evaluation mode. Without dropout there is no
    random state to restore.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers: list[Any] = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    if not layers:
        raise UserError(
            f"algorithm.save_memory does not know {type(model).__name__}; leave it false"
        )
    for layer in layers:
        layer.forward = partial(_recomputed, layer.forward)


def _recomputed(forward: Callable[..., Any], *args: Any, **named: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **named)
    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **named)


def compiled(model: nn.Module) -> None:
    """Fuse the small kernels of the body's layers with torch.compile, for the learner alone.

    One layer is compiled and serves all, with widths and numbers of rows as symbols: the whole body
    takes minutes. The compiled body is a second view of the same weights, kept beside the module
    and not in it: names of weights and the sampler, which calls the module with a cache, stay as
    they are.
    """
    body: Any = parts(model)[0]
    if not isinstance(getattr(body, "layers", None), nn.ModuleList):
        raise UserError(f"algorithm.compile does not know {type(body).__name__}; leave it false")
    view = copy.copy(body)
    view._modules = dict(body._modules)
    fused: list[Any] = [torch.compile(layer, dynamic=True) for layer in body.layers]
    view.layers = nn.ModuleList(fused)
    object.__setattr__(body, COMPILED, view)


@dataclass(frozen=True)
class Loss:
    """The terms of the objective, weights as in the papers' release."""

    clip: float = 0.2
    kl: float = 0.01
    entropy: float = 0.001
    temperature: float = 1.0
    # What counts the same in a minibatch: every answer token, or every step sample.
    average: Literal["token", "sequence"] = "token"


def k3(now: Tensor, reference: Tensor) -> Tensor:
    """π_ref/π − log(π_ref/π) − 1: never negative, and unbiased for KL(π ‖ π_ref)."""
    gap = reference - now
    return gap.exp() - gap - 1


def loss(
    now: Tensor,
    old: Tensor,
    reference: Tensor | None,
    entropy: Tensor,
    advantage: Tensor,
    weights: Loss,
) -> Tensor:
    """Per answer token [A]: −min(ρA, clip(ρ)A) + β·k3(π, π_ref) − c·H."""
    ratio = (now - old).exp()
    clipped = ratio.clamp(1 - weights.clip, 1 + weights.clip)
    total = -torch.minimum(ratio * advantage, clipped * advantage)
    if reference is not None and weights.kl:
        total = total + weights.kl * k3(now, reference)
    if weights.entropy:
        total = total - weights.entropy * entropy
    return total


def token_weights(samples: Sequence[Sample], average: str, steps: int) -> list[float]:
    """What a token of each sample's answer weighs in its minibatch's loss, of which there are
    `steps`: the mean of the losses is the mean over all samples, whatever minibatch each is in."""
    if average == "token":
        return [steps / sum(len(sample.answer) for sample in samples)] * len(samples)
    return [steps / (len(samples) * len(sample.answer)) for sample in samples]


def minibatches(count: int, size: int, generator: torch.Generator) -> list[list[int]]:
    """Random minibatches of sample numbers, every sample once: as many as are needed for at most
    `size` in each, all of them as large, but for one sample."""
    order = torch.randperm(count, generator=generator, device=generator.device).tolist()
    steps = math.ceil(count / size)
    return [order[i * count // steps : (i + 1) * count // steps] for i in range(steps)]


def microbatches(
    numbers: Sequence[int], samples: Sequence[Sample], size: int
) -> Iterator[list[int]]:
    """The numbers in parts of `size`, alike lengths together because they pad little."""
    order = sorted(numbers, key=lambda i: len(samples[i].prompt) + len(samples[i].answer))
    for start in range(0, len(order), size):
        yield order[start : start + size]


Pull = tuple[float, Sequence[Tensor]]
"""FedProx's: μ, and the parameters towards which every step pulls."""


def update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    samples: Sequence[Sample],
    advantages: Sequence[float],
    weights: Loss,
    pad: int,
    minibatch: int,
    microbatch: int,
    max_grad_norm: float,
    generator: torch.Generator,
    reference: nn.Module | None = None,
    pull: Pull = (0.0, ()),
    also: Callable[[Tensor, list[int]], Tensor] | None = None,
) -> dict[str, float]:
    """One pass over the samples; the numbers to log are means over tokens.

    `reference` may be a model with adapters, this one too: it answers without them.

    `also` is a further loss (a critic's): it gets the hidden state before each answer [B, d] and
    the samples' numbers, gives one value per sample, and their mean is added, weighed alike.
    """
    model.eval()
    if reference is not None:
        reference.eval()
    device = next(model.parameters()).device
    sums, norms = torch.zeros(5, device=device), []
    tokens = sum(len(sample.answer) for sample in samples)
    cut = minibatches(len(samples), minibatch, generator)
    share = token_weights(samples, weights.average, len(cut)) if cut else []
    for numbers in cut:
        optimizer.zero_grad(set_to_none=True)
        for part in microbatches(numbers, samples, microbatch):
            chosen = [samples[i] for i in part]
            batch = rows(chosen, pad, device)
            far = None
            if reference is not None and weights.kl:
                with torch.no_grad(), bare(reference):
                    far, _ = logprobs(reference, batch, weights.temperature)
            hidden = states(model, batch)
            now, entropy = scores(model, hidden, batch, weights.temperature)
            old = torch.tensor([x for s in chosen for x in s.logprobs], device=device)
            advantage, each = torch.tensor(
                [[advantages[i] for i in part], [share[i] for i in part]], device=device
            )[:, batch.row]
            total = (loss(now, old, far, entropy, advantage, weights) * each).sum()
            if also is not None:
                value = also(hidden[batch.before], part).sum()
                total = total + value * len(cut) / len(samples)
            total.backward()
            sums += _told(now.detach(), old, far, entropy.detach(), total.detach(), weights)
        norms.append(_prepared(optimizer, model, max_grad_norm, pull))
        optimizer.step()
    names = ("ratio_far", "entropy", "kl", "drift")
    found = dict(zip(names, (sums[:4] / max(tokens, 1)).tolist(), strict=True))
    steps = max(len(norms), 1)
    return found | {
        "loss": float(sums[4]) / steps,
        "gradient_norm": float(sum(norms, torch.zeros(()).to(device))) / steps,
    }


def _told(
    now: Tensor, old: Tensor, far: Tensor | None, entropy: Tensor, total: Tensor, weights: Loss
) -> Tensor:
    """Sums of a microbatch; they stay on the device, so that logging does not wait for it."""
    outside = ((now - old).exp() - 1).abs() > weights.clip
    kl = torch.zeros_like(total) if far is None else k3(now, far).sum()
    return torch.stack([outside.sum(), entropy.sum(), kl, (old - now).sum(), total])


def _prepared(
    optimizer: torch.optim.Optimizer, model: nn.Module, max_grad_norm: float, pull: Pull
) -> Tensor:
    """Add FedProx's pull and clip; gives the norm before clipping of the first group.

    Each group of the optimizer is clipped by itself: a critic's large error must not shrink the
    policy's step.
    """
    learning = [p for p in model.parameters() if p.requires_grad]
    for parameter, anchor in zip(learning, pull[1], strict=bool(pull[1])):
        if parameter.grad is not None:  # else it does not move, and there is nothing to pull
            parameter.grad.add_(parameter.detach() - anchor, alpha=pull[0])
    norms = [
        nn.utils.clip_grad_norm_(group["params"], max_grad_norm) for group in optimizer.param_groups
    ]
    return norms[0]
