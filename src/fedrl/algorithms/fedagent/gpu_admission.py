"""A language agent takes its place on a GPU before its model is loaded: by its estimate.

What computes where is the run's to say (`GpuUse`). With `engine = "workers"` the driver's model,
which is evaluated, stands on the same GPU as worker 0's; the driver reserves for itself and for all
of its workers at once, so that they never wait for each other.
"""

from __future__ import annotations

import gc
import logging
import os
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import torch

from fedrl.algorithms.fedagent.memory_advice import in_bytes, refusal
from fedrl.algorithms.fedagent.memory_estimate import Estimate, estimate_memory
from fedrl.algorithms.fedagent.settings import Settings
from fedrl.core.abilities import GpuUse
from fedrl.core.types import Shareable, UserError
from fedrl.llm import gpu_share
from fedrl.llm.generation.vllm import SHARE
from fedrl.llm.memory import CALIBRATION
from fedrl.llm.policy import SPREAD, choose_device

LOG = logging.getLogger("fedrl")
DRIVER = "FEDRL_GPU_DRIVER"
"""Environment variable with the process that reserved for its children, too."""


class Needed(NamedTuple):
    """Bytes on a GPU: what cannot be done without, and what is taken where there is room."""

    least: int
    most: int


def admit(
    settings: Settings, evaluated: Callable[[], int], use: GpuUse
) -> gpu_share.Reservation | None:
    """Waits for room; refuses, in a line, what could not fit alone. Nothing without a GPU."""
    if gpu_share.is_off() or os.environ.get(DRIVER) == str(os.getppid()):
        return None
    if settings.device == SPREAD:
        return None
    device = choose_device(settings.device)
    if device.type != "cuda":
        return None
    gc.collect()  # a model of before, which nobody uses any more, has its place still
    torch.cuda.empty_cache()
    first, count = device.index or 0, evaluated() if use.evaluates else 0
    estimate = estimate_memory(settings, count)
    wanted: dict[int, int] = {}
    for index, needs in needed_by_gpu(settings, estimate, use, first).items():
        total = gpu_share.gpu_of(index).total
        extra = int(SHARE * total) * len(needs) if estimate.rollouts == "vllm" else 0
        most = sum(each.most for each in needs) + extra
        wanted[index] = most if most <= total else sum(each.least for each in needs) + extra
    try:
        found = gpu_share.reserve(wanted, LOG.warning, use.patience)
    except gpu_share.TooLarge as error:
        raise UserError(
            refusal(settings, count, error.needed, error.available, words_of(use))
        ) from error
    except gpu_share.Busy as error:
        raise UserError(Shareable(str(error))) from error
    if use.workers:
        os.environ[DRIVER] = str(os.getpid())
    LOG.debug("reserved on GPUs: %s", {i: in_bytes(n) for i, n in wanted.items()})
    return found


def needed_by_gpu(
    settings: Settings, estimate: Estimate, use: GpuUse, first: int
) -> dict[int, list[Needed]]:
    """Of every process, by the GPU that it takes: this one and its workers."""
    context, memory = CALIBRATION.context, estimate.memory
    learning = Needed(memory.least + context, memory.total + context)
    playing = Needed(estimate.playing + context, estimate.playing + context)
    found: dict[int, list[Needed]] = defaultdict(list)
    found[first].append(learning if use.learns else playing)
    gpus = max(torch.cuda.device_count(), 1)
    for worker in range(use.workers):
        found[worker % gpus if settings.device == "auto" else first].append(learning)
    return found


def words_of(use: GpuUse) -> str:
    if not use.workers:
        return "to train so" if use.learns else "to play so"
    plural = "s" if use.workers > 1 else ""
    return f"for {use.workers} worker{plural} and the driver's own model beside them (--workers)"
