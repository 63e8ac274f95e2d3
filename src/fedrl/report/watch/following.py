"""Run folders that are still being written, read as they grow: every byte once.

A line counts when it is whole. A log that is shorter than it was, or another file, is read anew:
the run was resumed from a checkpoint, or started over; its `edition` tells readers to do the same.
"""

from __future__ import annotations

import json
import math
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedrl.core.registry import label
from fedrl.core.types import Json
from fedrl.report.method_colours import method_style
from fedrl.report.run_labels import beside_namesakes, families, without_world
from fedrl.runs.client_names import kept_names
from fedrl.runs.main_metric import main_metrics
from fedrl.runs.read import OF_A_SEED, OF_LEARNING, flatten, why_stopped

MOST_BYTES = 8_000_000
"""Read of a log at once: a long run appears piece by piece instead of late."""
CALLED = ("name", "method", "kind", "seed")
"""What the page calls a run by."""
RECENT = 20
"""Rounds behind the time that is left."""


class Tail:
    """A log, from where it was read to last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.at = 0
        self.file: tuple[int, int] | None = None

    def restarted(self) -> bool:
        """Whether what was read is not what the file begins with any more."""
        try:
            found = self.path.stat()
        except OSError:
            return False
        same = (found.st_dev, found.st_ino)
        again = self.file is not None and (found.st_size < self.at or same != self.file)
        self.file = same
        if again:
            self.at = 0
        return again

    def whole_lines(self) -> list[tuple[int, bytes]]:
        """What is new, with where it begins: half a line waits for its end."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.at)
                data = file.read(MOST_BYTES)
        except OSError:
            return []
        found = []
        for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            found.append((self.at, line))
            self.at += len(line)
        return found

    def lines(self) -> list[dict[str, Any]]:
        """What is new: objects of whole lines, those that cannot be read left out."""
        found = []
        for _, line in self.whole_lines():
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                found.append(value)
        return found


@dataclass
class Followed:
    """One run, as far as it was read."""

    path: Path
    edition: int = 0
    settings: Json = field(default_factory=dict)
    rounds: list[int] = field(default_factory=list)
    metrics: list[dict[str, float | str]] = field(default_factory=list)
    """By round; what is not finite is a word, so that a run that diverges is not seen as one that
    did not measure."""
    clients: list[tuple[int, int, str]] = field(default_factory=list)
    """Round, client, and why it failed; nothing if it did not."""
    numbers: list[dict[str, float]] = field(default_factory=list)
    """Of the lines of `clients`, what they measured."""
    measured: set[str] = field(default_factory=set)
    """The names in `numbers`."""
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = ("metrics.jsonl", "clients.jsonl", "timings.jsonl")
        self.tails = {name: Tail(self.path / name) for name in names}

    def read(self) -> None:
        """Take what is new."""
        if not self.settings:
            self.settings = settings_of(self.path)
        again = [tail.restarted() for tail in self.tails.values()]  # each of them is to look
        if any(again):
            self._anew()
        for line in self.tails["metrics.jsonl"].lines():
            number = line.pop("round", None)
            if not isinstance(number, int) or (self.rounds and number <= self.rounds[-1]):
                continue
            self.rounds.append(number)
            self.metrics.append(numbers(line))
        for line in self.tails["clients.jsonl"].lines():
            number, client = line.pop("round", None), line.pop("client", None)
            if isinstance(number, int) and isinstance(client, int):
                failed = line.get("status") == "failed"
                why = str(line.get("reason") or line.get("error") or "failed") if failed else ""
                self.clients.append((number, client, why))
                self.numbers.append(finite(line))
                self.measured |= self.numbers[-1].keys()
        for line in self.tails["timings.jsonl"].lines():
            line.pop("round", None)
            compiled = line.get("compile")
            later = sum(finite(compiled).values()) if isinstance(compiled, dict) else 0.0
            self.seconds.append(sum(finite(line).values()) - later)  # what comes compiles no more

    def _anew(self) -> None:
        self.edition += 1
        for log in (self.rounds, self.metrics, self.clients, self.numbers, self.seconds):
            log.clear()
        self.measured.clear()
        for tail in self.tails.values():
            tail.at = 0

    # What readers ask for

    @property
    def address(self) -> str:
        """Its path as a page can say it: a folder's name need not be text."""
        return str(self.path).encode("utf-8", "replace").decode()

    def about(self) -> Json:
        """A line of the list of runs."""
        meta, planned = meta_of(self.path), int(self.settings.get("rounds", 0))
        method, kind = (
            str(self.settings.get(key, given))
            for key, given in (("algorithm.name", ""), ("federation.kind", "federated"))
        )
        called = str(self.settings.get("name", self.path.parent.name))
        name = OF_A_SEED.sub("", called)
        done = self.rounds[-1] if self.rounds else 0
        status = str(meta.get("status", "unknown"))
        last = max((changed(tail.path) for tail in self.tails.values()), default=0.0)
        recent = self.seconds[-RECENT:]
        each = sum(recent) / len(recent) if recent else 0.0
        quiet = max(0.0, time.time() - last) if last else 0.0
        if status == "running" and quiet > max(60.0, 10 * each):
            status = "silent"
        left = each * (planned - done) if status == "running" and each else None
        return {
            "path": self.address,
            "name": name,
            "variant": name if name != called else "",
            "run": self.path.name,
            "method": label(method),
            "style": method_style(method) if kind == "federated" else None,
            "world": label(str(self.settings.get("world.name", ""))),
            "kind": kind,
            "seed": self.settings.get("seed"),
            "clients": self.settings.get("federation.clients"),
            "names": kept_names(meta),
            "first": main_metrics(self.settings),
            "engine": str(self.settings.get("engine", "")),
            "status": status,
            "why": why_stopped(self.path) if status == "stopped" else "",
            "quiet": round(quiet),
            "round": done,
            "rounds": planned,
            "left": left,
            "edition": self.edition,
        }

    def news(self, edition: int, rounds: int, lines: int) -> Json:
        """Metrics and clients' lines after so many of them; all of it for another edition."""
        if edition != self.edition:
            rounds = lines = 0
        return {
            "edition": self.edition,
            "since": rounds,
            "rounds": self.rounds[rounds:],
            "metrics": columns(self.metrics[rounds:]),
            "lines": lines,
            "clients": [list(one) for one in self.clients[lines:]],
        }

    def of_clients(self, metric: str) -> Json:
        """By client, a metric that clients tell, by round."""
        found: dict[int, tuple[list[int], list[float]]] = {}
        for (number, client, _), measured in zip(self.clients, self.numbers, strict=True):
            if metric in measured:
                at, values = found.setdefault(client, ([], []))
                at.append(number)
                values.append(measured[metric])
        return {str(client): list(both) for client, both in sorted(found.items())}

    def client_metrics(self) -> list[str]:
        """What tells of learning before what was counted or spent."""
        first = [name for name in OF_LEARNING if name in self.measured]
        return [*first, *sorted(self.measured - set(first))]


def about_all(runs: Sequence[Followed]) -> list[Json]:
    """A line about each; `apart` tells those apart that have the same name, method and seed,
    `family` is the same of runs that differ in their seed alone, and `kin` of those that differ in
    their world, or in how unlike its clients are, as well."""
    ids = folder_ids([run.path for run in runs])
    lines = [run.about() | {"id": one} for run, one in zip(runs, ids, strict=True)]
    calls = ["/".join(str(line[key]) for key in CALLED) for line in lines]
    apart = beside_namesakes([run.settings for run in runs], calls, ids)
    family = families([run.settings for run in runs])
    kin = families([without_world(run.settings) for run in runs])
    told = zip(lines, apart, family, kin, strict=True)
    return [line | {"apart": a, "family": f, "kin": k} for line, a, f, k in told]


def folder_ids(paths: Sequence[Path]) -> list[str]:
    """By folder the shortest that no other has of: what its name ends with, its name, and its name
    with the folders above."""
    ends = [["/".join(path.parts[-n:]) for n in range(1, len(path.parts) + 1)] for path in paths]
    forms = [[path.name.rpartition("-")[2], *own] for path, own in zip(paths, ends, strict=True)]
    often = Counter(form for own in forms for form in set(own))
    return [next((form for form in own if often[form] == 1), own[-1]) for own in forms]


def settings_of(path: Path) -> Json:
    try:
        return flatten(tomllib.loads((path / "config.toml").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def meta_of(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads((path / "meta.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def numbers(line: Mapping[str, Any]) -> dict[str, float | str]:
    """The numbers of a line; "nan", "inf" and "-inf" are what JSON cannot say."""
    found = {
        name: float(value)
        for name, value in line.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return {name: one if math.isfinite(one) else str(one) for name, one in found.items()}


def finite(line: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in numbers(line).items() if not isinstance(value, str)}


def columns(rows: Sequence[Mapping[str, float | str]]) -> dict[str, list[float | str | None]]:
    """By metric, its values; None where a round has none."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def find_runs(places: Iterable[Path], most: int = 200) -> list[Path]:
    """Run folders that these are, or that lie up to three folders below, and those of sweeps in a
    folder of runs (SWEEP/runs/VARIANT/RUN); the newest first."""
    found: dict[Path, float] = {}
    for place in places:
        for depth in ("", "*/", "*/*/", "*/*/*/", "*/runs/*/*/"):
            try:
                configs = list(place.glob(f"{depth}config.toml"))
            except FileNotFoundError:  # a folder went away meanwhile: the next look finds the rest
                continue
            for config in configs:
                if (config.parent / "meta.json").is_file():
                    found[config.parent] = changed(config)
    return sorted(found, key=lambda path: found[path], reverse=True)[:most]
