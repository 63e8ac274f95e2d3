"""Linear layers of the packed learner, forwards and back, with LoRA's adapters on top.

Layers that read the same input are one matrix product. Weights stay as the model has them; a copy
in the type of the products is made when it is needed and dropped again, on the way back too, where
autocast would keep all of them. An adapter adds its product to its layer's part of the result in
place: no second result, no copy of the input in float32.

    y = x Wᵀ + b + s (x Aᵀ) Bᵀ      dx = dy W + s (dy B) A
    dW = dyᵀ x      dA = s (dy B)ᵀ x      dB = s dyᵀ (x Aᵀ)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

WIDE = hasattr(torch.ops.aten.mm, "dtype")
"""Whether this PyTorch multiplies in half precision into single precision (2.8 and later)."""


class AdapterPlan(NamedTuple):
    down: int  # number of A among the parameters
    up: int  # of B
    scale: float
    start: int  # of its layer's part of the result
    stop: int


class Projection(NamedTuple):
    """Layers that read one input, by the numbers of their parameters."""

    weights: tuple[int, ...]
    biases: tuple[int, ...]
    adapters: tuple[AdapterPlan, ...]


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
            adapters.append(AdapterPlan(put(down), put(up), scale, start, start + len(weight)))
        start += len(weight)
    assert len(biases) in (0, len(weights)), "all layers of one input have a bias, or none has"
    return Projection(tuple(weights), tuple(biases), tuple(adapters))


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


def project(x: Tensor, plan: Projection, parameters: Sequence[Tensor]) -> Tensor:
    bias = _stacked(plan.biases, parameters, x.dtype) if plan.biases else None
    y = linear(x, _stacked(plan.weights, parameters, x.dtype), bias)
    for adapter in plan.adapters:
        down, up = parameters[adapter.down].to(x.dtype), parameters[adapter.up].to(x.dtype)
        part = y[:, adapter.start : adapter.stop]
        part.addmm_(x @ down.T, up.T, alpha=adapter.scale)
    return y


def input_gradient(grad: Tensor, plan: Projection, parameters: Sequence[Tensor]) -> Tensor:
    dx = grad @ _stacked(plan.weights, parameters, grad.dtype)
    for adapter in plan.adapters:
        down, up = parameters[adapter.down].to(grad.dtype), parameters[adapter.up].to(grad.dtype)
        dx.addmm_(grad[:, adapter.start : adapter.stop] @ up, down, alpha=adapter.scale)
    return dx


def parameter_gradients(
    grad: Tensor,
    x: Tensor,
    plan: Projection,
    parameters: Sequence[Tensor],
    learned: Sequence[bool],
) -> dict[int, Tensor]:
    """Of those that are learned, by their numbers."""
    found: dict[int, Tensor] = {}
    if any(learned[i] for i in plan.weights):
        sizes = [len(parameters[i]) for i in plan.weights]
        found.update(zip(plan.weights, wide_mm(grad.T, x).split(sizes), strict=True))
    if any(learned[i] for i in plan.biases):
        sizes = [len(parameters[i]) for i in plan.biases]
        whole = grad.sum(0, dtype=torch.float32)
        found.update(zip(plan.biases, whole.split(sizes), strict=True))
    for adapter in plan.adapters:
        down, up = parameters[adapter.down].to(x.dtype), parameters[adapter.up].to(x.dtype)
        part = grad[:, adapter.start : adapter.stop]
        if learned[adapter.down]:
            found[adapter.down] = adapter.scale * wide_mm((part @ up).T, x)
        if learned[adapter.up]:
            found[adapter.up] = adapter.scale * wide_mm(part.T, x @ down.T)
    return found


def wide_mm(a: Tensor, b: Tensor) -> Tensor:
    """a b in single precision, whatever a and b are in."""
    if a.is_cuda and WIDE and a.dtype.itemsize == 2:
        return torch.mm(a, b, out_dtype=torch.float32)
    return (a @ b).float()


def _stacked(numbers: Sequence[int], parameters: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """One below the other, in this type; the parameter itself where it is one and of this type."""
    if len(numbers) == 1:
        return parameters[numbers[0]].to(dtype)
    parts = [parameters[i] for i in numbers]
    whole = parts[0].new_empty((sum(map(len, parts)), *parts[0].shape[1:]), dtype=dtype)
    for piece, part in zip(whole.split([len(part) for part in parts]), parts, strict=True):
        piece.copy_(part)
    return whole
