"""The figure of a world: what every rule keeps under every attack, as two maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fedrl.report import plots
from reproductions.robustness.shares import CLEAN, LINE, Board, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (4.9, 3.6)
DARK = 0.55
"""From this share on a cell is so dark that its number is written in white."""


def maps(board: Board) -> Figure:
    """Left what is kept of the clean result, right of its gain over the start."""
    import matplotlib

    figure, row = plots.figure(2, SIZE)
    with matplotlib.rc_context(plots.STYLE):
        _map(row[0], board, board.kept, f"{board.title}: kept of the clean result, %")
        _map(row[1], board, board.gained, "kept of what the clean run learned, %")
        row[1].set_yticklabels([])
        figure.subplots_adjust(wspace=0.06, left=0.2)
    return figure


def _map(axes: Axes, board: Board, share: Callable[[str, str], float], title: str) -> None:
    columns = (CLEAN, *board.attacks)
    values = np.array([[share(rule, attack) for attack in columns] for rule in board.rules])
    axes.imshow(np.clip(values, 0, 1), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        axes.text(
            j, i, str(percent(value)) if np.isfinite(value) else "–", ha="center", va="center",
            color=plots.PAPER if value > DARK else plots.INK,
            fontweight="bold" if value >= LINE else "normal",
        )  # fmt: skip
    axes.set_title(title)
    axes.set_xticks(range(len(columns)), ["nobody lies", *board.attacks], rotation=35, ha="right")
    axes.set_yticks(range(len(board.rules)), list(board.rules))
    for between in np.arange(len(columns) - 1) + 0.5:
        axes.axvline(between, color=plots.PAPER, linewidth=5 if between < 1 else 1)
    for between in np.arange(len(board.rules) - 1) + 0.5:
        axes.axhline(between, color=plots.PAPER, linewidth=1)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set_visible(False)
