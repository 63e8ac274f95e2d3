"""Figures of the momentum page, drawn from bands that records have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedrl.report import plots
from fedrl.report.method_colours import styles
from reproductions.momentum.parts import ERROR, METHODS, Found, Part, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CARTPOLE = (0.0, 100.0)
"""A step upright pays 1, and there are a hundred."""


def panel(
    title: str, cells: Mapping[str, Found], metric: str = "eval/return", log: bool = False
) -> plots.Panel:
    """Bands of cells by round, within what the task can give."""
    found = {name: one.band(metric) for name, one in cells.items()}
    x, means, halves = ({name: band[i] for name, band in found.items()} for i in range(3))
    lines = {name: mean[None] for name, mean in means.items()}
    worlds = {one.cell.recipe["world"]["name"] for one in cells.values()}
    possible = CARTPOLE if worlds == {"cartpole"} else (-np.inf, np.inf)
    return plots.Panel(
        title, "rounds", x, lines, log=log, halves=halves, styles=styles(lines), possible=possible
    )


def returns_and_norms(part: Part, kappa: str) -> Figure:
    """Table 2 at one κ, by round."""
    found = {f"β = {b}": part.found[f"beta={b},kappa={kappa}"] for b in part.axis("beta")}
    left = panel(f"average J, κ = {kappa}", found)
    return plots.curves([left, panel("‖∇J(θ)‖²", found, "eval/grad_norm_sq", log=True)])


def errors_by_agents(part: Part, beta: str) -> tuple[np.ndarray, np.ndarray]:
    """By agents, mean and half width over seeds of the direction's error."""
    cells = [part.found[f"N={n},beta={beta}"] for n in part.axis("clients")]
    mean, half = ([one.summary(ERROR, "mean", over) for one in cells] for over in ("mean", "half"))
    return np.array(mean), np.array(half)


def speedup(part: Part) -> Figure:
    sizes = [int(n) for n in part.axis("clients")]
    errors = {f"β = {beta}": errors_by_agents(part, beta) for beta in part.axis("beta")}
    lines = {name: mean[None] for name, (mean, _) in errors.items()}
    halves = {name: half for name, (_, half) in errors.items()}
    x = dict.fromkeys(lines, np.array(sizes))
    title = "error of the direction, ‖u − ∇J‖²"
    figure = plots.curves([plots.Panel(title, "agents N", x, lines, log=True, halves=halves)])
    figure.axes[0].set_xscale("log", base=2)
    figure.axes[0].set_xticks(sizes, [str(n) for n in sizes])
    return figure


def learner_curves(part: Part) -> Figure:
    panels = []
    for method, title in METHODS.items():
        lines = {"PAvg": part.found["pavg"]} | {
            f"β = {name.partition('=')[2]}": one
            for name, one in part.found.items()
            if name.startswith(method)
        }
        panels.append(panel(f"{title}: mean return", lines))
    return plots.curves(panels)


def agents(part: Part) -> Figure:
    """By the number of agents."""
    several = part.axis("clients")
    return plots.curves([
        panel(
            f"{title}: mean return",
            {f"N = {n}": part.found[f"{method} beta=0.2,N={n}"] for n in several},
        )
        for method, title in METHODS.items()
    ])  # fmt: skip


def rows(part: Part) -> Figure:
    """The momentum methods beside PAvg, and PAvg beside its rivals."""
    ours = [name for name in part.found if name.startswith(tuple(METHODS))]
    rivals = [name for name in part.found if name not in ours]
    panels = [
        panel(title, {shown(name): part.found[name] for name in names})
        for title, names in (("momentum: mean return", ["pavg", *ours]), ("rivals", rivals))
    ]
    return plots.curves(panels)
