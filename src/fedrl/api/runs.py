"""A run, or several to be compared, by their folders: what `fedrl.load` gives."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedrl.config.loading import read_recipe
from fedrl.core.abilities import Policy
from fedrl.core.registry import suggestion
from fedrl.core.types import Json, Tables, UserError
from fedrl.runs import read
from fedrl.runs.evaluate import Evaluation, evaluate
from fedrl.runs.run_dir import RunDir, require_run

if TYPE_CHECKING:
    import pandas as pd

    from fedrl.report.run_groups import Group
    from fedrl.runs.agents import SplitEvaluation
    from fedrl.runs.exports import Exported
    from fedrl.runs.record import Recording
    from fedrl.runs.serving import Endpoint, ServerName


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

    def policy(self, client: int | None = None, *, own: bool = False) -> Policy:
        """What the newest checkpoint has learned to do: `policy.act(observation)`; of a language
        model `policy.act(prompt)` (`fedrl.llm.text_policy`).

        `client` says whose, where clients have one each; `own` is what that client held itself at
        the end of its last round, where that is not what the server would give it.
        """
        from fedrl.runs.policies import learned

        return learned(self.path, client, own).policy

    def export(
        self,
        out: str | Path,
        *,
        client: int | None = None,
        own: bool = False,
        adapters: bool = False,
        license: str = "",
        sign: str | Path | None = None,
    ) -> Exported:
        """The newest checkpoint as a folder of its own, with a model card: a language model, or a
        policy.

        A policy's is read by `fedrl.load_policy`; a model's by `transformers`, its `adapters` alone
        by `peft`. `license` is for the card, where a first model's card does not say one. `sign` is
        a signing key (`fedrl.flower.make_signing_key`); a run on Flower has its coordinator's.
        """
        from fedrl.runs.exports import export

        key = Path(sign) if sign else None
        return export(self.path, Path(out), client, own, adapters, license, key)

    def serve(
        self, *, host: str = "127.0.0.1", port: int = 0, server: ServerName = "auto"
    ) -> Endpoint:
        """A language model's newest checkpoint behind an OpenAI-compatible endpoint of this
        machine, by transformers' own server or vLLM's: `with run.serve() as endpoint: …`.

        `endpoint.url` is where it is, `endpoint.model` what requests call it.
        """
        from fedrl.runs.serving import serve

        return serve(self.path, host, port, server)

    def record(
        self,
        out: str | Path | None = None,
        *,
        client: int = 0,
        episodes: int = 1,
        seed: int = 0,
        own: bool = False,
        greedy: bool = False,
    ) -> Recording:
        """Write an animation of the policy in this client's environment (a control world)."""
        from fedrl.runs.record import record

        place = None if out is None else Path(out)
        return record(self.path, place, client, episodes, seed, own, greedy)


class Comparison(NamedTuple):
    """A row per group, and a row per pair of them, each of final values and means over rounds."""

    groups: pd.DataFrame
    differences: pd.DataFrame


class Runs(list[Run]):
    """Several runs, to be compared.

    Those of a sweep lie in `place` and have a `title`; `whole` says whether all are finished.
    """

    whole = True
    place = Path("runs")
    title = ""

    @property
    def metrics(self) -> pd.DataFrame:
        """All runs' metrics, with the columns run, seed, algorithm and group in front.

        Runs that differ only in their seed are a group; in a sweep, a variant.
        """
        return frame(
            [
                {
                    "run": str(run.path),
                    "seed": run.config.get("seed", 0),
                    "algorithm": run.config.get("algorithm.name", ""),
                    "group": group.name,
                    "round": number,
                }
                | metrics
                for run, group in self._in_order()
                for number, metrics in run.rounds.items()
            ]
        )

    def _groups(self) -> list[Group]:
        """Of those that have a round: one that stopped before it has nothing to add."""
        from fedrl.report.run_groups import group_runs

        return group_runs([read.load(run.path) for run in self if run.round >= 0])

    def _in_order(self) -> list[tuple[read.Run, Group]]:
        place = {run.path: at for at, run in enumerate(self)}
        found = [(run, group) for group in self._groups() for run in group.runs]
        return sorted(found, key=lambda pair: place[pair[0].path])

    def compare(self, metric: str = "") -> Comparison:
        """What the page compares, as two tables of pandas: groups, and differences seed by seed.

        By the metric that the page opens with, if none is named; of final values and of means over
        the rounds. A difference is told apart where its 95% t interval leaves 0 out.
        """
        from fedrl.report import comparison_file as compared
        from fedrl.report.run_groups import drawn_metrics, group_runs, main_metric, with_results

        begun = [run for group in self._groups() for run in group.runs]
        if not begun:
            raise UserError("none of these runs has a round yet")
        groups = group_runs(with_results(begun)[0])
        known = drawn_metrics(groups)
        if metric and metric not in known:
            raise UserError(f"no run has the metric {metric!r}; {suggestion(metric, known)}")
        metric = metric or main_metric(groups)
        rows, pairs = (
            frame(found(groups, metric), columns)
            for found, columns in (
                (compared.comparison, compared.COMPARISON),
                (compared.paired_differences, compared.DIFFERENCES),
            )
        )
        return Comparison(rows, pairs)

    def summary(self) -> str:
        """The comparison in a few lines, for a terminal."""
        from fedrl.report.run_groups import group_runs, with_results
        from fedrl.report.terminal import summary

        found = []
        for run in self:
            with contextlib.suppress(UserError, OSError):  # the page names what cannot be read
                found.append(read.load(run.path))
        kept, without = with_results(found)
        return summary(group_runs(kept), without) if kept else ""

    def report(
        self, out: str | Path | None = None, title: str = "", *, episodes: bool | None = None
    ) -> Path:
        """Write one HTML page that compares them; where it is."""
        from fedrl.report.page import build

        page = None if out is None else Path(out)
        return build([run.path for run in self], page, title or self.title, episodes)


def frame(records: Sequence[Tables], columns: Sequence[str] | None = None) -> pd.DataFrame:
    """A table of pandas; without it, a line that says how to get it."""
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise UserError(
            'tables need the package pandas: pip install "fedrl[notebook]"; without it, '
            "`Run.rounds` has the metrics by round"
        ) from error
    rows = [dict(record) for record in records]
    return pd.DataFrame.from_records(rows, columns=None if columns is None else list(columns))
