"""Figures: curves with bands over seeds, in one style.

Figures are made without pyplot, so that nothing global changes and no window can ever open, and
matplotlib is imported only when something is drawn. A figure's colours are those of `PALETTE`;
inside a page (`as_data_uri`) they follow the reader's light or dark setting.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedrl.core.intervals import interval
from fedrl.core.number_format import prefix_of, si

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's colours for every kind of colour vision, less those that white paper swallows."""
PALETTE_DARK = ("#4aa8e8", "#f58a3c", "#2fc796", "#e29bc4", "#f2b632", "#8fd0f5")
DASHES = ("-", "--", ":", "-.")
"""Once every colour is taken the next lines are dashed."""

INK, FAINT, PAPER = "#1f2430", "#d5d9e0", "#ffffff"
INK_DARK, FAINT_DARK = "#e4e7ee", "#3a404c"
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"

STYLE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "text.color": INK,
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.titley": 1.0,  # where it always is: looking for the place takes a fifth of the time
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: sharp, selectable and in the reader's own font
    "svg.hashsalt": "fedrl",  # the same figure is the same bytes
}
ASIDE = 0.012
"""Of an axis, between points of lines that were measured at the same x."""
IN_A_ROW = 3
"""Panels of a figure, at most."""
PANEL_SIZE = (4.3, 2.9)
"""Inches of one panel, margins included."""


@dataclass(frozen=True)
class Panel:
    """One set of axes: curves `lines[name]` [seeds, points] at `x[name]` [points]."""

    title: str
    x_label: str
    x: Mapping[str, np.ndarray]
    lines: Mapping[str, np.ndarray]
    x_unit: str = ""
    log: bool = False
    share: bool = False  # of one: the axis is in percent
    start: float | None = None  # what there was before training: a dotted line
    halves: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Half widths [points] of lines that are means already, with one row each."""
    possible: tuple[float, float] = (-np.inf, np.inf)  # no band leaves it
    styles: Mapping[str, int] = field(default_factory=dict)  # of lines, not by their order
    points: bool = False  # nothing is known between two x: points with bars, dotted in between


def _tick_labels(axis: Axis, unit: str = "", share: bool = False) -> None:
    """Ticks with one prefix for the whole axis and just the decimals that tell them apart."""
    from matplotlib.ticker import Formatter

    class Together(Formatter):
        def __call__(self, value: float, pos: int | None = None) -> str:
            return si(value, unit)

        def format_ticks(self, values: Any) -> list[str]:
            low, high = sorted(axis.get_view_interval())
            ticks = np.array([value for value in values if low <= value <= high])
            largest = float(np.abs(ticks).max(initial=0.0))
            scale, prefix = (0.01, "%") if share else prefix_of(largest, unit)
            ticks = ticks / scale
            slack = np.ptp(ticks) / 1000 if len(ticks) > 1 else 0.01
            exact = (d for d in range(7) if np.allclose(ticks, ticks.round(d), 0, slack))
            decimals, space = next(exact, 7), " " if unit else ""
            if decimals > 5:  # so many zeros would leave the page
                return [f"{value:.2g}".replace("e-0", "e-") if value else "0" for value in values]
            return [
                f"{value / scale:.{decimals}f}{space}{prefix}{unit}" if value else "0"
                for value in values
            ]

    axis.set_major_formatter(Together())


def _log_axis(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

    def power(value: float, position: int | None = None) -> str:
        del position
        return "10" + str(round(math.log10(value))).translate(raised)

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_minor_formatter(NullFormatter())
    if high / low >= 100:
        axes.yaxis.set_major_locator(LogLocator(numticks=7))
        axes.yaxis.set_major_formatter(FuncFormatter(power))
    else:  # powers of ten alone would leave the axis with one number on it
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=7))
        _tick_labels(axes.yaxis)


def figure(
    panels: int = 1, size: tuple[float, float] = PANEL_SIZE, in_a_row: int | None = None
) -> tuple[Figure, list[Axes]]:
    """Empty axes in the house style, `in_a_row` at most or all of them, with fixed margins: figures
    on a page line up."""
    import matplotlib
    from matplotlib.figure import Figure

    columns = min(panels, in_a_row or panels)
    rows = math.ceil(panels / columns)
    width, height = size[0] * columns, size[1] * rows
    with matplotlib.rc_context(STYLE):
        result = Figure(figsize=(width, height))
        found = [*result.subplots(rows, columns, squeeze=False).flat]
        for empty in found[panels:]:
            empty.remove()
        result.subplots_adjust(
            left=0.66 / width,
            right=1 - 0.20 / width,
            bottom=0.52 / height,
            top=1 - 0.38 / height,
            wspace=0.86 / (size[0] - 0.86),
            hspace=0.90 / (size[1] - 0.90),
        )
    return result, found[:panels]


def line_style(index: int) -> tuple[str, str]:
    """Colour and dashes of the `index`-th line of every figure."""
    return PALETTE[index % len(PALETTE)], DASHES[index // len(PALETTE) % len(DASHES)]


def band(
    samples: np.ndarray,
    log: bool = False,
    half: np.ndarray | None = None,
    possible: tuple[float, float] = (-np.inf, np.inf),
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over seeds [points], and where its 95% band begins and ends: NaN where there is none.

    `half` is the half width of what is a mean already.
    """
    mean, over_seeds = interval(samples)
    told = half is not None
    half = over_seeds if half is None else half
    low, high = np.maximum(mean - half, possible[0]), np.minimum(mean + half, possible[1])
    if log:  # a lower end at or below zero has no place on the axis: stop at the lowest seed
        lowest = np.min(samples, axis=0)
        low = np.where(low > 0, low, lowest) if told else np.maximum(low, lowest)
    there = np.isfinite(half)
    return mean, np.where(there, low, np.nan), np.where(there, high, np.nan)


def room_around(values: np.ndarray) -> tuple[float, float] | None:
    """Where an axis ends at the latest, however wide a band is: half as far again as values go."""
    if not values.size or values.min() == values.max():
        return None
    room = (values.max() - values.min()) / 2
    return float(values.min() - room), float(values.max() + room)


def band_plot(
    axes: Axes,
    x: ArrayLike | Mapping[str, ArrayLike],
    lines: Mapping[str, np.ndarray],
    *,
    log: bool = False,
    halves: Mapping[str, np.ndarray] | None = None,
    possible: tuple[float, float] = (-np.inf, np.inf),
    styles: Mapping[str, int] | None = None,
    points: bool = False,
) -> None:
    """The mean over seeds and its 95% band of every line [seeds, points]; one seed has no band.
    `points` are drawn with bars instead.

    `x` is shared, or given per line. A line without points is not drawn but keeps its colour, so
    that a name has the same colour in every panel. The axis follows the bands to half as far again
    as the seeds went: the band of two seeds, 12.7 standard errors, would press every curve flat.
    No band leaves what is `possible`. `styles` has lines whose style does not go by their order.
    """
    alpha = 0.2 if len(lines) <= 4 else 0.12
    seen = [np.empty(0)]
    for index, (name, samples) in enumerate(lines.items()):
        if not np.size(samples):
            continue
        colour, dash = line_style((styles or {}).get(name, index))
        at = np.asarray(x[name] if isinstance(x, Mapping) else x, dtype=float)
        mean, low, high = band(samples, log, (halves or {}).get(name), possible)
        seen.append(np.ravel(samples)[np.isfinite(np.ravel(samples))])
        if points:
            ends = np.nan_to_num([mean - low, high - mean])
            axes.errorbar(at + _aside(index, len(lines), x), mean, ends, color=colour, label=name,
                          linewidth=1, linestyle=":", marker="o", markersize=4, capsize=3,
                          elinewidth=1.6)  # fmt: skip
            continue
        if np.isfinite(low).any():
            axes.fill_between(at, low, high, color=colour, alpha=alpha, linewidth=0)
        marker = "o" if len(at) == 1 else ""
        axes.plot(at, mean, dash, color=colour, linewidth=1.6, label=name, marker=marker)
    axes.margins(x=0.06 if points else 0.01)
    if log:
        _log_axis(axes)
        return
    if (room := room_around(np.concatenate(seen))) is not None:
        bottom, top = axes.get_ylim()
        axes.set_ylim(max(bottom, room[0]), min(top, room[1]))
    _tick_labels(axes.yaxis)


def _aside(index: int, count: int, x: ArrayLike | Mapping[str, ArrayLike]) -> float:
    """How far a line's points stand beside their x, so that no bar hides another."""
    every = [*x.values()] if isinstance(x, Mapping) else [x]
    return (index - (count - 1) / 2) * ASIDE * float(np.ptp(np.concatenate(every)))


def legend(figure: Figure, *row: Axes) -> None:
    """Names under the panels, in as many columns as fit: never on top of a curve."""
    every = [pair for axes in row for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    found = {name: handle for handle, name in reversed(every)}
    names = list(dict.fromkeys(name for _, name in every))
    handles = [found[name] for name in names]
    letters_per_inch = 13
    width = figure.get_figwidth() * letters_per_inch
    columns = max(1, min(len(names), int(width / (max(map(len, names), default=0) + 6))))
    figure.legend(
        handles, names, loc="upper left", bbox_to_anchor=(0.0, 0.0), ncols=columns, fontsize=9.5
    )


def curves(panels: Sequence[Panel], *, names: bool = True) -> Figure:
    """Panels in rows; with `names`, a legend under them where there is more than one line."""
    import matplotlib
    from matplotlib.ticker import MaxNLocator

    result, row = figure(len(panels), in_a_row=IN_A_ROW)
    with matplotlib.rc_context(STYLE):
        for axes, panel in zip(row, panels, strict=True):
            if panel.start is not None:
                axes.axhline(panel.start, color=INK, linestyle=":", linewidth=1, label="round 0")
            possible = (0.0, 1.0) if panel.share else panel.possible
            band_plot(
                axes, panel.x, panel.lines, log=panel.log, halves=panel.halves, possible=possible,
                styles=panel.styles, points=panel.points,
            )  # fmt: skip
            if panel.share:
                axes.set_ylim(max(axes.get_ylim()[0], -0.02), min(axes.get_ylim()[1], 1.02))
                _tick_labels(axes.yaxis, share=True)
            axes.set_title(panel.title)
            axes.set_xlabel(panel.x_label)
            whole = all((x == x.round()).all() for x in panel.x.values())
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=whole))
            _tick_labels(axes.xaxis, panel.x_unit)
        if names and max(len(axes.get_legend_handles_labels()[1]) for axes in row) > 1:
            legend(result, *row)
    return result


def save(figure: Figure, path: Path, dpi: int = 160) -> None:
    """The figure as a file of the kind that the path's ending names, legend included; drawn again,
    a vector file is the same to the byte."""
    import matplotlib

    path.parent.mkdir(parents=True, exist_ok=True)
    undated = {"Date": None} if path.suffix == ".svg" else None
    with matplotlib.rc_context(STYLE):
        figure.savefig(path, dpi=dpi, bbox_inches="tight", pad_inches=0.12, metadata=undated)


def as_data_uri(figure: Figure) -> str:
    """The figure as an SVG for `<img src=…>`, with the page's fonts and light or dark colours."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context(STYLE):
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace("'DejaVu Sans'", FONTS)
    light = (*PALETTE, INK, FAINT)
    dark = (*PALETTE_DARK, INK_DARK, FAINT_DARK)
    for index, colour in enumerate(light):
        svg = svg.replace(colour, f"var(--c{index})")
    rules = _variables(light) + f"@media(prefers-color-scheme:dark){{{_variables(dark)}}}"
    head, mark, rest = svg.partition("<defs>")
    svg = f"{head}<style>{rules}</style>{mark}{rest}"
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _variables(colours: Sequence[str]) -> str:
    return "svg{" + "".join(f"--c{index}:{colour};" for index, colour in enumerate(colours)) + "}"
