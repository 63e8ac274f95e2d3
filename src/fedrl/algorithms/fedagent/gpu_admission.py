"""A language agent takes its place on a GPU before its model is loaded: by its estimate.

What computes where is the run's to say (`GpuUse`). With `engine = "workers"` the driver's model,
which is evaluated, stands on the same GPU as worker 0's; the driver reserves for itself and for all
of its workers at once, so that they never wait for each other. Its workers are told so.
"""

from __future__ import annotations

import gc
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from fedrl.algorithms.fedagent.evaluations import Evaluation, episodes_of
from fedrl.algorithms.fedagent.memory_advice import in_bytes, refusal, remedies
from fedrl.algorithms.fedagent.memory_estimate import Estimate, estimate_memory
from fedrl.algorithms.fedagent.settings import Settings
from fedrl.core.abilities import WAITING, GpuBusy, GpuUse
from fedrl.core.types import UserError
from fedrl.llm import gpu_share
from fedrl.llm.generation.vllm import SHARE
from fedrl.llm.gpu_share import Needed
from fedrl.llm.memory import CALIBRATION
from fedrl.llm.policy import SPREAD, choose_device

LOG = logging.getLogger("fedrl")
CLIENT = GpuUse(learns=True, evaluates=False)
"""What a worker does."""


def admit(
    settings: Settings, evaluations: Callable[[GpuUse], Sequence[Evaluation]], use: GpuUse
) -> gpu_share.Reservation | None:
    """Waits for room; refuses, in a line, what could not fit alone. Nothing without a GPU."""
    if gpu_share.is_off() or settings.device == SPREAD:
        return None
    device = choose_device(settings.device)
    if device.type != "cuda":
        return None
    gc.collect()  # a model of before, which nobody uses any more, has its place still
    torch.cuda.empty_cache()
    first, played = device.index or 0, list(evaluations(use))
    clients = list(evaluations(CLIENT)) if use.workers else []

    def wanted(change: Mapping[str, Any]) -> dict[int, Needed]:
        changed = replace(settings, **change)
        here = estimate_memory(changed, episodes_of(played, change))
        there = estimate_memory(changed, episodes_of(clients, change)) if use.workers else here
        found = needed_by_gpu(changed, here, there, use, first)
        return {index: together(needs, here, index) for index, needs in found.items()}

    needs = wanted({})
    try:
        found = gpu_share.reserve(needs, logging.getLogger(WAITING).warning, use.patience)
    except gpu_share.TooLarge as error:
        full = error.index
        helps = remedies(
            settings, [*played, *clients], 4, lambda change: wanted(change)[full].least
        )
        raise UserError(
            refusal(settings, helps, error.needed, error.available, words_of(use))
        ) from error
    except gpu_share.Busy as error:
        raise GpuBusy(f"{error}; start it later, or set {gpu_share.SHARE}=off") from error
    LOG.debug("reserved on GPUs: %s", {i: in_bytes(need.most) for i, need in needs.items()})
    return found


def needed_by_gpu(
    settings: Settings, here: Estimate, there: Estimate, use: GpuUse, first: int
) -> dict[int, list[Needed]]:
    """Of every process, by the GPU that it takes: this one and its workers."""
    context = CALIBRATION.context
    mine = 0 if gpu_share.has_context(first) else context  # which `gpu_share` counts
    memory, learner = here.memory, there.memory
    found: dict[int, list[Needed]] = defaultdict(list)
    if use.learns:
        found[first].append(Needed(memory.least + mine, memory.total + mine))
    else:
        found[first].append(Needed(here.playing + mine, here.playing + mine))
    gpus = max(torch.cuda.device_count(), 1)
    for worker in range(use.workers):
        index = worker % gpus if settings.device == "auto" else first
        found[index].append(Needed(learner.least + context, learner.total + context))
    return found


def together(needs: Sequence[Needed], estimate: Estimate, index: int) -> Needed:
    """Of all processes on a GPU; vLLM takes a share of it for each, beside the estimate."""
    extra = 0
    if estimate.rollouts == "vllm":
        extra = int(SHARE * gpu_share.gpu_of(index).total) * len(needs)
    least, most = sum(each.least for each in needs), sum(each.most for each in needs)
    return Needed(least + extra, most + extra)


def words_of(use: GpuUse) -> str:
    if not use.workers:
        return "to train so" if use.learns else "to play so"
    plural = "s" if use.workers > 1 else ""
    return f"for {use.workers} worker{plural} and the driver's own model beside them (--workers)"
