"""Step sizes of FedAgent, Centralized and Local, chosen for each by itself on tuning seeds.

All have as many rates, seeds and episodes. Who is compared later runs with its own best rate, on
other seeds; `grid.toml` states the choice, and a test holds that it is what the records say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reproductions.fedagent.claims import SUCCESS, shown
from reproductions.pages import Page, Row
from reproductions.results import Runs, Trained

TITLES = {"fedagent": "FedAgent", "centralized": "Centralized", "local-21": "Local 21"}


def by_learner(found: Runs) -> dict[str, dict[str, Trained]]:
    """What was tried, by learner and rate, in the grid's order."""
    tried: dict[str, dict[str, Trained]] = {}
    for one in found.values():
        tried.setdefault(one.cell.labels["learner"], {})[one.cell.labels["lr"]] = one
    return tried


def chosen(tried: Mapping[str, Trained]) -> str | None:
    """The rate with the best mean; none before every run is at its end."""
    if not all(one.whole for one in tried.values()):
        return None
    return max(tried, key=lambda rate: float(np.mean(list(tried[rate].value(SUCCESS).values()))))


def at_an_end(tried: Mapping[str, Trained]) -> bool:
    """Whether more may be had beyond the smallest or the largest rate."""
    rates = sorted(tried, key=float)
    return chosen(tried) in (rates[0], rates[-1])


def tuning(found: Runs | None, page: Page) -> dict[str, Any] | None:
    """What the page shows; nothing where there are no records."""
    if not found or not any(one.runs for one in found.values()):
        return None
    tried = by_learner(found)
    rates = list(next(iter(tried.values())))
    rows: list[Row] = []
    for learner, by_rate in tried.items():
        best = chosen(by_rate)
        ends = [shown(one.value(SUCCESS)) for one in by_rate.values()]
        rows.append([TITLES[learner], *(f"**{said}**" if rate == best and said else said
                                        for rate, said in zip(by_rate, ends))])  # fmt: skip
    cells = [one.cell for one in found.values()]
    return {
        "rows": page.table("tuning", ["", *(f"{float(rate):g}" for rate in rates)], rows),
        "done": all(chosen(by_rate) for by_rate in tried.values()),
        "seeds": len(cells[0].seeds),
        "epochs": cells[0].epochs(),
        "ends": ", ".join(TITLES[name] for name, by_rate in tried.items() if at_an_end(by_rate)),
    }
