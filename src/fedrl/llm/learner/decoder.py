"""The body of a model of the Llama kind over packed sequences: what a learner on a GPU runs.

transformers pads a batch to its longest row (1.7 and 2.0 times as many tokens in a minibatch of the
shop and the household) and computes some thirty small operations a layer, each a kernel that reads
and writes all of it. Here there is no padding, what rows begin with alike is computed once (30 and
18% of such a minibatch), and a layer is its matrix products, attention and five fused kernels
(`layer`, `fused_ops`). Weights are the model's own, adapters are applied where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fedrl.llm.generation.packed_weights import is_supported
from fedrl.llm.learner import plain_ops
from fedrl.llm.learner.graphed import (
    MOST_PARAMETERS,
    GraphedLayers,
    Layered,
    graphed_layers,
    keep_graphed,
)
from fedrl.llm.learner.layer import PackedLayer, Tokens, plan_layer, with_stacks
from fedrl.llm.learner.plain_ops import LearnerOps
from fedrl.llm.learner.vocabulary import TokenStatistics
from fedrl.llm.memory import shape_of
from fedrl.llm.model_types import LanguageModel
from fedrl.llm.rl.batches import PackedRows
from fedrl.llm.weights import base_model, decoder_and_head

RECOMPUTED = "_recomputed"
"""Set on layers whose activations are computed again on the way back (`model_setup`)."""
UNCAPTURED = "_uncaptured"
"""Set on a body whose layers never become CUDA graphs (`without_graphs`)."""
GRAPHS = True
"""Whether small models' layers become CUDA graphs (`graphed`)."""


def packs(model: LanguageModel) -> bool:
    """Whether this model learns here: on one GPU, of a kind that is known, in whole weights, and
    with nothing to drop."""
    if next(model.parameters()).device.type != "cuda":
        return False
    base = base_model(model)
    if model.training and getattr(base.config, "attention_dropout", None):
        return False
    devices = {p.device for p in base.parameters()}
    whole = all(p.is_floating_point() for p in base.parameters())
    return len(devices) == 1 and whole and is_supported(base)


def ops_for(x: Tensor) -> LearnerOps:
    """Fused kernels on a GPU where Triton is installed."""
    if not x.is_cuda:
        return plain_ops
    try:
        from fedrl.llm.learner import fused_ops
    except ImportError:
        return plain_ops
    return fused_ops


def compute_dtype(x: Tensor) -> torch.dtype:
    return torch.bfloat16 if x.is_cuda else torch.float32


class Norm(torch.autograd.Function):
    """The last norm, to autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, ops: LearnerOps) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.how = eps, ops
        return ops.norm(x, weight, eps, x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        eps, ops = ctx.how
        dx, d_weight = ops.norm_backward(grad, x, weight, eps, None)
        return dx, d_weight.to(weight.dtype) if ctx.needs_input_grad[1] else None, None, None


def packed_states(model: LanguageModel, rows: PackedRows, ops: LearnerOps | None = None) -> Tensor:
    """The last hidden state of every token [N, d], in float32."""
    body: Any = decoder_and_head(model)[0]
    config = base_model(model).config
    x: Tensor = body.embed_tokens(rows.ids).float()
    graphs = graphed_layers(body) if ops is None else None
    layered = plans(body, config) if graphs is None else graphs.layers
    if graphs is None and ops is None and pays(layered, body):
        graphs = keep_graphed(body, new_graphs(model, layered))
    last = None if graphs is None else graphs.run(x, rows)
    ops = ops or ops_for(x)
    if last is None:
        tokens, last = _tokens(body, rows, ops), x
        adapted = with_stacks(layered, tokens.dtype)
        for plan, (_, parameters) in zip(adapted, layered, strict=True):
            last = PackedLayer.apply(last, plan, tokens, *parameters)
    return Norm.apply(last, body.norm.weight, config.rms_norm_eps, ops)


def _tokens(body: Any, rows: PackedRows, ops: LearnerOps) -> Tokens:
    frequencies = body.rotary_emb.inv_freq.float()
    angles = rows.positions[:, None].float() * frequencies.to(rows.ids.device)
    scale = float(body.rotary_emb.attention_scaling)
    return Tokens(
        rows.asked, rows.read, rows.where, angles.cos() * scale, angles.sin() * scale,
        compute_dtype(rows.ids), ops,
    )  # fmt: skip


def plans(body: Any, config: Any) -> list[Layered]:
    """Every layer, as `layer` computes it."""
    heads, kv, eps = config.num_attention_heads, config.num_key_value_heads, config.rms_norm_eps
    return [plan_layer(layer, heads, kv, eps, RECOMPUTED in vars(layer)) for layer in body.layers]


def pays(layered: Sequence[Layered], body: nn.Module) -> bool:
    """Whether the layers become CUDA graphs: those of a small model on a GPU, in whole weights,
    with no adapters on them and all activations kept."""
    if not (GRAPHS and layered[0][1][0].is_cuda) or UNCAPTURED in vars(body):
        return False
    projections = [p for plan, _ in layered for p in (plan.qkv, plan.out, plan.up, plan.down)]
    changing = any(plan.again for plan, _ in layered) or any(p.adapters for p in projections)
    return not changing and sum(p.numel() for p in body.parameters()) <= MOST_PARAMETERS


def without_graphs(model: LanguageModel) -> None:
    """Its layers are computed launch by launch: nobody has reserved what graphs would take."""
    object.__setattr__(decoder_and_head(model)[0], UNCAPTURED, True)


def new_graphs(
    model: LanguageModel, layered: Sequence[Layered], captures: bool = True
) -> GraphedLayers:
    weight = layered[0][1][0]
    rotary: Any = decoder_and_head(model)[0].rotary_emb
    return GraphedLayers(
        layered, rotary.inv_freq.float(), float(rotary.attention_scaling), compute_dtype(weight),
        ops_for(weight), shape_of(base_model(model).config), captures,
    )  # fmt: skip


def packed_statistics(
    model: LanguageModel,
    hidden: Tensor,
    target: Tensor,
    temperature: float,
    ops: LearnerOps | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy [A] of answer tokens from the states before them [A, d]."""
    head: nn.Linear = decoder_and_head(model)[1]
    found: tuple[Tensor, Tensor] = TokenStatistics.apply(
        hidden, head.weight, target, temperature, compute_dtype(hidden), ops or ops_for(hidden)
    )
    return found
