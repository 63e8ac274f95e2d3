"""FedAgent's findings and what became of them, decided by the measured numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from fedrl.core.number_format import duration
from reproductions.pages import Row
from reproductions.results import Runs, Trained
from reproductions.verdicts import (
    FAILS,
    HOLDS,
    OPEN,
    BySeed,
    Difference,
    above,
    alike,
    gap,
    in_numbers,
    mean_of,
    not_below,
    number,
    paired,
    signed,
    together,
    values,
    verdict,
)

Parts = Mapping[str, Runs]
SUCCESS = "eval/success"
MARGIN = 5.0
"""Percentage points: what counts as no worse, or as the same."""
TITLES = {
    "main": "Generated household",
    "webshop": "Generated WebShop",
    "alfworld": "ALFWorld",
    "webshop_full": "WebShop",
}
"""The parts that compare FedAgent with Centralized and Local."""
NOTHING_LEARNED = "nothing was learned"
PARTITIONS = {"preference": ("ω", "omega"), "coverage": ("ξ", "xi"), "hardness": ("ξ′", "xi")}
"""The symbol of each, and its setting."""


# Success by seed: shown in percent, compared seed by seed


def shown(by_seed: BySeed) -> str | None:
    """Percent with the interval over seeds."""
    return number(values(by_seed, 100), 1)


def compared(ours: BySeed, base: BySeed, cells: Sequence[Trained] = ()) -> str | None:
    """Better, worse or undecided, in percentage points over common seeds; with the cells of both
    sides also what would decide it."""
    said, difference = verdict(*paired(ours, base, 100), 1), points(ours, base)
    if not cells or said is None or difference is None or not said.startswith(OPEN):
        return said
    return f"{OPEN} ({told(OPEN, better, difference, Pair(ours, base, cells))})"


def points(ours: BySeed, base: BySeed) -> Difference | None:
    """The mean difference in percentage points and the half width of its interval."""
    return gap(ours, base, 100)


def against(
    ours: BySeed, theirs: BySeed, start: BySeed, cells: Sequence[Trained] = ()
) -> str | None:
    """Not "better" where FedAgent is not above the warm start: others that fell are no achievement
    of it. That it is worse stands also there."""
    rise, difference = points(ours, start), points(ours, theirs)
    worse = difference is not None and above(difference) == FAILS
    if rise is None or difference is None or may_have_learned(rise) or worse:
        return compared(ours, theirs, cells)
    return f"{NOTHING_LEARNED} ({signed(difference)})"


def may_have_learned(rise: Difference) -> bool:
    """Above the warm start; one seed cannot tell."""
    return above(rise) == HOLDS or rise[1] != rise[1]


def compared_rows(lines: Runs, rounds: int, base: str) -> Iterator[list[str | None]]:
    """Name, success at the end, and the comparison with the line `base`."""
    ends = {
        name: one.value(SUCCESS, rounds if one.cell.part == "main" else None)
        for name, one in lines.items()
    }
    for name, success in ends.items():
        both = [lines[name], lines[base]]
        yield [name, shown(success), "–" if name == base else compared(success, ends[base], both)]


def local_success(found: Runs, rounds: int) -> BySeed:
    """By seed, the mean over the clients that learn alone."""
    alone = [one for name, one in found.items() if name.startswith("local-")]
    return mean_of([one.value(SUCCESS, rounds) for one in alone])


def strengths(found: Runs, name: str) -> tuple[str, list[float]]:
    """The symbol of a heterogeneity, and how strong the mild and the extreme one are."""
    symbol, key = PARTITIONS[name]
    both = (found[f"{name}-{word}"].cell.recipe["partition"] for word in ("mild", "extreme"))
    return symbol, [partition[key] for partition in both]


# Claims


def claims(
    parts: Parts, scales: Iterable[Sequence[str]], shows: Callable[[str], bool]
) -> list[Claim]:
    """By scale, every claim on its parts, and what became of it; None without records."""
    rows: list[Claim] = []
    for names in scales:
        for part, title in TITLES.items():
            if part in names and shows(part):
                rows += federation_pays(parts[part], title)
        if "main" in names:
            rows += [*settings_matter(parts), *robust(parts["heterogeneity"])]
    return rows


@dataclass(frozen=True)
class Rule:
    """What a claim says of a difference."""

    judge: Callable[[Difference], str]
    far: Callable[[float], float]
    """Of a mean: there is a verdict once the interval's half is narrower."""
    gains: bool = False
    """Whether only the first side is to have learned something."""


def left(mean: float) -> float:
    """To the margin within which two are the same."""
    return abs(MARGIN - abs(mean))


better = Rule(above, abs, gains=True)
no_worse = Rule(partial(not_below, margin=MARGIN), lambda mean: abs(mean + MARGIN))
the_same = Rule(partial(alike, margin=MARGIN), left)


@dataclass(frozen=True)
class Pair:
    """Two sides of a claim by seed, and the cells whose runs one more seed of it takes."""

    ours: BySeed
    base: BySeed
    cells: Sequence[Trained]

    @property
    def seeds(self) -> int:
        return len(set(self.ours) & set(self.base))

    @property
    def planned(self) -> int:
        return min(len(one.cell.seeds) for one in self.cells)


def seconds(cells: Iterable[Trained]) -> float:
    """Of one more seed: a run of each cell, as long as those that are recorded took."""
    spent = [[run.seconds for run in one.runs.values() if run.seconds] for one in cells]
    return sum(float(np.mean(each)) for each in spent if each)


def told(word: str, rule: Rule, difference: Difference, pair: Pair) -> str:
    """A difference in points; where nothing is decided with the seeds and the time that it takes.
    One seed tells of no deviation, so only what another costs."""
    each = seconds(pair.cells)
    far = rule.far(difference[0])
    said = in_numbers(word, difference, pair.seeds, pair.planned, far, each)
    if word == OPEN and pair.seeds == 1 and each:
        said += f"; each further seed takes {duration(each)}"
    return said


class Claim(NamedTuple):
    """What the paper says, judged: a row of the page, and the runs behind it."""

    claim: str
    where: str
    word: str | None
    said: str | None
    source: str
    """What of the paper says it."""
    cells: Sequence[Trained] = ()
    seeds: int = 0
    """Behind the verdict: of several differences, of the one that has fewest."""

    @property
    def row(self) -> Row:
        return self[:4]


def judged(source: str, claim: str, where: str, rule: Rule, start: BySeed, *pairs: Pair) -> Claim:
    """A claim of one or more differences, judged by a rule; `start` is untrained. Where nobody
    learned anything it is not confirmed, but what refutes it does so there, too."""
    gaps = [found for one in pairs if (found := points(one.ours, one.base)) is not None]
    cells = [cell for one in pairs for cell in one.cells]
    if len(gaps) < len(pairs) or not start:
        return Claim(claim, where, None, None, source)
    seeds = min(one.seeds for one in pairs)
    sides = [by for one in pairs for by in ((one.ours,) if rule.gains else (one.ours, one.base))]
    learned = [found for one in sides if (found := points(one, start))]
    words = [rule.judge(one) for one in gaps]
    if FAILS not in words and not any(map(may_have_learned, learned)):
        numbers = "; ".join(map(signed, gaps))
        return Claim(claim, where, NOTHING_LEARNED, numbers, source, cells, seeds)
    said = (told(*each) for each in zip(words, [rule] * len(gaps), gaps, pairs, strict=True))
    return Claim(claim, where, f"**{together(words)}**", "; ".join(said), source, cells, seeds)


def federation_pays(found: Runs, title: str) -> Iterator[Claim]:
    """FedAgent above Local and no worse than Centralized, in both views."""
    ours, everything = found["fedagent"], found["centralized"]
    locals_ = [one for name, one in found.items() if name.startswith("local-")]
    end, start = ours.value(SUCCESS), ours.first(SUCCESS)
    rounds, last = ours.cell.rounds, everything.cell.rounds
    views = {"equal local epochs": rounds} | ({"equal rollouts": last} if last > rounds else {})
    for view, at in views.items():
        where = f"{title}, {view}"
        alone = Pair(end, local_success(found, at), [ours, *locals_])
        pooled = Pair(end, everything.value(SUCCESS, at), [ours, everything])
        yield judged("Table 1", "FedAgent is better than Local", where, better, start, alone)
        yield judged(
            "Table 1", "FedAgent is no worse than Centralized", where, no_worse, start, pooled
        )


def labels(found: Runs, axis: str) -> list[str]:
    """Along an axis of a part's cells."""
    return [one.cell.labels[axis] for one in found.values() if axis in one.cell.labels]


def settings_matter(parts: Parts) -> list[Claim]:
    found, main, where = parts["decentralized"], parts["main"]["fedagent"], TITLES["main"]
    cells = [main, *found.values()]
    start = {seed: end for one in cells for seed, end in one.first(SUCCESS).items()}
    usual = main.value(SUCCESS, next(iter(found.values())).cell.rounds)
    fewer, more = labels(found, "clients")
    little, much = labels(found, "epochs")
    small, large = labels(found, "size")

    def ends(ours: str, base: str) -> Pair:
        both = found[ours], found[base]
        return Pair(both[0].value(SUCCESS), both[1].value(SUCCESS), both)

    def beside_usual(base: str) -> Pair:
        return Pair(usual, found[base].value(SUCCESS), (main, found[base]))

    usually = main.cell.clients_per_round
    return [
        judged(
            "Figure 3", f"{much} epochs per round are better than {little}", where, better, start,
            ends(f"epochs-{much}", f"epochs-{little}"),
        ),
        judged(
            "Figure 3", f"{usually} clients per round are better than {fewer}, and than {more}",
            where, better, start, beside_usual(f"clients-{fewer}"),
            beside_usual(f"clients-{more}"),
        ),
        judged(
            "Figure 3", f"{large} tasks per client are the same as {small}", where, the_same,
            start, ends(f"tasks-{large}", f"tasks-{small}"),
        ),
    ]  # fmt: skip


def robust(found: Runs) -> Iterator[Claim]:
    for name in PARTITIONS:
        symbol, (mild, extreme) = strengths(found, name)
        claim = (
            f"{name.capitalize()} heterogeneity, {symbol} = {extreme:g}, is no worse than "
            f"{symbol} = {mild:g}"
        )
        weak, strong = found[f"{name}-mild"], found[f"{name}-extreme"]
        pair = Pair(strong.value(SUCCESS), weak.value(SUCCESS), (strong, weak))
        yield judged("Figure 4", claim, TITLES["main"], no_worse, weak.first(SUCCESS), pair)
