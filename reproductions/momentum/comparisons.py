"""Rows side by side: the paper's own steps, rivals, clients that differ, and tuning."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial

from fedrl.core.types import Json
from reproductions.momentum import figures
from reproductions.momentum.fairness import unfair
from reproductions.momentum.judging import RULES, difference
from reproductions.momentum.parts import TASKS, WEIGHT, Part, shown
from reproductions.momentum.tuning import WEIGHT_VARIANCE, Try, Tuning, constants
from reproductions.pages import Page, Row
from reproductions.verdicts import FAILS, HOLDS, alike, number, signed, verdict

TUNED = {
    "cartpole": ("tune_cartpole", "lambda_cartpole"),
    "random MDPs": ("tune_mdp", "lambda_mdp"),
    "halfcheetah": ("tuning_halfcheetah", "lambda_halfcheetah"),
    "walker2d": ("tuning_walker2d", "lambda_walker2d"),
}
"""Parts in which η and λ were found."""
RANGE = {"best_cartpole": 1, "best_mdp": 3, "long_halfcheetah": 1, "long_walker2d": 1}
"""Digits of a return."""
UNTRIED = ("qavg", "fedpg-br")
"""Methods of whose server no step λ was tried."""


class Comparisons:
    """Tables of the page that compare methods."""

    def __init__(self, parts: Mapping[str, Part], tuning: Tuning, page: Page) -> None:
        self.parts, self.tuning, self.page = parts, tuning, page

    # The paper's own steps

    @cached_property
    def paper_steps(self) -> Json:
        part, rows = self.parts["paper_steps"], []
        for steps in part.axis("steps"):
            for practice in part.axis("practice"):
                start = f"{steps},{practice},"
                told = steps.replace("eta=", "η = ").replace(",lambda=", ", λ = ")
                rows += [
                    [f"{told}, {PRACTICES[practice]}", *row] for row in self.steps(part, start)
                ]
        rows += [["as the release computes", *row] for row in self.steps(self.parts["release"], "")]
        head = ("steps", "method", "mean over the run", "against PAvg", "at the end",
                "against PAvg", "weight")  # fmt: skip
        return {
            "shown": self.page.shows(part.found or self.parts["release"].found),
            "rows": self.page.table("paper_steps", head, rows, keys=2),
            "release": self.parts["release"].first,
        }

    def steps(self, part: Part, start: str) -> list[Row]:
        found: list[Row] = []
        for name, cell in part.cells.items():
            if not name.startswith(start):
                continue
            learner = cell.labels["learner"]
            base = f"{start}pavg"
            found.append([
                shown(learner), number(part.area(name), 1),
                "–" if name == base else verdict(*part.pair(name, base, "area"), 1),
                number(part.final(name), 1),
                "–" if name == base else verdict(*part.pair(name, base), 1),
                "–" if name == base else part.summary(name, WEIGHT, "mean", "median", ".2f"),
            ])  # fmt: skip
        return found

    @cached_property
    def paper_agents(self) -> str:
        part, rows = self.parts["paper_agents"], []
        for practice in part.axis("practice"):
            for learner in part.axis("learner"):
                for n in part.axis("clients"):
                    name, four = (f"{practice},{learner},N={count}" for count in (n, "4"))
                    rows.append([
                        PRACTICES[practice], shown(learner), f"N = {n}",
                        number(part.area(name), 1), number(part.final(name), 1),
                        "–" if n == "4" else verdict(*part.pair(name, four, "area"), 1),
                    ])  # fmt: skip
        head = ("", "method", "", "mean over the run", "at the end", "over the run, against N = 4")
        return self.page.table("paper_agents", head, rows, keys=3)

    # Everybody with tuned steps

    def best(self, name: str) -> Json:
        """Every row with the steps that its tuning found, against PAvg on the same seeds."""
        part, digits, rows = self.parts[name], RANGE[name], []
        for learner, cell in part.cells.items():
            algorithm, done = cell.recipe["algorithm"], part.get(learner)
            steps: list[str | None] = [None, None]
            if "lr" in algorithm:
                apart = algorithm.get("server_lr")
                far = "ηK" if apart is None else f"{apart:g}"
                steps = [f"{algorithm['lr']:g}", "–" if learner in UNTRIED else far]
            rows.append([
                shown(learner), *steps, number(part.area(learner), digits),
                "–" if learner == "pavg" else verdict(*part.pair(learner, "pavg", "area"), digits),
                number(part.final(learner), digits),
                "–" if learner == "pavg" else verdict(*part.pair(learner, "pavg"), digits),
                None if done is None else str(len(done.finals())),
            ])  # fmt: skip
        head = ("method", "η", "λ", "mean over the run", "against PAvg", "at the end",
                "against PAvg", "seeds")  # fmt: skip
        draw = partial(figures.rows, part) if part.whole else None
        return {
            "shown": self.page.shows(part.found),
            "cell": part.first,
            "ends": unfair(self.tuning, part, part.cells) or "none is at an end of what was tried",
            "rows": self.page.table(name, head, rows),
            "picture": self.page.picture(name, "return by round, every row with tuned steps", draw),
        }

    def bodies(self, task: str) -> Json:
        """Clients that differ: the return over the run, and against PAvg in the same worlds."""
        part, rows = self.parts[f"bodies_{task}"], []
        learners = part.axis("learner")
        for knob in part.axis("knob"):
            row: list[str | None] = [knob]
            for learner in learners:
                name, base = f"{knob},{learner}", f"{knob},pavg"
                told = number(part.area(name), 1)
                against = verdict(*part.pair(name, base, "area"), 1)
                row.append(told if learner == "pavg" or told is None else f"{told}; {against}")
            rows.append(row)
        return {
            "shown": self.page.shows(part.found), "cell": part.first,
            "rows": self.page.table(f"bodies_{task}", ("", *map(shown, learners)), rows),
        }  # fmt: skip

    @cached_property
    def unequal(self) -> Json:
        part = self.parts["unequal_cartpole"]
        rows = [
            [shown(learner), number(part.area(learner), 1), number(part.final(learner), 1),
             "–" if learner == "pavg" else verdict(*part.pair(learner, "pavg", "area"), 1)]
            for learner in part.cells
        ]  # fmt: skip
        head = ("method", "mean over the run", "at the end", "over the run, against PAvg")
        return {
            "shown": self.page.shows(part.found), "cell": part.first,
            "rows": self.page.table("unequal_cartpole", head, rows),
        }  # fmt: skip

    # Tuning

    @cached_property
    def tuning_rows(self) -> str:
        rows: list[Row] = []
        for task, (first, second) in TUNED.items():
            for learner in self.parts[first].axis("learner"):
                rates = self.tuning.tries(first, learner)
                lengths = self.tuning.tries(second, learner) if rates else None
                rows.append([
                    TASKS.get(task, task), shown(learner),
                    None if rates is None else in_words(rates, "rate"),
                    None if rates is None else at_an_end(self.tuning, first, learner, "rate"),
                    None if lengths is None else in_words(lengths, "factor") or "–",
                    at_an_end(self.tuning, second, learner, "factor"),
                ])  # fmt: skip
        head = ("task", "method", "η: score", "best η", "λ/(ηK): score, with that η", "best λ/(ηK)")
        return self.page.table("tuning", head, rows, keys=2)

    @cached_property
    def spent(self) -> str:
        firsts = {task: self.parts[first].first for task, (first, _) in TUNED.items()}
        return ", ".join(
            f"{len(cell.seeds)} seeds and {cell.rounds} rounds on {TASKS.get(task, task)}"
            for task, cell in firsts.items()
        )


PRACTICES = {"formula": "g as written", "standardised": "returns standardised, w ≤ 1.2"}


def in_words(tries: Mapping[str, Try], label: str) -> str:
    """Scores by step size; a try of the part before is not told again."""
    return ", ".join(
        f"{float(one.cell.labels[label]):g}: {one.score:.4g}"
        for one in tries.values()
        if label in one.cell.labels
    )


def at_an_end(tuning: Tuning, part: str, learner: str, label: str) -> str | None:
    """The best step size, and whether it is the smallest or the largest that was tried."""
    winner, tries = tuning.choice(part, learner), tuning.tries(part, learner)
    if winner is None or not tries:
        return None
    if not any(label in one.cell.labels for one in tries.values()):
        return "–"
    told = {"rate": "η", "factor": "λ"}[label]
    end = " (an end)" if told in tuning.ends(part, learner) else ""
    return f"{float(winner.cell.labels.get(label, 1)):g}{end}"


def constants_in_words(part: Part) -> str:
    known = constants(part.first)
    return (
        f"σ² = {known.variance:.3f} (the largest of all clients at θ_0, by enumeration), "
        f"Δ = {known.gap:.3f}, G₀ = {known.first:.4f}, W = {WEIGHT_VARIANCE:g}, "
        f"L̄ = {known.smoothness:.1f}, L̂ = {known.hessian_smoothness:.1f}"
    )


def kernel_row(part: Part, start: str, beta: str) -> list[str | None]:
    """J at every κ, the largest move away from κ = 0, and whether that is none by the rule."""
    kappas = part.axis("kappa")
    names = [f"{start}beta={beta},kappa={kappa}" for kappa in kappas]
    told: list[str | None] = [number(part.final(name)) for name in names]
    moves = [difference(part, name, names[0], "final") for name in names[1:]]
    found = [one[0] for one in moves if one]
    if not found:
        return [*told, None, None]
    largest = max(found, key=lambda one: abs(one[0]))
    words = [alike(one, RULES["margin"]["random_mdp"]) for one in found]
    word = "moves" if FAILS in words else "flat" if set(words) == {HOLDS} else "undecided"
    if len(found) < len(moves) and word != "moves":
        return [*told, signed(largest, 3), None]
    return [*told, signed(largest, 3), word]
