"""One decoder layer of the Llama kind over packed tokens, with a way back of its own.

    m = x + Attention(turned(norm(x) W_qkv)) W_o        x, m, y: the residual stream, float32
    y = m + SwiGLU(norm(m) W_up) W_down

Autograd keeps what each of some thirty small operations needs: 27 kB a token and layer at a width
of 576. Here x, q k v, attention's result, m and the MLP's inner values are kept (14 kB), and the
norms' results and SwiGLU's are computed again from them, one pass of a kernel each; with `again` x
alone is kept. What is computed is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedrl.llm.learner.adapters import stacks
from fedrl.llm.learner.plain_ops import LearnerOps
from fedrl.llm.learner.projections import (
    Gradient,
    Projection,
    gradient,
    input_gradient,
    parameter_gradients,
    plan_projection,
    project,
)
from fedrl.llm.varlen_attention import Attended, Sequences, attend, attend_backward


class Tokens(NamedTuple):
    """What all layers know of the packed tokens, and how they compute."""

    asked: Sequences  # of the tokens
    read: Sequences  # of what they attend to
    where: Tensor | None  # [T] which token each of the latter is; None if they are the same
    cos: Tensor  # [N, size / 2]
    sin: Tensor
    dtype: torch.dtype  # of matrix products
    ops: LearnerOps


class Plan(NamedTuple):
    """A layer's sizes, and where its parameters are; the first two are the norms' weights."""

    heads: int
    kv: int
    size: int
    scale: float
    eps: float
    qkv: Projection
    out: Projection
    up: Projection
    down: Projection
    again: bool


class Kept(NamedTuple):
    """Of the way there, for the way back."""

    x: Tensor
    qkv: Tensor
    attended: Attended
    middle: Tensor
    inner: Tensor


def plan_layer(
    layer: nn.Module, heads: int, kv: int, eps: float, again: bool
) -> tuple[Plan, list[Tensor]]:
    """A layer of transformers' as a plan and its parameters."""
    modules = dict(layer.named_modules())
    parameters: list[Tensor] = [
        modules[name].get_parameter("weight")
        for name in ("input_layernorm", "post_attention_layernorm")
    ]
    stacks = (
        [f"self_attn.{x}_proj" for x in "qkv"],
        ["self_attn.o_proj"],
        ["mlp.gate_proj", "mlp.up_proj"],
        ["mlp.down_proj"],
    )
    qkv, out, up, down = (
        plan_projection([modules[name] for name in names], parameters) for names in stacks
    )
    attention: Any = modules["self_attn"]
    plan = Plan(heads, kv, attention.head_dim, attention.scaling, eps, qkv, out, up, down, again)
    return plan, parameters


def with_stacks(layered: Sequence[tuple[Plan, list[Tensor]]], dtype: torch.dtype) -> list[Plan]:
    """The layers' plans with their adapters as they are now; the plans themselves where there are
    none."""
    names = ("qkv", "out", "up", "down")
    parts = [(getattr(plan, name), parameters) for plan, parameters in layered for name in names]
    if not any(projection.adapters for projection, _ in parts):
        return [plan for plan, _ in layered]
    made = iter(
        projection._replace(stack=stack)
        for (projection, _), stack in zip(parts, stacks(parts, dtype), strict=True)
    )
    return [plan._replace(**{name: next(made) for name in names}) for plan, _ in layered]


def forward(
    x: Tensor, plan: Plan, tokens: Tokens, parameters: Sequence[Tensor]
) -> tuple[Tensor, Kept]:
    ops, before, after = tokens.ops, parameters[0], parameters[1]
    qkv = project(ops.norm(x, before, plan.eps, tokens.dtype), plan.qkv, parameters)
    ops.turn(qkv, tokens.cos, tokens.sin, plan.heads + plan.kv, False)
    q, k, v = _heads(qkv, plan, tokens)
    attended = attend(q, k, v, tokens.asked, tokens.read, plan.scale)
    mixed = project(attended.out.flatten(1), plan.out, parameters)
    middle, h = ops.add_norm(x, mixed, after, plan.eps)
    inner = project(h, plan.up, parameters)
    y = middle + project(ops.swiglu(inner), plan.down, parameters)
    return y, Kept(x, qkv, attended, middle, inner)


def backward(
    grad: Tensor,
    kept: Kept,
    plan: Plan,
    tokens: Tokens,
    parameters: Sequence[Tensor],
    learned: Sequence[bool],
) -> tuple[Tensor, dict[int, Tensor]]:
    """Gradients of x and, by their numbers, of the parameters that are learned."""
    ops, dtype, found = tokens.ops, tokens.dtype, dict[int, Tensor]()

    def learn(grad: Gradient, x: Tensor, projection: Projection) -> None:
        found.update(parameter_gradients(grad, x, projection, parameters, learned))

    d_y = gradient(grad.to(dtype), plan.down)
    active, d_inner = ops.swiglu_backward(input_gradient(d_y, plan.down, parameters), kept.inner)
    learn(d_y, active, plan.down)
    del active, d_y
    d_up = gradient(d_inner, plan.up)
    learn(d_up, ops.norm(kept.middle, parameters[1], plan.eps, dtype), plan.up)
    d_middle, found[1] = ops.norm_backward(
        input_gradient(d_up, plan.up, parameters), kept.middle, parameters[1], plan.eps, grad
    )
    del d_inner, d_up
    d_out = gradient(d_middle.to(dtype), plan.out)
    learn(d_out, kept.attended.out.flatten(1), plan.out)
    d_mixed = input_gradient(d_out, plan.out, parameters)
    q, k, v = _heads(kept.qkv, plan, tokens)
    dq, dk, dv = attend_backward(
        d_mixed.view(len(grad), plan.heads, plan.size), q, k, v, kept.attended, tokens.asked,
        tokens.read, plan.scale,
    )  # fmt: skip
    d_kv = torch.cat([dk.flatten(1), dv.flatten(1)], 1)
    if tokens.where is not None:  # what several attend to learns from all of them
        once = torch.zeros(len(grad), d_kv.shape[1], device=grad.device)
        d_kv = once.index_add_(0, tokens.where, d_kv.float()).to(dtype)
    d_qkv = torch.cat([dq.flatten(1), d_kv], 1)
    del q, k, v, dq, dk, dv, d_kv, d_mixed, d_out
    ops.turn(d_qkv, tokens.cos, tokens.sin, plan.heads + plan.kv, True)
    d_in = gradient(d_qkv, plan.qkv)
    learn(d_in, ops.norm(kept.x, parameters[0], plan.eps, dtype), plan.qkv)
    dx, found[0] = ops.norm_backward(
        input_gradient(d_in, plan.qkv, parameters), kept.x, parameters[0], plan.eps, d_middle
    )
    return dx, found


def _heads(qkv: Tensor, plan: Plan, tokens: Tokens) -> tuple[Tensor, Tensor, Tensor]:
    """Queries of the tokens, keys and values of all that they attend to."""
    heads = qkv.view(len(qkv), -1, plan.size)
    q, k, v = heads.split([plan.heads, plan.kv, plan.kv], 1)
    return (q, k, v) if tokens.where is None else (q, k[tokens.where], v[tokens.where])


class PackedLayer(torch.autograd.Function):
    """`forward` and `backward` above, to autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, plan: Plan, tokens: Tokens, *parameters: Tensor) -> Tensor:
        y, kept = forward(x, plan, tokens, parameters)
        ctx.plan, ctx.tokens = plan, tokens
        more = () if plan.again else (kept.qkv, kept.middle, kept.inner, *_flat(kept.attended))
        ctx.count = len(parameters)
        ctx.save_for_backward(x, *parameters, *more)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, *rest = ctx.saved_tensors
        parameters, more = rest[: ctx.count], rest[ctx.count :]
        if more:
            qkv, middle, inner, out, *others = more
            kept = Kept(x, qkv, Attended(out, tuple(others)), middle, inner)
        else:
            kept = forward(x, ctx.plan, ctx.tokens, parameters)[1]
        learned = ctx.needs_input_grad[3:]
        dx, found = backward(grad, kept, ctx.plan, ctx.tokens, parameters, learned)
        gradients = [
            found[i].to(p.dtype) if wanted else None
            for i, (p, wanted) in enumerate(zip(parameters, learned, strict=True))
        ]
        return (dx if ctx.needs_input_grad[0] else None, None, None, *gradients)


def _flat(attended: Attended) -> tuple[Tensor, ...]:
    return attended.out, *attended.rest
