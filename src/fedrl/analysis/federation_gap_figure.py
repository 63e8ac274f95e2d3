"""The federation gap's figure: every client's terms beside its measured gap, and the angles.

Terms differ by many powers of ten, so the axis is logarithmic. There a stack shows what lies low in
it much too large; each client's terms are therefore stacked from its smallest to its largest, and a
term's upper edge is then about the term itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedrl.analysis.federation_gap import TERMS, WORDS, GapReport
from fedrl.report import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NUMBERED = 8
"""As many clients leave room for a number on every pair."""


def figure(report: GapReport) -> Figure:
    """Two panels: the terms, and the largest angle of every pair of clients."""
    import matplotlib

    result, (left, right) = plots.figure(2)
    if len(report.clients) <= NUMBERED:
        result.subplots_adjust(bottom=0.25)  # a second line under the ticks
    with matplotlib.rc_context(plots.STYLE):
        _terms(left, report)
        _angles(right, report)
        plots.legend(result, left)
    return result


def _terms(axes: Axes, report: GapReport) -> None:
    from matplotlib.ticker import NullLocator

    values = np.array([[getattr(gap, term) for term in TERMS] for gap in report.gaps])
    measured = np.array([gap.measured for gap in report.gaps])
    floor = _floor(measured)
    at = np.arange(len(values))
    order = values.argsort(axis=1)
    tops = np.take_along_axis(values, order, 1).cumsum(1)
    for index, term in enumerate(TERMS):
        place = (order == index).argmax(1)
        top = tops[at, place]
        base = np.where(place > 0, tops[at, np.maximum(place - 1, 0)], 0.0)
        # what reaches no higher than the axis begins has no place on it
        bottom, height = np.maximum(base, floor), np.maximum(top, floor) - np.maximum(base, floor)
        axes.bar(at, height, 0.72, bottom, color=plots.PALETTE[index], label=WORDS[term], lw=0)
    for colour, width, label in ((plots.PAPER, 4.5, "_"), (plots.INK, 2.2, "measured gap")):
        shown = np.maximum(measured, floor)
        axes.hlines(shown, at - 0.42, at + 0.42, color=colour, lw=width, label=label)
    axes.set_yscale("log")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(floor, 3 * max(values.sum(1).max(), measured.max(), 10 * floor))
    axes.set_title("terms of the bound, and the gap")
    ticks, few = _ticks(report), len(report.clients) <= NUMBERED
    names = [f"{report.clients[i]}" + f"\n{report.sizes[i]:,}" * few for i in ticks]
    axes.set_xticks(ticks, names)
    axes.set_xlabel("client, and its features D_i" if few else "client")
    axes.grid(visible=False, axis="x")


def _floor(measured: np.ndarray) -> float:
    """Where the axis begins: a power of ten below every measured gap."""
    least = measured[measured > 0].min(initial=1.0)
    return float(10 ** np.floor(np.log10(least / 3)))


def _angles(axes: Axes, report: GapReport) -> None:
    count = range(len(report.clients))
    degrees = np.array([[report.pair(i, j) for j in count] for i in count])
    axes.imshow(degrees, cmap="Blues", vmin=0, vmax=90)
    title = "largest principal angle of two clients"
    if len(report.clients) > NUMBERED:
        title = "largest angle of two clients: white 0°, dark 90°"
    else:
        for i in count:
            for j in count:
                dark = degrees[i, j] > 50
                axes.text(
                    j, i, "" if i == j else f"{degrees[i, j]:.0f}°", ha="center", va="center",
                    color=plots.PAPER if dark else plots.INK,
                )  # fmt: skip
    axes.set_title(title)
    at = _ticks(report)
    axes.set_xticks(at, [str(report.clients[i]) for i in at])
    axes.set_yticks(at, [str(report.clients[i]) for i in at])
    axes.set_xlabel("client")
    axes.grid(visible=False)


def _ticks(report: GapReport) -> list[int]:
    return list(range(0, len(report.clients), -(-len(report.clients) // NUMBERED)))
