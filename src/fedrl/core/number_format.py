"""Numbers, durations and metrics in words, the same on a terminal, in a figure and on a page."""

from __future__ import annotations

import math
from collections.abc import Sequence

WORDS = {
    "eval": "evaluation",
    "train": "training",
    "success": "success rate",
    "failed_so_far": "failed clients so far",
    "grad_norm_sq": "squared gradient norm ‖∇J‖²",
    "grad_norm": "gradient norm ‖∇J‖",
    "direction_error": "error of the direction ‖u − ∇J‖²",
    "weight_mean": "mean importance weight",
    "weight_var": "variance of the weights",
    "weight_clipped": "share of weights clipped",
    "return_min": "return of the worst client",
    "return_own": "return on the client's own task",
    "ratio_far": "share of ratios outside the clip range",
    "drift": "KL to the policy that played",
    "invalid": "share of answers not well formed",
    "no_think": "share of answers that chose without reasoning",
    "no_act": "share of episodes without any command",
    "truncated": "share of episodes cut off by the step limit",
    "zero_advantage": "share of tasks whose episodes all went alike",
    "kl": "KL to the reference model",
    "return_last100": "return over the last 100 episodes",
}


TITLES = {"fedagent": "FedAgent", "fedrlhf": "FedRLHF", "fedrlhf-text": "FedRLHF on texts"}
"""Methods whose name for people is not their name in a recipe."""


def is_share(metric: str) -> bool:
    """Shares of one are shown in percent."""
    name = metric.partition("/")[2]
    return name == "success" or name.startswith("success_") or name.endswith("_success")


def si(value: float, unit: str = "", digits: int = 3) -> str:
    """`1.2M`, `3.4 MB`, `0.012`: three digits, and a prefix only where it shortens."""
    if not math.isfinite(value):
        return "NaN"
    scale, prefix = prefix_of(abs(value), unit)
    text = f"{value / scale:.{digits}g}"
    if "e" in text and abs(value) >= 1:
        text = f"{value / scale:.0f}"
    return f"{text} {prefix}{unit}" if unit else f"{text}{prefix}"


def data_size(count: int) -> str:
    """Bytes one by one up to a megabyte, `19.7 MB` from there on."""
    return f"{count:,} bytes" if count < 1e6 else si(count, "B")


def prefix_of(size: float, unit: str) -> tuple[float, str]:
    """The scale and the SI prefix that a number of this size is written with."""
    smallest = 1e3 if unit else 1e4  # bare numbers up to 9,999 read better as they are
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        # What rounds up to the next prefix takes it: 999,999 is 1M and not 1000k.
        if size >= max(smallest, scale) * (1 - 5e-4):
            return scale, prefix
    return 1.0, ""


def plus_minus(mean: float, half: float, percent: bool = False) -> str:
    """`478 ± 12`, `47.8 ± 1.2%`: as many digits as the half width can carry; NaN is no width."""
    sign = "%" if percent else ""
    if not math.isfinite(mean):
        return "NaN"
    if not math.isfinite(half):
        return f"{mean:.1f}%" if percent else si(mean, digits=4)
    if half == 0 or abs(mean) < 1e-3:
        return f"{mean:.4g} ± {half:.2g}{sign}"
    decimals = max(0, (0 if percent else 1) - math.floor(math.log10(half)))
    return f"{mean:,.{decimals}f} ± {half:,.{decimals}f}{sign}"


def counted(number: int, word: str) -> str:
    """`1 step`, `3 steps`."""
    return f"{number} {word}" + ("" if number == 1 else "s")


def number_ranges(numbers: Sequence[int]) -> str:
    """`3, 7–9, 12` of sorted numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)


def sentence_case(text: str) -> str:
    """With a capital first letter, the others as they are."""
    return text[:1].upper() + text[1:]


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def label(metric: str) -> str:
    part, _, name = metric.partition("/")
    words = WORDS.get(name, name.replace("_", " "))
    if name.startswith("success_"):
        words = f"success rate: {name.removeprefix('success_').replace('_', ' ')}"
    return words if part in ("eval", "cohort") else f"{words} ({WORDS.get(part, part)})"
