"""Clocks, peaks of this machine, and what the kernels of a piece of work took."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")
DTYPE = torch.bfloat16 if GPU else torch.float32


def now() -> float:
    if GPU:
        torch.cuda.synchronize()
    return time.perf_counter()


def seconds(work: Callable[[], Any]) -> float:
    start = now()
    work()
    return now() - start


def timed(work: Callable[[], Any], repeats: int) -> float:
    """The median, after a first time that compiles and captures."""
    work()
    return statistics.median(seconds(work) for _ in range(repeats))


def peaks() -> tuple[float, float]:
    """Bytes/s of a copy (read and written) and FLOP/s of a matrix product, of this machine."""
    size, side = (2**30, 8192) if GPU else (2**24, 256)
    a = torch.randn(size // 4, device=DEVICE)
    b = torch.empty_like(a)
    copied = timed(lambda: [b.copy_(a) for _ in range(10)], 3) / 10
    m = torch.randn(side, side, device=DEVICE).to(DTYPE)
    multiplied = timed(lambda: [m @ m for _ in range(10)], 3) / 10
    return 2 * size / copied, 2 * side**3 / multiplied


def kernels(work: Callable[[], Any], title: str, most: int = 12) -> None:
    """The kernels (without a GPU: the operations) that took longest."""
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CUDA] if GPU else [kinds.CPU]) as profiler:
        wall = seconds(work)
    events = [
        (e.self_device_time_total if GPU else e.self_cpu_time_total, e.count, e.key)
        for e in profiler.key_averages()
    ]
    total = sum(event[0] for event in events) or 1.0
    print(f"\n{title}: {total / 1e3:.1f} ms in kernels, {1e3 * wall:.1f} ms by the clock")
    for took, count, name in sorted(events, reverse=True)[:most]:
        print(f"  {took / 1e3:9.2f} ms {100 * took / total:5.1f}% {count:6d}×  {name[:90]}")
    print(flush=True)


def activity(work: Callable[[], Any]) -> tuple[float, float, int, float]:
    """(seconds by the clock, seconds in kernels, kernels, seconds in which the GPU had none)."""
    clock = seconds(work)
    if not GPU:
        return clock, clock, 0, 0.0
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CUDA]) as profiler:
        seconds(work)
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in profiler.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    )
    busy, reached = 0.0, float("-inf")
    for start, end in spans:
        busy += max(end - max(start, reached), 0.0)
        reached = max(reached, end)
    return clock, busy / 1e6, len(spans), max(clock - busy / 1e6, 0.0)
