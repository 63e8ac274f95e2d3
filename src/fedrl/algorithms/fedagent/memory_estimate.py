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
                 passes at a number of tokens that follows from P

Weights, gradients, optimizer, copies, sampler and cache are exact; activations are within some
percent for Llama and Qwen2 and a guide for others, with prompts and answers of the lengths that
settings allow. CUDA itself takes another half gigabyte.
"""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.util import find_spec
from typing import NamedTuple

import torch

from fedrl.algorithms.fedagent.local_trainer import rollouts, trained_model
from fedrl.algorithms.fedagent.settings import Settings
from fedrl.core.types import UserError
from fedrl.llm import memory
from fedrl.llm.generation.decode_buffers import ROUND, bucket_rows, round_up
from fedrl.llm.generation.packed_weights import is_supported
from fedrl.llm.generation.select import sampler_name
from fedrl.llm.generation.vllm import SHARE
from fedrl.llm.lora import is_personal, linear_layers
from fedrl.llm.memory import CALIBRATION, HALF, SINGLE, Shape, cache_bytes, shape_of
from fedrl.llm.policy import SPREAD, choose_device, skeleton

FOUR_BIT = 1 / 2 + 1 / 64 + SINGLE / (64 * 256)
"""Bytes of a number in NF4, with its share of the scales."""

CARDS = (8, 16, 24, 48, 80)
"""Gigabytes of usual cards."""

SLOTS = {"sgd": 0, "momentum": 1, "adam": 2}
"""Copies of the model that each server optimiser remembers."""


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
    kept: int  # numbers of a client's own adapters


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
    learning = (
        packed_pass(settings, shape, plain)
        if packs
        else padded_pass(settings, shape, plain, on_gpu)
    )
    parts = Memory(
        weights=SINGLE * total - round((SINGLE - FOUR_BIT) * quantised * settings.four_bit),
        gradients=SINGLE * size,
        optimizer=2 * SINGLE * size,
        copies=copies(settings, total, size),
        sampler=HALF * plain if sampler == "cuda" else 0,  # adapters are merged
        cache=cache(settings, shape, rows, sampler, HALF if on_gpu else SINGLE),
        activations=max(learning, reading_pass(settings, shape, rows) if sampler == "cuda" else 0),
    )
    return Estimate(total, sent, parts, rows, device, sampler, kept)


def copies(settings: Settings, total: int, trained: int) -> int:
    reference = total if settings.kl and not settings.lora_rank else 0
    start = trained if settings.prox else 0
    anchor = 7 * trained if settings.beta < 1 else 0
    return SINGLE * (reference + start + anchor)


def cache(settings: Settings, shape: Shape, rows: int, rollouts: str, number: int) -> int:
    """Keys and values of all episodes at their longest."""
    length = settings.prompt_tokens + settings.answer_tokens
    if rollouts == "vllm":  # its own, and of the size that it chooses
        return 0
    if rollouts != "cuda":
        return cache_bytes(shape, rows, length, number)
    return cache_bytes(shape, bucket_rows(rows), round_up(length, ROUND), number)


def packed_pass(settings: Settings, shape: Shape, parameters: int) -> int:
    """Of the longest prompts and answers, as many as a pass takes, on a GPU."""
    longest = settings.prompt_tokens + settings.answer_tokens
    rows = min(settings.microbatch, settings.minibatch)
    tokens = min(rows * longest, max(memory.pass_tokens(parameters), longest))
    each = memory.packed_bytes(shape, HALF, settings.save_memory)
    each += memory.backward_bytes(shape, HALF)
    answers = rows * settings.answer_tokens
    head = memory.vocabulary_bytes(shape, HALF, not settings.lora_rank, answers)
    return round(CALIBRATION.activations * tokens * each) + head


def padded_pass(settings: Settings, shape: Shape, parameters: int, on_gpu: bool) -> int:
    """Of one microbatch of the longest prompts and answers, by transformers' layers: 4 · 5 V per
    answer token for logits, log-probabilities, probabilities and two gradients, and on a GPU the
    weights' bfloat16 copies, 2 P (of one layer, if layers are computed again, or unpacked from 4
    bits)."""
    rows = min(settings.microbatch, settings.minibatch)
    tokens = rows * (settings.prompt_tokens + settings.answer_tokens)
    number = HALF if on_gpu else SINGLE
    targets = settings.lora_targets if settings.lora_rank else ()
    each = memory.padded_bytes(shape, number, settings.save_memory, not settings.lora_rank, targets)
    head = 5 * SINGLE * rows * settings.answer_tokens * shape.vocabulary
    cast = HALF * parameters if on_gpu else 0
    one_layer = settings.save_memory or settings.four_bit
    return tokens * each + head + (cast // shape.layers if one_layer else cast)


def reading_pass(settings: Settings, shape: Shape, rows: int) -> int:
    """Of the CUDA engine over prompts, and the logits of a step of all rows."""
    tokens = min(rows * settings.prompt_tokens, memory.read_tokens(shape))
    scratch = round(CALIBRATION.reading * tokens * memory.reading_bytes(shape))
    return scratch + SINGLE * bucket_rows(rows) * shape.vocabulary


# What helps, and what cannot be


def remedies(settings: Settings, evaluated: int, most: int = 3) -> list[tuple[str, int]]:
    """Settings that need less, and the bytes that each alone saves: the most helpful first."""
    longest = settings.prompt_tokens + settings.answer_tokens
    options: dict[str, dict[str, object]] = {
        "algorithm.lora_rank = 32": {"lora_rank": 32},
        "algorithm.kl = 0": {"kl": 0.0},
        "algorithm.save_memory = true": {"save_memory": True},
        "algorithm.microbatch = 1": {"microbatch": 1},
        f"algorithm.tasks = {settings.tasks // 2}": {"tasks": settings.tasks // 2},
        f"algorithm.prompt_tokens = {settings.prompt_tokens // 2}": {
            "prompt_tokens": settings.prompt_tokens // 2
        },
        f"algorithm.eval_tasks = {settings.tasks * settings.group}": {
            "eval_tasks": settings.tasks * settings.group
        },
    }  # fmt: skip
    if settings.lora_rank:
        del options["algorithm.lora_rank = 32"]
    if settings.tasks < 2:
        del options[f"algorithm.tasks = {settings.tasks // 2}"]
    if longest < ROUND:
        del options[f"algorithm.prompt_tokens = {settings.prompt_tokens // 2}"]
    now, found = estimate_memory(settings, evaluated).memory.total, []
    for words, change in options.items():
        fewer = min(evaluated, int(str(change.get("eval_tasks", evaluated))))
        saved = now - estimate_memory(replace(settings, **change), fewer).memory.total  # type: ignore[arg-type]
        if saved > 0.01 * now:
            found.append((words, saved))
    return sorted(found, key=lambda remedy: -remedy[1])[:most]


def least_memory(settings: Settings, evaluated: int) -> int:
    """What a run cannot do without, however short its prompts and answers are."""
    short = replace(settings, prompt_tokens=1, answer_tokens=1)
    return estimate_memory(short, evaluated).memory.total + CALIBRATION.context


def require_memory(settings: Settings, available: int | None = None) -> None:
    """Refuse what cannot fit, before anything is loaded: by what the GPU has free, if it is one."""
    if available is None:
        if settings.device == SPREAD or choose_device(settings.device).type != "cuda":
            return
        available = torch.cuda.mem_get_info(choose_device(settings.device))[0]
    needed = least_memory(settings, 0)
    if needed <= available:
        return
    helps = [f"{words} ({in_bytes(saved)} less)" for words, saved in remedies(settings, 0)]
    raise UserError(
        f"algorithm.model needs at least {in_bytes(needed)} to train so, and the GPU has "
        f"{in_bytes(available)} free: " + (", ".join(helps) or "choose a smaller model")
    )


def estimate_lines(needs: Estimate, settings: Settings, evaluated: int = 0) -> list[str]:
    """The estimate in words."""
    sent = sum(torch.Size(shape).numel() for shape in needs.trained.values())
    trained = sent + needs.kept
    where = "all GPUs together" if settings.device == SPREAD else f"{needs.device}"
    if there := device_memory(needs.device):
        where += f" (which has {in_bytes(there)})"
    parts = ", ".join(f"{name} {in_bytes(n)}" for name, n in needs.memory._asdict().items() if n)
    keeps = [
        f"a client keeps {in_bytes(2 * SINGLE * trained)} of AdamW's moments between its rounds, "
        "in the checkpoint or on its own disk"
    ]
    own = [
        f"a client keeps {needs.kept:,} of them for itself ({in_bytes(SINGLE * needs.kept)}), in "
        "the checkpoint or on its own disk"
    ]
    helps = [f"{words} ({in_bytes(saved)})" for words, saved in remedies(settings, evaluated)]
    states = 1 + SLOTS[settings.server_optimizer] + 2 * (settings.beta < 1)
    return [
        f"the model has {needs.parameters:,} parameters, {trained:,} of them trained",
        *(keeps if settings.optimizer_state == "kept" else []),
        *(own if needs.kept else []),
        f"memory at most {in_bytes(needs.memory.total)} on {where}, in each process that trains: "
        f"{parts}",
        *([fitting(needs.memory.total)] if needs.device.startswith("cuda") else []),
        *elsewhere(needs, settings, evaluated),
        f"that is with {needs.rows:,} episodes side by side ({needs.rollouts} rollouts), prompts "
        f"of {settings.prompt_tokens:,} and answers of {settings.answer_tokens:,} tokens; lower "
        "algorithm.prompt_tokens if yours are shorter",
        f"the server's part of a checkpoint holds {in_bytes(SINGLE * sent * states)}",
        *([f"what would save most, each alone: {', '.join(helps)}"] if helps else []),
    ]


def elsewhere(needs: Estimate, settings: Settings, evaluated: int) -> list[str]:
    """What the sum does not say: a GPU's, on a machine that has none, and what vLLM takes."""
    if needs.rollouts == "vllm":
        absent = find_spec("vllm") is None
        return [
            f"vllm takes {SHARE:.0%} of the GPU's memory beside that"
            + (", and is not installed here: pip install vllm" if absent else "")
        ]
    if settings.device != "auto" or needs.device != "cpu":
        return []
    gpu = estimate_memory(replace(settings, device="cuda"), evaluated).memory.total
    return [
        f"on a GPU at most {in_bytes(gpu)}, as far as this machine without one can tell: "
        f"--algorithm.device cuda says of what; {fitting(gpu)}"
    ]


def fitting(size: int) -> str:
    """Into which of the usual cards it fits, with what CUDA takes itself."""
    needed = size + CALIBRATION.context
    fits = (f"{card} GB: {'yes' if needed <= card * 1e9 else 'no'}" for card in CARDS)
    return f"fits {', '.join(fits)}"


def device_memory(device: str) -> int:
    """Bytes that a device of this machine has in all; 0 if it has no such device, or of several."""
    if device == "cpu":
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if device == SPREAD or not torch.cuda.is_available():
        return 0
    return int(torch.cuda.mem_get_info(choose_device(device))[1])


def in_bytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
