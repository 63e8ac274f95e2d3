"""The decode step's kernels in Triton: each is one pass where PyTorch makes five to twelve.

A decode step of a small model is bound by the number of kernels and, at large batches, by reading
the key-value cache once (`attention_kernels`). Signatures are those of the plain functions in
`torch_ops`, to which a test holds them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedrl.llm.generation.attention_kernels import launch, power, put, turn, turned_attention
from fedrl.llm.generation.decode_buffers import DecodeBuffers
from fedrl.llm.generation.row_noise import Draws

__all__ = ["put", "rms_norm", "sample", "say", "swiglu", "turn", "turned_attention"]


@triton.jit
def _rms_norm(x, weight, out, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < WIDTH
    value = tl.load(x + row * WIDTH + at, mask=inside, other=0.0).to(tl.float32)
    value = value * tl.rsqrt(tl.sum(value * value, 0) / WIDTH + eps)
    value = value.to(out.dtype.element_ty).to(tl.float32)  # rounded here, as the model does
    scale = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * WIDTH + at, value * scale, mask=inside)


@triton.jit
def _swiglu(x, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < WIDTH
    gate = tl.load(x + 2 * row * WIDTH + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + (2 * row + 1) * WIDTH + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * WIDTH + at, gate * tl.sigmoid(gate) * up, mask=inside)


@triton.jit
def _say(  # type: ignore[no-untyped-def]
    token, logprob, end, last, over, position, count, limit, said, logprobs, width, rows,
    ENDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = row < rows
    new = tl.load(token + row, mask=inside, other=0)
    done = tl.load(over + row, mask=inside, other=1)
    number = tl.load(count + row, mask=inside, other=0)
    place = tl.load(position + row, mask=inside, other=0)
    ends = new != new
    for i in range(ENDS):
        ends = ends | (new == tl.load(end + i))
    tl.store(last + row, new, mask=inside)
    tl.store(said + row * width + number, new, mask=inside)
    tl.store(logprobs + row * width + number, tl.load(logprob + row, mask=inside), mask=inside)
    goes_on = (done == 0).to(tl.int64)
    tl.store(position + row, place + goes_on, mask=inside)
    tl.store(count + row, number + goes_on, mask=inside)
    full = number + goes_on >= tl.load(limit + row, mask=inside, other=0)
    tl.store(over + row, ((done != 0) | ends | full).to(tl.uint8), mask=inside)


@triton.jit
def _sample(  # type: ignore[no-untyped-def]
    logits, noise, seeds, drawn, temperature, sampling, token, logprob,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, SEEDED: tl.constexpr,
):  # fmt: skip
    """Gumbel's maximum and the log of the softmax in one pass over the vocabulary."""
    row = tl.program_id(0).to(tl.int64)
    along = tl.arange(0, BLOCK)
    warmth, draws = tl.load(temperature), tl.load(sampling)
    if SEEDED:
        seed, first = tl.load(seeds + row), tl.load(drawn + row).to(tl.int32) * WIDTH
    most = -float("inf")
    total = 0.0
    best = -float("inf")
    winner = 0
    its_logit = 0.0
    for start in range(0, WIDTH, BLOCK):
        at = start + along
        inside = at < WIDTH
        logit = tl.load(logits + row * WIDTH + at, mask=inside, other=-float("inf"))
        logit = logit.to(tl.float32) / warmth
        if SEEDED:
            uniform = tl.rand(seed, first + at)
        else:
            uniform = tl.load(noise + row * WIDTH + at, mask=inside, other=0.5)
        shaken = logit - draws * tl.log(-tl.log(tl.maximum(uniform, 1e-20)))
        peak = tl.maximum(most, tl.max(logit, 0))
        total = total * tl.exp(most - peak) + tl.sum(tl.exp(logit - peak), 0)
        most = peak
        highest, which = tl.max(shaken, 0), tl.argmax(shaken, 0)
        its = tl.max(tl.where(along == which, logit, -float("inf")), 0)
        better = highest > best
        winner = tl.where(better, start + which, winner)
        its_logit = tl.where(better, its, its_logit)
        best = tl.where(better, highest, best)
    tl.store(token + row, winner)
    tl.store(logprob + row, its_logit - most - tl.log(total))


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    rows, width = x.shape
    out = torch.empty_like(x)
    launch(_rms_norm, (rows,), x, weight, out, eps, WIDTH=width, BLOCK=power(width))
    return out


def swiglu(x: Tensor) -> Tensor:
    rows, width = x.shape[0], x.shape[1] // 2
    out = x.new_empty(rows, width)
    block = min(power(width), 2048)
    launch(_swiglu, (rows, triton.cdiv(width, block)), x, out, WIDTH=width, BLOCK=block)
    return out


def say(buffers: DecodeBuffers, token: Tensor, logprob: Tensor, end: Tensor) -> None:
    rows, width = buffers.said.shape
    block = min(power(rows), 128)
    launch(
        _say, (triton.cdiv(rows, block),), token, logprob, end, buffers.token,
        buffers.over.view(torch.uint8), buffers.position, buffers.count, buffers.limit,
        buffers.said, buffers.logprobs, width, rows, ENDS=len(end), BLOCK=block,
    )  # fmt: skip


def sample(
    logits: Tensor, noise: Tensor | Draws, temperature: Tensor, sampling: Tensor
) -> tuple[Tensor, Tensor]:
    rows, width = logits.shape
    token = torch.empty(rows, dtype=torch.long, device=logits.device)
    logprob = torch.empty(rows, dtype=torch.float32, device=logits.device)
    seeded = isinstance(noise, Draws)
    given, seeds, drawn = (logits, *noise) if isinstance(noise, Draws) else (noise, token, token)
    launch(
        _sample, (rows,), logits, given, seeds, drawn, temperature, sampling, token, logprob,
        WIDTH=width, BLOCK=min(power(width), 4096), SEEDED=int(seeded), num_warps=8,
    )  # fmt: skip
    return token, logprob
