"""Attention over prompts by PyTorch's flash kernel, which takes packed rows of any length, and by
cuDNN's, which takes rows of one length: there, and both ways."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from fedrl.llm.varlen_attention import attend, attend_backward, sequences
from language.bench import Bench
from language.timing import DEVICE, GPU, timed

CASES = ((160, 400, 9, 3, 64), (64, 424, 9, 3, 64), (16, 1000, 12, 2, 128), (8, 2500, 12, 2, 128))
"""Rows, tokens of each, heads, key-value heads, numbers of a head."""
CALLS = 20


def attention(bench: Bench) -> None:
    if not GPU:
        print("attention: flash and cuDNN need a GPU")
        return
    for case in CASES:
        bench.attempt(f"attention {case}", lambda c=case: _attention(bench, *c))


def _attention(bench: Bench, rows: int, length: int, heads: int, kv: int, size: int) -> None:
    def random(count: int) -> Tensor:
        return torch.randn(rows * length, count, size, device=DEVICE, dtype=torch.bfloat16)

    q, k, v, grad = random(heads), random(kv), random(kv), random(heads)
    packed, scale = sequences([length] * rows, DEVICE), size**-0.5

    def flash() -> None:
        attend(q, k, v, packed, packed, scale)

    def flash_both() -> None:
        attended = attend(q, k, v, packed, packed, scale)
        attend_backward(grad, q, k, v, attended, packed, packed, scale)

    dense = [x.view(rows, length, -1, size).transpose(1, 2) for x in (q, k, v, grad)]

    def cudnn() -> Tensor:
        return scaled_dot_product_attention(*dense[:3], is_causal=True, enable_gqa=True)

    def cudnn_both() -> None:
        leaves = [x.detach().requires_grad_() for x in dense[:3]]
        out = scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=True)
        torch.autograd.grad(out, leaves, dense[3])

    work = 2 * rows * heads * length * length * size  # half of a square, two products
    name = f"attention_{rows}x{length}_{size}"
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        for kind, way in (
            ("flash", flash), ("cudnn", cudnn), ("flash_both", flash_both),
            ("cudnn_both", cudnn_both),
        ):  # fmt: skip
            took = timed(lambda w=way: [w() for _ in range(CALLS)], 3) / CALLS
            rate = "" if "both" in kind else f", {work / took / 1e12:.0f} TFLOP/s"
            print(f"{name} {kind}: {1e3 * took:.3f} ms{rate}", flush=True)
            bench.results.add(f"{name}_{kind}", 1e3 * took, "ms")
