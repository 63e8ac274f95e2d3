"""What the packed learner does besides matrix products and attention, in PyTorch, there and back;
`fused_ops` has it in Triton.

The residual stream x is float32; what goes into matrix products is of the type that the learner
computes in. Everything here is outside autograd: `layer` writes its own way back.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from fedrl.llm.generation.torch_ops import swiglu, turn

__all__ = [
    "LearnerOps", "add_norm", "choose", "choose_backward", "norm", "norm_backward", "swiglu",
    "swiglu_backward", "turn",
]  # fmt: skip


class LearnerOps(Protocol):
    """This module, or `fused_ops`, to the learner."""

    def norm(self, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype, /) -> Tensor: ...

    def add_norm(
        self, x: Tensor, delta: Tensor, weight: Tensor, eps: float, /
    ) -> tuple[Tensor, Tensor]: ...

    def norm_backward(
        self, grad: Tensor, x: Tensor, weight: Tensor, eps: float, beside: Tensor | None, /
    ) -> tuple[Tensor, Tensor]: ...

    def turn(self, qkv: Tensor, cos: Tensor, sin: Tensor, heads: int, back: bool, /) -> None: ...

    def swiglu(self, inner: Tensor, /) -> Tensor: ...

    def swiglu_backward(self, grad: Tensor, inner: Tensor, /) -> tuple[Tensor, Tensor]: ...

    def choose(
        self, logits: Tensor, target: Tensor, temperature: float, /
    ) -> tuple[Tensor, Tensor, Tensor]: ...

    def choose_backward(
        self,
        logits: Tensor,
        target: Tensor,
        temperature: float,
        lse: Tensor,
        entropy: Tensor,
        grads: tuple[Tensor, Tensor],
        dtype: torch.dtype,
        /,
    ) -> Tensor: ...


def norm(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """RMSNorm: w x / √(mean x² + ε)."""
    wide = x.float()
    return (weight.float() * (wide * _scale(wide, eps))).to(dtype)


def add_norm(x: Tensor, delta: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x + delta, and the norm of it in delta's type."""
    summed = x + delta
    return summed, norm(summed, weight, eps, delta.dtype)


def norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor, eps: float, beside: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Gradients of x, `beside` (what comes past the norm) added, and of the weight."""
    wide = x.float()
    scale = _scale(wide, eps)
    unit = wide * scale
    weighed = grad.float() * weight.float()
    dx = scale * (weighed - unit * (weighed * unit).mean(-1, keepdim=True))
    if beside is not None:
        dx = dx + beside
    return dx, (grad.float() * unit).sum(0)


def _scale(x: Tensor, eps: float) -> Tensor:
    return torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def swiglu_backward(grad: Tensor, inner: Tensor) -> tuple[Tensor, Tensor]:
    """What it gave (computed again, not kept), and the gradient of `inner`."""
    gate, up = (part.float() for part in inner.chunk(2, -1))
    gradient, open_ = grad.float(), gate.sigmoid()
    active = gate * open_
    slope = open_ * (1 + gate * (1 - open_))
    both = torch.cat((gradient * up * slope, gradient * active), -1)
    return (active * up).to(inner.dtype), both.to(inner.dtype)


def choose(logits: Tensor, target: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Of every row: log-probability of its target, entropy, log-sum-exp, at a temperature [A]."""
    scaled = logits / temperature
    lse = scaled.logsumexp(-1)
    mean = ((scaled - lse[:, None]).exp() * scaled).sum(-1)
    return scaled.gather(-1, target[:, None])[:, 0] - lse, lse - mean, lse


def choose_backward(
    logits: Tensor,
    target: Tensor,
    temperature: float,
    lse: Tensor,
    entropy: Tensor,
    grads: tuple[Tensor, Tensor],
    dtype: torch.dtype,
) -> Tensor:
    """Gradient of the logits, from those of log-probabilities and entropies:
    (g (1[target] − p) − h p (log p + H)) / temperature."""
    logs = logits / temperature - lse[:, None]
    told, spread = (grad[:, None] for grad in grads)
    each = -logs.exp() * (told + spread * (logs + entropy[:, None]))
    each.scatter_add_(1, target[:, None], told)
    return (each / temperature).to(dtype)
