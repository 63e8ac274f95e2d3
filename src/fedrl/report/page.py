"""One HTML page for one run or for many: what was run, what came out, and how sure that is.

`run_groups` puts the runs into groups and numbers, `panels` says which curves are shown, `plots`
draws them, `tables` fills the tables, and page.html.jinja is the page.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedrl.core import registry
from fedrl.core.atomic_files import OWNER_ONLY, is_private
from fedrl.core.number_format import counted, is_share, label, sentence_case
from fedrl.core.package_files import package_text, render
from fedrl.core.types import UserError
from fedrl.report import comparison_file, differences, numbers_file, plots, tables
from fedrl.report.chart_data import chart_data
from fedrl.report.client_panel import client_panels
from fedrl.report.confounders import confounders
from fedrl.report.episodes_section import agents_episodes
from fedrl.report.learned import few_tasks_warnings, learned
from fedrl.report.level_panels import at_the_highest, level_panels
from fedrl.report.page_title import page_title
from fedrl.report.panels import group_styles, main_panels, method_styles, other_panels
from fedrl.report.run_groups import (
    Group,
    after_first,
    curve,
    group_runs,
    main_metric,
    mean_text,
    over_rounds,
    summary_row,
    with_results,
)
from fedrl.report.run_labels import differing
from fedrl.report.worlds import by_world, not_compared, one_world
from fedrl.runs.read import load_all

NUMBERS = "numbers.csv"
LEVELS = "levels"
"""The file of the figure of `level_panels`."""
WATCH = "fedrl.report.watch"
"""Where the script that draws charts lies: reports and the live view draw alike."""


def build(
    runs: Sequence[Path], out: Path | None = None, title: str = "", episodes: bool | None = None
) -> Path:
    """Write the page, with its figures (PNG, SVG) and numbers (CSV) beside it, and say where it is;
    titled by the runs' names.

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
    readable, left_out = load_all(folders)
    loaded, without = with_results(readable)
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        text = html_page(group_runs(loaded), pictures, title, episodes, [*left_out, *without])
        if any(is_private(run.path) for run in readable):  # its table of failures names clients
            page.touch(OWNER_ONLY)
            page.chmod(OWNER_ONLY)
            for file in pictures.glob("*.csv"):
                file.chmod(OWNER_ONLY)
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
    """The page as text; its figures and numbers are also written into the folder `pictures`."""
    metric = main_metric(groups)
    rows, worlds = [summary_row(group, metric) for group in groups], by_world(groups)
    main, others = main_panels(groups, metric), other_panels(groups, metric)
    clients, whole = client_panels(groups), headline(groups, metric)
    levels = level_panels(groups, metric)
    headlines = {world: headline(same, metric) for world, same in worlds.items()}
    drawn = {metric: main, **others} | ({LEVELS: levels} if levels else {})
    for name, panels in drawn.items():
        for ending in (".png", ".svg"):
            plots.save(plots.curves(panels), pictures / _file_name(name, ending))
    numbers_file.write(groups, pictures / NUMBERS)
    if len(groups) > 1:
        comparison_file.write(groups, metric, pictures)
    return render(
        __package__,
        "page.html.jinja",
        title=title or page_title(groups),
        css="".join(package_text(__package__, name) for name in ("page.css", "episodes.css")),
        chart_css=package_text(WATCH, "uplot/uplot.css"),
        scripts=[
            package_text(WATCH, "uplot/uplot.js"),
            package_text(WATCH, "charts.js"),
            package_text(__package__, "report.js"),
        ],
        plots=plots,
        groups=groups,
        styles=group_styles(groups),
        lines=method_styles(groups),
        headline=whole,
        worlds=not_compared(worlds, label(metric)) if len(worlds) > 1 else "",
        within="At" if one_world(groups) else "On",
        headlines={world: one for world, one in headlines.items() if one.finals},
        warnings=[
            *confounders(groups, metric),
            *warnings(groups, left_out),
            *few_tasks_warnings(groups),
        ],
        figures=rows[0],
        comparison=tables.comparison(groups, with_iqm(groups, rows, metric)),
        differences={
            "the final values": differences.table(groups, metric),
            "the means over rounds": differences.table(groups, metric, over_rounds),
        },
        numbers=f"{pictures.name}/{NUMBERS}",
        client_panels=[picture(panel, names=True) for panel in clients],
        metric=sentence_case(label(metric)),
        panels=[
            *map(picture, levels),
            *map(picture, main),
        ],
        notes=[*notes(groups, main), *notes_on_levels(levels), at_the_highest(groups, metric)],
        episodes=[] if episodes is False else agents_episodes(groups, metric, bool(episodes)),
        more_panels=[picture(panel) for same in others.values() for panel in same],
        failures=tables.failures(groups),
        settings=tables.settings(groups),
        provenance=tables.provenance(groups),
    )


def with_iqm(
    groups: Sequence[Group], rows: Sequence[dict[str, str]], metric: str
) -> list[dict[str, str]]:
    """Rows of the comparison with a column more, where a group has seeds enough for it: beside the
    final value, since a narrow page shows the first columns."""
    texts = []
    for group in groups:
        values = curve(group.runs, metric)[1]
        texts.append(differences.iqm_text(values[:, -1] if values.size else np.empty(0), metric))
    if all(text == "–" for text in texts):
        return list(rows)
    return [after_first(row, "final IQM", text) for row, text in zip(rows, texts, strict=True)]


def _file_name(metric: str, ending: str) -> str:
    return re.sub(r"[^\w.-]+", "_", metric) + ending


class Picture(NamedTuple):
    """A panel as a page shows it."""

    alt: str
    uri: str
    data: str  # JSON: the same as numbers


def picture(panel: plots.Panel, names: bool = False) -> Picture:
    ends = "; ".join(
        f"{name} ends at {mean_text(values[:, -1], panel.share)}"
        for name, values in panel.lines.items()
        if values.size
    )
    return Picture(
        f"Line plot of {panel.title} against {panel.x_label}: {ends}.",
        plots.as_data_uri(plots.curves([panel], names=names)),
        chart_data(panel, legend=names),
    )


class Headline(NamedTuple):
    """What was run, and the groups' final values of the main metric, the highest first unless there
    is one seed each: a first place would read as a verdict. All are of one world, where it has a
    winner."""

    what: str
    metric: str
    finals: list[tuple[str, str]]  # a group's name and its value
    seeds: int  # most of one group
    winner: str  # the group that is told apart from all others; empty if none is
    rivals: list[tuple[str, str]]  # those that the first is not told apart from, as in `finals`
    ahead: list[str]  # of these, those that are better where both have been: they ended earlier
    one_seed_each: bool  # nothing follows then, and `finals` are in the groups' own order
    learned: str  # of a single run of a language agent: before training, and after it
    once: list[tuple[str, str]]  # beside `finals`: groups with one seed, which cannot be compared
    means: str  # what means over rounds say
    by_how_much: str  # the difference that decides


def headline(groups: Sequence[Group], metric: str) -> Headline:
    finals = []
    for group in groups:
        values = curve(group.runs, metric)[1]
        if values.size:
            mean = float(values[:, -1].mean())
            shown = (group.name, mean_text(values[:, -1], is_share(metric)))
            finals.append((-math.inf if math.isnan(mean) else mean, shown))
    alone = differences.one_seed_each(groups, metric)
    if not alone:
        finals.sort(key=lambda final: final[0], reverse=True)
    near, once = differences.rivals(groups, metric), differences.once(groups, metric)
    return Headline(
        ", ".join(_what_was_run(groups)),
        label(metric),
        [shown for _, shown in finals if shown[0] not in once],
        max(len(group.runs) for group in groups),
        differences.winner(groups, metric),
        [shown for _, shown in finals if shown[0] in near],
        differences.ahead(groups, metric),
        alone,
        learned(groups, metric),
        [shown for _, shown in finals if shown[0] in once],
        sentence_case(differences.means_say(groups, metric)),
        differences.in_words(groups, metric),
    )


def _what_was_run(groups: Sequence[Group]) -> list[str]:
    shared = dict(groups[0].config)
    for key in differing([group.config for group in groups]):
        shared.pop(key, None)
    method = groups[0].name if len(groups) == 1 else f"{len(groups)} settings"
    parts = [
        f"{method} on {registry.label(str(shared['world.name']))}"
        if "world.name" in shared
        else method
    ]
    if shared.get("federation.kind", "federated") != "federated":
        parts.append(str(shared["federation.kind"]))
    if isinstance(clients := shared.get("federation.clients"), int):
        parts.append(counted(clients, "client"))
    if isinstance(rounds := shared.get("rounds"), int):
        runs = [run for group in groups for run in group.runs]
        reached = min(max(run.rounds) for run in runs)
        finished = all(run.status == "finished" for run in runs)
        so_far = "" if finished else f"{reached} of " if len(runs) == 1 else "up to "
        parts.append(so_far + counted(rounds, "round"))
    fewest, *_, most = sorted(len(group.runs) for group in (*groups, groups[0]))
    if most == 1 and len(groups) > 1:
        return parts  # which the verdict says
    seeds = counted(most, "seed") + (" each" if len(groups) > 1 else "")
    return [*parts, seeds if fewest == most else f"{fewest} to {most} seeds"]


def warnings(groups: Sequence[Group], left_out: Sequence[str] = ()) -> list[str]:
    """What a reader must know first: runs that are not there or not finished."""
    lines = [f"Left out: {line}." for line in left_out]
    for group in groups:
        for run in group.runs:
            if run.status != "finished":
                line = f"Unfinished: {run.path.name} is at round {max(run.rounds)} of "
                line += f"{run.config.get('rounds', '?')} (status: {run.status})."
                line += f" It stopped on an error: {run.error}." if run.error else ""
                if len(group.runs) > 1:
                    line += f" All seeds of {group.name} are shown only as far as this one goes."
                lines.append(line)
    return lines


def notes(groups: Sequence[Group], panels: Sequence[plots.Panel]) -> list[str]:
    """How the main panels are to be read."""
    lines = []
    if any(one.start is not None for one in panels):
        lines.append("Dotted: the model that training began with (round 0).")
    if any(len(one.runs) > 1 for one in groups):
        lines.append(
            "Line: mean over seeds. Band: 95% t interval of that mean; that of two or three seeds "
            "is wide and may leave its panel."
        )
    if early := _ending_early(panels):
        lines.append(
            f"Against {' and '.join(early)} a curve ends where its shortest seed does, before the "
            "last rounds of the others: it may end elsewhere than the final value in the table."
        )
    if any(one.x_label == "episodes played" for one in panels) and len(groups) > 1:
        lines.append(
            "M clients per round play M times the episodes of one client alone: compare at equal "
            "rounds and at equal episodes."
        )
    return lines


def notes_on_levels(panels: Sequence[plots.Panel]) -> list[str]:
    if not panels:
        return []
    return [
        f"Against {panels[0].x_label}: a point is a level that was run, its bar the 95% t "
        "interval; nothing was measured between two of them."
    ]


def _ending_early(panels: Sequence[plots.Panel]) -> list[str]:
    """Axes on which a curve's last values are not those of the last round."""
    finals = {
        (one.title, name): values[:, -1]
        for one in panels
        if one.x_label == "round"
        for name, values in one.lines.items()
        if values.size
    }
    found = (
        one.x_label.partition(",")[0].replace("sent", "bytes sent")
        for one in panels
        for name, values in one.lines.items()
        if values.size
        and not np.array_equal(values[:, -1], finals[one.title, name], equal_nan=True)
    )
    return list(dict.fromkeys(found))
