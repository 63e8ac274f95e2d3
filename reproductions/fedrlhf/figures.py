"""FedRLHF's figures: learning curves, violins over clients, the trade-off, the bound, reviews."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedrl.report import plots
from reproductions.fedrlhf.results import OWN, PAPER, Found, clients_of, curve
from reproductions.fedrlhf.reviews import REWARDS, rounds_of, weights
from reproductions.fedrlhf.theory import column
from reproductions.records import Data
from reproductions.results import Trained

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAKY = "no evaluation: told labels, scored on the ratings it trained on"
GREY = "#8a8f99"
Lines = Mapping[str, tuple[str, str]]
"""A line's name: which method's runs, and which metric."""


ACCURACY: Lines = {
    "FedRLHF, global policy": ("fedrlhf", "eval/accuracy"),
    "FedRLHF, clients' own": ("fedrlhf", OWN),
    "told the labels (bandit), global": ("labels", "eval/accuracy"),
    "λ = 0, global": ("plain", "eval/accuracy"),
    "every client alone": ("independent", "eval/accuracy"),
    "centralized": ("centralized", "eval/accuracy"),
}
RANK: Lines = {
    name: (method, {"eval/accuracy": "eval/spearman", OWN: "personal/spearman"}[metric])
    for name, (method, metric) in ACCURACY.items()
}


def learning(found: Found, clients: int) -> Figure:
    """The paper's Figure 2 (and 8): accuracy and rank correlation by round, on held-out ratings.

    `found` are the runs by method.
    """
    import matplotlib

    figure, row = plots.figure(2, (5.4, 3.4))
    with matplotlib.rc_context(plots.STYLE):
        drawn(row[0], found, ACCURACY)
        leaky_line(row[0], found["labels"])
        majority_line(row[0], found["fedrlhf"])
        if clients == 10:
            paper_points(row[0])
        as_percent(row[0])
        row[0].set_title(f"K = {clients}: accuracy on held-out ratings")
        drawn(row[1], found, RANK)
        row[1].axhline(0, color=plots.INK, linewidth=0.7)
        row[1].set_title(f"K = {clients}: Spearman's correlation, held-out ratings")
        plots.legend(figure, row[0])
    return figure


def drawn(axes: Axes, found: Found, lines: Lines) -> None:
    bands(axes, {name: curve(found[method], metric, first=1)
                 for name, (method, metric) in lines.items()})  # fmt: skip
    axes.margins(x=0.03)
    whole_rounds(axes)


def leaky_line(axes: Axes, one: Trained) -> None:
    x, y = curve(one, "eval/train_accuracy", first=1)
    if y.size:
        axes.plot(x, y.mean(0), "--", color=GREY, linewidth=1.6, marker="x", label=LEAKY)
        stretch(axes, y.mean(0))


def majority_line(axes: Axes, one: Trained) -> None:
    _, y = curve(one, "eval/majority")
    if y.size:
        level = float(y[:, -1].mean())
        axes.axhline(level, color=plots.INK, linewidth=1.2, linestyle=":", label="majority class")
        stretch(axes, np.array([level]))


def paper_points(axes: Axes) -> None:
    """The two that the paper's text names, with its deviations over seeds."""
    (first, wide), (last, narrow) = PAPER["ratings"]["first"], PAPER["ratings"]["last"]
    y, spread = np.array([first, last]) / 100, np.array([wide, narrow]) / 100
    axes.errorbar(
        [1, 5], y, spread, fmt="D", color=plots.INK, markersize=4, capsize=3, linewidth=1,
        label="the paper's (± deviation)",
    )  # fmt: skip
    stretch(axes, np.concatenate([y - spread, y + spread]))


def stretch(axes: Axes, values: np.ndarray) -> None:
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, values.min() - 0.02), max(high, values.max() + 0.02))


def as_percent(axes: Axes) -> None:
    from matplotlib.ticker import PercentFormatter

    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def whole_rounds(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("rounds")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


# Violins


def violins(one: Trained, clients: int) -> Figure:
    """The paper's Figure 3 (and 9): the clients' own policies of all seeds, by round."""
    import matplotlib

    figure, row = plots.figure(2, (5.4, 3.2))
    with matplotlib.rc_context(plots.STYLE):
        for axes, metric, title in (
            (row[0], "personal/accuracy", "accuracy"),
            (row[1], "personal/spearman", "Spearman's correlation"),
        ):
            violin(axes, clients_by_round(one, metric))
            axes.set_title(f"K = {clients}: {title} by client, own policies")
            whole_rounds(axes)
        as_percent(row[0])
    return figure


def clients_by_round(one: Trained, metric: str) -> dict[int, np.ndarray]:
    """All clients of all seeds, by round."""
    found = {}
    for number in range(1, one.cell.rounds + 1):
        several = clients_of(one, metric, number).values()
        found[number] = np.array([value for told in several for value in told.values()])
    return {number: values for number, values in found.items() if len(values)}


def violin(axes: Axes, values: Mapping[int, np.ndarray]) -> None:
    """Shapes, the quartiles as a bar and the median as a dot."""
    if not values:
        return
    axes.violinplot(list(values.values()), list(values), widths=0.8, showextrema=False)
    for body in axes.collections:
        body.set(facecolor=plots.PALETTE[0], alpha=0.35, edgecolor="none")
    for number, some in values.items():
        low, middle, high = np.percentile(some, [25, 50, 75])
        axes.plot([number] * 2, [low, high], color=plots.PALETTE[0], linewidth=4, alpha=0.8)
        axes.plot(number, middle, "o", color=plots.PAPER, markersize=4, zorder=3)


# The trade-off


def tradeoff(
    lams: Sequence[float], measured: Mapping[str, np.ndarray], above: np.ndarray
) -> Figure:
    """P, J_g, accuracy and samples by λ; `measured[name]` and `above` (P above λ = 0's) are
    [seeds, λ]."""
    import matplotlib

    x = np.array(lams)
    some = x > 0
    figure, row = plots.figure(4, (3.9, 3.0))
    with matplotlib.rc_context(plots.STYLE):
        lines = {"P": measured["P"][:, some], "P − P(λ = 0)": above[:, some]}
        clear = {name: y for name, y in lines.items() if y.size and (y > 0).all()}
        plots.band_plot(row[0], x[some], clear, log=bool(clear))
        squares(row[0], x[some], lines["P"])
        log_axis(row[0], x[some])
        row[0].legend(fontsize=8.5, loc="lower right")
        row[0].set_title("personalization P")
        for axes, names, title in (
            (row[1], ("J_g", "own J⁰"), "intrinsic reward"),
            (row[2], ("accuracy", "own accuracy"), "accuracy, held-out"),
            (row[3], ("samples",), "steps to the target"),
        ):
            clear = {name: known(measured[name]) for name in names}
            plots.band_plot(axes, x, clear)
            if len(names) > 1:
                axes.legend(fontsize=8.5, loc="best")
            axes.set_title(title)
        as_percent(row[2])
        row[3].set_ylim(bottom=0)
        for axes in row:
            axes.set_xlabel("λ")
    return figure


def known(values: np.ndarray) -> np.ndarray:
    """Seeds in which everything is finite."""
    return values[np.isfinite(values).all(1)]


def squares(axes: Axes, x: np.ndarray, y: np.ndarray) -> None:
    """What theory draws, through the largest λ."""
    if y.size:
        top = float(y[:, -1].mean())
        line = top * (x / x[-1]) ** 2
        axes.plot(x, line, ":", color=plots.INK, linewidth=1.2, label="λ²")
        axes.set_ylim(bottom=min(y.min(), line.min()) / 1.5)


def log_axis(axes: Axes, x: np.ndarray) -> None:
    from matplotlib.ticker import NullFormatter, NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(x, [f"{one:g}" for one in x])


# The bound


def bound(groups: Mapping[str, Sequence[Data]]) -> Figure:
    """By λ."""
    import matplotlib

    figure, row = plots.figure(len(groups), (4.6, 3.2))
    with matplotlib.rc_context(plots.STYLE):
        for axes, (lam, same) in zip(row, groups.items(), strict=True):
            lines = {
                "mean of J(θ*) − J(θ_t), measured": column(same, "gap"),
                "‖∇J‖², measured": column(same, "slope"),
                "the paper's bound": column(same, "paper"),
                "repaired bound": column(same, "repaired"),
            }
            plots.band_plot(axes, column(same, "round")[0], lines, log=True)
            axes.set_title(f"λ = {lam}")
            axes.set_xlabel("rounds T")
        plots.legend(figure, row[0])
    return figure


# Reviews


def bands(axes: Axes, lines: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    plots.band_plot(
        axes, {n: x for n, (x, _) in lines.items()}, {n: y for n, (_, y) in lines.items()}
    )


def by_round(one: Trained) -> Figure:
    """The paper's Figure 5: a panel per client; round 0 is the model that all began with."""
    import matplotlib

    lams = weights(one)
    figure, row = plots.figure(len(lams), (3.2, 2.9))
    with matplotlib.rc_context(plots.STYLE):
        for client, (axes, lam) in enumerate(zip(row, lams, strict=True)):
            lines = {label: rounds_of(one, metric, client) for metric, label in REWARDS.items()}
            points = min((y.shape[1] for y in lines.values()), default=0)
            clear = {name: y[:, :points] for name, y in lines.items()}
            plots.band_plot(axes, np.arange(points), clear)
            axes.set_title(f"client {client}, λ = {lam:g}")
            whole_rounds(axes)
        level(row)
        plots.legend(figure, row[0])
    return figure


def level(row: Sequence[Axes]) -> None:
    """Panels of one figure on one scale."""
    low, high = min(a.get_ylim()[0] for a in row), max(a.get_ylim()[1] for a in row)
    for axes in row:
        axes.set_ylim(low, high)
