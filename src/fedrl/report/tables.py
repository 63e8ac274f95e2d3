"""Tables of a page, cell by cell: who failed, what was set, how it was run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import NamedTuple

from fedrl.aggregation.settings import Settings as RuleSettings
from fedrl.core.number_format import duration, number_ranges
from fedrl.core.types import Json
from fedrl.report.run_groups import Group
from fedrl.report.run_labels import CODE, code_text, differ_in_code_alone, differing, shown
from fedrl.runs import client_names
from fedrl.runs.read import Run, flatten

RULE_DEFAULTS = {f"aggregate.{field.name}": field.default for field in fields(RuleSettings)}
MOST_ROWS = 200
"""Rows of the table of failures."""


class Table(NamedTuple):
    head: list[str]
    rows: list[list[str]]


class Failures(NamedTuple):
    reasons: list[str]  # the commonest, with how often each came
    more_reasons: bool
    table: Table
    total: int  # rows that there are, also where not all are shown


class Settings(NamedTuple):
    different: Table | None  # a row per group
    same: list[str]  # a block per section, as in a recipe


class Provenance(NamedTuple):
    runs: Table
    same: Table | None  # what all runs have in common


def comparison(groups: Sequence[Group], figures: Sequence[Mapping[str, str]]) -> Table:
    """A row per group; `figures` are what each came to."""
    rows = [[group.name, *row.values()] for group, row in zip(groups, figures, strict=True)]
    return Table(["", *figures[0]], rows)


def failures(groups: Sequence[Group]) -> Failures | None:
    rounds: dict[tuple[str, str, str, str], list[int]] = {}
    reasons: Counter[str] = Counter()
    for group in groups:
        for run in group.runs:
            for line in run.failures:
                who = (str(line.get("client", "–")), str(line.get("reason", "–")))
                key = (group.name, str(run.config.get("seed", "–")), *who)
                rounds.setdefault(key, []).append(int(line["round"]))
                reasons[who[1]] += 1
    if not rounds:
        return None
    ordered = sorted(rounds.items(), key=lambda item: -len(item[1]))
    rows = [
        [*key[:3], number_ranges(sorted(set(when))), str(len(when)), key[3]]
        for key, when in ordered[:MOST_ROWS]
    ]
    return Failures(
        [f"{times} × {reason}" for reason, times in reasons.most_common(5)],
        len(reasons) > 5,
        Table(["group", "seed", "client", "rounds", "times", "reason"], rows),
        len(ordered),
    )


def settings(groups: Sequence[Group]) -> Settings:
    runs = [run for group in groups for run in group.runs]
    configs = [group.config for group in groups] if len(runs) > 1 else [runs[0].config]
    all_keys = [key for key in differing(configs) if key != CODE]
    keys = [key for key in all_keys if not _says_nothing(key, groups)]
    rows = [[g.name, *(shown(key, g.config.get(key)) for key in keys)] for g in groups]
    if differ_in_code_alone([group.config for group in groups]):
        keys = [*keys, "code"]
        rows = [[*row, code_text(group.config)] for row, group in zip(rows, groups, strict=True)]
    sections: dict[str, list[str]] = {}
    for key, value in configs[0].items():
        if key not in (*all_keys, CODE):
            part, _, name = key.rpartition(".")
            sections.setdefault(part, [f"[{part}]"] if part else []).append(
                f"{name} = {shown(key, value)}"
            )
    return Settings(
        Table(["", *keys], rows) if keys else None,
        ["\n".join(sections[part]) for part in sorted(sections)],
    )


def _says_nothing(key: str, groups: Sequence[Group]) -> bool:
    """A name that the row has already, and what every built-in rule has whether it is read or not:
    beside a rule from outside it would fill columns."""
    values = [group.config.get(key) for group in groups]
    if key == "name":
        return values == [group.name for group in groups]
    return key in RULE_DEFAULTS and all(one in (None, RULE_DEFAULTS[key]) for one in values)


def provenance(groups: Sequence[Group]) -> Provenance:
    own = ("started", "seconds", "startup_seconds", "status", "run_dir", client_names.KEY)
    runs = [(group.name, run) for group in groups for run in group.runs]
    metas = [
        {key: value for key, value in flatten(run.meta).items() if key not in own} | _code(run)
        for _, run in runs
    ]
    keys = differing(metas)
    rows = [
        [
            run.path.name,
            name,
            str(run.config.get("seed", "–")),
            run.status,
            str(max(run.rounds)),
            str(run.meta.get("started", "–")),
            duration(run.seconds),
            *(str(meta.get(key, "–")) for key in keys),
        ]
        for (name, run), meta in zip(runs, metas, strict=True)
    ]
    head = ["run", "group", "seed", "status", "last round", "started", "wall time", *keys]
    common: dict[str, list[str]] = {}
    for key, value in metas[0].items():
        if key not in keys:
            part, _, name = key.partition(".")
            common.setdefault(part, []).append(f"{name.replace('_', ' ')} {value}".strip())
    same = [[part, ", ".join(values)] for part, values in common.items()]
    return Provenance(Table(head, rows), Table(["", ""], same) if same else None)


def _code(run: Run) -> Json:
    """Code from outside that it used, by the hashes of its settings."""
    named = run.config.get(CODE)
    return {"code from outside": ", ".join(map(str, named))} if named else {}
