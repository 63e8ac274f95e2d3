"""The door: train, resume, read, compare. The command line and the reproductions call this.

    import fedrl

    run = fedrl.run("momentum/cartpole", rounds=50, seed=3, algorithm={"beta": 0.2})
    run.metrics["eval/return"].plot()
    fedrl.resume(run.path, rounds=80)
    fedrl.load("runs/*/*").report("page.html")

A setting is named as in a recipe: `rounds=50`, `federation={"clients": 10}`. Mistakes are a
`UserError` with the line that the command line would print. A callback is given every finished
`Round`; one that returns False stops the run after it, and the run can be resumed.

Randomness comes from the run's seed alone, so runs in one process do not disturb each other.
Loading this module asks numeric libraries for one thread each, unless the environment says else.
"""

from __future__ import annotations

import inspect
import multiprocessing
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrl.core import threads

threads.pin()  # before NumPy is imported

import numpy as np  # noqa: E402

from fedrl.aggregation.rule import Rule  # noqa: E402
from fedrl.algorithms.fedagent.settings import Settings as AgentSettings  # noqa: E402
from fedrl.api import flower  # noqa: E402
from fedrl.api.diagnosis import doctor  # noqa: E402
from fedrl.api.figures import draw  # noqa: E402
from fedrl.api.listing import catalogue  # noqa: E402
from fedrl.api.membership import joining  # noqa: E402
from fedrl.api.packages import new_package  # noqa: E402
from fedrl.api.papers import reproduce  # noqa: E402
from fedrl.api.people import answer_queries  # noqa: E402
from fedrl.api.real_data import data_sets, fetch_data  # noqa: E402
from fedrl.api.runs import Run, Runs, frame  # noqa: E402
from fedrl.api.signatures import verify  # noqa: E402
from fedrl.api.text_worlds import (  # noqa: E402
    open_world,
    parity,
    partition_tasks,
    play_world,
    warm_start,
)
from fedrl.api.theorems import gap, plan  # noqa: E402
from fedrl.api.watching import watch  # noqa: E402
from fedrl.config import parts  # noqa: E402
from fedrl.config.build import build_algorithm  # noqa: E402
from fedrl.config.loading import (  # noqa: E402
    as_dict,
    find_recipe,
    read_recipe,
    require_names,
    resolve,
    to_toml,
)
from fedrl.config.schema import Config  # noqa: E402
from fedrl.core.types import Algorithm, Tables, UserError  # noqa: E402
from fedrl.federation.round_loop import Round  # noqa: E402
from fedrl.runs import grid, train  # noqa: E402
from fedrl.runs.policies import load_policy  # noqa: E402
from fedrl.runs.preflight import check_model  # noqa: E402
from fedrl.runs.read import runs_named  # noqa: E402
from fedrl.runs.run_dir import RunDir, require_run  # noqa: E402

__all__ = [
    "DryRun", "Round", "Run", "Runs", "UserError", "answer_queries", "catalogue", "complete",
    "configure", "data_sets", "doctor", "draw", "dry_run", "fetch_data", "flower", "frame", "gap",
    "joining", "label_model", "load", "load_policy", "new_package", "open_world", "parity",
    "partition_tasks", "plan", "play_world", "register", "reproduce", "resume", "run", "sweep",
    "verify",
    "warm_start", "watch",
]  # fmt: skip

Callback = Callable[[Round], object]
"""Called after every round; returning False (not None) stops the run."""

Recipe = str | Path | Tables
"""The name of a recipe that comes with fedrl, a TOML file, or its tables as a dict."""


def configure(recipe: Recipe, flags: Sequence[str] = (), **settings: Any) -> Config:
    """All settings of a run, checked; `flags` are texts as on the command line."""
    tables = dict(recipe) if isinstance(recipe, Mapping) else read_recipe(find_recipe(str(recipe)))
    settings = plain(settings)
    said = dict(tables)
    for key in {"algorithm", "world"} & settings.keys():
        if isinstance(settings[key], Mapping) and isinstance(tables.get(key, {}), Mapping):
            said[key] = {**tables.get(key, {}), **settings[key]}
    require_names(said)
    return resolve(tables, flags, settings)


def label_model(
    model: str | Path,
    recipe: Recipe,
    out: str | Path,
    *,
    seed: int = 0,
    flags: Sequence[str] = (),
    **settings: Any,
) -> np.ndarray:
    """Write which training tasks of a recipe's world a model solves before any training, for the
    hardness partition; 1 for each."""
    from fedrl.runs.agents import label_model

    config = configure(recipe, [*flags, "--algorithm.model", str(model)], **settings)
    return label_model(config, Path(out), seed)


def _configured(recipe: Recipe | Config, flags: Sequence[str], settings: Tables) -> Config:
    if isinstance(recipe, Config):
        return resolve(as_dict(recipe), flags, plain(settings))
    return configure(recipe, flags, **settings)


def plain(value: Any) -> Any:
    """A setting as a recipe has it: a path is a text, a number of NumPy one of Python."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True)
class DryRun:
    """All settings of a run, and what a round of it moves and needs, in lines."""

    config: Config
    lines: list[str]

    @property
    def toml(self) -> str:
        """The settings as a recipe."""
        return to_toml(self.config)


def dry_run(recipe: Recipe | Config, *, flags: Sequence[str] = (), **settings: Any) -> DryRun:
    """What a run will do, before it does; what cannot be is refused here as it would be there."""
    config = _configured(recipe, flags, settings)
    return DryRun(config, train.plan(config))


def run(
    recipe: Recipe | Config,
    *,
    flags: Sequence[str] = (),
    callbacks: Iterable[Callback] = (),
    progress: bool | None = None,
    started: Callable[[Path], object] | None = None,
    **settings: Any,
) -> Run:
    """Train a recipe to its last round, in a new folder.

    `progress` shows it, on a terminal unless told otherwise, elsewhere if told so. `started` is
    called with the folder before the first round.
    """
    require_guard()
    called = list(callbacks)
    config = _configured(recipe, flags, settings)
    algorithm = build_algorithm(config)  # what cannot be built leaves no folder behind
    folder = train.start(config, algorithm)
    return _train(config, folder, algorithm, called, progress, started)


def resume(
    path: str | Path,
    *,
    flags: Sequence[str] = (),
    callbacks: Iterable[Callback] = (),
    progress: bool | None = None,
    started: Callable[[Path], object] | None = None,
    without_lost_lines: bool = False,
    **settings: Any,
) -> Run:
    """Go on with a run that was stopped; it ends with the numbers that it would have had.

    More `rounds`, and what changes no number, may be set anew.
    """
    require_guard()
    called = list(callbacks)
    config, folder = train.resume(Path(path), flags, without_lost_lines, plain(settings))
    with ExitStack() as stack:
        stack.callback(folder.close)
        algorithm = build_algorithm(config)
        check_model(config, algorithm)
        stack.pop_all()
    return _train(config, folder, algorithm, called, progress, started)


def _train(
    config: Config,
    folder: RunDir,
    algorithm: Algorithm,
    callbacks: Iterable[Callback],
    progress: bool | None,
    started: Callable[[Path], object] | None,
) -> Run:
    if started is not None:
        try:
            started(folder.path)
        except BaseException:
            folder.finish("stopped", 0.0)
            folder.close()  # so that it can be resumed
            raise
    train.train(config, folder, algorithm, callbacks, progress)
    return Run(folder.path)


def complete(config: Config) -> Run:
    """A cell of a grid: begin the run in its place (`grid.find`), or go on with it, to its end.

    A place may have moved since the run was begun, so that `config` counts, not the folder's own.
    """
    path = grid.find(config)
    started = note_accelerator if isinstance(config.algorithm, AgentSettings) else None
    if path is None:
        done = run(config, started=started)
    else:
        algorithm = build_algorithm(config)
        before = resolve(read_recipe(path / "config.toml"))
        longer = ["--rounds", str(config.rounds)] if config.rounds > before.rounds else []
        _, folder = train.resume(path, longer)
        done = _train(config, folder, algorithm, (), None, started)
    RunDir(done.path).keep(1)  # of a finished run one is enough; a language model's are large
    return done


def note_accelerator(path: Path) -> None:
    """Of language agents, whose minutes say nothing without it."""
    folder = RunDir(path)
    folder.write_meta(folder.read_meta() | {"accelerator": grid.accelerator()})


def load(runs: str | Path | Iterable[str | Path]) -> Runs:
    """Runs by their folders, or by a pattern of them: `fedrl.load("runs/momentum-*/*")`.

    The folder of a sweep, `fedrl.load("runs/poles")`, or of a recipe's runs stands for all in it.
    """
    named = [runs] if isinstance(runs, str | Path) else list(runs)
    if not named:
        raise UserError("name at least one run: runs/NAME/METHOD-s0-…")
    places = [place for name in named for place in runs_named(str(name))]
    if not places:
        raise UserError(f"no run is called {', '.join(map(str, named))}")
    for place in places:
        require_run(place)
    return Runs(map(Run, dict.fromkeys(places)))


def sweep(
    sweep: str | Path | Tables,
    *,
    flags: Sequence[str] = (),
    seeds: str | Iterable[int] | None = None,
    out: str | Path | None = None,
    processes: int | None = None,
    minutes: float | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Runs:
    """Train one recipe in several variants and seeds, as many at a time as there are cores.

    A sweep is a file or its tables: `{"recipe": …, "seeds": […], "runs": {name: flags}}`, where
    seeds may also be a text ("0-9"), flags a dict of settings, and a "name" says which folder of
    `runs` it is. Runs that are there are only read and stopped ones go on, so the same call goes on
    where it was. The runs that were begun come back.
    """
    from fedrl.runs import sweep as sweeps

    require_guard()
    planned = sweeps.read(plain(sweep) if isinstance(sweep, Mapping) else sweep)
    if seeds is not None:
        planned = planned.with_seeds(seeds)
    place = Path("runs") / planned.name if out is None else Path(out)
    begun, whole = sweeps.run(
        planned, complete, flags, place, processes, minutes, plain(settings), progress
    )
    runs = Runs(map(Run, begun))
    runs.whole, runs.place, runs.title = whole, place, f"{planned.recipe}: {planned.name}"
    return runs


def require_guard() -> None:
    """Refuse to train where a process that was started imports the script that started it."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UserError(
            'a script whose runs start processes (engine = "workers", a sweep) trains under '
            'if __name__ == "__main__":'
        )


def register(thing: object, name: str = "") -> str:
    """A method, world or rule of one's own under a name, in this process and workers it starts.

    The name is the class's own if none is given. A recipe that others shall use names it
    `package.module:Name`, or the package offers it as an entry point.
    """
    named = name or str(getattr(thing, "__name__", ""))
    if inspect.isroutine(thing):
        raise UserError(
            f"{named} is a plain function: declare a rule by @fedrl.aggregation.rule.rule(…), and "
            "name an attack or a reward by its module or file"
        )
    method = callable(getattr(thing, "local", None))
    table = "aggregate" if isinstance(thing, Rule) else "algorithm" if method else "world"
    parts.TABLES[table].register(named, thing)
    try:
        parts.find(table, named)  # says at once what it lacks
    except UserError:
        del parts.TABLES[table].registered[named]
        raise
    return named
