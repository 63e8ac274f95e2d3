"""LoRA's adapters as the packed learner computes them: those of one input are two products.

One by one, an adapter is sixteen launches a pass, a model of 28 layers has 196 adapters, and a GPU
waits for them. Here the adapters of all layers that read the same input lie in two matrices of the
products' type: A one below the other, and s B as blocks, zero between two layers. They are written
once for a pass, for all layers together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from fedrl.llm.learner.wide_mm import wide_mm

if TYPE_CHECKING:
    from fedrl.llm.learner.projections import Projection


class AdapterPlan(NamedTuple):
    down: int  # number of A [rank, in] among the parameters
    up: int  # of B [out, rank]
    rank: int
    scale: float
    start: int  # of its layer's part of the result
    stop: int


class Stack(NamedTuple):
    """The adapters of one input, R numbers in the middle."""

    down: Tensor  # [R, in]
    up: Tensor  # [out, R], with their scales
    at: tuple[int, ...]  # where each begins among the R


def adapted(module: nn.Module) -> bool:
    return "base_layer" in module._modules


def active_adapters(module: nn.Module) -> list[tuple[Tensor, Tensor, float]]:
    """(A, B, scale) of a layer of peft's; none of a plain one, or while adapters are off."""
    if not adapted(module) or getattr(module, "disable_adapters", False):
        return []
    scaling: dict[str, float] = module.scaling  # type: ignore[assignment]
    names: Sequence[str] = module.active_adapters  # type: ignore[assignment]
    return [
        (
            module.get_parameter(f"lora_A.{name}.weight"),
            module.get_parameter(f"lora_B.{name}.weight"),
            float(scaling[name]),
        )
        for name in names
        if name in scaling
    ]


@torch.no_grad()
def stacks(
    plans: Sequence[tuple[Projection, Sequence[Tensor]]], dtype: torch.dtype
) -> list[Stack | None]:
    """Of projections and the parameters that their numbers are of, as these are now."""
    adapters = [(p[x.down], p[x.up], x.scale) for plan, p in plans for x in plan.adapters]
    if not adapters:
        return [None] * len(plans)
    downs, ups, scales = (list(part) for part in zip(*adapters, strict=True))
    sizes = [_sizes(plan, parameters) for plan, parameters in plans]
    device = downs[0].device
    down_rows = torch.empty(sum(r * n for r, n, _ in sizes), dtype=dtype, device=device)
    up_blocks = torch.zeros(sum(r * out for r, _, out in sizes), dtype=dtype, device=device)
    made: list[Stack | None] = []
    a: list[Tensor] = []  # where each A goes, and each B
    b: list[Tensor] = []
    for (plan, _), (ranks, width, out), down, up in zip(
        plans,
        sizes,
        down_rows.split([r * n for r, n, _ in sizes]),
        up_blocks.split([r * out for r, _, out in sizes]),
        strict=True,
    ):
        stack = Stack(down.view(ranks, width), up.view(out, ranks), _starts(plan))
        for first, adapter in zip(stack.at, plan.adapters, strict=True):
            ours = slice(first, first + adapter.rank)
            a.append(stack.down[ours])
            b.append(stack.up[adapter.start : adapter.stop, ours])
        made.append(stack if plan.adapters else None)
    torch._foreach_copy_(a, downs)
    torch._foreach_copy_(b, torch._foreach_mul(ups, scales))
    return made


def _starts(plan: Projection) -> tuple[int, ...]:
    return tuple(accumulate((adapter.rank for adapter in plan.adapters), initial=0))[:-1]


def _sizes(plan: Projection, parameters: Sequence[Tensor]) -> tuple[int, int, int]:
    """R, in, out."""
    ranks = sum(adapter.rank for adapter in plan.adapters)
    out = sum(len(parameters[i]) for i in plan.weights)
    return ranks, parameters[plan.weights[0]].shape[1], out


def adapter_gradients(
    grad: Tensor,
    narrow: Tensor,
    x: Tensor,
    adapters: Sequence[AdapterPlan],
    stack: Stack,
    learned: Sequence[bool],
) -> dict[int, Tensor]:
    """By the parameters' numbers. All of A's are one product, and all of B's another, of which what
    lies between two layers is nobody's."""
    found: dict[int, Tensor] = {}
    which = [
        (adapter, slice(first, first + adapter.rank))
        for adapter, first in zip(adapters, stack.at, strict=True)
    ]
    if any(learned[adapter.down] for adapter, _ in which):
        whole = wide_mm(narrow.T, x)
        found |= {adapter.down: whole[ours] for adapter, ours in which}
    if any(learned[adapter.up] for adapter, _ in which):
        whole = wide_mm(grad.T, x @ stack.down.T)
        blocks = {a.up: whole[a.start : a.stop, ours] for a, ours in which}
        if len({adapter.scale for adapter, _ in which}) == 1:
            whole.mul_(which[0][0].scale)
        else:
            torch._foreach_mul_(list(blocks.values()), [adapter.scale for adapter, _ in which])
        found |= blocks
    return found
