"""Pieces of a result page: numbers with intervals, computed verdicts, tables, pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedrl.report import plots


def number(samples: np.ndarray, digits: int = 3) -> str:
    mean, half = plots.interval(samples)
    if not np.isfinite(half):
        return f"{float(mean):.{digits}f}"
    return f"{float(mean):.{digits}f} ± {float(half):.{digits}f}"


def verdict(ours: np.ndarray, base: np.ndarray, digits: int = 2) -> str:
    """Better or worse than the baseline, by the 95% interval of paired differences.

    An interval with 0 in it decides nothing: that there is no difference would need a narrow one.
    """
    gap, half = (float(x) for x in plots.interval(ours - base))
    if not np.isfinite(half):
        return f"{gap:+.{digits}f} (one seed)"
    word = "better" if gap - half > 0 else "worse" if gap + half < 0 else "undecided"
    return f"{word} ({gap:+.{digits}f} ± {half:.{digits}f})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def missing(title: str) -> str:
    return f"## {title}\n\nNot measured at this scale yet."


def picture(figure: Any, folder: Path, name: str, alt: str) -> str:
    plots.save(figure, folder / f"{name}.png", dpi=110)
    return f"![{alt}]({folder.name}/{name}.png)"


def panel(
    title: str, x_label: str, x: np.ndarray, lines: Mapping[str, np.ndarray], log: bool = False
) -> plots.Panel:
    """Curves over the same points."""
    return plots.Panel(title, x_label, dict.fromkeys(lines, x), lines, log=log)
