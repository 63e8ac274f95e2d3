"""FedQHD's figures: learning curves, errors by D and by m, policies by their error, clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedrl.report import plots
from fedrl.report.method_colours import styles
from reproductions.fedqhd.plan import ENCODERS
from reproductions.fedqhd.results import Results, ended
from reproductions.results import BySeed, Trained, curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RETURN = "train/return"
Errors = Mapping[str, Mapping[int, np.ndarray]]
"""Lines of errors [draws], by D or m; the first is the paper's."""
LINES = 5
"""Curves in a panel of runs that differ in one size."""
POSSIBLE = {"cartpole": (0.0, 500.0), "acrobot": (-500.0, 0.0), "mountaincar": (-200.0, 0.0)}
"""Returns of an episode, where the task bounds them."""
FREE = (-np.inf, np.inf)


def learning(results: Results, task: str) -> Figure:
    """The paper's Figure 2 for one task: mean return of a round's episodes, all methods that are
    at their best."""
    import matplotlib

    found, plan = results.parts["table"], results.plan
    methods = {name: about for name, about in plan.methods.items() if about.space}
    style = styles(about.title for about in methods.values())
    figure, row = plots.figure(len(ENCODERS))
    with matplotlib.rc_context(plots.STYLE):
        for axes, encoders in zip(row, ENCODERS, strict=True):
            x, lines = {}, {}
            for method, about in methods.items():
                name = plan.learner(method, encoders)
                again = method != "fedqhd" and name == f"fedqhd-{encoders}"
                runs = [] if name is None or again else [found[f"{task}-{name}"]]
                x[about.title], lines[about.title] = returns(runs)
            plots.band_plot(axes, x, lines, possible=POSSIBLE.get(task, FREE), styles=style)
            whole_rounds(axes)
            axes.set_title(f"{plan.tasks[task]}, {encoders} encoder{'s' * (encoders == 'own')}")
        for about in methods.values():  # those that the first panel has not
            colour, dash = plots.line_style(style[about.title])
            if about.title not in row[0].get_legend_handles_labels()[1]:
                row[0].plot([], [], dash, color=colour, linewidth=1.6, label=about.title)
        plots.legend(figure, row[0])
    return figure


def returns(cells: Sequence[Trained]) -> tuple[np.ndarray, np.ndarray]:
    if not cells or not all(one.runs for one in cells):
        return np.empty(0), np.empty((0, 0))
    return curve(cells, RETURN, cells[0].cell.rounds)


def thinned(several: Sequence[int]) -> list[int]:
    """At most LINES of them, the first and the last included."""
    chosen = np.linspace(0, len(several) - 1, min(LINES, len(several)))
    return [several[round(float(i))] for i in chosen]


def dimension(results: Results, errors: Errors, gaps: Mapping[int, Sequence[float]]) -> Figure:
    """The paper's Figure 1: curves by D, error by D, policy gap by error."""
    import matplotlib

    found, sizes = results.parts["dimension"], results.plan.sizes
    runs = {d: found[f"D{d}-m{sizes.ratio * d}"] for d in sizes.dimensions}
    figure, row = plots.figure(3)
    with matplotlib.rc_context(plots.STYLE):
        curves_by_size(row[0], {f"D = {d}": runs[d] for d in thinned(list(runs))})
        error_panel(row[1], errors, "D")
        reference(row[1], errors)
        finish_legend(row[1])
        gap_panel(row[2], next(iter(errors.values()), {}), gaps)
    return figure


def anchors(results: Results, errors: Errors) -> Figure:
    """The paper's Figure 3: curves by m, error by m with m = D marked, return by m."""
    import matplotlib

    found, fixed = results.parts["anchors"], results.plan.sizes.fixed
    runs = {m: found[f"D{fixed}-m{m}"] for m in results.plan.sizes.trained_anchors}
    figure, row = plots.figure(3)
    with matplotlib.rc_context(plots.STYLE):
        curves_by_size(row[0], {f"m = {m}": one for m, one in runs.items()})
        error_panel(row[1], errors, "m", log=False)
        mark(row[1], fixed)
        finish_legend(row[1])
        ends = {m: by for m, one in runs.items() if (by := ended(one))}
        seeds = sorted(set.intersection(*(set(by) for by in ends.values()))) if ends else []
        if seeds:
            values = np.array([[ends[m][seed] for m in ends] for seed in seeds])
            plots.band_plot(
                row[2], np.array(list(ends)), {"return": values}, possible=POSSIBLE["cartpole"]
            )
            log_sizes(row[2], list(ends))
            mark(row[2], fixed)
        row[2].set_title("return, last 100 episodes")
        row[2].set_xlabel("m")
    return figure


def curves_by_size(axes: Axes, lines: Mapping[str, Trained]) -> None:
    x, y = {}, {}
    for name, one in lines.items():
        x[name], y[name] = returns([one])
    plots.band_plot(axes, x, y, possible=POSSIBLE["cartpole"])
    axes.set_title("return by round")
    whole_rounds(axes)
    finish_legend(axes)


def whole_rounds(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("rounds")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def error_panel(axes: Axes, errors: Errors, symbol: str, log: bool = True) -> None:
    """Errors against a size. Where a line falls to rounding, a logarithm would hide the others."""
    x = {name: np.array(list(by)) for name, by in errors.items()}
    lines = {name: np.stack(list(by.values()), 1) for name, by in errors.items()}
    axes.set_title("|Q̂ − compiled| on held-out states")
    axes.set_xlabel(symbol)
    if lines:
        plots.band_plot(axes, x, lines, log=log)
        log_sizes(axes, [int(size) for size in next(iter(x.values()))])


def reference(axes: Axes, errors: Errors) -> None:
    """The line that theory draws, through the middle of the first errors."""
    by = next(iter(errors.values()), {})
    if not by:
        return
    x = np.array(list(by), float)
    level = np.log([values.mean() for values in by.values()]) + 0.5 * np.log(x)
    axes.plot(
        x, np.exp(level.mean()) * x**-0.5, ":", color=plots.INK, linewidth=1.2, label="D^(−1/2)"
    )


def gap_panel(
    axes: Axes, errors: Mapping[int, np.ndarray], gaps: Mapping[int, Sequence[float]]
) -> None:
    """What a greedy policy loses against its error: a point per D, with both intervals."""
    for index, (size, lost) in enumerate(gaps.items()):
        if not lost or size not in errors:
            continue
        (x, wide), (y, high) = (plots.interval(np.array(v)) for v in (errors[size], lost))
        colour, _ = plots.line_style(index)
        high, wide = np.nan_to_num(high), np.nan_to_num(wide)
        axes.errorbar(x, y, high, wide, fmt="o", color=colour, markersize=4, linewidth=1)
        axes.annotate(str(size), (x, y), textcoords="offset points", xytext=(5, 4), fontsize=8.5)
    axes.axhline(0, color=plots.INK, linewidth=0.7)
    axes.set_title("return that the greedy policy loses, by D")
    axes.set_xlabel("largest error")


def mark(axes: Axes, size: int) -> None:
    axes.axvline(size, color=plots.INK, linestyle=":", linewidth=1.2, label="m = D")


def log_sizes(axes: Axes, sizes: Sequence[int]) -> None:
    """A logarithmic axis with some of the sizes themselves on it."""
    from matplotlib.ticker import NullFormatter, NullLocator

    shown = thinned(sorted(sizes))
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(shown, [str(size) for size in shown])


def finish_legend(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8.5, loc="best")


def clients(
    results: Results, ends: Mapping[str, Mapping[int, BySeed]], solved: Mapping[str, float]
) -> Figure:
    """The paper's Figure 4: the last episodes' return by N, a panel per task, with a line where the
    task is solved."""
    import matplotlib

    figure, row = plots.figure(len(ends))
    with matplotlib.rc_context(plots.STYLE):
        for axes, (task, by) in zip(row, ends.items(), strict=True):
            by = {n: values for n, values in by.items() if values}
            seeds = set.intersection(*(set(values) for values in by.values())) if by else set()
            if seeds:
                values = np.array([[by[n][seed] for n in by] for seed in sorted(seeds)])
                plots.band_plot(
                    axes, np.array(list(by)), {"return": values}, possible=POSSIBLE.get(task, FREE)
                )
                log_sizes(axes, list(by))
            axes.axhline(
                solved[task], color=plots.INK, linestyle=":", linewidth=1.2, label="solved"
            )
            axes.legend(fontsize=8.5, loc="best")
            recent = results.plan.sizes.recent
            axes.set_title(f"{results.plan.tasks[task]}: return of the last {recent} episodes")
            axes.set_xlabel("clients N")
    return figure
