"""Running out of the GPU's memory as a line that says what needs less."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from fedrl.core.types import Shareable, UserError


class OutOfMemory(UserError):
    """The GPU's memory was too small; the message says what needs less."""


@contextlib.contextmanager
def explain_out_of_memory(model: nn.Module | None = None) -> Iterator[None]:
    """Running out of the GPU's memory becomes a line that names what to change."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        if model is not None:
            model.zero_grad(set_to_none=True)  # half a step's: the next client starts without
        raise OutOfMemory(
            Shareable(
                "out of GPU memory: lower algorithm.microbatch, set algorithm.save_memory, or "
                "train adapters with algorithm.lora_rank"
            )
        ) from error
