"""Linear layers of the packed learner, forwards and back, with LoRA's adapters on top.

Layers that read the same input are one matrix product. Weights stay as the model has them; a copy
in the type of the products is made when it is needed and dropped again, on the way back too, where
autocast would keep all of them. So are their adapters: A one below the other, and s B as blocks,
each in the rows of its own layer, so that two small products serve all of them (`adapters`). They
are added to the result in place.

    y = x Wᵀ + b + (x Aᵀ) (s B)ᵀ      dx = dy W + (dy s B) A
    dW = dyᵀ x      dA = (dy s B)ᵀ x      dB = s dyᵀ (x Aᵀ)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fedrl.llm.learner.adapters import (
    AdapterPlan,
    Stack,
    active_adapters,
    adapted,
    adapter_gradients,
)
from fedrl.llm.learner.wide_mm import wide_mm


class Projection(NamedTuple):
    """Layers that read one input, by the numbers of their parameters."""

    weights: tuple[int, ...]
    biases: tuple[int, ...]
    adapters: tuple[AdapterPlan, ...]
    stack: Stack | None = None


def plan_projection(modules: Sequence[nn.Module], parameters: list[Tensor]) -> Projection:
    """Puts the modules' parameters behind those that are there."""

    def put(tensor: Tensor) -> int:
        parameters.append(tensor)
        return len(parameters) - 1

    weights, biases, adapters, start = [], [], [], 0
    for module in modules:
        base = module.get_submodule("base_layer") if adapted(module) else module
        weight, bias = base.get_parameter("weight"), base._parameters.get("bias")
        weights.append(put(weight))
        if bias is not None:
            biases.append(put(bias))
        for down, up, scale in active_adapters(module):
            there = AdapterPlan(put(down), put(up), len(down), scale, start, start + len(weight))
            adapters.append(there)
        start += len(weight)
    assert len(biases) in (0, len(weights)), "all layers of one input have a bias, or none has"
    return Projection(tuple(weights), tuple(biases), tuple(adapters))


def project(x: Tensor, plan: Projection, parameters: Sequence[Tensor]) -> Tensor:
    bias = _stacked(plan.biases, parameters, x.dtype) if plan.biases else None
    y = linear(x, _stacked(plan.weights, parameters, x.dtype), bias)
    if plan.stack is not None:
        y.addmm_(x @ plan.stack.down.T, plan.stack.up.T)
    return y


class Gradient(NamedTuple):
    """Of a projection's result."""

    whole: Tensor  # dy
    narrow: Tensor | None  # dy s B [N, R]; None without adapters


def gradient(whole: Tensor, plan: Projection) -> Gradient:
    return Gradient(whole, None if plan.stack is None else whole @ plan.stack.up)


def input_gradient(grad: Gradient, plan: Projection, parameters: Sequence[Tensor]) -> Tensor:
    dx = grad.whole @ _stacked(plan.weights, parameters, grad.whole.dtype)
    if plan.stack is not None and grad.narrow is not None:
        dx.addmm_(grad.narrow, plan.stack.down)
    return dx


def parameter_gradients(
    grad: Gradient,
    x: Tensor,
    plan: Projection,
    parameters: Sequence[Tensor],
    learned: Sequence[bool],
) -> dict[int, Tensor]:
    """Of those that are learned, by their numbers."""
    found: dict[int, Tensor] = {}
    if any(learned[i] for i in plan.weights):
        sizes = [len(parameters[i]) for i in plan.weights]
        found.update(zip(plan.weights, wide_mm(grad.whole.T, x).split(sizes), strict=True))
    if any(learned[i] for i in plan.biases):
        sizes = [len(parameters[i]) for i in plan.biases]
        whole = grad.whole.sum(0, dtype=torch.float32)
        found.update(zip(plan.biases, whole.split(sizes), strict=True))
    if plan.stack is not None and grad.narrow is not None:
        found |= adapter_gradients(grad.whole, grad.narrow, x, plan.adapters, plan.stack, learned)
    return found


def _stacked(numbers: Sequence[int], parameters: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """One below the other, in this type; the parameter itself where it is one and of this type."""
    if len(numbers) == 1:
        return parameters[numbers[0]].to(dtype)
    parts = [parameters[i] for i in numbers]
    whole = parts[0].new_empty((sum(map(len, parts)), *parts[0].shape[1:]), dtype=dtype)
    for piece, part in zip(whole.split([len(part) for part in parts]), parts, strict=True):
        piece.copy_(part)
    return whole
