"""Clients beside each other: what each measured, round by round, so that a mean hides nobody.

Of up to eight clients every one is a line; of more, the median, the quarters, the best and the
worst. A client is in the panel in the rounds in which it took part; between these its line goes
straight on, and a quantile is over those who have a value by then.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedrl.core.number_format import is_share, label
from fedrl.report.plots import Panel
from fedrl.report.run_groups import Group
from fedrl.runs.client_names import client_name, kept_names
from fedrl.runs.read import OF_LEARNING, Run, client_records

MOST_LINES = 8
NO_MEASURE = ("round", "client", "status", "reason", "attempt")
QUANTILES = {"best": 1.0, "upper quarter": 0.75, "median": 0.5, "lower quarter": 0.25, "worst": 0.0}


def client_panels(groups: Sequence[Group]) -> list[Panel]:
    """One for each group, of its first seed; none where clients have logged nothing."""
    names = [group.name if len(groups) > 1 else "" for group in groups]
    found = [_panel(group.runs[0], name) for group, name in zip(groups, names, strict=True)]
    return [panel for panel in found if panel is not None]


def _panel(run: Run, name: str) -> Panel | None:
    values = client_values(run)
    if values is None:
        return None
    metric, rounds, table = values
    called = kept_names(run.meta)
    clients = {client_name(client, called): row for client, row in table.items()}
    if len(clients) > MOST_LINES:
        whole = np.array([*clients.values()])
        clients = {
            word: np.nanquantile(whole, quantile, axis=0) for word, quantile in QUANTILES.items()
        }
    title = f"{label(metric)} of clients" + (f", {name}" if name else "")
    x = dict.fromkeys(clients, rounds)
    lines = {word: row[None, :] for word, row in clients.items()}
    return Panel(title=title, x_label="round", x=x, lines=lines, share=is_share(metric))


def client_values(run: Run) -> tuple[str, np.ndarray, dict[int, np.ndarray]] | None:
    """A metric that clients tell, rounds [n], and by client its values [n], the last one known."""
    lines = [line for line in client_records(run.path) if isinstance(line.get("client"), int)]
    names = dict.fromkeys(
        key for line in lines for key, value in line.items()
        if key not in NO_MEASURE and isinstance(value, float | int)
    )  # fmt: skip
    metric = next((one for one in (*OF_LEARNING, *names) if one in names), None)
    if metric is None:
        return None
    told = [line for line in lines if isinstance(line.get(metric), float | int)]
    rounds = np.array(sorted({int(line["round"]) for line in told}), float)
    place = {number: at for at, number in enumerate(rounds.tolist())}
    table: dict[int, np.ndarray] = {}
    for line in told:
        row = table.setdefault(int(line["client"]), np.full(len(rounds), np.nan))
        row[place[float(line["round"])]] = float(line[metric])
    return metric, rounds, {client: _carried(table[client]) for client in sorted(table)}


def _carried(row: np.ndarray) -> np.ndarray:
    """With the last value that is known where there is no new one."""
    last = np.maximum.accumulate(np.where(np.isfinite(row), np.arange(len(row)), -1))
    return np.where(last >= 0, row[np.maximum(last, 0)], np.nan)
