"""What `--dry-run` says about memory, what helps against too little, and what is refused.

An estimate is of the longest prompts and answers that the settings allow. A run whose estimate does
not fit into what its GPU can have is refused before it starts, with the settings that would save
most; `FEDRL_GPU_SHARE=off` starts it all the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch

from fedrl.algorithms.fedagent.evaluations import Evaluation, episodes_of, smaller
from fedrl.algorithms.fedagent.memory_estimate import Estimate, estimate_memory
from fedrl.algorithms.fedagent.settings import Settings
from fedrl.core.types import UserError
from fedrl.llm.generation.vllm import SHARE
from fedrl.llm.memory import CALIBRATION, PASS_TOKENS, SINGLE
from fedrl.llm.out_of_memory import ADVICE, Doing
from fedrl.llm.policy import SPREAD, choose_device

CARDS = (8, 16, 24, 48, 80)
"""Gigabytes of usual cards."""

SLOTS = {"sgd": 0, "momentum": 1, "adam": 2}
"""Copies of the model that each server optimiser remembers."""


Needs = Callable[[dict[str, Any]], int]
"""Bytes with these settings changed."""


class Remedy(NamedTuple):
    """A setting with a value that needs less."""

    words: str
    saved: int  # bytes, if nothing else is changed


HOW = ("save_memory", "pass_tokens", "microbatch")
"""Change how a run computes, not what: a run that stopped may be resumed with them."""
HELPS: dict[Doing, tuple[str, ...]] = {
    "learning": ("save_memory", "pass_tokens", "microbatch", "lora_rank", "kl", "tasks", "group"),
    "playing": ("tasks", "group", "answer_tokens", "prompt_tokens", "lora_rank", "kl"),
    "evaluating": ("eval_tasks", "tasks", "group", "answer_tokens", "prompt_tokens"),
    "evaluating_own": ("eval_own", "tasks", "group", "answer_tokens", "prompt_tokens"),
    "evaluating_trained": ("eval_trained", "tasks", "group", "answer_tokens", "prompt_tokens"),
    "loading": ("lora_rank", "kl"),
}
"""What is asked for less, by what was going on when memory ran out."""


def options(settings: Settings, evaluations: Sequence[Evaluation]) -> dict[str, dict[str, Any]]:
    """By setting, the change that needs less, where there is one."""
    found: dict[str, dict[str, Any]] = {
        "lora_rank": {"lora_rank": 32},
        "kl": {"kl": 0.0},
        "save_memory": {"save_memory": True},
        "pass_tokens": {"pass_tokens": PASS_TOKENS[0]},
        "microbatch": {"microbatch": 1},
        "tasks": {"tasks": settings.tasks // 2},
        "group": {"group": settings.group // 2},
        "prompt_tokens": {"prompt_tokens": settings.prompt_tokens // 2},
        "answer_tokens": {"answer_tokens": settings.answer_tokens // 2},
    }
    for key, value in smaller(evaluations, settings.tasks * settings.group).items():
        found[key] = {key: value}
    if settings.lora_rank:
        del found["lora_rank"]
    if settings.save_memory:
        del found["save_memory"]
    for key, least in (("tasks", 1), ("group", 2), ("prompt_tokens", 64), ("answer_tokens", 1)):
        if found[key][key] < least:
            del found[key]
    return found


def needs_of(settings: Settings, evaluations: Sequence[Evaluation], played: bool = False) -> Needs:
    """Of a process that trains, or of what is there while episodes are played."""

    def needed(change: dict[str, Any]) -> int:
        found = estimate_memory(replace(settings, **change), episodes_of(evaluations, change))
        return found.playing if played else found.memory.least

    return needed


def measured(
    settings: Settings, evaluations: Sequence[Evaluation], needed: Needs
) -> dict[str, Remedy]:
    """By setting, what its change alone saves; nothing of a change that hardly does."""
    now, found = needed({}), {}
    for key, change in options(settings, evaluations).items():
        saved = now - needed(change)
        if saved > 0.01 * now:
            value = str(change[key]).lower().removesuffix(".0")
            found[key] = Remedy(f"algorithm.{key} = {value}", saved)
    return found


def remedies(
    settings: Settings,
    evaluations: Sequence[Evaluation],
    most: int = 3,
    needed: Needs | None = None,
) -> list[Remedy]:
    """Settings that need less, and the bytes that each alone saves: the most helpful first. Of what
    is `needed`, or of a process that trains."""
    needed = needed or needs_of(settings, evaluations)
    found = measured(settings, evaluations, needed).values()
    return sorted(found, key=lambda remedy: -remedy.saved)[:most]


def advice(settings: Settings, episodes: int, doing: Doing) -> str:
    """A line for memory that ran out: settings that would have saved some, with how much; first
    those with which the run can be resumed. So many episodes of an evaluation were played."""
    usual, evaluations = ADVICE[doing], [evaluation_of(settings, episodes, doing)]
    if doing not in HELPS or settings.device == SPREAD:
        return usual
    try:
        needed = needs_of(settings, evaluations, doing != "learning")
        known = measured(settings, evaluations, needed)
    except (UserError, OSError, RuntimeError, MemoryError):  # as full as it is, or unreadable
        return usual
    chosen = {key: known[key] for key in HELPS[doing] if key in known}
    if not chosen:
        return usual
    now = [told(remedy) for key, remedy in chosen.items() if key in HOW]
    anew = sorted((r for key, r in chosen.items() if key not in HOW), key=lambda r: -r.saved)
    later = " or ".join(told(remedy) for remedy in anew[:3])
    if not now:
        return f"{usual.partition(': ')[0]}: {later}"
    resumed = f"resume it with {' or '.join(now)}"
    return f"{usual.partition(': ')[0]}: {resumed}" + (f"; a new run: {later}" if later else "")


def evaluation_of(settings: Settings, episodes: int, doing: Doing) -> Evaluation:
    """What was played, by the setting that it comes from."""
    key = {"evaluating_own": "eval_own", "evaluating_trained": "eval_trained"}.get(doing)
    if key is None:
        return Evaluation("eval_tasks", 1, episodes)
    return Evaluation(key, max(-(-episodes // max(getattr(settings, key), 1)), 1), episodes)


def told(remedy: Remedy) -> str:
    return f"{remedy.words} ({in_bytes(remedy.saved)} less)"


def refusal(
    settings: Settings, helps: Sequence[Remedy], needed: int, available: int, how: str
) -> str:
    """Why a run does not start, and what it could do with less."""
    said = ", ".join(map(told, helps))
    return (
        f"algorithm.model needs {in_bytes(needed)} {how}, with prompts of "
        f"{settings.prompt_tokens:,} and answers of {settings.answer_tokens:,} tokens, and the GPU "
        f"has {in_bytes(available)} for it: {said or 'choose a smaller model'}; "
        "FEDRL_GPU_SHARE=off tries it all the same"
    )


def estimate_lines(
    needs: Estimate, settings: Settings, evaluations: Sequence[Evaluation] = ()
) -> list[str]:
    """The estimate in words."""
    sent = sum(torch.Size(shape).numel() for shape in needs.trained.values())
    trained = sent + needs.kept
    where = "all GPUs together" if settings.device == SPREAD else f"{needs.device}"
    if there := device_memory(needs.device):
        where += f" (which has {in_bytes(there)}"
        where += ")" if needs.memory.least <= there else ": it does not fit)"
    parts = ", ".join(f"{name} {in_bytes(n)}" for name, n in needs.memory._asdict().items() if n)
    keeps = [
        f"a client keeps {in_bytes(2 * SINGLE * trained)} of AdamW's moments between its rounds, "
        "in the checkpoint or on its own disk"
    ]
    own = [
        f"a client keeps {needs.kept:,} of them for itself ({in_bytes(SINGLE * needs.kept)}), in "
        "the checkpoint or on its own disk"
    ]
    helps = [f"{r.words} ({in_bytes(r.saved)})" for r in remedies(settings, evaluations)]
    states = 1 + SLOTS[settings.server_optimizer] + 2 * (settings.beta < 1)
    return [
        f"the model has {needs.parameters:,} parameters, {trained:,} of them trained",
        *(keeps if settings.optimizer_state == "kept" else []),
        *(own if needs.kept else []),
        f"memory at most {in_bytes(needs.memory.total)} on {where}, in each process that trains: "
        f"{parts}",
        *([fitting(needs.memory.least)] if needs.device.startswith("cuda") else []),
        *elsewhere(needs, settings, episodes_of(evaluations)),
        f"that is with {needs.rows:,} episodes side by side ({needs.rollouts} rollouts), prompts "
        f"of {settings.prompt_tokens:,} and answers of {settings.answer_tokens:,} tokens; lower "
        "algorithm.prompt_tokens if yours are shorter",
        f"the server's part of a checkpoint holds {in_bytes(SINGLE * sent * states)}",
        *([f"what would save most, each alone: {', '.join(helps)}"] if helps else []),
    ]


def elsewhere(needs: Estimate, settings: Settings, episodes: int) -> list[str]:
    """What the sum does not say: a GPU's, on a machine that has none, and what vLLM takes."""
    if needs.rollouts == "vllm":
        absent = find_spec("vllm") is None
        return [
            f"vllm takes {SHARE:.0%} of the GPU's memory beside that"
            + (", and is not installed here: pip install vllm" if absent else "")
        ]
    if settings.device != "auto" or needs.device != "cpu":
        return []
    gpu = estimate_memory(replace(settings, device="cuda"), episodes).memory
    return [
        f"on a GPU at most {in_bytes(gpu.total)}, as far as this machine without one can tell: "
        f"--algorithm.device cuda says of what; {fitting(gpu.least)}"
    ]


def fitting(size: int) -> str:
    """Into which of the usual cards it fits, with what CUDA takes itself."""
    needed = size + CALIBRATION.context
    fits = (f"{card} GB: {'yes' if needed <= card * 1e9 else 'no'}" for card in CARDS)
    own = CALIBRATION.context / 1e9
    return (
        f"fits {', '.join(fits)} (without graphs and with CUDA's own {own:.1f} GB: "
        f"{in_bytes(needed)})"
    )


def device_memory(device: str) -> int:
    """Bytes that a device of this machine has in all; 0 if it has no such device, or of several."""
    if device == "cpu":
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if device == SPREAD or not torch.cuda.is_available():
        return 0
    return int(torch.cuda.mem_get_info(choose_device(device))[1])


def in_bytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
