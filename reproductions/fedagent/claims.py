"""FedAgent's findings and what became of them, decided by the measured numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from reproductions.pages import Row
from reproductions.results import Runs
from reproductions.verdicts import (
    HOLDS,
    BySeed,
    Difference,
    above,
    alike,
    gap,
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
Rule = Callable[[Difference], str]
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


def compared(ours: BySeed, base: BySeed) -> str | None:
    """Better, worse or undecided, in percentage points over common seeds."""
    return verdict(*paired(ours, base, 100), 1)


def points(ours: BySeed, base: BySeed) -> Difference | None:
    """The mean difference in percentage points and the half width of its interval."""
    return gap(ours, base, 100)


def against(ours: BySeed, theirs: BySeed, start: BySeed) -> str | None:
    """No verdict where FedAgent is not above the warm start: others that fell are no achievement
    of it."""
    rise, difference = points(ours, start), points(ours, theirs)
    if rise is None or difference is None or may_have_learned(rise):
        return compared(ours, theirs)
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
        yield [name, shown(success), "–" if name == base else compared(success, ends[base])]


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
) -> list[Row]:
    """By scale, every claim on its parts, and what became of it; None without records."""
    rows: list[Row] = []
    for names in scales:
        for part, title in TITLES.items():
            if part in names and shows(part):
                rows += federation_pays(parts[part], title)
        if "main" in names:
            rows += [*settings_matter(parts), *robust(parts["heterogeneity"])]
    return rows


def row(
    claim: str, where: str, rule: Rule, start: BySeed, *differences: tuple[BySeed, BySeed]
) -> Row:
    """A claim of one or more differences (ours, base), judged by a rule; `start` is untrained."""
    gaps = [found for pair in differences if (found := points(*pair)) is not None]
    if len(gaps) < len(differences):
        return claim, where, None, None
    sides = [one for pair in differences for one in (pair[:1] if rule is above else pair)]
    learned = [found for one in sides if (found := points(one, start))]
    said = "; ".join(map(signed, gaps))
    if not any(map(may_have_learned, learned)):
        return claim, where, NOTHING_LEARNED, said
    return claim, where, f"**{together([rule(one) for one in gaps])}**", said


no_worse = partial(not_below, margin=MARGIN)
the_same = partial(alike, margin=MARGIN)


def federation_pays(found: Runs, title: str) -> Iterator[Row]:
    """FedAgent above Local and no worse than Centralized, in both views."""
    ours, start = found["fedagent"].value(SUCCESS), found["fedagent"].first(SUCCESS)
    rounds, last = found["fedagent"].cell.rounds, found["centralized"].cell.rounds
    views = {"equal local epochs": rounds} | ({"equal rollouts": last} if last > rounds else {})
    for view, at in views.items():
        where = f"{title}, {view}"
        alone, all_tasks = local_success(found, at), found["centralized"].value(SUCCESS, at)
        yield row("FedAgent is better than Local", where, above, start, (ours, alone))
        yield row(
            "FedAgent is no worse than Centralized", where, no_worse, start, (ours, all_tasks)
        )


def labels(found: Runs, axis: str) -> list[str]:
    """Along an axis of a part's cells."""
    return [one.cell.labels[axis] for one in found.values() if axis in one.cell.labels]


def settings_matter(parts: Parts) -> list[Row]:
    found, main, where = parts["decentralized"], parts["main"]["fedagent"], TITLES["main"]
    start = main.first(SUCCESS)
    usual = main.value(SUCCESS, next(iter(found.values())).cell.rounds)
    fewer, more = labels(found, "clients")
    little, much = labels(found, "epochs")
    small, large = labels(found, "size")
    ends = {name: one.value(SUCCESS) for name, one in found.items()}
    return [
        row(f"{much} epochs per round are better than {little}", where, above, start,
            (ends[f"epochs-{much}"], ends[f"epochs-{little}"])),
        row(f"{main.cell.clients_per_round} clients per round are better than {fewer}, and than "
            f"{more}", where, above, start, (usual, ends[f"clients-{fewer}"]),
            (usual, ends[f"clients-{more}"])),
        row(f"{large} tasks per client are the same as {small}", where, the_same, start,
            (ends[f"tasks-{large}"], ends[f"tasks-{small}"])),
    ]  # fmt: skip


def robust(found: Runs) -> Iterator[Row]:
    for name in PARTITIONS:
        symbol, (mild, extreme) = strengths(found, name)
        claim = (
            f"{name.capitalize()} heterogeneity, {symbol} = {extreme:g}, is no worse than "
            f"{symbol} = {mild:g}"
        )
        weak, strong = found[f"{name}-mild"], found[f"{name}-extreme"]
        pair = strong.value(SUCCESS), weak.value(SUCCESS)
        yield row(claim, TITLES["main"], no_worse, weak.first(SUCCESS), pair)
