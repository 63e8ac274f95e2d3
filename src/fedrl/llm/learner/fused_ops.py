"""The packed learner's kernels in Triton: each reads what it needs once and writes its result once,
where PyTorch makes three to twelve passes. Signatures are those of `plain_ops`, to which a test
holds them; the arithmetic is single precision whatever the numbers are kept in.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedrl.llm.generation.decode_kernels import swiglu, turn

__all__ = [
    "add_norm", "choose", "choose_backward", "norm", "norm_backward", "swiglu", "swiglu_backward",
    "turn",
]  # fmt: skip

ROWS = 8
"""Rows whose share of the norm's weight's gradient one program adds up."""
BLOCK = 2048
"""Numbers of a row that a program holds at once, where rows are longer than it could hold."""


@triton.jit
def _norm(  # type: ignore[no-untyped-def]
    x, delta, weight, summed, out, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < WIDTH
    value = tl.load(x + row * WIDTH + at, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        value += tl.load(delta + row * WIDTH + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(summed + row * WIDTH + at, value, mask=inside)
    value = value * tl.rsqrt(tl.sum(value * value, 0) / WIDTH + eps)
    scale = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * WIDTH + at, value * scale, mask=inside)


@triton.jit
def _norm_backward(  # type: ignore[no-untyped-def]
    grad, x, weight, beside, dx, partial, eps, count,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, BESIDE: tl.constexpr,
):  # fmt: skip
    """Some rows: their dx, and the sum of their shares of the weight's gradient."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    at = tl.arange(0, BLOCK)
    inside = at < WIDTH
    scale = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    summed = tl.zeros([BLOCK], tl.float32)
    for i in range(ROWS):
        row = first + i
        here = inside & (row < count)
        value = tl.load(x + row * WIDTH + at, mask=here, other=0.0).to(tl.float32)
        root = tl.rsqrt(tl.sum(value * value, 0) / WIDTH + eps)
        unit = value * root
        given = tl.load(grad + row * WIDTH + at, mask=here, other=0.0).to(tl.float32)
        summed += given * unit
        weighed = given * scale
        result = root * (weighed - unit * (tl.sum(weighed * unit, 0) / WIDTH))
        if BESIDE:
            result += tl.load(beside + row * WIDTH + at, mask=here, other=0.0).to(tl.float32)
        tl.store(dx + row * WIDTH + at, result, mask=here)
    tl.store(partial + tl.program_id(0) * WIDTH + at, summed, mask=inside)


@triton.jit
def _swiglu_backward(  # type: ignore[no-untyped-def]
    grad, inner, active, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < WIDTH
    given = tl.load(grad + row * WIDTH + at, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(inner + 2 * row * WIDTH + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(inner + (2 * row + 1) * WIDTH + at, mask=inside, other=0.0).to(tl.float32)
    open_ = tl.sigmoid(gate)
    on = gate * open_
    tl.store(active + row * WIDTH + at, on * up, mask=inside)
    slope = open_ * (1 + gate * (1 - open_))
    tl.store(out + 2 * row * WIDTH + at, given * up * slope, mask=inside)
    tl.store(out + (2 * row + 1) * WIDTH + at, given * on, mask=inside)


@triton.jit
def _choose(  # type: ignore[no-untyped-def]
    logits, target, temperature, told, entropy, lse, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """One row: an online softmax, with the mean of the logits under it."""
    row = tl.program_id(0).to(tl.int64)
    along = tl.arange(0, BLOCK)
    most = -float("inf")
    total = 0.0
    mean = 0.0
    for start in range(0, WIDTH, BLOCK):
        inside = start + along < WIDTH
        place = logits + row * WIDTH + start + along
        logit = tl.load(place, mask=inside, other=-float("inf")) / temperature
        peak = tl.maximum(most, tl.max(logit, 0))
        weight = tl.exp(logit - peak)
        keep = tl.exp(most - peak)
        total = total * keep + tl.sum(weight, 0)
        mean = mean * keep + tl.sum(tl.where(inside, weight * logit, 0.0), 0)
        most = peak
    normaliser = most + tl.log(total)
    its = tl.load(logits + row * WIDTH + tl.load(target + row)) / temperature
    tl.store(told + row, its - normaliser)
    tl.store(entropy + row, normaliser - mean / total)
    tl.store(lse + row, normaliser)


@triton.jit
def _choose_backward(  # type: ignore[no-untyped-def]
    logits, target, temperature, lse, entropy, told, spread, out,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < WIDTH
    logit = tl.load(logits + row * WIDTH + at, mask=inside, other=0.0) / temperature
    log = logit - tl.load(lse + row)
    g, h = tl.load(told + row), tl.load(spread + row)
    each = -tl.exp(log) * (g + h * (log + tl.load(entropy + row)))
    each += tl.where(at == tl.load(target + row), g, 0.0)
    tl.store(out + row * WIDTH + at, each / temperature, mask=inside)


def norm(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    out = torch.empty_like(x, dtype=dtype)
    width = x.shape[1]
    _launch(_norm, (len(x),), x, x, weight, x, out, eps, WIDTH=width, BLOCK=_power(width), ADD=0)
    return out


def add_norm(x: Tensor, delta: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    summed, out, width = torch.empty_like(x), torch.empty_like(delta), x.shape[1]
    _launch(
        _norm, (len(x),), x, delta, weight, summed, out, eps,
        WIDTH=width, BLOCK=_power(width), ADD=1,
    )  # fmt: skip
    return summed, out


def norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor, eps: float, beside: Tensor | None
) -> tuple[Tensor, Tensor]:
    rows, width = x.shape
    programs = triton.cdiv(rows, ROWS)
    dx = torch.empty_like(x)
    partial = torch.empty(programs, width, dtype=torch.float32, device=x.device)
    _launch(
        _norm_backward, (programs,), grad, x, weight, x if beside is None else beside, dx, partial,
        eps, rows, WIDTH=width, BLOCK=_power(width), ROWS=ROWS, BESIDE=int(beside is not None),
    )  # fmt: skip
    return dx, partial.sum(0)


def swiglu_backward(grad: Tensor, inner: Tensor) -> tuple[Tensor, Tensor]:
    rows, width = grad.shape
    active, out = torch.empty_like(grad), torch.empty_like(inner)
    block = min(_power(width), BLOCK)
    grid = (rows, triton.cdiv(width, block))
    _launch(_swiglu_backward, grid, grad, inner, active, out, WIDTH=width, BLOCK=block)
    return active, out


def choose(logits: Tensor, target: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    rows, width = logits.shape
    told, entropy, lse = (logits.new_empty(rows) for _ in range(3))
    _launch(
        _choose, (rows,), logits, target, temperature, told, entropy, lse,
        WIDTH=width, BLOCK=min(_power(width), 4096), num_warps=8,
    )  # fmt: skip
    return told, entropy, lse


def choose_backward(
    logits: Tensor,
    target: Tensor,
    temperature: float,
    lse: Tensor,
    entropy: Tensor,
    grads: tuple[Tensor, Tensor],
    dtype: torch.dtype,
) -> Tensor:
    rows, width = logits.shape
    out = torch.empty_like(logits, dtype=dtype)
    block = min(_power(width), BLOCK)
    told, spread = (grad.contiguous() for grad in grads)
    _launch(
        _choose_backward, (rows, triton.cdiv(width, block)), logits, target, temperature, lse,
        entropy, told, spread, out, WIDTH=width, BLOCK=block,
    )  # fmt: skip
    return out


def _launch(kernel: Any, grid: tuple[int, ...], *words: Any, **sizes: Any) -> None:
    if grid[0]:
        kernel[grid](*words, **sizes)


def _power(count: int) -> int:
    return int(triton.next_power_of_2(count))
