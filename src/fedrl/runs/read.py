"""Run directories as they are read: settings, metrics by round, failures, and what they cost."""

from __future__ import annotations

import glob
import json
import logging
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrl.core.types import Json, Tables, UserError
from fedrl.runs import logs

LOG = logging.getLogger("fedrl")
CUMULATIVE = ("env/steps", "env/episodes", "env/tokens", "comm/bytes_up", "comm/bytes_down")

STOPPED, LOG_BYTES, MOST_WORDS = " stopped: ", 50_000, 300
"""How a log says why, how much of its end is looked at, and how much of it is shown."""


@dataclass(frozen=True)
class Run:
    """A run directory as it was read; `rounds` maps each round to its metrics."""

    path: Path
    config: Json
    meta: Json
    rounds: dict[int, dict[str, float]]
    failures: list[Json]
    seconds: float
    training_seconds: float | None = None
    """Of its rounds without compiling; None where the run does not tell these apart."""
    starting_seconds: float | None = None
    """Until its rounds began, and compiling in them; None as above."""
    error: str = ""
    """That it stopped on; empty where somebody stopped it, or nothing did."""

    @property
    def status(self) -> str:
        return str(self.meta.get("status", "unknown"))


def load(folder: Path) -> Run:
    """Read a run directory, finished or not."""
    if not os.path.isdir(folder):  # unlike Path.is_dir, also of names that are too long
        found = "a file" if os.path.exists(folder) else "nothing"
        raise UserError(f"{folder} is no run: expected a folder with config.toml, found {found}")
    if not (folder / "config.toml").is_file():
        inside = sorted(path.name for path in folder.iterdir())
        found = ", ".join(inside[:4]) + (", …" if len(inside) > 4 else "") or "an empty folder"
        runs = next((form for form in ("*", "*/*") if any(folder.glob(f"{form}/config.toml"))), "")
        if runs:
            raise UserError(f"{folder} is no run but holds some: name them as '{folder / runs}'")
        raise UserError(f"{folder} is no run: expected config.toml in it, found {found}")
    try:
        config = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
    except ValueError as error:  # no TOML, or no text at all
        raise UserError(f"{folder / 'config.toml'} cannot be read: {error}") from None
    rounds = _rounds(folder / "metrics.jsonl")
    if not rounds:
        why = why_stopped(folder)
        said = f"it stopped on an error: {why}" if why else "its metrics.jsonl is missing or empty"
        raise UserError(f"{folder} has no metrics yet: {said}")
    meta = _meta(folder / "meta.json")
    failed = [line for line in client_records(folder) if line.get("status") == "failed"]
    timings = _lines(folder / "timings.jsonl")
    timed = sum(map(_sum, timings))
    seconds = _number(meta.get("seconds")) or timed
    settings = flatten(config)
    apart = _apart(timings, timed, meta) if settings.get("engine") == "inprocess" else (None, None)
    broke = why_stopped(folder) if meta.get("status") == "stopped" else ""
    return Run(folder, settings, meta, rounds, failed, seconds, *apart, error=broke)


def _apart(
    timings: Sequence[Tables], timed: float, meta: Tables
) -> tuple[float | None, float | None]:
    """Training, and starting with compiling. Clients in other processes compile unseen, and runs
    of versions before did not write it down: then neither is known."""
    compiled = [line.get("compile") for line in timings]
    starting = _number(meta.get("startup_seconds", 0.0))
    if not timings or starting is None or not all(isinstance(one, Mapping) for one in compiled):
        return None, None
    spent = sum(_sum(one) for one in compiled if isinstance(one, Mapping))
    return timed - spent, starting + spent


def _sum(line: Tables) -> float:
    """Of a line's seconds, by part of the round."""
    found = (_number(value) for part, value in line.items() if part != "round")
    return sum(number for number in found if number is not None)


OF_LEARNING = (
    "personal/accuracy",
    "train/success",
    "train/return",
    "held/accuracy",
    "train/reward",
)
"""Of what clients log, what tells most of learning, in this order; what was counted or spent comes
after it."""
OF_A_SEED = re.compile(r"-seed\d+\.[0-9a-f]{12}$")
"""What a grid adds to a variant's name, for a folder of its own."""


def runs_in(folder: Path) -> list[Path]:
    """The run's own folder, those in a folder of runs, or those of a sweep; nothing is opened that
    is none. Of a sweep's runs of one variant and seed, whose code or data has changed since, the
    newest counts."""
    if (folder / "config.toml").is_file() or not os.path.isdir(folder):
        return [folder]
    places = folder / "runs" if (folder / "runs").is_dir() else folder
    grid = sorted(path.parent for path in places.glob("*/*/config.toml"))
    grid = [path for path in grid if OF_A_SEED.search(path.parent.name)]
    own = sorted(path.parent for path in folder.glob("*/config.toml"))
    newest: dict[str, Path] = {}
    for path in sorted(grid, key=_started):
        newest[path.parent.name.rpartition(".")[0]] = path
    if older := len(grid) - len(newest):
        LOG.warning("%s: left out %d older runs of the same variants and seeds", folder, older)
    return [*own, *newest.values()] or [folder]  # as they were begun: about as the sweep has them


def runs_named(name: str) -> list[Path]:
    """Of a folder, as `runs_in` has them; of a pattern, the runs that it finds: none, perhaps."""
    if os.path.exists(name) or not glob.has_magic(name):
        return runs_in(Path(name))
    found = [Path(place) for place in sorted(glob.glob(name))]
    # a pattern also finds pages and pictures beside runs; else it may stop a folder short
    own = [place for place in found if (place / "config.toml").is_file()]
    inside = (one for place in found for one in runs_in(place))
    return own or [place for place in inside if (place / "config.toml").is_file()]


def _started(path: Path) -> tuple[str, Path]:
    try:
        return str(_meta(path / "meta.json").get("started", "")), path
    except UserError:  # whoever reads the run says so
        return "", path


def load_all(folders: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """The runs that can be read, and a line about each that cannot, which is also logged.

    A single run that cannot be read is an error, and so is it if none can.
    """
    found: list[Run] = []
    left_out: list[str] = []
    for folder in folders:
        try:
            found.append(load(folder))
        except UserError as error:
            if len(folders) == 1:
                raise
            left_out.append(str(error))
        except OSError as error:  # another user's, perhaps, whom its cohorts are a secret of
            if len(folders) == 1:
                raise
            left_out.append(f"{error.filename}: {error.strerror}")
    if not found:
        raise UserError(f"none of these {len(folders)} can be shown: {left_out[0]}")
    for line in left_out:
        LOG.warning("left out: %s", line)
    return found, left_out


def why_stopped(path: Path) -> str:
    """What its log says last of that; nothing if somebody stopped it."""
    try:
        with (path / "log.txt").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - LOG_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    said = [line.partition(STOPPED)[2] for line in lines if STOPPED in line]
    why = said[-1] if said else ""
    return "" if why.startswith(("KeyboardInterrupt", "StopRun")) else why[:MOST_WORDS]


def last_round(folder: Path) -> int:
    """The last one that is logged, also of a run that is being written; −1 if there is none."""
    return logs.last_round(folder / logs.METRICS)


def client_records(folder: Path) -> list[Json]:
    """What is logged of every client and round."""
    return _lines(folder / "clients.jsonl")


def _meta(path: Path) -> Json:
    try:
        meta = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    if not isinstance(meta, dict):
        raise UserError(f"{path} cannot be read: expected an object")
    return meta


def _number(value: Any) -> float | None:
    """As JSON has it; None for what is none, or too large for one."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _lines(path: Path) -> list[Json]:
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
        except (ValueError, RecursionError):
            if number < len(lines):
                raise UserError(f"{path}, line {number}: no valid JSON") from None
            continue
        if not isinstance(result[-1], dict) or type(result[-1].get("round")) is not int:
            raise UserError(f'{path}, line {number}: expected an object with a whole "round"')
    return result


def _rounds(path: Path) -> dict[int, dict[str, float]]:
    """Metrics by round. A round that a resumed run did again counts once, as it was last."""
    rounds = {
        int(line["round"]): {
            name: number
            for name, value in line.items()
            if name != "round" and (number := _number(value)) is not None
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


def flatten(tree: Tables, prefix: str = "") -> Json:
    flat: Json = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
