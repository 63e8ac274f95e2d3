"""AdamW's moments, kept between rounds or fresh in each: what the records of these runs say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reproductions.fedagent.claims import SUCCESS, Parts, points, shown
from reproductions.fedagent.models import BEFORE
from reproductions.pages import Page, Row, markdown_table
from reproductions.results import Runs
from reproductions.verdicts import BySeed, signed

DEMO, ALFWORLD, OLD = "optimizer", "alfworld_optimizer", "optimizer_before"
ROWS = {
    "Centralized, the demo": (DEMO, "centralized"),
    "Local 21, the demo": (DEMO, "local-21"),
    "Centralized, ALFWorld": (ALFWORLD, "centralized"),
    "Local 21, ALFWorld": (ALFWORLD, "local-21"),
}
"""The part, and who learns alone."""


def optimizer(parts: Parts, page: Page) -> dict[str, Any] | None:
    """Nothing where there are no records."""
    mine = [found for name, found in parts.items() if name in (DEMO, ALFWORLD, OLD)]
    runs = [run for found in mine for one in found.values() for run in one.runs.values()]
    if not runs:
        return None

    def end(part: str, name: str) -> BySeed:
        found = parts.get(part, {})
        return found[name].value(SUCCESS) if name in found else {}

    rows: list[Row] = []
    for title, (part, who) in ROWS.items():
        before = end(OLD, who) if part == DEMO else {}
        fresh, kept = end(part, f"{who}-fresh"), end(part, f"{who}-kept")
        gap = points(kept, fresh)
        states = [each(success) or "–" for success in (before, fresh, kept)]
        rows.append([title, *states, signed(gap) if gap else "–"])
    rows.append(["FedAgent, the demo", "–", shown(end(DEMO, "fedagent")) or "–", "–", "–"])
    head = ("", f"before: {BEFORE}", "fresh", "kept", "kept against fresh, points")
    curves = list(curve_rows(parts.get(ALFWORLD, {})))
    known = {"FedAgent, the demo": end(DEMO, "fedagent")}
    known |= {title: end(part, f"{who}-kept") for title, (part, who) in ROWS.items()}
    return {
        "known": markdown_table(
            ("from records", "success, %", "seeds"),
            [[title, each(by) or "–", str(len(by))] for title, by in known.items() if by],
        ),
        "fedagent": shown(end(DEMO, "fedagent")),
        "rows": page.table("optimizer", head, rows),
        "curves": page.table("curves", ("", "seed", "success by round, %"), curves),
        "again": f"{sum(bool(run.failures) for run in runs)} of {len(runs)}",
        "records": f"{page.pictures.name}/records",
    }


def each(success: BySeed) -> str | None:
    """As everywhere; of two seeds both, whose interval would be wider than what is possible."""
    if len(success) == 2:
        return " and ".join(f"{100 * value:.1f}" for value in success.values())
    return shown(success)


def curve_rows(found: Runs) -> Iterator[Row]:
    for name, one in found.items():
        who, _, state = name.rpartition("-")
        for seed, run in one.runs.items():
            at = {r: metrics[SUCCESS] for r, metrics in run.rounds.items() if SUCCESS in metrics}
            curve = ", ".join(f"{r}: {100 * value:.1f}" for r, value in at.items())
            yield [f"{who.partition('-')[0]}, {state}", str(seed), curve]
