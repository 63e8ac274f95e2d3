"""Running out of memory as a line that says what needs less."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import nn

from fedrl.core.types import Shareable, UserError

Doing = Literal[
    "learning", "playing", "evaluating", "evaluating_own", "evaluating_trained", "playing_parts",
    "loading", "answering", "teaching", "reading",
]  # fmt: skip
ADVICE: dict[Doing, str] = {
    "learning": "out of GPU memory: lower algorithm.microbatch, set algorithm.save_memory, or "
    "train adapters with algorithm.lora_rank",
    "playing": "out of GPU memory in a rollout: lower algorithm.tasks, algorithm.group, "
    "algorithm.answer_tokens or algorithm.prompt_tokens",
    "evaluating": "out of GPU memory in an evaluation: lower algorithm.eval_tasks, "
    "algorithm.answer_tokens or algorithm.prompt_tokens",
    "evaluating_own": "out of GPU memory in an evaluation of clients' own worlds: lower "
    "algorithm.eval_own, algorithm.answer_tokens or algorithm.prompt_tokens",
    "evaluating_trained": "out of GPU memory in an evaluation of a client that has trained: lower "
    "algorithm.eval_trained, algorithm.answer_tokens or algorithm.prompt_tokens",
    "playing_parts": "out of GPU memory: play fewer tasks side by side, by the environment "
    "variable FEDRL_AT_ONCE (256 where it is not set)",
    "loading": "out of GPU memory while the model was loaded: train adapters with "
    "algorithm.lora_rank, set algorithm.kl = 0 (no copy of the model), or choose a smaller one",
    "answering": "out of GPU memory while it answered: ask it fewer prompts at a time, or shorter "
    "ones",
    "teaching": "out of GPU memory in the warm start: lower --batch or --prompt_tokens, or choose "
    "a smaller --model",
    "reading": "out of GPU memory in the warm start: lower --batch or --window, or choose a "
    "smaller --model",
}
SIGNS = (
    "out of memory",  # CUDA's, in a kernel, a graph or a copy
    "STATUS_ALLOC_FAILED",  # cuBLAS's workspace
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",  # Windows
    "No available memory for the cache blocks",  # vLLM's, as those below
    "less than desired GPU memory utilization",
    "larger than the available KV cache memory",
)


class OutOfMemory(UserError):
    """The GPU's memory was too small; the message says what needs less."""


class NoRoom(UserError):
    """A sampler's cache would not fit. `short` says how much is missing, without any advice; that
    of who raised it is kept where nothing else could help (`only`)."""

    def __init__(self, short: str, advice: str, only: bool = False) -> None:
        super().__init__(f"{short}; {advice}")
        self.short, self.only = short, only


def is_out_of_memory(error: BaseException) -> bool:
    """Of any kind: the allocator's own, CUDA's, cuBLAS's, vLLM's, and those of the CPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    words = str(error)
    return isinstance(error, RuntimeError | ValueError) and any(sign in words for sign in SIGNS)


def of_the_cpu(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error)


@contextlib.contextmanager
def explain_out_of_memory(
    model: nn.Module | None = None,
    doing: Doing = "learning",
    advise: Callable[[Doing], str] = ADVICE.__getitem__,
) -> Iterator[None]:
    """Running out of memory becomes a line that names what to change; `advise` knows the settings
    in force."""
    try:
        yield
    except NoRoom as error:
        if error.only:
            raise OutOfMemory(Shareable(str(error))) from error
        advice = advise(doing).partition(": ")[2]
        raise OutOfMemory(Shareable(f"{error.short}; {advice}")) from error
    except (RuntimeError, ValueError, MemoryError) as error:  # torch's two are RuntimeErrors
        if not is_out_of_memory(error):
            raise
        if model is not None:
            model.zero_grad(set_to_none=True)  # half a step's: the next client starts without
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        advice = advise(doing)
        if of_the_cpu(error):
            advice = advice.replace("out of GPU memory", "out of memory", 1)
        raise OutOfMemory(Shareable(advice)) from error
