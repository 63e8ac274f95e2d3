"""The momentum paper's tables, figures and claims, from records.

Verdicts are computed, never typed: `claims.py` has them, by the rules of `verdicts.toml`. Only the
explanations in *Why* are prose, written for the full scale.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from fedrl.core.number_format import duration
from fedrl.core.types import Json
from fedrl.envs.control import random_mdp
from fedrl.report import plots
from reproductions.momentum import comparisons, figures
from reproductions.momentum.claims import claims
from reproductions.momentum.fairness import tuned_as
from reproductions.momentum.judging import RULES
from reproductions.momentum.parts import ERROR, METHODS, WEIGHT, Part, shown
from reproductions.momentum.theorems import Theorems
from reproductions.momentum.theory import Constants
from reproductions.momentum.tuning import Tuning, tasks
from reproductions.pages import NOT_MEASURED, Page, Row, markdown_table
from reproductions.statements import Health, Statement, findings, tally
from reproductions.study import Study
from reproductions.verdicts import number, slope, verdict

__all__ = ["health", "statements", "tasks", "write"]

PAPER = tomllib.loads((Path(__file__).parent / "paper.toml").read_text(encoding="utf-8"))


def parts_of(tuning: Tuning) -> dict[str, Part]:
    study = tuning.settled()
    seeds, runs = study.seeds(), study.runs()
    return {name: Part(study.grid, seeds, runs, name) for name in study.grid.cells}


def statements(study: Study) -> list[Statement]:
    tuning = Tuning(study)
    return [one.statement for one in claims(parts_of(tuning), tuning, PAPER)]


def health(study: Study) -> Iterator[Health]:
    """The baseline beside the paper's own, and PAvg's learner beside what a library publishes."""
    part = parts_of(Tuning(study))["best_cartpole"]
    said = PAPER["table3"]["pavg"]["cartpole"]
    yield Health(
        "PAvg", "CartPole, 100 steps", number(part.final("pavg"), 1) or NOT_MEASURED, said,
        "Table 3 of the paper; 100 is the ceiling", part.records(["pavg"]),
    )  # fmt: skip


class Analysis:
    """What the page's template shows."""

    def __init__(self, study: Study, page: Page) -> None:
        self.tuning = Tuning(study)
        self.parts = parts_of(self.tuning)
        self.page, self.rules = page, RULES

    @cached_property
    def statements(self) -> list[Statement]:
        return [one.statement for one in claims(self.parts, self.tuning, PAPER)]

    @cached_property
    def claims(self) -> dict[str, str]:
        """The paper's claims and what we asked beside them, in a table each."""
        if not any(one.records for one in self.statements) and not self.page.published:
            return {}
        return {
            "paper": self._claims("the paper says", False),
            "ours": self._claims("is it so?", True),
        }

    def _claims(self, title: str, ours: bool) -> str:
        rows = [
            [one.where, one.claim,
             one.verdict if one.verdict == NOT_MEASURED else f"**{one.verdict}**", one.found,
             str(one.seeds) if one.records else "–"]
            for one in self.statements if one.ours is ours
        ]  # fmt: skip
        return markdown_table(("where", title, "verdict", "found", "seeds"), rows)

    @cached_property
    def counts(self) -> str:
        """How many rows of the paper's claims there are of each verdict, in words."""
        rows = [one for one in self.statements if not one.ours]
        return (
            f"Of {len(rows)} rows about claims of the paper, which are {findings(rows)} findings, "
            f"some read in several ways: {tally(rows)}."
        )

    @cached_property
    def comparisons(self) -> comparisons.Comparisons:
        return comparisons.Comparisons(self.parts, self.tuning, self.page)

    @cached_property
    def theorems(self) -> Json:
        part = self.parts["theorems"]
        rows = [row for method in METHODS for row in Theorems(part, method).rows()]
        head = ("method", "N", "R", "β", "η", "λ", "mean ‖∇J‖²", "the bound's two terms",
                "measured / bound", "largest weight variance")  # fmt: skip
        return {
            "rows": self.page.table("theorems", head, rows, keys=3),
            "cell": part.first, "shown": self.page.shows(part.found),
            "constants": comparisons.constants_in_words(part),
        }  # fmt: skip

    # Table 2

    @cached_property
    def table2(self) -> Json:
        part, paper = self.parts["table2"], PAPER["table2"]
        kappas, betas = part.axis("kappa"), part.axis("beta")
        rows, agreements = [], 0
        for beta in betas:
            row: list[str | None] = [f"β = {beta}"]
            for kappa in kappas:
                ours = part.final(f"beta={beta},kappa={kappa}")
                theirs = paper[beta][paper["kappas"].index(float(kappa))]
                if ours is None:
                    row.append(None)
                    continue
                mean, half = plots.interval(ours)
                agrees = abs(float(mean) - theirs) <= paper["spread"] + float(half)
                agreements += agrees
                row.append(f"{number(ours)} ({theirs:.3f} {'✓' if agrees else '✗'})")
            rows.append(row)
        weights: list[Row] = []
        for beta in (beta for beta in betas if float(beta) < 1):
            names = [f"beta={beta},kappa={kappa}" for kappa in kappas]
            medians = [part.summary(name, WEIGHT, "mean", "median", ".3f") for name in names]
            weights.append([f"β = {beta}", *medians])
        agreed = f"{agreements} of {len(part.cells)} agree" if part.whole else None
        seconds = sum(one.seconds for one in part.found.values())
        head = ["", *(f"κ = {kappa}" for kappa in kappas)]
        draw = partial(figures.returns_and_norms, part, kappas[-1]) if part.whole else None
        return {
            "rows": self.page.table("table2", head, rows),
            "agreed": self.page.text("table2_agreed", agreed),
            "time": self.page.text("table2_time", duration(seconds) if part.whole else None),
            "weights": self.page.table("weights", head, weights),
            "picture": self.page.picture("table2", "average performance and gradient norm", draw),
        }

    # Other kernels

    @cached_property
    def kernels(self) -> str:
        rows: list[Row] = []
        for kernel in ("uniform", "bernoulli", "orthogonal"):
            part = self.parts["table2" if kernel == "uniform" else "kernels"]
            start = "" if kernel == "uniform" else f"{kernel},"
            kappas = part.axis("kappa", start)
            for beta in part.axis("beta"):
                told = comparisons.kernel_row(part, start, beta)
                rows.append([kernel, f"β = {beta}", *told])
            low, high = (attainable(kernel, float(kappa)) for kappa in (kappas[0], kappas[-1]))
            gap, half = plots.interval(high - low)
            between = ["–"] * (len(kappas) - 2)
            change = f"{float(gap):+.3f} ± {float(half):.3f}"
            rows.append([kernel, "*upper bound*", number(low), *between, number(high), change, ""])
        head = ("kernel", "", *(f"κ = {kappa}" for kappa in kappas), "largest move", "verdict")
        return self.page.table("kernels", head, rows, keys=2)

    # Why

    @cached_property
    def regimes(self) -> str:
        part, rows = self.parts["regimes"], []
        for setting, start in (
            ("softmax, H = 500", "H=500,"),
            ("softmax, H = 50, R = 8", "H=50,"),
            ("softmax, H = 10, R = 8", "H=10,"),
            ("direct, H = 5, η = 0.005, R = 60", "direct,uniform,"),
            ("direct, orthogonal kernels, the same", "direct,orthogonal,"),
        ):
            base = f"{start}beta=1.0"
            for name in part.cells:
                if not name.startswith(start):
                    continue
                label = name.removeprefix(start).replace("beta=", "β = ")
                weighted = part.cells[name].recipe["algorithm"]["beta"] < 1
                final = part.final(name)
                rows.append([
                    setting, label, number(final),
                    part.summary(name, WEIGHT, "mean", "median", ".3f") if weighted else "–",
                    part.summary(name, ERROR, "mean", "median", ".3f"),
                    "–" if name == base else verdict(*part.pair(name, base)),
                ])  # fmt: skip
        head = ("setting", "", "J", "weight", "‖u − ∇J‖²", "against β = 1")
        return self.page.table("regimes", head, rows, keys=2)

    # Theory

    @cached_property
    def theory(self) -> Json:
        part, rows = self.parts["speedup"], []
        sizes, (small, one) = [int(n) for n in part.axis("clients")], part.axis("beta")
        cell = part.first.recipe
        steps, rounds = cell["algorithm"]["local_steps"], part.first.rounds
        holds = lower = True
        for n in sizes:
            ours, base = (part.get(f"N={n},beta={beta}") for beta in (small, one))
            if ours is None or base is None:
                rows.append([str(n), *[None] * 6])
                continue
            errors = [measured.summary(ERROR, "mean") for measured in (ours, base)]
            constants = Constants(
                cell["world"]["horizon"],
                0.9,
                errors[1] * n * steps,
                ours.summary("train/weight_var", "all", "max"),
                10.0 - ours.summary("eval/return", "first"),
            )
            left = ours.summary("eval/grad_norm_sq", "all")
            right = constants.bound(n, steps, rounds)
            holds &= left <= right
            lower &= errors[0] < errors[1]
            rows.append([
                str(n), *(f"{error:.4f}" for error in errors), f"{left:.4f}", f"{right:.3g}",
                f"{right / left:.1g}", f"{constants.weight_variance:.3f}",
            ])  # fmt: skip
        slopes = None
        if part.whole:
            means = {beta: figures.errors_by_agents(part, beta)[0] for beta in (small, one)}
            slopes = ", ".join(
                f"{slope(np.array(sizes), mean):.2f} for β = {beta}" for beta, mean in means.items()
            )
        head = ("N", f"‖u − ∇J‖², β = {small}", "‖u − ∇J‖², β = 1", "mean ‖∇J‖²",
                "Theorem 6.4's bound", "bound / measured", "largest weight variance")  # fmt: skip
        draw = partial(figures.speedup, part) if part.whole else None
        known = part.whole
        return {
            "cell": cell, "rounds": rounds, "seeds": len(part.first.seeds),
            "slopes": self.page.text("slopes", slopes),
            "lowers": self.page.text(
                "lowers", ("lowers" if lower else "does not lower") if known else None
            ),
            "holds": self.page.text(
                "bound", ("holds" if holds else "is violated") if known else None
            ),
            "rows": self.page.table("speedup", head, rows),
            "picture": self.page.picture(
                "speedup", "error of the server's direction by agents", draw
            ),
        }  # fmt: skip

    # Sampled worlds

    def learners(self, name: str, alt: str) -> Json:
        """One row per method and β, compared with PAvg on the same seeds; and their curves."""
        part, rows = self.parts[name], []
        for learner, cell in part.cells.items():
            final, area = part.final(learner), part.area(learner)
            spread = None if final is None else "–"
            if final is not None and len(final) > 1:
                spread = f"{final.std(ddof=1):.1f}"
            steps = cell.recipe["algorithm"].get("lr")
            row = [shown(learner), "–" if steps is None else f"{steps:g}", number(area, 1)]
            if learner == "pavg":
                row += ["–", number(final, 1), "–", spread, "–", "–"]
            else:
                row += [
                    verdict(*part.pair(learner, "pavg", "area"), 1), number(final, 1),
                    verdict(*part.pair(learner, "pavg"), 1), spread,
                    part.summary(learner, WEIGHT, "last", "mean", ".2f"),
                    part.summary(learner, "train/weight_clipped", "mean", "mean", ".0%"),
                ]  # fmt: skip
            rows.append(row)
        head = ("method", "η", "mean over the run", "against PAvg", "at the end", "against PAvg",
                "sd over seeds", "last weight", "clipped")  # fmt: skip
        steps = part.summary("pavg", "env/steps", "last", "mean", ".0f")
        millions = None if steps is None else f"{float(steps) / 1e6:.2f} M"
        draw = partial(figures.learner_curves, part) if part.whole else None
        return {
            "cell": part.first,
            "tuned": tuned_as(self.tuning, part),
            "algorithm": part.first.recipe["algorithm"],
            "horizon": part.first.recipe["world"].get("horizon", 100),
            "steps": self.page.text(f"{name}_steps", millions),
            "rows": self.page.table(name, head, rows),
            "picture": self.page.picture(name, alt, draw),
            "shown": self.page.shows(part.found),
        }

    @cached_property
    def figure2(self) -> Json:
        part, rows = self.parts["figure2"], []
        for method, title in METHODS.items():
            for n in part.axis("clients"):
                name, four = (f"{method} beta=0.2,N={count}" for count in (n, "4"))
                rows.append([
                    title, f"N = {n}", number(part.area(name), 1),
                    number(part.final(f"{method} beta=0.2,N={n}"), 1),
                    "–" if n == "4" else verdict(*part.pair(name, four, "area"), 1),
                ])  # fmt: skip
        head = ("method", "", "mean over the run", "at the end", "over the run, against N = 4")
        draw = partial(figures.agents, part) if part.whole else None
        return {
            "rows": self.page.table("figure2", head, rows, keys=2),
            "picture": self.page.picture("figure2", "CartPole by number of agents", draw),
        }

    @cached_property
    def table3(self) -> str:
        rows = []
        for learner, said in PAPER["table3"].items():
            row: list[str | None] = [shown(learner), said["cartpole"], said["walker2d"]]
            for task in ("cartpole", "walker2d"):
                part = self.parts[f"figure1_{task}"]
                row.append(number(part.final(learner), 1))
                against = verdict(*part.pair(learner, "pavg"), 1)
                row.append("–" if learner == "pavg" else against)
            rows.append(row)
        head = ("method", "CartPole, paper", "Walker, paper", "CartPole, ours", "against PAvg",
                "Walker, ours", "against PAvg")  # fmt: skip
        return self.page.table("table3", head, rows)


def attainable(kernel: str, kappa: float, seeds: int = 100) -> np.ndarray:
    """Per seed, the mean over clients of each client's own best J: no common policy does better."""
    settings = random_mdp.Settings(kernel=kernel, kappa=kappa)  # type: ignore[arg-type]
    worlds = [random_mdp.World(settings, 20, seed) for seed in range(seeds)]
    return np.array(
        [random_mdp.upper_bound(w.kernels, w.rewards, w.initial, settings.gamma) for w in worlds]
    )


def write(study: Study, page: Page, path: Path) -> None:
    found = Analysis(study, page)
    page.write(path, scale=study.scale, a=found, study=found.tuning.settled())
