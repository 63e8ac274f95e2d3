"""The page's section on reviews at one scale: tables and figures, from records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reproductions.fedrlhf import figures, figures_text, text_tuning
from reproductions.fedrlhf.results import PAPER, Results, at, plain
from reproductions.fedrlhf.reviews import NAMES, REWARDS, by_training, own, weights
from reproductions.pages import Page, Row
from reproductions.results import Trained, read_runs
from reproductions.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[], "Figure"]
REPEATED = "pairs of tokens that the text had before"
"""What is likely is not always well written: a model that repeats itself is found likely."""
SOURCES = {"generated": "generated", "imdb": "genuine"}


@dataclass(frozen=True)
class ReviewPage:
    """`begun` are the runs as far as they went, `results` those that the page shows."""

    page: Page
    texts: Mapping[str, Study]
    begun: Results
    results: Results

    def _picture(self, name: str, alt: str, runs: Iterable[Trained], draw: Draw) -> str:
        """A figure of these runs, as far as they are there."""
        there = [bool(one.runs) for one in runs]
        return self.page.picture(name, alt, draw if any(there) else None, whole=all(there))

    def section(self, scale: str) -> dict[str, Any]:
        found = self.results.texts[scale]
        one = found["fedrlhf"]
        if not self.page.shows(any(trained.runs for trained in found.values())):
            return {}
        config, last = one.cell.resolved(), one.cell.rounds
        pair = [found["fedrlhf"], found["centralized"]]
        rows: list[Row] = []
        for name, trained in found.items():
            for metric, label in {**REWARDS, "repeated": REPEATED}.items():
                seen = (plain(at(trained, f"eval/{metric}", number)) for number in (0, None))
                rows.append([f"{NAMES[name]}, {label}", *seen])
        rows.append(["the paper's FedRLHF, combined",
                     *(f"about {level}" for level in PAPER["reviews"]["reward"])])  # fmt: skip
        return {
            "cell": one.cell,
            "config": config,
            "clients": len(weights(one)),
            "source": SOURCES.get(config.world.source, config.world.source),
            "model": Path(config.algorithm.model).name.partition(".")[0],
            "rows": self.page.table(
                f"reviews_{scale}", ("global model", "before", f"after round {last}"), rows
            ),
            "samples": self._picture(f"imdb-{scale}", "reward and loss by samples",
                                    pair, partial(figures_text.by_samples, found)),
            "losses": self._picture(f"imdb-losses-{scale}", "PPO's losses in training by round",
                                   pair, partial(figures_text.in_training, found)),
            "clients_by_round": self._picture(
                f"imdb-rounds-{scale}", "rewards and losses of clients and the global model", [one],
                partial(figures_text.by_round, one)),
            "tuned": self._tuned(scale),
            "own": self._own(one, scale),
            "trained": self._trained(one, scale),
            "rounds": self._picture(f"imdb-clients-{scale}", "rewards of every client by round",
                                   [one], partial(figures.by_round, one)),
        }  # fmt: skip

    def _tuned(self, scale: str) -> dict[str, str]:
        study = self.texts[scale]
        tried = read_runs(study.place.store, study.grid.cells["tuned"])
        several = text_tuning.tunings(tried, self.begun.texts[scale])
        if not any(one.runs for one in tried.values()):
            return {}
        seeds = ", ".join(map(str, next(iter(tried.values())).cell.seeds))
        head = ("step size", f"reward, seeds {seeds}", "seeds")
        return {"rows": self.page.table(f"tuned_{scale}", head, text_tuning.rows(several)),
                "remarks": text_tuning.remarks(several)}  # fmt: skip

    def _own(self, one: Trained, scale: str) -> str:
        rows = []
        for client, lam in enumerate(weights(one)):
            row: list[str | None] = [str(client), f"{lam:g}"]
            for metric in REWARDS:
                last = own(one, metric, client, one.cell.rounds)
                first = at(one, f"eval/{metric}_client{client}", 0)
                rise = {seed: last[seed] - first[seed] for seed in last if seed in first}
                row += [plain(last), plain(rise)]
            rows.append(row)
        head = ["client", "λ_k", *(n for label in REWARDS.values() for n in (label, "change"))]
        return self.page.table(f"own_{scale}", head, rows)

    def _trained(self, one: Trained, scale: str) -> str:
        rows: list[Row] = []
        for client, lam in enumerate(weights(one)):
            moved = (
                {seed: by_training(one, run, metric, client) for seed, run in one.runs.items()}
                for metric in REWARDS
            )
            known = ({seed: x for seed, x in by.items() if np.isfinite(x)} for by in moved)
            rows.append([str(client), f"{lam:g}", *map(plain, known)])
        return self.page.table(f"trained_{scale}", ["client", "λ_k", *REWARDS.values()], rows)
