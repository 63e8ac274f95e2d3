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

import glob
import multiprocessing
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrl.core import threads

threads.pin()  # before NumPy is imported

import numpy as np  # noqa: E402

from fedrl.config import parts  # noqa: E402
from fedrl.config.build import build_algorithm  # noqa: E402
from fedrl.config.loading import (  # noqa: E402
    as_dict,
    find_recipe,
    read_recipe,
    require_names,
    resolve,
)
from fedrl.config.schema import Config  # noqa: E402
from fedrl.core.types import Algorithm, Json, Tables, UserError  # noqa: E402
from fedrl.federation.round_loop import Round  # noqa: E402
from fedrl.runs import read, train  # noqa: E402
from fedrl.runs.evaluate import Evaluation, evaluate  # noqa: E402
from fedrl.runs.run_dir import RunDir, require_run  # noqa: E402

if TYPE_CHECKING:
    import pandas as pd

    from fedrl.runs.agents import SplitEvaluation

Callback = Callable[[Round], object]
"""Called after every round; returning False (not None) stops the run."""

Recipe = str | Path | Tables
"""The name of a recipe that comes with fedrl, a TOML file, or its tables as a dict."""


class Run:
    """A run's folder, and what can be asked of it. Nothing is read before it is asked for."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"<fedrl.Run {self.path}: {self.status}, round {self.round}>"

    @cached_property
    def config(self) -> Json:
        """All settings, nested as in a recipe."""
        require_run(self.path)
        return read_recipe(self.path / "config.toml")

    @property
    def status(self) -> str:
        """running, stopped or finished."""
        return str(RunDir(self.path).read_meta().get("status", "unknown"))

    @property
    def round(self) -> int:
        """The last one that is logged; −1 before the first."""
        return read.last_round(self.path)

    @property
    def rounds(self) -> dict[int, dict[str, float]]:
        """Metrics by round, without pandas."""
        return read.load(self.path).rounds

    @property
    def metrics(self) -> pd.DataFrame:
        """A row per round, a column per metric."""
        return frame([{"round": r} | m for r, m in self.rounds.items()]).set_index("round")

    @property
    def clients(self) -> pd.DataFrame:
        """A row per client and round: status, the reason of a failure, what the client reported."""
        require_run(self.path)
        return frame(read.client_records(self.path))

    def evaluate(self, episodes: int = 100, seed: int = 0) -> Evaluation:
        """The newest checkpoint in every client's environment, on fresh episodes."""
        return evaluate(self.path, episodes, seed)

    def report(self, out: str | Path | None = None, *, episodes: bool | None = None) -> Path:
        """Write one HTML page with curves and tables; where it is."""
        return Runs([self]).report(out, episodes=episodes)

    def evaluate_split(self, split: str, seed: int = 0) -> SplitEvaluation:
        """A language agent on every task of one split, such as "unseen", by type of task."""
        from fedrl.runs.agents import evaluate_split

        return evaluate_split(self.path, split, seed)

    def label(self, out: str | Path, seed: int = 0) -> np.ndarray:
        """Write which training tasks the agent solves, for the hardness partition; 1 for each."""
        from fedrl.runs.agents import label

        return label(self.path, Path(out), seed)

    def export(self, out: str | Path) -> Path:
        """The newest checkpoint's language model as an ordinary folder; where it is."""
        from fedrl.runs.agents import export

        export(self.path, Path(out))
        return Path(out)


class Runs(list[Run]):
    """Several runs, to be compared.

    Those of a sweep lie in `place` and have a `title`; `whole` says whether all are finished.
    """

    whole = True
    place = Path("runs")
    title = ""

    @property
    def metrics(self) -> pd.DataFrame:
        """All runs' metrics, with the columns run, seed and algorithm in front."""
        return frame(
            [
                {
                    "run": str(run.path),
                    "seed": run.config["seed"],
                    "algorithm": run.config["algorithm"]["name"],
                    "round": number,
                }
                | metrics
                for run in self
                for number, metrics in run.rounds.items()
            ]
        )

    def report(
        self, out: str | Path | None = None, title: str = "", *, episodes: bool | None = None
    ) -> Path:
        """Write one HTML page that compares them; where it is."""
        from fedrl.report.page import build

        page = None if out is None else Path(out)
        return build([run.path for run in self], page, title or self.title, episodes)


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


def plain(value: Any) -> Any:
    """A setting as a recipe has it: a path is a text, a number of NumPy one of Python."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if isinstance(value, np.generic) else value


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
    if isinstance(recipe, Config):
        config = resolve(as_dict(recipe), flags, plain(settings))
    else:
        config = configure(recipe, flags, **settings)
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
        train.check_model(config, algorithm)
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


def load(runs: str | Path | Iterable[str | Path]) -> Runs:
    """Runs by their folders, or by a pattern of them: `fedrl.load("runs/momentum-*/*")`."""
    named = [runs] if isinstance(runs, str | Path) else list(runs)
    if not named:
        raise UserError("name at least one run: runs/NAME/METHOD-s0-…")
    places: list[str] = []
    for name in map(str, named):
        if os.path.exists(name) or not glob.has_magic(name):
            places.append(name)
        else:  # a pattern also finds pages and pictures beside runs
            found = sorted(glob.glob(name))
            places += [place for place in found if (Path(place) / "config.toml").is_file()]
    if not places:
        raise UserError(f"no run is called {', '.join(map(str, named))}")
    for place in places:
        require_run(Path(place))
    return Runs(map(Run, places))


def sweep(
    sweep: str | Path | Tables,
    *,
    flags: Sequence[str] = (),
    seeds: Iterable[int] | None = None,
    out: str | Path | None = None,
    processes: int | None = None,
    minutes: float | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Runs:
    """Train one recipe in several variants and seeds, as many at a time as there are cores.

    A sweep is a file or its tables: `{"recipe": …, "seeds": […], "runs": {name: flags}}`. Runs that
    are there are only read and stopped ones go on, so the same call goes on where it was. The runs
    that were begun come back.
    """
    from fedrl.runs import sweep as sweeps

    require_guard()
    plan = sweeps.read(sweep)
    if seeds is not None:
        plan = plan.with_seeds(seeds)
    place = Path("runs") / plan.name if out is None else Path(out)
    begun, whole = sweeps.run(plan, flags, place, processes, minutes, plain(settings), progress)
    runs = Runs(map(Run, begun))
    runs.whole, runs.place, runs.title = whole, place, f"{plan.recipe}: {plan.name}"
    return runs


def require_guard() -> None:
    """Refuse to train where a process that was started imports the script that started it."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UserError(
            'a script whose runs start processes (engine = "workers", a sweep) trains under '
            'if __name__ == "__main__":'
        )


def frame(records: Sequence[Tables]) -> pd.DataFrame:
    """A table of pandas; without it, a line that says how to get it."""
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise UserError(
            'tables need the package pandas: pip install "fedrl[notebook]"; without it, '
            "`Run.rounds` has the metrics by round"
        ) from error
    return pd.DataFrame.from_records([dict(record) for record in records])


def register(thing: object, name: str = "") -> str:
    """A method or a world of one's own under a name, in this process and the workers it starts.

    The name is the class's own if none is given. A recipe that others shall use names it
    `package.module:Name`, or the package offers it as an entry point.
    """
    named = name or str(getattr(thing, "__name__", ""))
    table = "algorithm" if callable(getattr(thing, "local", None)) else "world"
    parts.TABLES[table].register(named, thing)
    try:
        parts.find(table, named)  # says at once what it lacks
    except UserError:
        del parts.TABLES[table].registered[named]
        raise
    return named
