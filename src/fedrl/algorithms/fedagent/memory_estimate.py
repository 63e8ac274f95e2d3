"""An estimate of the memory that a client needs, from a model's shape alone: what `--dry-run`
prints.

P parameters, of which N are trained; d width, h query and k key-value heads of size s, f inner
width, L layers, V vocabulary. Weights and what is trained are float32 (4 bytes); a GPU computes in
bfloat16 (c = 2 bytes), a CPU in float32 (c = 4).

    weights      4 P
    gradients    4 N
    optimizer    8 N          AdamW's two moments
    copies       4 P for the KL divergence's reference (none with LoRA: the model without its
                 adapters is the reference); 4 N for FedProx's start; 28 N for β < 1: the model of
                 the round before, u, the mean direction, and four gradients of a minibatch
    sampler      2 P          the engine's copy in bfloat16; the plain sampler shares the weights
    cache        2 c L k s · rows · length: keys and values of all episodes side by side. The CUDA
                 engine rounds both up and adds 4 V per row of random numbers
    activations  of one microbatch, B rows of T tokens with A answer tokens in all

What a layer keeps per token for the way back, in a model of the Llama kind with attention that
does not write its matrix down:

    both norms   4 · 2 d      inputs in float32, and 4 · 2 d what they became, if norms are trained
    attention    c (d + 2 h s + 2 k s)     input of the projections, q, the result, k and v
    MLP          c (d + 4 f)               its input; gate, its activation, up, their product

A layer computed again (`save_memory`) keeps 4 d instead, and one layer is there in full. Then
8 d per token for the last norm, and 4 · 5 V per answer token: logits, log-probabilities,
probabilities and two gradients. On a GPU a pass also keeps the weights' bfloat16 copies, 2 P (of
one layer, if layers are computed again).

Weights, gradients, optimizer, copies, sampler and cache are exact; activations are within some
percent for Llama and Qwen2 and a guide for others. CUDA itself takes another half gigabyte.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from fedrl.algorithms.fedagent.local_trainer import trained_model
from fedrl.algorithms.fedagent.settings import Settings
from fedrl.llm.generation.decode_buffers import ROUND, bucket_rows, round_up
from fedrl.llm.generation.select import sampler_name
from fedrl.llm.model_types import ModelConfig
from fedrl.llm.policy import SPREAD, skeleton

SINGLE, HALF = 4, 2
"""Bytes of a number."""


class Shape(NamedTuple):
    layers: int
    width: int
    heads: int
    kv: int
    size: int
    inner: int
    vocabulary: int


class Memory(NamedTuple):
    """Bytes in a process that trains."""

    weights: int
    gradients: int
    optimizer: int
    copies: int
    sampler: int
    cache: int
    activations: int

    @property
    def total(self) -> int:
        return sum(self)


class Estimate(NamedTuple):
    parameters: int
    trained: dict[str, tuple[int, ...]]  # shapes by name: what travels
    memory: Memory
    rows: int  # episodes side by side
    device: str
    rollouts: str


def estimate_memory(settings: Settings, evaluated: int) -> Estimate:
    """With `evaluated` tasks per evaluation; reads no weights."""
    base = skeleton(settings.model)
    shape, plain = shape_of(base.config), sum(p.numel() for p in base.parameters())
    device = settings.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device != "cpu"
    rollouts = sampler_name(settings.rollouts, base, on_gpu, device == SPREAD)
    model = trained_model(base, settings)
    trained = {name: tuple(p.shape) for name, p in model.named_parameters() if p.requires_grad}
    rows = max(settings.tasks * settings.group, evaluated)
    total = sum(p.numel() for p in model.parameters())
    size = sum(p.numel() for p in model.parameters() if p.requires_grad)
    memory = Memory(
        weights=SINGLE * total,
        gradients=SINGLE * size,
        optimizer=2 * SINGLE * size,
        copies=copies(settings, total, size),
        sampler=0 if rollouts == "plain" else HALF * plain,  # adapters are merged
        cache=cache(settings, shape, rows, rollouts, HALF if on_gpu else SINGLE),
        activations=activations(settings, shape, plain, on_gpu),
    )
    return Estimate(total, trained, memory, rows, device, rollouts)


def shape_of(config: ModelConfig) -> Shape:
    """Of any causal model's configuration; what it does not name has the usual size."""
    heads, width = config.num_attention_heads, config.hidden_size
    return Shape(
        layers=config.num_hidden_layers,
        width=width,
        heads=heads,
        kv=getattr(config, "num_key_value_heads", None) or heads,
        size=getattr(config, "head_dim", None) or width // heads,
        inner=getattr(config, "intermediate_size", None) or 4 * width,
        vocabulary=config.vocab_size,
    )


def copies(settings: Settings, total: int, trained: int) -> int:
    reference = total if settings.kl and not settings.lora_rank else 0
    start = trained if settings.prox else 0
    anchor = 7 * trained if settings.beta < 1 else 0
    return SINGLE * (reference + start + anchor)


def cache(settings: Settings, shape: Shape, rows: int, rollouts: str, number: int) -> int:
    """Keys and values of all episodes at their longest."""
    length = settings.prompt_tokens + settings.answer_tokens
    if rollouts != "cuda":
        return cache_bytes(shape, rows, length, number)
    rows = bucket_rows(rows)
    return (
        cache_bytes(shape, rows, round_up(length, ROUND), number) + SINGLE * rows * shape.vocabulary
    )


def cache_bytes(shape: Shape, rows: int, length: int, number: int) -> int:
    return 2 * number * shape.layers * shape.kv * shape.size * rows * length


def activations(settings: Settings, shape: Shape, parameters: int, on_gpu: bool) -> int:
    """Of one microbatch of the longest prompts and answers."""
    rows = min(settings.microbatch, settings.minibatch)
    tokens = rows * (settings.prompt_tokens + settings.answer_tokens)
    number = HALF if on_gpu else SINGLE
    body = tokens * kept(shape, number, settings.save_memory, norms=not settings.lora_rank)
    head = 5 * SINGLE * rows * settings.answer_tokens * shape.vocabulary
    cast = HALF * parameters if on_gpu else 0
    return body + head + (cast // shape.layers if settings.save_memory else cast)


def kept(shape: Shape, number: int, again: bool, norms: bool) -> int:
    """Bytes per token that the body keeps for the way back."""
    d, q, kv = shape.width, shape.heads * shape.size, shape.kv * shape.size
    layer = SINGLE * (4 if norms else 2) * d + number * (2 * d + 2 * q + 2 * kv + 4 * shape.inner)
    whole = SINGLE * d * shape.layers + layer if again else shape.layers * layer
    return whole + SINGLE * 2 * d


def estimate_lines(needs: Estimate, settings: Settings) -> list[str]:
    """The estimate in words."""
    trained = sum(torch.Size(shape).numel() for shape in needs.trained.values())
    where = "all GPUs together" if settings.device == SPREAD else f"{needs.device}"
    parts = ", ".join(f"{name} {in_bytes(n)}" for name, n in needs.memory._asdict().items() if n)
    keeps = [
        f"a client keeps {in_bytes(2 * SINGLE * trained)} of AdamW's moments between its rounds, "
        "in the checkpoint or on its own disk"
    ]
    return [
        f"the model has {needs.parameters:,} parameters, {trained:,} of them trained",
        *(keeps if settings.optimizer_state == "kept" else []),
        f"memory at most {in_bytes(needs.memory.total)} on {where}, in each process that trains: "
        f"{parts}",
        f"that is with {needs.rows:,} episodes side by side ({needs.rollouts} rollouts), prompts "
        f"of {settings.prompt_tokens:,} and answers of {settings.answer_tokens:,} tokens; lower "
        "algorithm.prompt_tokens if yours are shorter",
    ]


def in_bytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
