"""`fedrl sweep`: one recipe in several variants and seeds, side by side, and one page about them.

A sweep is a TOML file: the recipe, the seeds, and for each variant a name and the flags that one
would type after `fedrl run RECIPE`, or a table of settings. Runs that are there are only read,
stopped ones go on.
"""

from __future__ import annotations

import difflib
import hashlib
import logging
import re
import shlex
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from fedrl.config.build import build_algorithm, notes
from fedrl.config.flag_parsing import fields
from fedrl.config.loading import (
    as_dict,
    dotted,
    file_missing,
    find_recipe,
    read_recipe,
    recipes_folder,
    require_names,
    resolve,
)
from fedrl.config.schema import Config
from fedrl.config.seeds import parse_seeds
from fedrl.core.abilities import Outlined
from fedrl.core.registry import suggestion
from fedrl.core.types import Tables, UserError
from fedrl.runs.grid import RunCell, cost, find, finished, reached, short_hash
from fedrl.runs.main_metric import main_metrics
from fedrl.runs.process_pool import Job, cores, finish, pool
from fedrl.runs.read import load as load_run
from fedrl.runs.sweep_folder import refuse_other_settings

KEYS = ("recipe", "seeds", "runs")
FOLDER_NAME = r"[\w.-]*\w[\w.-]*"
OWN = ("seed", "name")
"""Settings of every run that the sweep itself says."""
LOOK = 1.0
"""Seconds between two looks at the runs' logs."""
FIRST_SECONDS, PLAIN_SECONDS = 3.0, 15.0
"""Without a terminal, when the first line comes, and how often more do."""


@dataclass(frozen=True)
class Sweep:
    """`variants` gives the flags or settings of each by its name."""

    name: str
    recipe: str
    seeds: tuple[int, ...]
    variants: Mapping[str, str | Tables]

    def with_seeds(self, seeds: str | Iterable[int]) -> Sweep:
        return replace(self, seeds=parse_seeds(seeds, "seeds"))

    def cells(self, flags: Sequence[str], settings: Tables | None = None) -> list[RunCell]:
        """One per variant; `flags` and `settings` count for all of them."""
        recipe = read_recipe(find_recipe(self.recipe))
        require_names(recipe)
        cells = []
        for name, own in self.variants.items():
            try:
                if isinstance(own, str):
                    config = resolve(recipe, [*shlex.split(own), *flags], settings)
                else:
                    config = resolve(as_dict(resolve(recipe, (), own)), flags, settings)
            except (UserError, ValueError) as error:  # shlex: of quotations that do not end
                raise UserError(f"variant {name!r}: {error}") from error
            cells.append(RunCell("", name, as_dict(config), self.seeds, _mark(config)))
        return cells


def _mark(config: Config) -> str:
    """What a run depends on beyond its settings: what the files hold that they name.

    The rounds belong to it, because the page shows whole runs. Of large files a megabyte is enough:
    the weights of another training differ from the first one on.
    """
    named = (getattr(config.algorithm, "model", ""), config.partition.labels)
    files = [
        file
        for place in map(Path, filter(None, named))
        for file in (sorted(place.iterdir()) if place.is_dir() else [place])
        if file.is_file()
    ]
    held = [(file.name, file.stat().st_size, _start(file)) for file in files]
    return short_hash([config.rounds, held])


def _start(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.sha256(opened.read(2**20)).hexdigest()


def read(sweep: str | Path | Tables) -> Sweep:
    """A path, the name of a sweep that comes with fedrl (`fedagent/baselines`), or its tables."""
    if isinstance(sweep, Mapping):
        name = sweep.get("name", "sweep")
        if not isinstance(name, str) or not re.fullmatch(FOLDER_NAME, name):
            raise UserError(
                f"the sweep's name is {name!r}; it names a folder: letters, digits, - _"
            )
        said = {key: value for key, value in sweep.items() if key != "name"}
        return replace(_checked(said, Path("sweep")), name=name)
    path = find_sweep(str(sweep))
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid TOML: {error}") from error
    return _checked(data, path)


def _checked(data: Tables, path: Path) -> Sweep:
    for key in data:
        if key not in KEYS:
            raise UserError(f"{path}: unknown key {key!r}; {suggestion(key, list(KEYS))}")
    recipe, seeds, runs = data.get("recipe"), data.get("seeds", [0]), data.get("runs", {})
    if not isinstance(recipe, str):
        raise UserError(f'{path}: name the recipe: recipe = "fedagent/demo"')
    named = isinstance(runs, Mapping) and bool(runs)
    if not named or not all(isinstance(own, str | Mapping) for own in runs.values()):
        raise UserError(f'{path}: [runs] gives the flags of each variant: more = "--rounds 9"')
    if not isinstance(seeds, str | list | tuple):
        raise UserError(f'{path}: seeds is {seeds}; write them like [0, 3, 7] or "0-9"')
    for name, own in runs.items():
        if isinstance(own, Mapping) and (rest := _split_name(own)):
            raise UserError(
                f"{path}: variant {name!r} holds a table, not flags: a name with a dot needs "
                f'quotes: "{name}.{rest}" = …'
            )
    if odd := [name for name in runs if not re.fullmatch(FOLDER_NAME, name)]:
        raise UserError(f"{path}: {odd[0]!r} names a folder: use letters, digits, ., - and _")
    return Sweep(path.stem, recipe, parse_seeds(seeds, f"{path}: seeds"), dict(runs))


def _split_name(table: Tables) -> str:
    """Of `lr-0.001 = "--flags"`, which TOML reads as a table, what stands after the first dot."""
    for key, value in table.items():
        if key not in fields(Config):
            inner = _split_name(value) if isinstance(value, Mapping) else ""
            if inner or (isinstance(value, str) and value[:1] in ("", "-")):
                return f"{key}.{inner}" if inner else key
    return ""


def find_sweep(name: str) -> Path:
    path = Path(name)
    if path.is_file():
        return path
    known = sweeps()
    wanted = name.removeprefix("recipes/").removesuffix(".toml").replace("/sweeps/", "/")
    if wanted in known:
        return known[wanted]
    beside = [file.name for file in sorted(path.parent.glob("*.toml"))]
    if near := difflib.get_close_matches(path.name, beside, n=1, cutoff=0.8):
        raise UserError(f"no sweep {name!r}; did you mean {str(path.with_name(near[0]))!r}?")
    if (recipes_folder() / f"{wanted}.toml").is_file():
        raise UserError(
            f"{name} is a recipe: fedrl run {name} --seeds 0-2 is a run per seed; a sweep is a "
            "file with variants of it (fedrl sweep --help)"
        )
    raise UserError(file_missing(name, known) or f"no sweep {name!r}; {suggestion(wanted, known)}")


def sweeps() -> dict[str, Path]:
    """Those that come with fedrl."""
    folder = recipes_folder()
    found = sorted(folder.glob("*/sweeps/*.toml"))
    return {f"{path.parent.parent.name}/{path.stem}": path for path in found}


def run(
    sweep: Sweep,
    train: Callable[[Config], object],
    flags: Sequence[str],
    out: Path,
    processes: int | None = None,
    minutes: float | None = None,
    settings: Tables | None = None,
    progress: bool | None = True,
) -> tuple[list[Path], bool]:
    """Do what is missing; the folders of all runs that were begun, and whether all are finished.

    `train`, which must be picklable, begins or goes on with one run, in a process of its own.
    """
    for said in (*flags, *(key for key, _ in dotted(settings or {}))):
        if said.split("=")[0].removeprefix("--") in OWN:
            raise UserError(f"{said}: a sweep names its runs itself; its seeds are --seeds 0-2")
    if processes is not None and processes < 1:
        raise UserError(f"--processes is {processes}; it must be at least 1")
    if minutes is not None and not minutes >= 0:
        raise UserError(f"--minutes is {minutes}; it must not be negative")
    until = None if minutes is None else time.time() + 60 * minutes
    wanted = {
        f"{cell.name}, seed {seed}" if len(sweep.seeds) > 1 else cell.name: cell.config(seed, out)
        for cell in sweep.cells(flags, settings)
        for seed in sweep.seeds
    }
    missing = {name: one for name, one in wanted.items() if not finished(one)}
    refuse_other_settings(wanted.values(), out)
    _try(missing.values())
    console = Console(stderr=True, highlight=False)
    console.quiet = not (progress or (progress is None and console.is_terminal))
    for line, variants in _notes(missing).items():
        console.print(f"note: {', '.join(variants)}: {line}", markup=False, soft_wrap=True)
    if missing:
        many = min(processes or cores(), len(missing))
        console.print(f"{len(missing)} of {len(wanted)} runs to do, {many} at a time, under {out}")
        with Watch(missing, console) as watch, pool(many) as executor:
            jobs = [
                Job(name, cost(config, reached(config)), partial(train, config))
                for name, config in missing.items()
            ]
            warn = logging.getLogger("fedrl").warning if console.quiet else None
            finish(executor, jobs, watch.say, until, warn, processes=many)
    begun = [path for one in wanted.values() if reached(one) >= 0 and (path := find(one))]
    whole = all(finished(one) for one in wanted.values())
    return begun, whole


def _notes(runs: Mapping[str, Config]) -> dict[str, list[str]]:
    """What is easily missed of the runs' settings, each with the variants that it is of."""
    found: dict[str, dict[str, None]] = {}
    for name, config in runs.items():
        for line in notes(config):
            found.setdefault(line, {})[name.partition(", seed")[0]] = None
    return {line: list(variants) for line, variants in found.items()}


def _try(runs: Iterable[Config]) -> None:
    """What cannot be built, a model that is not there included, is said before anything runs."""
    seen: set[str] = set()
    for config in runs:
        algorithm = build_algorithm(config)
        model = getattr(config.algorithm, "model", "")
        if isinstance(algorithm, Outlined) and model not in seen:
            seen.add(model)
            algorithm.outline()


class Watch:
    """A bar per run on a terminal, a line now and then elsewhere: what their logs say so far."""

    def __init__(self, runs: Mapping[str, Config], console: Console) -> None:
        self.runs, self.console = runs, console
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self._bars: Progress | None = None
        if console.is_terminal:
            columns = (
                SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20),
                TextColumn("{task.fields[told]}"),
            )  # fmt: skip
            self._bars = Progress(*columns, console=console)

    def __enter__(self) -> Watch:
        if self._bars is not None:
            self._bars.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._bars is not None:
            self._bars.stop()

    def say(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)

    def _look_on(self) -> None:
        bars: dict[str, TaskID] = {}
        if self._bars is not None:
            for name, config in self.runs.items():
                bars[name] = self._bars.add_task(name, total=config.rounds, told="waits")
        spoken, pause = time.monotonic(), FIRST_SECONDS
        while not self._over.wait(LOOK):
            if self._bars is None and time.monotonic() - spoken < pause:
                continue
            found = {name: standing(config) for name, config in self.runs.items()}
            if self._bars is None:
                spoken, pause = time.monotonic(), PLAIN_SECONDS
                told = [
                    f"{name}: {words}"
                    for name, (last, words) in found.items()
                    if words and last < self.runs[name].rounds  # those that ended have been told
                ]
                if told or not any(words for _, words in found.values()):
                    self.say("; ".join(told) or "starting")
                continue
            for name, (round_, words) in found.items():
                self._bars.update(bars[name], completed=max(round_, 0), told=words or "waits")


def standing(config: Config) -> tuple[int, str]:
    """The last round of a run, and in words where it stands."""
    last = reached(config)
    path = find(config)
    if path is None:
        return -1, ""
    if last < 0:
        return -1, "starting: loading, compiling"
    run = load_run(path)
    told = f"round {last} of {config.rounds}"
    for metric in (*main_metrics(run.config), "train/return"):
        values = [metrics[metric] for metrics in run.rounds.values() if metric in metrics]
        if values:
            return last, f"{told}, {metric} {values[0]:.3g} → {values[-1]:.3g}"
    return last, told
