"""An estimate of the memory that a client needs, from a model's shape alone: what `--dry-run`
prints, and what a run on a GPU is refused by before it starts.

P parameters, of which N are trained; weights and what is trained are float32 (4 bytes).

    weights      4 P; with `four_bit` the linear layers but the output count 0.516 bytes a number:
                 NF4 in blocks of 64 with a scale of a byte each, and 4 bytes for 256 scales
    gradients    4 N
    optimizer    8 N          AdamW's two moments
    copies       4 P for the KL divergence's reference (none with LoRA: the model without its
                 adapters is the reference); 4 N for FedProx's start; 28 N for β < 1: the model of
                 the round before, u, the mean direction, and four gradients of a minibatch
    sampler      2 P          the engine's copy in bfloat16; the plain sampler shares the weights.
                 vLLM takes a share of the GPU for its weights and cache, which is not in the sum
    cache        keys and values of all episodes that are answered side by side, at their longest.
                 The CUDA engine rounds both up; an evaluation streams through training's rows. The
                 plain sampler holds all episodes of an evaluation
    activations  of one forward and backward pass of the learner, or one over prompts of the
                 sampler, whichever is larger: `llm.memory` counts both. The packed learner cuts its
                 passes at `pass_tokens`, or at a number of tokens that follows from P
    graphs       a small model's layers are captured as CUDA graphs (`learner.graphed`), those of
                 its copies are not: another pass's activations, which stay, and 4 N for gradients
                 of fixed addresses. Where there is no room for them nothing is captured, so nothing
                 is refused for their sake

Weights, gradients, optimizer, copies, sampler and cache are exact; activations are within some
percent for Llama and Qwen2 and a guide for others, with prompts and answers of the lengths that
settings allow. CUDA itself takes another 0.9 GB.

A process that only plays (the driver of workers or of nodes, `fedrl eval`, `fedrl serve`) has no
gradients, moments, anchors and no pass of the learner: `plays`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from fedrl.algorithms.fedagent.local_trainer import rollouts, trained_model
from fedrl.algorithms.fedagent.settings import Settings
from fedrl.llm import memory
from fedrl.llm.generation.decode_buffers import ROUND, bucket_rows, round_up
from fedrl.llm.generation.packed_weights import is_supported
from fedrl.llm.generation.select import sampler_name
from fedrl.llm.learner import decoder, graphed
from fedrl.llm.lora import is_personal, linear_layers
from fedrl.llm.memory import CALIBRATION, HALF, SINGLE, Shape, cache_bytes, shape_of
from fedrl.llm.model_types import LanguageModel
from fedrl.llm.policy import SPREAD, skeleton
from fedrl.llm.weights import decoder_and_head

FOUR_BIT = 1 / 2 + 1 / 64 + SINGLE / (64 * 256)
"""Bytes of a number in NF4, with its share of the scales."""


class Memory(NamedTuple):
    """Bytes in a process that trains."""

    weights: int
    gradients: int
    optimizer: int
    copies: int
    sampler: int
    cache: int
    activations: int
    graphs: int = 0

    @property
    def total(self) -> int:
        return sum(self)

    @property
    def least(self) -> int:
        """Without what is only taken where there is room."""
        return self.total - self.graphs


class Estimate(NamedTuple):
    parameters: int
    trained: dict[str, tuple[int, ...]]  # shapes by name: what travels
    memory: Memory
    rows: int  # episodes side by side
    device: str
    rollouts: str
    kept: int  # numbers of a client's own adapters
    playing: int  # bytes of a process that plays and does not learn


def estimate_memory(settings: Settings, evaluated: int) -> Estimate:
    """With `evaluated` tasks per evaluation; reads no weights."""
    base = skeleton(settings.model)
    shape, plain = shape_of(base.config), sum(p.numel() for p in base.parameters())
    device = settings.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device != "cpu"
    sampler = sampler_name(rollouts(settings), base, on_gpu, device == SPREAD)
    packs = on_gpu and device != SPREAD and not settings.four_bit and is_supported(base)
    quantised = sum(x.get_parameter("weight").numel() for x in linear_layers(base).values())
    model = trained_model(base, settings)
    sent = {
        name: tuple(p.shape)
        for name, p in model.named_parameters()
        if p.requires_grad and not is_personal(name)
    }
    rows = settings.tasks * settings.group
    if sampler != "cuda":
        rows = max(rows, evaluated)
    total = sum(p.numel() for p in model.parameters())
    size = sum(p.numel() for p in model.parameters() if p.requires_grad)
    kept = sum(p.numel() for name, p in model.named_parameters() if is_personal(name))
    tokens = settings.pass_tokens or memory.pass_tokens(plain)
    learning = (
        packed_pass(settings, shape, tokens)
        if packs
        else padded_pass(settings, shape, plain, on_gpu)
    )
    reading = reading_pass(settings, shape, rows) if sampler == "cuda" else 0
    parts = Memory(
        weights=SINGLE * total - round((SINGLE - FOUR_BIT) * quantised * settings.four_bit),
        gradients=SINGLE * size,
        optimizer=2 * SINGLE * size,
        copies=copies(settings, total, size),
        sampler=HALF * plain if sampler == "cuda" else 0,  # adapters are merged
        cache=cache(settings, shape, rows, sampler, HALF if on_gpu else SINGLE),
        activations=max(learning, reading),
        graphs=graphs(settings, base, shape, tokens) if packs else 0,
    )
    copied = model_copies(settings, total, size)
    playing = parts.weights + copied + parts.sampler + parts.cache + reading
    return Estimate(total, sent, parts, rows, device, sampler, kept, playing)


def model_copies(settings: Settings, total: int, trained: int) -> int:
    """Copies that are there from the beginning: the reference's, and the round's before for β."""
    reference = total if settings.kl and not settings.lora_rank else 0
    return SINGLE * (reference + (trained if settings.beta < 1 else 0))


def copies(settings: Settings, total: int, trained: int) -> int:
    start = trained if settings.prox else 0
    anchor = 6 * trained if settings.beta < 1 else 0  # the seventh is the round's before
    return model_copies(settings, total, trained) + SINGLE * (start + anchor)


def cache(settings: Settings, shape: Shape, rows: int, rollouts: str, number: int) -> int:
    """Keys and values of all episodes at their longest."""
    length = settings.prompt_tokens + settings.answer_tokens
    if rollouts == "vllm":  # its own, and of the size that it chooses
        return 0
    if rollouts != "cuda":
        return cache_bytes(shape, rows, length, number)
    return cache_bytes(shape, bucket_rows(rows), round_up(length, ROUND), number)


def pass_size(settings: Settings, most: int) -> int:
    """Tokens of the packed learner's largest pass: of the longest prompts and answers, as many as
    a pass takes."""
    longest = settings.prompt_tokens + settings.answer_tokens
    rows = min(settings.microbatch, settings.minibatch)
    return min(rows * longest, max(most, longest))


def packed_pass(settings: Settings, shape: Shape, most: int) -> int:
    """Of the learner on a GPU: what is kept for the way back, and the height of that."""
    tokens = pass_size(settings, most)
    answers = min(min(settings.microbatch, settings.minibatch) * settings.answer_tokens, tokens)
    kept = tokens * memory.packed_bytes(shape, HALF, settings.save_memory)
    height = memory.backward_height(shape, HALF, not settings.lora_rank, tokens, answers)
    adapters = memory.adapter_bytes(shape, HALF, settings.lora_rank + settings.personal_rank)
    return round(CALIBRATION.activations * (kept + height)) + adapters


def graphs(settings: Settings, model: LanguageModel, shape: Shape, most: int) -> int:
    """Of captured passes: a pool of the largest bucket, and room for the layers' gradients."""
    adapted = settings.lora_rank or settings.personal_rank
    layers: Any = decoder_and_head(model)[0]
    body = sum(p.numel() for p in layers.parameters())
    if not decoder.GRAPHS or adapted or settings.save_memory or body > graphed.MOST_PARAMETERS:
        return 0
    tokens = round_up(pass_size(settings, most) + graphed.SPARE, graphed.STEP)
    learned = sum(p.numel() for p in layers.layers.parameters())
    return graphed.pass_bytes(shape, tokens, HALF) + SINGLE * learned


def padded_pass(settings: Settings, shape: Shape, parameters: int, on_gpu: bool) -> int:
    """Of one microbatch of the longest prompts and answers, cut at `pass_tokens` if that is said,
    by transformers' layers: 4 · 5 V per answer token for logits, log-probabilities, probabilities
    and two gradients, and on a GPU the weights' bfloat16 copies, 2 P (of one layer, if layers are
    computed again, or unpacked from 4 bits)."""
    rows = min(settings.microbatch, settings.minibatch)
    longest = settings.prompt_tokens + settings.answer_tokens
    most = max(settings.pass_tokens, longest) if settings.pass_tokens else rows * longest
    tokens, answers = min(rows * longest, most), min(rows * settings.answer_tokens, most)
    number = HALF if on_gpu else SINGLE
    targets = settings.lora_targets if settings.lora_rank else ()
    each = memory.padded_bytes(shape, number, settings.save_memory, not settings.lora_rank, targets)
    head = 5 * SINGLE * answers * shape.vocabulary
    cast = HALF * parameters if on_gpu else 0
    one_layer = settings.save_memory or settings.four_bit
    return tokens * each + head + (cast // shape.layers if one_layer else cast)


def reading_pass(settings: Settings, shape: Shape, rows: int) -> int:
    """Of the CUDA engine over prompts, and the logits of a step of all rows."""
    tokens = min(rows * settings.prompt_tokens, memory.read_tokens(shape))
    scratch = round(CALIBRATION.reading * tokens * memory.reading_bytes(shape))
    return scratch + SINGLE * bucket_rows(rows) * shape.vocabulary
