"""FedAgent's figures: success by local epochs and by episodes, and the clients behind a curve."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedrl.report import plots
from fedrl.runs.read import Run
from reproductions.fedagent.claims import SUCCESS
from reproductions.results import Runs, Trained, curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def groups(found: Runs) -> dict[str, list[Trained]]:
    """The lines of a comparison; the clients that learn alone are one line."""
    alone = [one for name, one in found.items() if name.startswith("local-")]
    lines = {"FedAgent": [found["fedagent"]], "Centralized": [found["centralized"]]}
    return lines | {"Local (mean)": alone}


def percent(several: Sequence[Trained], rounds: int) -> tuple[np.ndarray, np.ndarray]:
    at, success = curve(several, SUCCESS, rounds)
    return at, 100 * success


def both_views(found: Runs) -> Figure:
    """Over local epochs, and over the episodes that all clients have played."""
    rounds = found["fedagent"].cell.rounds
    epochs, episodes, left, right = {}, {}, {}, {}
    for name, several in groups(found).items():
        one = several[0]
        at, left[name] = percent(several, rounds)
        epochs[name] = at * one.cell.local_epochs
        at, right[name] = percent(several, one.cell.rounds)
        episodes[name] = one.episodes(at)
    return plots.curves([
        plots.Panel("success on unseen tasks, %", "local epochs", epochs, left),
        plots.Panel("the same, by rollouts", "episodes played", episodes, right),
    ])  # fmt: skip


def sides(panels: Mapping[str, Runs], rounds: int) -> Figure:
    """A panel per setting, each with its own legend; lines that went further end at `rounds`."""
    import matplotlib

    figure, row = plots.figure(len(panels))
    with matplotlib.rc_context(plots.STYLE):
        for axes, (title, lines) in zip(row, panels.items(), strict=True):
            x, y = {}, {}
            for name, one in lines.items():
                end = rounds if one.cell.part == "main" else one.cell.rounds
                at, y[name] = percent([one], end)
                x[name] = at * one.cell.local_epochs
            plots.band_plot(axes, x, y)
            axes.set_ylim(max(0, axes.get_ylim()[0]), min(100, axes.get_ylim()[1]))
            axes.set_title(title)
            axes.set_xlabel("local epochs")
            if any(values.size for values in y.values()):
                axes.legend(fontsize=8.5, loc="best")
        row[0].set_ylabel("success, %")
    return figure


TRAINED, PLAYED = "trained/success", "train/success"
"""Of a client in its round: what its model can do once it has trained, on tasks that are held out,
as the paper's Figure 2 has it; or what it won of its own tasks while it trained."""


def shown_seed(found: Runs) -> int | None:
    return min({*found["fedagent"].runs, *found["centralized"].runs}, default=None)


def marks(found: Runs) -> str:
    """Which of the two every run of the figure has recorded."""
    seed = shown_seed(found)
    sides = found["fedagent"], found["centralized"]
    both = [one.runs[seed] for one in sides if seed is not None and seed in one.runs]
    recorded = all(run.meta["clients"].get(TRAINED) for run in both)
    return TRAINED if both and recorded else PLAYED


def clients(found: Runs) -> Figure:
    """The paper's Figure 2: marks are clients in their rounds, the line is the server's model."""
    import matplotlib

    seed, metric = shown_seed(found), marks(found)
    rounds = found["fedagent"].cell.rounds
    titles = [
        title for title in ("FedAgent", "Centralized") if seed in found[title.lower()].runs
    ] or ["FedAgent"]
    figure, row = plots.figure(len(titles))
    with matplotlib.rc_context(plots.STYLE):
        for axes, name in zip(row, titles, strict=True):
            one = found[name.lower()]
            if seed is None or seed not in one.runs:
                continue
            run, epochs = one.runs[seed], one.cell.local_epochs
            for client, where, success in client_marks(run, rounds, metric):
                colour, _ = plots.line_style(1 + client)
                axes.plot(
                    epochs * where, 100 * success, "o", color=colour, markersize=3.5, alpha=0.6
                )
            at, values = percent([Trained(one.cell, {seed: run})], rounds)
            line, _ = plots.line_style(0)
            axes.plot(epochs * at, values[0], color=line, linewidth=1.8)
            axes.set_title(name)
            axes.set_xlabel("local epochs")
        low = min(axes.get_ylim()[0] for axes in row)
        high = max(axes.get_ylim()[1] for axes in row)
        for axes in row:
            axes.set_ylim(low, high)
        row[0].set_ylabel("success, %")
    return figure


def client_marks(run: Run, rounds: int, metric: str) -> Iterator[tuple[int, int, float]]:
    """(client, round, its success)."""
    for number, (several, success) in run.meta["clients"].get(metric, {}).items():
        if int(number) <= rounds:
            yield from ((c, int(number), s) for c, s in zip(several, success, strict=True))
