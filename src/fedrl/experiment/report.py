"""One HTML page for one run or for many: what was run, what came out, and how sure that is.

Runs that differ only in their seed form a group. Every number of a group is taken over rounds that
all of its seeds have reached, so that no curve bends because a seed stopped early.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from fedrl.experiment import plots
from fedrl.types import UserError

CUMULATIVE = ("env/steps", "comm/bytes_up", "comm/bytes_down")
NO_SETTING = ("seed", "out", "track", "checkpoint_every")
"""Keys that may differ within a group: a seed is a repetition, the others move no number."""
MAIN = ("eval/success", "eval/return")
BARE = ("algorithm.name", "federation.kind", "world.name")
"""Keys that need no `key=` in a name."""
SYMBOLS = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "epsilon": "ε",
    "eta": "η",
    "lambda": "λ",
    "mu": "μ",
    "sigma": "σ",
    "tau": "τ",
    "omega": "ω",
}
WORDS = {
    "eval": "evaluation",
    "train": "training",
    "success": "success rate",
    "failed_so_far": "failed clients so far",
    "grad_norm_sq": "squared gradient norm ‖∇J‖²",
    "grad_norm": "gradient norm ‖∇J‖",
    "weight_mean": "mean importance weight",
    "return_last100": "return over the last 100 episodes",
}
MOST_POINTS = 600
"""Points of a drawn curve: more than a panel has pixels only makes the page heavy."""
MOST_ROWS = 200
"""Rows of the table of failures."""


@dataclass(frozen=True)
class Run:
    """A run directory as it was read; `rounds` maps each round to its metrics."""

    path: Path
    config: dict[str, Any]
    meta: dict[str, Any]
    rounds: dict[int, dict[str, float]]
    failures: list[dict[str, Any]]
    seconds: float

    @property
    def status(self) -> str:
        return str(self.meta.get("status", "unknown"))


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed."""

    name: str
    runs: tuple[Run, ...]

    @property
    def config(self) -> dict[str, Any]:
        return settings(self.runs[0])


def build(runs: Sequence[Path], out: Path | None = None) -> Path:
    """Write the page (and its PNGs beside it) and say where it is."""
    folders = list(dict.fromkeys(Path(run).resolve() for run in runs))
    if not folders:
        raise UserError("a report needs at least one run folder")
    single = folders[0] if len(folders) == 1 else None
    page = out or (single / "report.html" if single else Path("report.html"))
    if page.is_dir():
        raise UserError(f"{page} is a folder: name the page to write, such as {page}/report.html")
    pictures = single / "plots" if single else page.with_name(f"{page.stem}_plots")
    groups = group(tuple(load(folder) for folder in folders))
    text = html_page(groups, pictures)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")
    return page


# Reading


def load(folder: Path) -> Run:
    """Read a run directory, finished or not."""
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        raise UserError(f"{folder} is no run: expected a folder with config.toml, found {found}")
    if not (folder / "config.toml").is_file():
        inside = sorted(path.name for path in folder.iterdir())
        found = ", ".join(inside[:4]) + (", …" if len(inside) > 4 else "") or "an empty folder"
        raise UserError(f"{folder} is no run: expected config.toml in it, found {found}")
    try:
        config = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{folder / 'config.toml'} cannot be read: {error}") from None
    rounds = _rounds(folder / "metrics.jsonl")
    if not rounds:
        raise UserError(f"{folder} has no metrics yet: its metrics.jsonl is missing or empty")
    meta_file = folder / "meta.json"
    try:
        meta = json.loads(meta_file.read_text(encoding="utf-8")) if meta_file.is_file() else {}
    except json.JSONDecodeError as error:
        raise UserError(f"{meta_file} cannot be read: {error}") from None
    failed = [line for line in _lines(folder / "clients.jsonl") if line.get("status") == "failed"]
    timed = sum(float(line.get("seconds", 0.0)) for line in _lines(folder / "timings.jsonl"))
    seconds = float(meta.get("seconds") or timed)
    return Run(folder, flatten(config), meta, rounds, failed, seconds)


def _lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a `.jsonl` file; a last line that was cut short by a kill is left out."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    result = []
    for number, line in enumerate(lines, start=1):
        try:
            result.append(json.loads(line))
        except json.JSONDecodeError:
            if number < len(lines):
                raise UserError(f"{path}, line {number}: no valid JSON") from None
            continue
        if not isinstance(result[-1], dict) or not isinstance(result[-1].get("round"), int):
            raise UserError(f'{path}, line {number}: expected an object with a whole "round"')
    return result


def _rounds(path: Path) -> dict[int, dict[str, float]]:
    """Metrics by round. A round that a resumed run did again counts once, as it was last."""
    rounds = {
        int(line["round"]): {
            name: float(value)
            for name, value in line.items()
            if name != "round" and isinstance(value, int | float)
        }
        for line in _lines(path)
    }
    rounds = dict(sorted(rounds.items()))
    for name in CUMULATIVE:
        if any(name in metrics for metrics in rounds.values()):
            total = 0.0
            for metrics in rounds.values():
                total = metrics.setdefault(name, total)
    failed = 0.0
    for metrics in rounds.values():
        failed += metrics.get("cohort/failed", 0.0)
        metrics["cohort/failed_so_far"] = failed
    return rounds


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


# Groups and their names


def settings(run: Run) -> dict[str, Any]:
    return {key: value for key, value in run.config.items() if key not in NO_SETTING}


def group(runs: Sequence[Run]) -> list[Group]:
    """Runs that differ only in `seed` together, in the order of their first runs."""
    members: dict[str, list[Run]] = {}
    for run in runs:
        members.setdefault(json.dumps(settings(run), sort_keys=True, default=str), []).append(run)
    names = group_names([settings(same[0]) for same in members.values()])
    return [
        Group(name, tuple(sorted(same, key=lambda run: (run.config.get("seed", 0), run.path))))
        for name, same in zip(names, members.values(), strict=True)
    ]


def differing(dicts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys whose values are not the same in all of them, absent counting as a value."""
    keys = dict.fromkeys(key for one in dicts for key in one)
    return [key for key in keys if len({_show(one.get(key)) for one in dicts}) > 1]


def group_names(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Short names made of what differs: first the method, the federation and the world.

    Other keys are named only among groups that those three do not tell apart: that a method has
    settings of its own is no news.
    """
    if len(configs) == 1:
        return [str(configs[0].get("algorithm.name") or configs[0].get("name") or "run")]
    kinds = [key for key in BARE if key in differing(configs)]
    names: list[str] = []
    for config in configs:
        alike = [other for other in configs if all(other.get(k) == config.get(k) for k in kinds)]
        keys = [key for key in differing(alike) if key != "name"] or differing(alike)
        words = [str(config[key]) for key in kinds if key in config]
        words += [_word(key, config[key], keys) for key in keys if key in config]
        name = " ".join(words) or "defaults"
        # A name is also a key: two settings that only look the same (1 and "1") must stay two.
        names.append(name if name not in names else f"{name} #{len(names) + 1}")
    return names


def _word(key: str, value: Any, among: Sequence[str]) -> str:
    last = key.rpartition(".")[2]
    alone = sum(other.rpartition(".")[2] == last for other in among) == 1
    return f"{SYMBOLS.get(last, last) if alone else key}={_show(value).strip(chr(34))}"


def _show(value: Any) -> str:
    return "–" if value is None else json.dumps(value, ensure_ascii=False, default=str)


# Numbers

Against = Callable[[Mapping[str, float]], float]


def bytes_sent(metrics: Mapping[str, float]) -> float:
    return metrics.get("comm/bytes_up", 0.0) + metrics.get("comm/bytes_down", 0.0)


def env_steps(metrics: Mapping[str, float]) -> float:
    return metrics.get("env/steps", 0.0)


def common_rounds(runs: Sequence[Run], metric: str) -> tuple[list[Run], list[int]]:
    """The runs that have the metric at all, and the rounds in which every one of them has it."""
    sets = [{r for r, metrics in run.rounds.items() if metric in metrics} for run in runs]
    having = [run for run, found in zip(runs, sets, strict=True) if found]
    return having, sorted(set.intersection(*filter(None, sets))) if having else []


def curve(
    runs: Sequence[Run], metric: str, against: Against | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """x [points] and the metric [seeds, points]; `against` maps a round's metrics to its x.

    Seeds reach the same round after different numbers of steps, so each is read off its own curve
    at the seeds' mean steps.
    """
    having, rounds = common_rounds(runs, metric)
    if not rounds:
        return np.empty(0), np.empty((0, 0))
    y = np.array([[run.rounds[r][metric] for r in rounds] for run in having])
    if against is None:
        return np.array(rounds, dtype=float), y
    own = np.array([[against(run.rounds[r]) for r in rounds] for run in having])
    x = np.clip(own.mean(axis=0), own[:, 0].max(), own[:, -1].min())
    return x, np.array([np.interp(x, *pair) for pair in zip(own, y, strict=True)])


def plus_minus(samples: np.ndarray) -> str:
    """`478 ± 12`: as many digits as the interval can carry."""
    mean, half = plots.interval(samples)
    if not math.isfinite(mean):
        return "NaN"
    if not math.isfinite(half):
        return plots.si(mean, digits=4)
    if half == 0 or abs(mean) < 1e-3:
        return f"{mean:.4g} ± {half:.2g}"
    decimals = max(0, 1 - math.floor(math.log10(half)))
    return f"{mean:,.{decimals}f} ± {half:,.{decimals}f}"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def figures(group: Group, metric: str) -> dict[str, str]:
    """What the table says of a group."""
    rounds, values = curve(group.runs, metric)
    last = [list(run.rounds.values())[-1] for run in group.runs]
    failed = sum(_failures(run) for run in group.runs)
    row = {"final " + label(metric): "–", "at round": "–", "best": "–", "mean over rounds": "–"}
    if values.size:
        mean, _ = plots.interval(values)
        best = int(np.nanargmax(mean)) if np.isfinite(mean).any() else -1
        width = rounds[-1] - rounds[0]
        area = np.trapezoid(values, rounds, axis=1) / width if width else values[:, 0]
        row = {
            "final " + label(metric): plus_minus(values[:, -1]),
            "at round": f"{rounds[-1]:.0f}",
            "best": f"{plots.si(mean[best], digits=4)} (round {rounds[best]:.0f})",
            "mean over rounds": plus_minus(area),
        }
    return row | {
        "environment steps": plots.si(float(np.mean([env_steps(one) for one in last]))),
        "sent": plots.si(float(np.mean([bytes_sent(one) for one in last])), "B"),
        "wall time": duration(float(np.mean([run.seconds for run in group.runs]))),
        "seeds": ", ".join(str(run.config.get("seed", "–")) for run in group.runs),
        "failures": str(failed),
    }


def _failures(run: Run) -> int:
    return len(run.failures) or int(run.rounds[max(run.rounds)]["cohort/failed_so_far"])


# Curves


def label(metric: str) -> str:
    part, _, name = metric.partition("/")
    words = WORDS.get(name, name.replace("_", " "))
    return words if part in ("eval", "cohort") else f"{words} ({WORDS.get(part, part)})"


def main_metric(groups: Sequence[Group]) -> str:
    """Success or return on evaluation; else the first metric that all groups have."""
    drawn = {name: [curve(g.runs, name)[1].size > 0 for g in groups] for name in _metrics(groups)}
    everywhere = [name for name, has in drawn.items() if all(has)]
    somewhere = [name for name, has in drawn.items() if any(has)]
    for candidates in (everywhere, somewhere):
        for name in (*MAIN, *candidates):
            if name in candidates:
                return name
    raise UserError("these runs have no metric to draw besides their costs")


def _metrics(groups: Sequence[Group]) -> list[str]:
    names = {name for g in groups for run in g.runs for one in run.rounds.values() for name in one}
    order = {"eval": 0, "train": 1}
    drawn = (name for name in names if name.partition("/")[0] not in ("comm", "env", "cohort"))
    return sorted(drawn, key=lambda name: (order.get(name.partition("/")[0], 2), name))


def panel(
    groups: Sequence[Group], metric: str, x_label: str = "round", against: Against | None = None
) -> plots.Panel:
    x, lines = {}, {}
    for one in groups:
        at, values = curve(one.runs, metric, against)
        keep = np.unique(np.linspace(0, len(at) - 1, min(len(at), MOST_POINTS)).astype(int))
        x[one.name], lines[one.name] = at[keep], values[:, keep]
    positive = all((values > 0).all() for values in lines.values())
    return plots.Panel(
        title=label(metric),
        x_label=x_label,
        x=x,
        lines=lines,
        x_unit="B" if against is bytes_sent else "",
        log=positive and "grad_norm" in metric,
    )


def main_panels(groups: Sequence[Group], metric: str) -> list[plots.Panel]:
    panels = [panel(groups, metric)]
    for x_label, against in (
        ("environment steps", env_steps),
        ("sent, both directions", bytes_sent),
    ):
        if any(against(one) for g in groups for run in g.runs for one in run.rounds.values()):
            panels.append(panel(groups, metric, x_label, against))
    return panels


def image(one: plots.Panel) -> str:
    ends = "; ".join(
        f"{name} ends at {plus_minus(values[:, -1])}"
        for name, values in one.lines.items()
        if values.size
    )
    alt = f"Line plot of {one.title} against {one.x_label}: {ends}."
    uri = plots.as_data_uri(plots.curves([one], names=False))
    return f'<img alt="{escape(alt)}" src="{uri}">'


# The page


def html_page(groups: Sequence[Group], pictures: Path) -> str:
    metric = main_metric(groups)
    runs = [run for one in groups for run in one.runs]
    title = " and ".join(dict.fromkeys(str(run.config.get("name", "run")) for run in runs))
    main = main_panels(groups, metric)
    plots.save(plots.curves(main), pictures / f"{_file(metric)}.png")
    rows = {one.name: figures(one, metric) for one in groups}
    sections = [
        f"<header><p class=eyebrow>fedrl report</p><h1>{escape(title)}</h1>"
        f"<p class=headline>{headline(groups, metric)}</p></header>",
        warnings(groups),
        tiles(rows[groups[0].name]) if len(groups) == 1 else comparison(rows),
        section(_sentence(label(metric)), legend(groups) + gallery(main) + note(groups)),
        other_curves(groups, metric, pictures),
        failure_table(groups),
        config_section(groups),
        meta_section(groups),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)} · fedrl</title>'
        f"<style>{css()}</style></head><body><main>{''.join(sections)}</main></body></html>\n"
    )


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
            finals.append((float(values[:, -1].mean()), plus_minus(values[:, -1]), one.name))
    finals.sort(key=lambda final: -math.inf if math.isnan(final[0]) else final[0], reverse=True)
    result = f"final {escape(label(metric))} <strong>{finals[0][1]}</strong>"
    if len(finals) > 1:
        result = (
            f"highest final {escape(label(metric))} <strong>{escape(finals[0][2])}</strong> with "
            f"<strong>{finals[0][1]}</strong>, then {escape(finals[1][2])} with {finals[1][1]}"
        )
    interval = " (mean and 95% interval over seeds)" if seeds[-1] > 1 else ""
    return f"{escape(', '.join(parts))}: {result}{interval}."


def warnings(groups: Sequence[Group]) -> str:
    """What a reader must know first: runs that are not finished, seeds that count twice."""
    lines = []
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


def tiles(row: Mapping[str, str]) -> str:
    cells = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in row.items())
    return f"<dl class=tiles>{cells}</dl>"


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


def other_curves(groups: Sequence[Group], metric: str, pictures: Path) -> str:
    names = [name for name in _metrics(groups) if name != metric]
    if any(_failures(run) for one in groups for run in one.runs):
        names.append("cohort/failed_so_far")
    panels = []
    for name in names:
        one = panel(groups, name)
        if any(values.size for values in one.lines.values()):
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


def spans(numbers: Sequence[int]) -> str:
    """`3, 7–9, 12` of sorted numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)


def config_section(groups: Sequence[Group]) -> str:
    runs = [run for one in groups for run in one.runs]
    configs = [one.config for one in groups] if len(runs) > 1 else [runs[0].config]
    keys = differing(configs)
    parts = []
    if keys:
        body = [
            [f"{swatch(i)}{escape(g.name)}", *(escape(_show(g.config.get(key))) for key in keys)]
            for i, g in enumerate(groups)
        ]
        parts.append("<h3>What differs</h3>" + table(["", *keys], body))
        parts.append("<h3>What is the same</h3>")
    common = {key: value for key, value in configs[0].items() if key not in keys}
    tables: dict[str, list[str]] = {}
    for key, value in common.items():
        part, _, name = key.rpartition(".")
        tables.setdefault(part, []).append(f"{name} = {_show(value)}")
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


def section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def table(head: Iterable[str], body: Iterable[Sequence[str]], wrap: bool = False) -> str:
    """Cells of `body` are HTML already, `head` is text."""
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    lines = "".join(
        f'<tr><th scope="row">{row[0]}</th>' + "".join(f"<td>{c}</td>" for c in row[1:]) + "</tr>"
        for row in body
    )
    kind = "wrap" if wrap else "nowrap"
    return (
        f'<div class=scroll tabindex="0"><table class={kind}>'
        f"<thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def swatch(index: int) -> str:
    dash = {"-": "", "--": "6 3", ":": "2 2", "-.": "6 2 2 2"}[plots.line_style(index)[1]]
    colour = f"var(--c{index % len(plots.PALETTE)})"
    return (
        '<svg class=swatch width="22" height="8" aria-hidden="true">'
        f'<path d="M0 4H22" style="stroke:{colour};stroke-width:3;stroke-dasharray:{dash}"/></svg>'
    )


def legend(groups: Sequence[Group]) -> str:
    if len(groups) == 1:
        return ""
    names = "".join(f"<li>{swatch(i)}{escape(one.name)}</li>" for i, one in enumerate(groups))
    return f"<ul class=legend>{names}</ul>"


def gallery(panels: Iterable[plots.Panel]) -> str:
    return f"<div class=gallery>{''.join(map(image, panels))}</div>"


def note(groups: Sequence[Group]) -> str:
    if all(len(one.runs) == 1 for one in groups):
        return ""
    return (
        "<p class=note>Line: mean over seeds. Band: 95% t interval of that mean; that of two or "
        "three seeds is wide and may leave its panel.</p>"
    )


def _file(metric: str) -> str:
    return re.sub(r"[^\w.-]+", "_", metric)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _count(number: Any, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def css() -> str:
    def colours(palette: Sequence[str]) -> str:
        return "".join(f"--c{index}:{colour};" for index, colour in enumerate(palette))

    return (
        f":root{{{colours(plots.PALETTE)}--ink:{plots.INK};--paper:{plots.PAPER};--soft:#5b6472;"
        f"--line:#e1e4ea;--card:#f6f7f9;--warn:#fff3d6;--edge:#d99a00}}"
        f"@media(prefers-color-scheme:dark){{:root{{{colours(plots.PALETTE_DARK)}"
        f"--ink:{plots.INK_DARK};--paper:#14171d;--soft:#a2aab8;--line:#2e343f;--card:#1c2028;"
        "--warn:#3a2f12;--edge:#d9a520}}" + CSS
    )


CSS = """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
 font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1200px;margin:0 auto;padding:2.2rem clamp(1rem,3vw,2.5rem) 4rem}
h1{font-size:clamp(1.6rem,4vw,2.2rem);line-height:1.2;margin:.1rem 0 .6rem;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:2.6rem 0 .8rem}
h3{font-size:1rem;margin:1.4rem 0 .5rem}
.eyebrow{margin:0;color:var(--soft);font-size:.85rem;letter-spacing:.04em}
.headline{font-size:1.12rem;max-width:62rem;margin:0 0 1.2rem}
.note{color:var(--soft);font-size:.88rem;max-width:62rem;margin:.6rem 0 0}
.warning{background:var(--warn);border-left:4px solid var(--edge);border-radius:4px;
 padding:.6rem 1rem;margin:1.2rem 0}
.warning p{margin:.2rem 0;overflow-wrap:anywhere}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,195px),1fr));gap:.7rem;
 margin:1.2rem 0}
.tiles div{background:var(--card);border-radius:8px;padding:.7rem .9rem}
.tiles dt{color:var(--soft);font-size:.82rem}
.tiles dd{margin:.1rem 0 0;font-size:1.12rem;font-weight:600;font-variant-numeric:tabular-nums}
.gallery{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,340px),1fr));
 gap:1rem 1.2rem}
.gallery img{width:100%;max-width:520px;height:auto;display:block}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.4rem;list-style:none;padding:0;margin:0 0 .6rem;
 font-size:.92rem}
.swatch{vertical-align:middle;margin-right:.5rem;overflow:visible;fill:none}
summary{cursor:pointer;color:var(--soft)}
.scroll{overflow-x:auto;margin:.4rem 0}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.38rem 1.1rem .38rem 0;border-bottom:1px solid var(--line);
 vertical-align:top}
.nowrap th,.nowrap td{white-space:nowrap}
.wrap td{overflow-wrap:anywhere}
thead th{color:var(--soft);font-weight:500;font-size:.82rem;vertical-align:bottom}
tbody th{font-weight:600}
.blocks{columns:260px;column-gap:1rem}
pre{background:var(--card);border-radius:8px;padding:.7rem .9rem;margin:0 0 .8rem;
 font-size:.83rem;line-height:1.5;white-space:pre-wrap;overflow-wrap:anywhere;break-inside:avoid}
@media(max-width:500px){.tiles{grid-template-columns:1fr 1fr}}
@media print{main{padding:0}.scroll{overflow:visible}.nowrap th,.nowrap td{white-space:normal}}
"""
