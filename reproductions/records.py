"""Results as data: one small JSON file for every measured cell, by the digest of its settings.

A record says what was measured, by which commit, where and by which command. It is enough for every
table and figure, so that pages are written without the runs, and a cell that has one is not
computed again: a grid grows over days and machines.

    records/PART/CELL-DIGEST.json

What is in one depends on what made it. A run has `metrics` by round and the `seconds` of its
phases; seeds that were computed together have numbers that are compared `by_seed`, a `summary` of
all metrics over seeds and `bands` for figures; other measurements have `values` of their own.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedrl.config.loading import as_dict, resolve
from fedrl.core.atomic_files import write_atomically
from fedrl.core.types import Json, Tables, UserError
from fedrl.report import plots
from fedrl.runs import provenance
from fedrl.runs.read import CUMULATIVE, Run, flatten
from fedrl.runs.read import load as load_run
from reproductions.grid import Cell

DIGITS = 6
"""Of a number in a record, significant ones."""
RETURN = "eval/return"
PHASES = ("broadcast", "clients", "aggregate", "step", "evaluate", "checkpoint")

Data = Tables


@dataclass(frozen=True)
class Store:
    """A folder of records."""

    folder: Path

    def path(self, part: str, name: str, digest: str) -> Path:
        plain = re.sub(r"[^\w=.,+-]+", "_", name, flags=re.ASCII)
        return self.folder / part / f"{plain}-{digest}.json"

    def read(self, part: str, name: str, digest: str) -> Data | None:
        path = self.path(part, name, digest)
        if not path.is_file():
            return None
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UserError(f"{path} is no record: {error}") from None
        if not isinstance(found, dict) or found.get("digest") != digest:
            raise UserError(f"{path} is no record of {digest}: remove it")
        return found

    def write(self, part: str, name: str, digest: str, data: Data) -> None:
        path = self.path(part, name, digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = {"part": part, "cell": name, "digest": digest, **data}
        write_atomically(path, (in_lines(whole) + "\n").encode())


def in_lines(data: Data) -> str:
    """JSON that a diff can be read of: a line for each key, and for each key of its tables."""
    lines = []
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            inner = ",\n".join(f"  {_json(k)}: {_json(v)}" for k, v in value.items())
            lines.append(f" {_json(key)}: {{\n{inner}\n }}")
        else:
            lines.append(f" {_json(key)}: {_json(value)}")
    return "{\n" + ",\n".join(lines) + "\n}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def rounded(values: object, digits: int = DIGITS) -> Any:
    """Numbers as a record has them; what is not finite is null."""
    if isinstance(values, Mapping):
        return {key: rounded(value, digits) for key, value in values.items()}
    if isinstance(values, list | tuple | np.ndarray):
        return [rounded(value, digits) for value in values]
    if isinstance(values, float | np.floating):
        number = float(f"{float(values):.{digits}g}")
        if not np.isfinite(number):
            return None
        return int(number) if number.is_integer() and abs(number) < 1e15 else number
    return int(values) if isinstance(values, np.integer) else values


def differing(cell: Cell) -> Json:
    """The settings of a cell, flat, that are not the defaults."""
    config = cell.resolved()
    names = {"algorithm": {"name": config.algorithm.name}, "world": {"name": config.world.name}}
    usual = flatten(as_dict(resolve(names)))
    said = flatten(as_dict(config))
    shown = {k: v for k, v in said.items() if v != usual.get(k) and k not in ("name", "seed")}
    for key in ("algorithm.model", "algorithm.feedback_file", "partition.labels"):
        if key in shown:  # where it lies on one machine is nobody's business
            shown[key] = Path(shown[key]).name
    return {"algorithm.name": config.algorithm.name, "world.name": config.world.name} | shown


def portable(command: str | None) -> str | None:
    """A command without the folders of the machine that it ran on: of each, its last name."""
    words = (command or "").split(" ")
    return " ".join(Path(w).name if w.startswith("/") else w for w in words) or None


def origin(meta: Data | None = None) -> Json:
    """Commit, machine, command and date of a measurement: those of a run, or of this process."""
    meta = provenance.collect() if meta is None else meta
    hardware = dict(meta.get("hardware", {}))
    if meta.get("accelerator"):
        hardware["accelerator"] = meta["accelerator"]
    return {
        "commit": meta.get("commit"),
        "command": portable(meta.get("command")),
        "date": meta.get("started") or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "hardware": hardware,
        "versions": meta.get("versions", {}),
    }


# A run


def of_run(
    cell: Cell, seed: int, folder: Path, keep: Sequence[str], keep_clients: Sequence[str]
) -> Json:
    """The record of a run directory, as far as the run went."""
    run = load_run(folder)
    last = max(run.rounds)
    timed = [json.loads(line) for line in _whole_lines(folder / "timings.jsonl")]
    return {
        "seeds": [seed],
        "rounds": last,
        "settings": differing(cell),
        "metrics": {
            metric: rounded(list(zip(*found)))
            for metric in keep
            if (found := [(r, m[metric]) for r, m in run.rounds.items() if metric in m])
        },
        "totals": rounded({k: v for k, v in run.rounds[last].items() if k in CUMULATIVE}),
        "clients": {metric: clients_of(folder, metric) for metric in keep_clients},
        "failures": len(run.failures) or int(run.rounds[last].get("cohort/failed_so_far", 0)),
        "seconds": rounded(run.seconds, 4),
        "phases": phases(timed),
        "cpu_phases": phases([line.get("cpu", {}) for line in timed]),
        "processes": run.meta.get("processes"),
        **origin(run.meta),
    }


def phases(timed: Sequence[Json]) -> Json:
    """Seconds of each part of a round, over all rounds."""
    return rounded({p: s for p in PHASES if (s := sum(t.get(p, 0.0) for t in timed))}, 4)


def clients_of(folder: Path, metric: str) -> Json:
    """By round, what every client told, in the order of their numbers."""
    found: dict[str, dict[int, float]] = {}
    for line in map(json.loads, _whole_lines(folder / "clients.jsonl")):
        if line.get("status") == "ok" and metric in line:
            found.setdefault(str(line["round"]), {})[line["client"]] = line[metric]
    return {r: rounded(list(zip(*sorted(by.items()))), 4) for r, by in found.items()}


def _whole_lines(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [line for line in lines if line.endswith("}")]


def as_run(cell: Cell, seed: int, record: Data, path: Path) -> Run:
    """A record in the form in which runs are read."""
    rounds: dict[int, dict[str, float]] = {0: {}, int(record["rounds"]): {}}
    for metric, (at, values) in record["metrics"].items():
        for number, value in zip(at, values, strict=True):
            rounds.setdefault(number, {})[metric] = np.nan if value is None else float(value)
    rounds = dict(sorted(rounds.items()))
    rounds[max(rounds)] |= record.get("totals", {})
    failures: list[Json] = [{}] * int(record.get("failures", 0))
    config = flatten(as_dict(cell.resolved(seed)))
    return Run(path, config, dict(record), rounds, failures, float(record["seconds"] or 0.0))


# Seeds that are computed together


def of_seeds(cell: Cell, curves: Curves, at: Curves, seconds: float) -> Json:
    """`curves[metric]` is [seeds, points], `at[metric]` are the points' rounds."""
    bands = {}
    for metric in (RETURN, *cell.bands):
        mean, half = plots.interval(curves[metric])
        bands[metric] = {"at": at[metric], "mean": mean, "half": half}
    return {
        "seeds": cell.span or list(cell.seeds),
        "rounds": cell.rounds,
        "settings": differing(cell),
        "by_seed": rounded({name: compared(name, curves) for name in cell.compare}, 5),
        "summary": rounded({m: summary(curves[m], at[m]) for m in curves}, 5),
        "bands": rounded(bands, 5),
        "steps": float(curves["env/steps"][:, -1].sum()),
        "seconds": rounded(seconds, 4),
        **origin(),
    }


Curves = Mapping[str, np.ndarray]


def compared(name: str, curves: Curves) -> np.ndarray:
    """What is kept of every seed: the return by name, or the mean of another metric's points."""
    return curves[name].mean(1) if name in curves else by_seed(curves[RETURN])[name]


def by_seed(returns: np.ndarray) -> Curves:
    """At the end, and over the run: how good it was on the way, round 0 aside."""
    return {"last": returns[:, -1], "mean": returns[:, 1:].mean(1)}


def summary(curve: np.ndarray, at: np.ndarray) -> dict[str, dict[str, float]]:
    """Over seeds: of the first point, the last, the mean of those after round 0, and of all."""
    kinds = {"first": curve[:, 0], "last": curve[:, -1], "all": curve}
    if (at > 0).any():
        kinds["mean"] = curve[:, at > 0].mean(1)
    found = {}
    for name, values in kinds.items():
        mean, half = plots.interval(values.reshape(len(values), -1).mean(1))
        found[name] = {"mean": float(mean), "half": float(half), "max": float(values.max()),
                       "median": float(np.median(values))}  # fmt: skip
    return found
