"""What rests on records, what on earlier runs that left none, and what is planned: apart.

A page that mixes them makes a reader ask of every number what it is worth. So whatever holds a mark
goes into one folded part at the end, and comes back by itself when its records are there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedrl.core.number_format import duration
from fedrl.core.types import Tables
from reproductions.fedagent.claims import TITLES
from reproductions.pages import MARK, markdown_table
from reproductions.results import Runs, Trained

WHAT = TITLES | {
    "tuning": "step sizes of FedAgent, Centralized and Local, each its own",
    "drift": "FedProx and a server optimiser",
    "decentralized": "clients per round, epochs per round, tasks per client",
    "heterogeneity": "preference, coverage and hardness",
    "estimators": "GRPO, GiGPO, RLOO",
    "momentum": "anchored momentum against heterogeneity",
    "environment": "shops that differ from client to client",
    "environment_scenes": "scenes that differ from client to client",
    "alfworld_settings": "ALFWorld with penalties, with LoRA, with PPO",
    "webshop_full_settings": "WebShop with penalties, with LoRA, with PPO",
    "optimizer": "AdamW's moments, the demo",
    "alfworld_optimizer": "AdamW's moments, ALFWorld",
}
"""By part, what it is about, as the table of what is planned says it."""
FEWEST = 3
"""Seeds from which on what is half measured is shown, with how many were planned."""


class Sections:
    """Sections by their scale: those of records, and those that show anything marked."""

    def __init__(self) -> None:
        self._now: dict[str, list[str]] = {}
        self._earlier: dict[str, list[str]] = {}

    def add(self, scale: str, text: str) -> str:
        """Takes a section; nothing is shown in its place."""
        kept = self._earlier if MARK in text else self._now
        kept.setdefault(scale, []).append(text.strip())
        return ""

    @property
    def now(self) -> str:
        return _joined(self._now)

    @property
    def earlier(self) -> str:
        """Its headings stand one level lower: they are below a heading of their own."""
        return re.sub(r"^(#+ )", r"#\1", _joined(self._earlier), flags=re.M)


def _joined(by_scale: Mapping[str, Sequence[str]]) -> str:
    parts = [[f"## {scale}", *texts] for scale, texts in by_scale.items()]
    return "\n\n".join(text for part in parts for text in part)


def marked_rows(table: str, marked: bool) -> str:
    """The rows of a table that rest on earlier runs, or those that do not; empty without any."""
    head, rows = table.split("\n")[:2], table.split("\n")[2:]
    kept = [row for row in rows if (MARK in row) == marked]
    return "\n".join([*head, *kept]) if kept else ""


def judged(claims: str) -> str:
    """How many of the paper's statements are judged by what, in a sentence."""
    rows = claims.split("\n")[2:]
    earlier = [row for row in rows if MARK in row]
    withdrawn = sum("withdrawn" in row for row in earlier)
    missing = sum("not measured" in row for row in rows)
    said = [f"{len(rows) - len(earlier) - missing} are judged by records"]
    if earlier:
        said.append(
            f"{len(earlier)} only by earlier runs without records, {withdrawn} of them withdrawn"
        )
    if missing:
        said.append(f"{missing} by nothing yet")
    return f"Of {len(rows)} statements of the paper, {', '.join(said)}."


def planned(scales: Mapping[str, Mapping[str, Runs]], gone: Sequence[str]) -> str:
    """Runs that have no record, what they cost, and the command that computes them."""
    rows = []
    for scale, found in scales.items():
        each = pace([one for part in found.values() for one in part.values()])
        for part, by_name in found.items():
            cells = [one.cell for one in by_name.values()]
            lacking = [
                (one.cell, len(one.cell.seeds) - len(one.runs))
                for one in by_name.values()
                if one.missing()
            ]
            runs = sum(count for _, count in lacking)
            if not runs or part in gone:
                continue
            epochs = sum(cell.epochs() * count for cell, count in lacking)
            rows.append([
                f"{part}: {WHAT.get(part, part)}",
                f"{runs} of {sum(len(cell.seeds) for cell in cells)}",
                f"{epochs:,}",
                duration(each * epochs) if each else "unknown",
                f"`fedrl reproduce fedagent --scale {scale} --only {part}`",
            ])  # fmt: skip
    head = ("part", "runs without a record", "client epochs", "computing, about", "command")
    return markdown_table(head, rows) if rows else ""


def pace(lines: Sequence[Any]) -> float:
    """Seconds per client epoch, evaluations included, of the recorded runs of a scale."""
    ran = [(one.cell.epochs(max(run.rounds)), run.seconds)
           for one in lines for run in one.runs.values() if run.seconds]  # fmt: skip
    epochs = sum(count for count, _ in ran)
    return sum(seconds for _, seconds in ran) / epochs if epochs else 0.0


def whole(found: Runs) -> Runs:
    """What may replace what was published before: lines of which every seed is at its end, or,
    where all lines of a part have some seeds to their end, these seeds of all of them."""
    if not all(one.whole for one in found.values()):
        ended = [{s for s, run in one.runs.items() if max(run.rounds) >= one.cell.rounds}
                 for one in found.values()]  # fmt: skip
        common = set.intersection(*ended) if ended else set()
        if len(common) >= FEWEST:
            return {
                name: Trained(one.cell, {s: run for s, run in one.runs.items() if s in common})
                for name, one in found.items()
            }
    return {name: one if one.whole else Trained(one.cell, {}) for name, one in found.items()}


def without(published: Tables, part: str) -> Tables:
    """What was published, but for this comparison: FedAgent has records of other settings, and what
    earlier runs of its baselines came to must not stand beside them."""
    kept = dict(published)
    ends = ("", "_seeds", "_model", "_settings", "_gains", "_kinds", "_scores", "-clients")
    its = {part + end for end in ends}
    for kind in ("text", "rounds", "figures", "tables"):
        said = published.get(kind, {})
        kept[kind] = {name: value for name, value in said.items() if name not in its}
    for name, key in (("claims", f"{TITLES[part]}, "), ("costs", part)):
        rows = kept["tables"].get(name, [])
        kept["tables"][name] = [row for row in rows if not row[1].startswith(key)]
    kept["parts"] = [one for one in published.get("parts", []) if one["part"] != part]
    return kept
