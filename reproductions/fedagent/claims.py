"""FedAgent's findings and what became of them, decided by the measured numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from fedrl.runs.grid import Trained
from reproductions.fedagent import cells as plan
from reproductions.fedagent import numbers
from reproductions.fedagent.numbers import BySeed, above, alike, not_below
from reproductions.markdown import table

Found = Mapping[str, Trained]
Parts = Mapping[str, Found]
Row = tuple[str, str, str, str]
Rule = Callable[[tuple[float, float]], str]
SUCCESS = "eval/success"
TITLES = {
    "main": "Generated household",
    "webshop": "Generated WebShop",
    "alfworld": "ALFWorld",
    "webshop_full": "WebShop",
}
"""The parts that compare FedAgent with Centralized and Local."""
NOTHING_LEARNED = "nothing was learned"
PARTITIONS = {"preference": "ω", "coverage": "ξ", "hardness": "ξ′"}


def claims(scales: Mapping[str, Parts]) -> str:
    rows: list[Row] = []
    for parts in scales.values():
        for part, title in TITLES.items():
            if part in parts and any(one.runs for one in parts[part].values()):
                rows += federation_pays(parts[part], title)
        if "main" in parts:
            rows += settings_matter(parts) + list(robust(parts["heterogeneity"]))
    head = ("the paper says", "where", "here", "difference in points")
    return f"""## What the paper says and what came out

Differences are in percentage points of success, seed by seed, with 95% t-intervals. *Better*
holds if the whole interval lies above 0, and does not hold if it lies below; it says nothing where
the side that should be better is not above the warm start itself. *No worse* holds if the whole
interval lies above −{numbers.MARGIN:g}, *the same* if it lies within ±{numbers.MARGIN:g}; they do
not hold if the whole interval lies beyond, and say nothing where no side is better than the warm
start. Everything else is undecided, one seed always.

{table(head, rows)}"""


def success(found: Found, name: str, rounds: int | None = None) -> BySeed:
    return found[name].value(SUCCESS, rounds) if name in found else {}


def local_success(found: Found, rounds: int) -> BySeed:
    """By seed, the mean over the clients that learn alone."""
    several = [success(found, name, rounds) for name in found if name.startswith("local-")]
    return numbers.mean_of(several)


def row(
    claim: str, where: str, rule: Rule, start: BySeed, *differences: tuple[BySeed, BySeed]
) -> Row:
    """A claim of one or more differences (ours, base), judged by a rule; `start` is untrained."""
    gaps = [gap for pair in differences if (gap := numbers.gap(*pair)) is not None]
    if len(gaps) < len(differences):
        return claim, where, "not measured", ""
    sides = [one for pair in differences for one in (pair[:1] if rule is above else pair)]
    learned = [found for one in sides if (found := numbers.gap(one, start))]
    if not any(may_have_learned(found) for found in learned):
        return claim, where, NOTHING_LEARNED, "; ".join(map(told, gaps))
    judged = [rule(gap) for gap in gaps]
    return claim, where, f"**{numbers.together(judged)}**", "; ".join(map(told, gaps))


def may_have_learned(rise: tuple[float, float]) -> bool:
    """Above the warm start; one seed cannot tell."""
    return above(rise) == numbers.HOLDS or rise[1] != rise[1]


def told(gap: tuple[float, float]) -> str:
    mean, half = gap
    return f"{mean:+.1f} ± {half:.1f}" if half == half else f"{mean:+.1f} (one seed)"


def federation_pays(found: Found, title: str) -> Iterator[Row]:
    """FedAgent above Local and no worse than Centralized, in both views."""
    rounds, last = found["fedagent"].cell.rounds, found["centralized"].cell.rounds
    ours, start = success(found, "fedagent"), found["fedagent"].first(SUCCESS)
    views = {"equal local epochs": rounds} | ({"equal rollouts": last} if last > rounds else {})
    for view, at in views.items():
        where = f"{title}, {view}"
        alone, all_tasks = local_success(found, at), success(found, "centralized", at)
        yield row("FedAgent is better than Local", where, above, start, (ours, alone))
        yield row(
            "FedAgent is no worse than Centralized", where, not_below, start, (ours, all_tasks)
        )


def settings_matter(parts: Parts) -> list[Row]:
    found, where = parts["decentralized"], TITLES["main"]
    rounds = next(iter(found.values())).cell.rounds
    usual = success(parts["main"], "fedagent", rounds)
    start = parts["main"]["fedagent"].first(SUCCESS)
    fewer, more = plan.COHORTS
    little, much = plan.EPOCHS
    small, large = plan.SHARES
    return [
        row(f"{much} epochs per round are better than {little}", where, above, start,
            (success(found, f"epochs-{much}"), success(found, f"epochs-{little}"))),
        row(f"{plan.COHORT} clients per round are better than {fewer}, and than {more}",
            where, above, start, (usual, success(found, f"clients-{fewer}")),
            (usual, success(found, f"clients-{more}"))),
        row(f"{large} tasks per client are the same as {small}", where, alike, start,
            (success(found, f"tasks-{large}"), success(found, f"tasks-{small}"))),
    ]  # fmt: skip


def robust(found: Found) -> Iterator[Row]:
    for name, symbol in PARTITIONS.items():
        mild, extreme = (
            strength["omega" if name == "preference" else "xi"]
            for strength in (plan.MILD, plan.EXTREME)
        )
        yield row(
            f"{name.capitalize()} heterogeneity, {symbol} = {extreme:g}, is no worse than "
            f"{symbol} = {mild:g}",
            TITLES["main"],
            not_below,
            found[f"{name}-mild"].first(SUCCESS),
            (success(found, f"{name}-extreme"), success(found, f"{name}-mild")),
        )
