"""FedRLHF's figures of reviews: rewards and losses of clients and of the global model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedrl.report import plots
from fedrl.report.method_colours import styles
from reproductions.fedrlhf.figures import whole_rounds
from reproductions.fedrlhf.results import PAPER, Found, curve
from reproductions.fedrlhf.reviews import NAMES, rounds_of, samples, weights
from reproductions.results import Trained

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PARTS = {
    "train/policy_loss": "policy's loss",
    "train/value_loss": "critic's loss",
    "train/kl_loss": "KL penalty's loss",
    "train/loss": "whole loss",
}
"""Of PPO, in training."""


def by_round(one: Trained) -> Figure:
    """The paper's Figures 4a and 10: clients' own policies and the global one, held-out prompts."""
    import matplotlib

    figure, row = plots.figure(2, (4.6, 3.2))
    with matplotlib.rc_context(plots.STYLE):
        for axes, metric, title in ((row[0], "reward", "reward"), (row[1], "loss", "loss")):
            lines = {f"client {k}, λ = {lam:g}": rounds_of(one, metric, k)
                     for k, lam in enumerate(weights(one))}  # fmt: skip
            points = min((y.shape[1] for y in lines.values()), default=0)
            plots.band_plot(axes, np.arange(points), {n: y[:, :points] for n, y in lines.items()},
                            possible=(0.0, np.inf))  # fmt: skip
            x, y = curve(one, f"eval/{metric}")
            if y.size:
                axes.plot(x, y.mean(0), "--", color=plots.INK, linewidth=1.6, label="global model")
            axes.set_title(f"{title}, held-out prompts")
            whole_rounds(axes)
        plots.legend(figure, row[0])
    return figure


def by_samples(found: Found) -> Figure:
    """The paper's Figures 4b and 11: reward and loss of both by texts written."""
    import matplotlib

    figure, row = plots.figure(2, (4.6, 3.0))
    with matplotlib.rc_context(plots.STYLE):
        for axes, metric, title in (
            (row[0], "eval/reward", "global mean reward"),
            (row[1], "eval/loss", "loss of the global model, held-out prompts"),
        ):
            lines = {NAMES[name]: samples(found[name], metric)
                     for name in ("fedrlhf", "centralized")}  # fmt: skip
            bands(axes, lines)
            axes.set_title(title)
            axes.locator_params(axis="x", nbins=5)
            axes.set_xlabel("texts written in training")
            crossing = PAPER["reviews"]["samples"]
            if any((x > crossing).any() for x, _ in lines.values()):
                axes.axvline(crossing, color=plots.INK, linestyle=":", linewidth=1)
                axes.set_xlabel("texts written in training (dotted: the paper's crossing)")
        plots.legend(figure, row[0])
    return figure


def bands(
    axes: Axes, lines: Mapping[str, tuple[np.ndarray, np.ndarray]], least: float = 0.0
) -> None:
    """Every method in its own colour; nothing below what is possible."""
    plots.band_plot(
        axes, {name: x for name, (x, _) in lines.items()},
        {name: y for name, (_, y) in lines.items()},
        possible=(least, np.inf), styles=styles(list(lines)),
    )  # fmt: skip


def in_training(found: Found) -> Figure:
    """PPO's losses in training, by round."""
    import matplotlib

    figure, row = plots.figure(len(PARTS), (3.4, 2.8))
    with matplotlib.rc_context(plots.STYLE):
        for axes, (metric, title) in zip(row, PARTS.items(), strict=True):
            bands(axes, {NAMES[name]: curve(found[name], metric, first=1)
                         for name in ("fedrlhf", "centralized")}, -np.inf)  # fmt: skip
            axes.set_title(title)
            whole_rounds(axes)
        plots.legend(figure, row[0])
    return figure
