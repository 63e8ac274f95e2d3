"""FedAgent's figures: success by local epochs and by episodes, and the clients behind a curve."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedrl.report import plots
from fedrl.runs.grid import Trained, curve
from reproductions.markdown import picture

Found = Mapping[str, Trained]
SUCCESS = "eval/success"


def groups(found: Found) -> dict[str, list[Trained]]:
    """The lines of a comparison; the clients that learn alone are one line."""
    alone = [one for name, one in found.items() if name.startswith("local-")]
    lines = {"FedAgent": [found["fedagent"]], "Centralized": [found["centralized"]]}
    return lines | {"Local (mean)": alone}


def percent(several: Sequence[Trained], metric: str, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    at, values = curve(several, metric, rounds)
    return at, 100 * values


def comparison(found: Found, pictures: Path, file: str, alt: str, metric: str = SUCCESS) -> str:
    """Both views: over local epochs, and over the episodes that all clients have played."""
    word = "success" if metric == SUCCESS else "score"
    rounds = found["fedagent"].cell.rounds
    epochs, episodes, left, right = {}, {}, {}, {}
    for name, several in groups(found).items():
        one = several[0]
        at, left[name] = percent(several, metric, rounds)
        epochs[name] = at * one.cell.local_epochs
        at, right[name] = percent(several, metric, one.cell.rounds)
        episodes[name] = one.episodes(at)
    panels = [
        plots.Panel(f"{word} on unseen tasks, %", "local epochs", epochs, left),
        plots.Panel("the same, by rollouts", "episodes played", episodes, right),
    ]
    return picture(plots.curves(panels), pictures, file, alt)


def sides(
    panels: Mapping[str, Mapping[str, Trained]], rounds: int, pictures: Path, file: str, alt: str
) -> str:
    """A panel per setting, each with its own legend; lines that went further end at `rounds`."""
    import matplotlib

    figure, row = plots.figure(len(panels))
    with matplotlib.rc_context(plots.STYLE):
        for axes, (title, lines) in zip(row, panels.items(), strict=True):
            x, y = {}, {}
            for name, one in lines.items():
                end = rounds if one.cell.part == "main" else one.cell.rounds
                at, y[name] = percent([one], SUCCESS, end)
                x[name] = at * one.cell.local_epochs
            plots.band_plot(axes, x, y)
            axes.set_ylim(max(0, axes.get_ylim()[0]), min(100, axes.get_ylim()[1]))
            axes.set_title(title)
            axes.set_xlabel("local epochs")
            if any(values.size for values in y.values()):
                axes.legend(fontsize=8.5, loc="best")
        row[0].set_ylabel("success, %")
    return picture(figure, pictures, file, alt)


def dynamics(found: Found, pictures: Path, file: str, alt: str) -> str:
    """The paper's Figure 2: marks are clients in their rounds, the line is the server's model."""
    import matplotlib

    seed = min(set(found["fedagent"].runs) | set(found["centralized"].runs))
    figure, row = plots.figure(2)
    with matplotlib.rc_context(plots.STYLE):
        for axes, name in zip(row, ("FedAgent", "Centralized"), strict=True):
            one = found[name.lower()]
            if seed not in one.runs:
                continue
            run, epochs = one.runs[seed], one.cell.local_epochs
            rounds = found["fedagent"].cell.rounds
            at, values = percent([Trained(one.cell, {seed: run})], SUCCESS, rounds)
            marks = client_marks(run.path / "clients.jsonl", rounds)
            for client, where, success in marks:
                colour, _ = plots.line_style(1 + client)
                axes.plot(
                    epochs * where, 100 * success, "o", color=colour, markersize=3.5, alpha=0.6
                )
            line, _ = plots.line_style(0)
            axes.plot(epochs * at, values[0], color=line, linewidth=1.8)
            axes.set_title(name)
            axes.set_xlabel("local epochs")
        low = min(axes.get_ylim()[0] for axes in row)
        high = max(axes.get_ylim()[1] for axes in row)
        for axes in row:
            axes.set_ylim(low, high)
        row[0].set_ylabel("success, %")
    return picture(figure, pictures, file, alt)


def client_marks(path: Path, rounds: int) -> list[tuple[int, int, float]]:
    """(client, round, success of its own episodes while it trained)."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        (line["client"], line["round"], line["train/success"])
        for line in lines
        if "train/success" in line and line["round"] <= rounds
    ]
