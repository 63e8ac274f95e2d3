"""Matrix products whose sums are kept in single precision: those of gradients."""

from __future__ import annotations

import torch
from torch import Tensor

WIDE = hasattr(torch.ops.aten.mm, "dtype")
"""Whether this PyTorch multiplies in half precision into single precision (2.8 and later)."""


def wide_mm(a: Tensor, b: Tensor) -> Tensor:
    """a b in single precision, whatever a and b are in."""
    if a.is_cuda and WIDE and a.dtype.itemsize == 2:
        return torch.mm(a, b, out_dtype=torch.float32)
    return (a @ b).float()
