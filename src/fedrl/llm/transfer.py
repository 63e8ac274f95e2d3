"""Small tensors on their way to a GPU, for which nobody waits."""

from __future__ import annotations

import torch
from torch import Tensor


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """On the device; to a GPU from pinned memory, because any other copy waits for all that the GPU
    has still to do."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
