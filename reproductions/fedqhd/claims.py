"""FedQHD's findings and what became of them, decided by the measured numbers.

`verdicts.toml` has the rules, margins and numbers of seeds. A verdict is None where a record is
missing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedrl.report import plots
from reproductions.fedqhd.plan import ENCODERS, Plan
from reproductions.fedqhd.results import PAPER, Results, ended, reproduced, returns, shown
from reproductions.pages import Row, markdown_table
from reproductions.results import Runs, Trained
from reproductions.verdicts import (
    FAILS,
    HOLDS,
    OPEN,
    BySeed,
    Difference,
    gap,
    in_words,
    signed,
    values,
)

RULES = tomllib.loads((Path(__file__).parent / "verdicts.toml").read_text(encoding="utf-8"))
Judge = Callable[[str, str, int], str | None]
"""Of a task, its encoders and its column in the paper's tables."""


@dataclass(frozen=True)
class Claim:
    """Of Table 1, for every task and both kinds of encoders."""

    title: str
    judge: Judge
    methods: tuple[str, ...]
    """Whose rows it is judged by."""

    def row(self, plan: Plan) -> Row:
        cells = ((t, e, i) for i, t in enumerate(plan.tasks) for e in ENCODERS)
        return [self.title, *(self.judge(*cell) for cell in cells)]


def claims(results: Results) -> list[Claim]:
    found, plan = results.parts["table"], results.plan

    def better_than(method: str, title: str = "") -> Claim:
        title = title or plan.methods[method].title
        return Claim(f"better than {title}", better(results, found, plan, method),
                     ("fedqhd", method))  # fmt: skip

    return [
        *reached(results, found, plan),
        better_than("truncate", "Truncate FedAvg-QHD"),
        *map(better_than, ("feddqn", "feddqn-paper", "distill", "distill-paper")),
        Claim("Independent QHD learns as little as the paper's", as_little(found, plan),
              ("independent",)),
    ]  # fmt: skip


def reached(results: Results, found: Runs, plan: Plan) -> list[Claim]:
    """What is also asked at the paper's sizes, with the settings of the small ones."""
    alone = better(results, found, plan, "independent")
    return [
        Claim("FedQHD reaches the paper's return", reaching(found, plan, "fedqhd"), ("fedqhd",)),
        Claim("with anchors of the box", reaching(found, plan, "box"), ("box",)),
        Claim("FedQHD is better than Independent QHD", alone, ("fedqhd", "independent")),
    ]


def better(results: Results, found: Runs, plan: Plan, method: str) -> Judge:
    """Nothing in favour of ours against a row that had no chance. Where it is ahead even so, that
    is said."""

    def judge(task: str, encoders: str, column: int) -> str | None:
        name, own = plan.learner(method, encoders), plan.learner("fedqhd", encoders)
        if name is None:
            return "–"
        if name == own:
            return "the same"
        ours, base = (found[f"{task}-{one}"] for one in (own, name))
        apart = exploring(ours, base)
        fair = had_a_chance(results, task, method, name, f"fedqhd-{encoders}") and not apart
        if fair:
            text = gained(ours, base, RULES["margin"][task])
            network = plan.methods[method].space_of(encoders) in NETWORKS
            return text and text + (below_published(ended(base), task) if network else "")
        difference = gap(ended(ours), ended(base))
        if difference is None:
            return None
        word = f"**{FAILS}**" if difference[0] + difference[1] < 0 else "not judged"
        return f"{word} ({signed(difference)}{apart})"

    return judge


NETWORKS = ("dqn", "distill")
"""What rows are tuned in that stand beside a published DQN."""


def below_published(base: BySeed, task: str) -> str:
    """Where a tuned network stays below a published one by more than the margin: to be better than
    it shows little."""
    found, zoo = values(base), RULES["zoo"][task]
    if found is None or float(sum(plots.interval(found))) >= zoo["mean"] - RULES["margin"][task]:
        return ""
    return f"; the baseline has {shown(base)}, the zoo's greedy DQN {zoo['mean']:g}"


def had_a_chance(results: Results, task: str, method: str, name: str, ours: str) -> bool:
    """Both are tuned by the rule, and their runs are of what it chose; a row at the paper's own
    settings is what it is."""
    if not results.plan.methods[method].space:
        return True
    return all(at_its_best(results, task, one) for one in (name, ours))


def at_its_best(results: Results, task: str, name: str) -> bool:
    """Once a row is tuned, its runs may still be of what was chosen before."""
    at, chosen = results.tuned[task, name], results.plan.chosen[task].get(name, {})
    return at.done and at.best.settings == chosen


def exploring(ours: Trained, base: Trained) -> str:
    """How the last ε differ, in words; nothing if they do not. A return of training is of what a
    client plays, so that more random actions to the end are a lower one."""
    floors = [one.cell.resolved().algorithm.epsilon_floor for one in (ours, base)]
    return "" if floors[0] == floors[1] else f"; last ε {floors[0]:g} and {floors[1]:g}"


def reaching(found: Runs, plan: Plan, method: str) -> Judge:
    def judge(task: str, encoders: str, column: int) -> str | None:
        name = plan.learner(method, encoders)
        if name is None:
            return "–"
        paper = PAPER["table1"]["fedqhd"][encoders][column]
        one = found[f"{task}-{name}"]
        ours = ended(one)
        difference = gap(ours, dict.fromkeys(ours, paper))
        if difference is None:
            return None
        mean, half = difference
        word = HOLDS if mean - half >= 0 else FAILS if mean + half < 0 else OPEN
        return said(word, difference, len(ours), [one])

    return judge


def as_little(found: Runs, plan: Plan) -> Judge:
    def judge(task: str, encoders: str, column: int) -> str | None:
        paper = PAPER["table1"]["independent"][encoders][column]
        ours = returns(found, plan, task, "independent", encoders)
        return reproduced(ours, paper, PAPER["spread"][encoders][column])

    return judge


# Words


def gained(ours: Trained, base: Trained, margin: float) -> str | None:
    """Whether ours is better by the rule, in words and numbers."""
    a, b = ended(ours), ended(base)
    difference = gap(a, b)
    if difference is None:
        return None
    return said(
        is_better(difference, margin), difference, len(set(a) & set(b)), [ours, base], margin
    )


def is_better(difference: Difference, margin: float) -> str:
    mean, half = difference
    return HOLDS if mean - half > 0 else FAILS if mean + half < margin else OPEN


def said(
    word: str, difference: Difference, seeds: int, cells: Sequence[Trained], margin: float = 0.0
) -> str:
    """The verdict, of how many seeds, and what would bring one: the cost of all cells' runs."""
    spent = [m for one in cells for m in one.minutes().values()]
    each = 60 * float(np.mean(spent)) * len(cells) if spent else 0.0
    return in_words(word, difference, seeds, RULES["seeds"], each, margin)


def by_encoders(table: str, plan: Plan) -> str:
    """Two tables with a column per task, which fit on a screen; one for both encoders does not.

    A row that says nothing of an encoder is left out of its table.
    """
    lines = [line[2:-2].split(" | ") for line in table.split("\n")]
    parts = []
    for at, title in enumerate(("One encoder for all:", "Own encoders:")):
        rows = [[claim, *cells[at :: len(ENCODERS)]] for claim, *cells in lines[2:]]
        kept = [row for row in rows if not set(row[1:]) <= {"–", "the same"}]
        if kept:
            parts += [title, markdown_table(["the paper says", *plan.tasks.values()], kept)]
    return "\n\n".join(parts)
