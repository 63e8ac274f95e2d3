"""Running out of the GPU's memory as a line that says what needs less."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

import torch
from torch import nn

from fedrl.core.types import Shareable, UserError

Doing = Literal["learning", "playing", "evaluating", "loading"]
ADVICE: dict[Doing, str] = {
    "learning": "out of GPU memory: lower algorithm.microbatch, set algorithm.save_memory, or "
    "train adapters with algorithm.lora_rank",
    "playing": "out of GPU memory in a rollout: lower algorithm.tasks, algorithm.group, "
    "algorithm.answer_tokens or algorithm.prompt_tokens",
    "evaluating": "out of GPU memory in an evaluation: lower algorithm.eval_tasks, "
    "algorithm.answer_tokens or algorithm.prompt_tokens",
    "loading": "out of GPU memory while the model was loaded: train adapters with "
    "algorithm.lora_rank, set algorithm.kl = 0 (no copy of the model), or choose a smaller one",
}


class OutOfMemory(UserError):
    """The GPU's memory was too small; the message says what needs less."""


class NoRoom(UserError):
    """A sampler's cache would not fit. `short` says how much is missing, without any advice."""

    def __init__(self, short: str, advice: str) -> None:
        super().__init__(f"{short}; {advice}")
        self.short = short


def is_out_of_memory(error: BaseException) -> bool:
    """Of any kind: the allocator's own, CUDA's (in a kernel or a graph), cuBLAS's workspace."""
    words = str(error)
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError)
        and any(sign in words for sign in ("out of memory", "STATUS_ALLOC_FAILED"))
    )


@contextlib.contextmanager
def explain_out_of_memory(
    model: nn.Module | None = None, doing: Doing = "learning"
) -> Iterator[None]:
    """Running out of the GPU's memory becomes a line that names what to change."""
    try:
        yield
    except NoRoom as error:
        advice = ADVICE[doing].partition(": ")[2]
        raise OutOfMemory(Shareable(f"{error.short}; {advice}")) from error
    except RuntimeError as error:  # torch.OutOfMemoryError and torch.AcceleratorError are such
        if not is_out_of_memory(error):
            raise
        if model is not None:
            model.zero_grad(set_to_none=True)  # half a step's: the next client starts without
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        raise OutOfMemory(Shareable(ADVICE[doing])) from error
