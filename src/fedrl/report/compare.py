"""One HTML page for one run or for many: what was run, what came out, and how sure that is."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from fedrl.core.atomic_files import OWNER_ONLY, is_private
from fedrl.core.number_format import duration, is_share, label
from fedrl.core.types import UserError
from fedrl.report import plots
from fedrl.report.episodes_section import episodes_section
from fedrl.report.groups import (
    Against,
    Group,
    bytes_sent,
    curve,
    drawn_metrics,
    env_steps,
    episodes_played,
    failure_count,
    figures,
    group,
    main_metric,
    plus_minus,
)
from fedrl.report.html import document, gallery, legend, section, spans, swatch, table, tiles
from fedrl.report.run_labels import differing, show
from fedrl.runs.read import flatten, load_all

MOST_POINTS = 600
"""Points of a drawn curve: more than a panel has pixels only makes the page heavy."""
MOST_ROWS = 200
"""Rows of the table of failures."""


def build(
    runs: Sequence[Path], out: Path | None = None, title: str = "", episodes: bool | None = None
) -> Path:
    """Write the page (and its PNGs beside it) and say where it is; titled by the runs' names.

    `episodes` of language agents are played where that is quick, if nothing is said.
    """
    folders = list(dict.fromkeys(Path(os.path.realpath(run)) for run in runs))
    if not folders:
        raise UserError("a report needs at least one run folder")
    single = len(folders) == 1
    page = out or (folders[0] if single else Path()) / "report.html"
    if os.path.isdir(page):
        raise UserError(f"{page} is a folder: name the page to write, such as {page}/report.html")
    pictures = page.with_name("plots" if single and out is None else f"{page.stem}_plots")
    found, left_out = load_all(folders)
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        text = html_page(group(found), pictures, title, episodes, left_out)
        if any(is_private(run.path) for run in found):  # its table of failures names clients
            page.touch(OWNER_ONLY)
            page.chmod(OWNER_ONLY)
        page.write_text(text, encoding="utf-8", errors="replace")  # odd bytes in folders' names
    except OSError as error:
        raise UserError(
            f"cannot write {error.filename or page}: {error.strerror}; choose a place with --out"
        ) from error
    return page


def html_page(
    groups: Sequence[Group],
    pictures: Path,
    title: str = "",
    episodes: bool | None = None,
    left_out: Sequence[str] = (),
) -> str:
    metric = main_metric(groups)
    runs = [run for one in groups for run in one.runs]
    names = dict.fromkeys(str(run.config.get("name", "run")) for run in runs)
    title = title or " and ".join(names)
    main = main_panels(groups, metric)
    plots.save(plots.curves(main), pictures / f"{_file(metric)}.png")
    rows = {one.name: figures(one, metric) for one in groups}
    sections = [
        f"<header><p class=eyebrow>fedrl report</p><h1>{escape(title)}</h1>"
        f"<p class=headline>{headline(groups, metric)}</p></header>",
        warnings(groups, left_out),
        tiles(rows[groups[0].name]) if len(groups) == 1 else comparison(rows),
        section(_sentence(label(metric)), legend(groups) + gallery(main) + note(groups, main)),
        "" if episodes is False else episodes_section(groups, metric, bool(episodes)),
        other_curves(groups, metric, pictures),
        failure_table(groups),
        config_section(groups),
        meta_section(groups),
    ]
    return document(title, sections)


def headline(groups: Sequence[Group], metric: str) -> str:
    shared = dict(groups[0].config)
    for key in differing([one.config for one in groups]):
        shared.pop(key, None)
    method = groups[0].name if len(groups) == 1 else f"{len(groups)} settings"
    parts = [f"{method} on {shared['world.name']}" if "world.name" in shared else method]
    if shared.get("federation.kind", "federated") != "federated":
        parts.append(str(shared["federation.kind"]))
    if "federation.clients" in shared:
        parts.append(_count(shared["federation.clients"], "client"))
    if "rounds" in shared:
        runs = [run for one in groups for run in one.runs]
        reached = min(max(run.rounds) for run in runs)
        finished = all(run.status == "finished" for run in runs)
        so_far = "" if finished else f"{reached} of " if len(runs) == 1 else "up to "
        parts.append(so_far + _count(shared["rounds"], "round"))
    seeds = sorted({len(one.runs) for one in groups})
    parts.append(
        _count(seeds[0], "seed") + (" each" if len(groups) > 1 else "")
        if len(seeds) == 1
        else f"{seeds[0]} to {seeds[-1]} seeds"
    )
    finals = []
    for one in groups:
        values = curve(one.runs, metric)[1]
        if values.size:
            finals.append(
                (float(values[:, -1].mean()), plus_minus(values[:, -1], is_share(metric)), one.name)
            )
    finals.sort(key=lambda final: -math.inf if math.isnan(final[0]) else final[0], reverse=True)
    result = f"final {escape(label(metric))} <strong>{finals[0][1]}</strong>"
    if len(finals) > 1:
        result = (
            f"highest final {escape(label(metric))} <strong>{escape(finals[0][2])}</strong> with "
            f"<strong>{finals[0][1]}</strong>, then {escape(finals[1][2])} with {finals[1][1]}"
        )
    interval = " (mean and 95% interval over seeds)" if seeds[-1] > 1 else ""
    return f"{escape(', '.join(parts))}: {result}{interval}."


def warnings(groups: Sequence[Group], left_out: Sequence[str] = ()) -> str:
    """What a reader must know first: runs that are not there or not finished, seeds twice."""
    lines = [f"Left out: {line}." for line in left_out]
    for one in groups:
        for run in one.runs:
            if run.status != "finished":
                line = f"Unfinished: {run.path.name} is at round {max(run.rounds)} of "
                line += f"{run.config.get('rounds', '?')} (status: {run.status})."
                if len(one.runs) > 1:
                    line += f" All seeds of {one.name} are shown only as far as this one goes."
                lines.append(line)
        seeds = Counter(run.config.get("seed") for run in one.runs)
        lines += [
            f"Seed {seed} is there {times} times in {one.name}: its interval is too narrow."
            for seed, times in seeds.items()
            if times > 1
        ]
    items = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return f'<div class=warning role="note">{items}</div>' if items else ""


def comparison(rows: Mapping[str, Mapping[str, str]]) -> str:
    keys = list(next(iter(rows.values())))
    body = [
        [f"{swatch(index)}{escape(name)}", *(escape(row[key]) for key in keys)]
        for index, (name, row) in enumerate(rows.items())
    ]
    text = (
        "<p class=note>± is the half width of the 95% t interval over seeds. Best is the highest "
        "point of the mean curve; mean over rounds is the area under the curve divided by its "
        "rounds; steps, bytes sent and wall time are means per run.</p>"
    )
    return section("Comparison", table(["", *keys], body) + text)


def panel(
    groups: Sequence[Group], metric: str, x_label: str = "round", against: Against | None = None
) -> plots.Panel:
    x, lines = {}, {}
    for one in groups:
        at, values = curve(one.runs, metric, against)
        keep = np.unique(np.linspace(0, len(at) - 1, min(len(at), MOST_POINTS)).astype(int))
        if against is not None and at.size and not at.any():
            at, keep, values = at[:0], keep[:0], values[:0]  # nothing to set the metric against
        x[one.name], lines[one.name] = at[keep], values[:, keep]
    positive = all((values > 0).all() for values in lines.values())
    return plots.Panel(
        title=label(metric),
        x_label=x_label,
        x=x,
        lines=lines,
        x_unit="B" if against is bytes_sent else "",
        log=positive and "grad_norm" in metric,
        share=is_share(metric),
        start=warm_start(groups, metric),
    )


def warm_start(groups: Sequence[Group], metric: str) -> float | None:
    """What the first model of language agents can do, which all their runs begin with."""
    agents = all(one.config.get("algorithm.name") == "fedagent" for one in groups)
    if not agents or not metric.startswith("eval/success"):
        return None
    models = {one.config.get("algorithm.model") for one in groups}
    firsts = [run.rounds[0][metric] for one in groups for run in one.runs
              if metric in run.rounds.get(0, {})]  # fmt: skip
    return float(np.mean(firsts)) if firsts and len(models) == 1 else None


def main_panels(groups: Sequence[Group], metric: str) -> list[plots.Panel]:
    panels = [panel(groups, metric)]
    rounds = [one for g in groups for run in g.runs for one in run.rounds.values()]
    played = ("episodes played", episodes_played)
    steps = ("environment steps", env_steps)
    for x_label, against in (
        played if any(map(episodes_played, rounds)) else steps,
        ("sent, both directions", bytes_sent),
    ):
        if any(map(against, rounds)):
            panels.append(panel(groups, metric, x_label, against))
    return panels


def note(groups: Sequence[Group], panels: Sequence[plots.Panel]) -> str:
    lines = []
    if any(one.start is not None for one in panels):
        lines.append("Dotted: the model that training began with (round 0).")
    if any(len(one.runs) > 1 for one in groups):
        lines.append(
            "Line: mean over seeds. Band: 95% t interval of that mean; that of two or three seeds "
            "is wide and may leave its panel."
        )
    if any(one.x_label == "episodes played" for one in panels) and len(groups) > 1:
        lines.append(
            "M clients per round play M times the episodes of one client alone: compare at equal "
            "rounds and at equal episodes."
        )
    return f"<p class=note>{' '.join(lines)}</p>" if lines else ""


def other_curves(groups: Sequence[Group], metric: str, pictures: Path) -> str:
    names = [name for name in drawn_metrics(groups) if name != metric]
    if any(failure_count(run) for one in groups for run in one.runs):
        names.append("cohort/failed_so_far")
    panels = []
    for name in names:
        one = panel(groups, name)
        switched_off = name.startswith("train/") and not any(v.any() for v in one.lines.values())
        if any(values.size for values in one.lines.values()) and not switched_off:
            panels.append(one)
            plots.save(plots.curves([one]), pictures / f"{_file(name)}.png")
    return section("More curves", legend(groups) + gallery(panels)) if panels else ""


def failure_table(groups: Sequence[Group]) -> str:
    rounds: dict[tuple[str, str, str, str], list[int]] = {}
    reasons: Counter[str] = Counter()
    for one in groups:
        for run in one.runs:
            for line in run.failures:
                who = (str(line.get("client", "–")), str(line.get("reason", "–")))
                key = (one.name, str(run.config.get("seed", "–")), *who)
                rounds.setdefault(key, []).append(int(line["round"]))
                reasons[who[1]] += 1
    if not rounds:
        return ""
    ordered = sorted(rounds.items(), key=lambda item: -len(item[1]))
    body = [
        [*map(escape, key[:3]), spans(sorted(set(when))), str(len(when)), escape(key[3])]
        for key, when in ordered[:MOST_ROWS]
    ]
    why = ", ".join(f"{times} × {escape(reason)}" for reason, times in reasons.most_common(5))
    more = len(ordered) - len(body)
    rest = f"<p class=note>and {more} rows more in clients.jsonl.</p>" if more else ""
    rows = table(["group", "seed", "client", "rounds", "times", "reason"], body, wrap=True) + rest
    if len(body) > 12:
        rows = f"<details><summary>Who and when ({len(ordered)} rows)</summary>{rows}</details>"
    return section("Failed clients", f"<p>{why}{', …' if len(reasons) > 5 else ''}.</p>{rows}")


def config_section(groups: Sequence[Group]) -> str:
    runs = [run for one in groups for run in one.runs]
    configs = [one.config for one in groups] if len(runs) > 1 else [runs[0].config]
    keys = differing(configs)
    parts = []
    if keys:
        body = [
            [f"{swatch(i)}{escape(g.name)}", *(escape(show(g.config.get(key))) for key in keys)]
            for i, g in enumerate(groups)
        ]
        parts.append("<h3>What differs</h3>" + table(["", *keys], body))
        parts.append("<h3>What is the same</h3>")
    common = {key: value for key, value in configs[0].items() if key not in keys}
    tables: dict[str, list[str]] = {}
    for key, value in common.items():
        part, _, name = key.rpartition(".")
        tables.setdefault(part, []).append(f"{name} = {show(value)}")
    blocks = (
        "<pre>" + escape("\n".join(([f"[{part}]"] if part else []) + tables[part])) + "</pre>"
        for part in sorted(tables)
    )
    return section("Settings", "".join(parts) + f"<div class=blocks>{''.join(blocks)}</div>")


def meta_section(groups: Sequence[Group]) -> str:
    own = ("started", "seconds", "status", "run_dir")
    runs = [(one.name, run) for one in groups for run in one.runs]
    metas = [
        {key: value for key, value in flatten(run.meta).items() if key not in own}
        for _, run in runs
    ]
    keys = differing(metas)
    body = [
        [
            escape(run.path.name),
            escape(name),
            escape(str(run.config.get("seed", "–"))),
            escape(run.status),
            str(max(run.rounds)),
            escape(str(run.meta.get("started", "–"))),
            duration(run.seconds),
            *(escape(str(meta.get(key, "–"))) for key in keys),
        ]
        for (name, run), meta in zip(runs, metas, strict=True)
    ]
    head = ["run", "group", "seed", "status", "last round", "started", "wall time", *keys]
    common: dict[str, list[str]] = {}
    for key, value in metas[0].items():
        if key not in keys:
            part, _, name = key.partition(".")
            common.setdefault(part, []).append(f"{name.replace('_', ' ')} {value}".strip())
    rows = [[escape(part), escape(", ".join(values))] for part, values in common.items()]
    same = "<h3>The same for all</h3>" if len(runs) > 1 else ""
    same += table(["", ""], rows, wrap=True) if rows else ""
    return section("How it was run", table(head, body) + same)


def _file(metric: str) -> str:
    return re.sub(r"[^\w.-]+", "_", metric)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _count(number: Any, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
