"""What the paper says of its figures, its theory and its minutes, judged by `verdicts.toml`.

A verdict is None where a record is missing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedrl.report import plots
from reproductions.fedqhd.claims import RULES, gained, is_better, said
from reproductions.fedqhd.gap import RIDGELESS
from reproductions.fedqhd.plan import ENCODERS
from reproductions.fedqhd.results import (
    ALONE,
    BOX,
    PAPER,
    PLAYED,
    Results,
    by_anchors,
    by_clients,
    by_dimension,
    ended,
    errors,
    regimes,
    shown,
    slopes,
)
from reproductions.fedqhd.theorem_claims import theorem_claims
from reproductions.pages import Row
from reproductions.results import BySeed, Runs, Trained
from reproductions.verdicts import FAILS, HOLDS, OPEN, alike, gap, number, together, would_decide

NEAR = 0.1
"""How far from a power a slope may be."""
CLIFF = 0.01
"""What m = D leaves of an error, at most, if it ends there."""
ROUNDED = 1e-20
"""γ below which a smallest singular value, its root, is rounding beside the largest."""
CEILING_FROM, CEILING = 128, 475.0
CHEAPER = (3.0, 12.0)
"""How many times cheaper own encoders are, the paper says."""


def figure_claims(results: Results) -> list[Row]:
    tasks, sizes = results.plan.tasks, results.plan.sizes
    return [
        ("Figure 1: the compilation error falls as D^−1/2 (its slope −0.525)", falls(results)),
        ("Figure 1: D ≥ 128 reaches CartPole's ceiling of 500", ceiling(results)),
        *(
            (f"Figure 2: FedQHD converges within 600 episodes, {tasks[task]}",
             converges(results, task))
            for task in sizes.agent_tasks
        ),
        ("Figure 3: the error drops up to m = D, then it is flat", drops(results)),
        *theorem_claims(results),
        ("Remark 2: γ grows linearly with m from m = D on", linear(results)),
        ("Corollary 1: no gap if subspaces align, λ → 0 and anchors have full rank",
         no_gap(results)),
        ("Corollary 2: the gap is of the order of the heterogeneity, if m ≥ D and λ → 0",
         bounded(results)),
        ("Table 2: FedQHD is faster than all DQN methods", faster(results.parts["table"], results)),
        ("Table 2: own encoders are 3 to 12 times cheaper than one of D = 10,000",
         cheaper(results)),
        *(
            (f"Figure 4: more clients are better, {tasks[task]} (about +30%)", more(results, task))
            for task in sizes.agent_tasks
        ),
        *(
            (f"FedQHD is better than Independent QHD if nothing else syncs the target, "
             f"{tasks[task]}", unsynced(results, task))
            for task in sizes.unsynced_tasks
        ),
    ]  # fmt: skip


def drawn(by: Mapping[int, np.ndarray]) -> str:
    """How many draws there are, if not all."""
    count = min(len(several) for several in by.values())
    return f" ({count} of {RULES['draws']} draws)" if count < RULES["draws"] else ""


def falls(results: Results) -> str | None:
    """The paper's definition; with which ridge, is part of the answer."""
    told, each = [], results.error_seconds.get("dimension", 0.0)
    for label, by in list(by_dimension(results).items())[:2]:
        if not by:
            return None
        mean, half = (float(x) for x in plots.interval(slopes(by)))
        word, count = alike((mean + 0.5, half), NEAR), len(slopes(by))
        far = abs(NEAR - abs(mean + 0.5))
        more = f"; {would_decide(half, count, far, each, 'draws')}" if word == OPEN else ""
        told.append(
            f"**{word}** with {label.rpartition(', ')[2]}: {number(slopes(by))}{drawn(by)}{more}"
        )
    return f"{'; '.join(told)} (the paper's {PAPER['slope']}; Q̂ is fitted with a ridge of 1e-06)"


def ceiling(results: Results) -> str | None:
    sizes, found = results.plan.sizes, results.parts["dimension"]
    words, told = [], []
    for features in (d for d in sizes.dimensions if d >= CEILING_FROM):
        one = found[f"D{features}-m{sizes.ratio * features}"]
        ends = ended(one)
        if len(ends) < 2:
            return None
        mean, half = (float(x) for x in plots.interval(np.array(list(ends.values()))))
        low, high = mean - half, mean + half
        words.append(HOLDS if low >= CEILING else FAILS if high < CEILING else OPEN)
        each = 60 * float(np.mean(list(one.minutes().values())))
        far = abs(mean - CEILING)
        more = f"; {would_decide(half, len(ends), far, each)}" if words[-1] == OPEN else ""
        told.append(f"{features}: {mean:.0f} ± {half:.0f} ({len(ends)} seeds{more})")
    return f"**{together(words)}**: {', '.join(told)}" if words else None


def converges(results: Results, task: str) -> str | None:
    """With one encoder and with own ones: the last two rounds' returns beside the two before."""
    words, told = [], []
    for encoders in ENCODERS:
        one = results.parts["table"][f"{task}-fedqhd-{encoders}"]
        late, before = one.late("train/return", 2), one.late("train/return", 4)
        change = gap({seed: 2 * (late[seed] - before[seed]) for seed in late},
                     dict.fromkeys(late, 0.0))  # fmt: skip
        if change is None or change[1] != change[1]:
            return None
        words.append(alike(change, RULES["margin"][task]))
        told.append(f"{encoders} {change[0]:+.1f} ± {change[1]:.1f} ({len(late)} seeds)")
    return f"**{together(words)}**: {', '.join(told)} from rounds 9 and 10 to 11 and 12"


def drops(results: Results) -> str | None:
    """Steeper below m = D than above by more than the draws differ, and flat from there on."""
    fixed, told = results.plan.sizes.fixed, []
    for label, by in by_anchors(results).items():
        if not by:
            return None
        if label == ALONE:
            told.append(f"{label}: **{cliff(by, fixed)}**, {at_the_border(by, fixed)}{drawn(by)}")
            continue
        before, after = regimes(by, fixed)
        bend = tuple(float(x) for x in plots.interval(after - before))
        rest = tuple(float(x) for x in plots.interval(after))
        steeper = HOLDS if bend[0] - bend[1] > 0 else FAILS if bend[0] + bend[1] < 0 else OPEN
        word = together([steeper, alike((rest[0], rest[1]), NEAR)])
        told.append(
            f"{label}: **{word}**, the log-log slope is {number(before, 2)} up to m = D and "
            f"{number(after, 2)} from there on{drawn(by)}"
        )
    return "; ".join(told)


def cliff(by: Mapping[int, np.ndarray], fixed: int) -> str:
    below = max(m for m in by if m < fixed)
    return HOLDS if by[fixed].max() < CLIFF * by[below].min() else FAILS


def at_the_border(by: Mapping[int, np.ndarray], fixed: int) -> str:
    below = max(m for m in by if m < fixed)
    return f"from {by[below].mean():.2g} at m = {below} to {by[fixed].mean():.1g} at m = D"


# Theory


def linear(results: Results) -> str | None:
    fixed, told = results.plan.sizes.fixed, []
    for source, label in ((BOX, "box"), (PLAYED, "random play")):
        by = errors(results, "anchors", results.ridge, "gamma", source)
        if not by:
            return None
        if by[fixed].max() < ROUNDED:
            told.append(f"{label}: not judged, γ is {by[fixed].max():.0e} at m = D: rounding, of "
                        f"features that are dependent there{drawn(by)}")  # fmt: skip
            continue
        _, after = regimes(by, fixed)
        late = slopes({m: several for m, several in by.items() if m >= 2 * fixed})
        mean, half = (float(x) for x in plots.interval(after))
        told.append(
            f"{label}: **{alike((mean - 1, half), NEAR)}**, its slope is {number(after, 2)} "
            f"(γ = {by[fixed].mean():.1g} at m = D), {number(late, 2)} from m = 2D on{drawn(by)}"
        )
    return "; ".join(told)


def no_gap(results: Results) -> str | None:
    fixed = results.plan.sizes.fixed
    alone = errors(results, "anchors", results.ridge, "alone", BOX)
    several = errors(results, "anchors", RIDGELESS, "error", BOX)
    if not alone or not several:
        return None
    others = HOLDS if several[fixed].min() > alone[fixed].max() / CLIFF else FAILS
    word = together([cliff(alone, fixed), others])
    return (
        f"**{word}** (box): alone {at_the_border(alone, fixed)}; with other encoders "
        f"{number(several[fixed], 2)} there{drawn(alone)}"
    )


def bounded(results: Results) -> str | None:
    fixed, told = results.plan.sizes.fixed, []
    for source, label in ((BOX, "box"), (PLAYED, "random play")):
        gaps = errors(results, "anchors", RIDGELESS, "error", source)
        apart = errors(results, "anchors", RIDGELESS, "disagreement", source)
        if not gaps or not apart:
            return None
        share = {m: gaps[m] / apart[m] for m in gaps if m >= fixed}
        found = slopes(share)
        mean, half = (float(x) for x in plots.interval(found))
        word = HOLDS if mean + half < NEAR else FAILS if mean - half > NEAR else OPEN
        first, last = (f"{share[m].mean():.2g}" for m in (min(share), max(share)))
        told.append(f"{label}: **{word}**, error / disagreement is {first} at m = D and {last} at "
                    f"m = {max(share):,}, slope {number(found, 2)}{drawn(share)}")  # fmt: skip
    return "; ".join(told)


# Minutes


def ratio(over: BySeed, under: BySeed) -> tuple[float, float] | None:
    """Of the means, with the 95% interval of the ratio seed by seed."""
    seeds = sorted(set(over) & set(under))
    if len(seeds) < 2:
        return None
    mean, half = plots.interval(np.array([over[s] / under[s] for s in seeds]))
    return float(mean), float(half)


def faster(found: Runs, results: Results) -> str | None:
    """Only runs of one machine are paired."""
    plan, words, told = results.plan, [], []
    for method in ("feddqn", "distill"):
        for encoders in ENCODERS:
            name = plan.learner(method, encoders)
            for task in plan.tasks if name else ():
                ours, base = found[f"{task}-fedqhd-{encoders}"], found[f"{task}-{name}"]
                one = ratio(*on_one_machine(base, ours))
                if one is None:
                    words.append(OPEN)
                    continue
                mean, half = one
                words.append(HOLDS if mean - half > 1 else FAILS if mean + half < 1 else OPEN)
                told.append(f"{plan.tasks[task]} {method} {encoders} {mean:.1f} ± {half:.1f}")
    if not told:
        return None
    missing = f"; {words.count(OPEN)} of {len(words)} are open" if OPEN in words else ""
    return (
        f"**{together(words)}** at D = {plan.sizes.features:,}, each at its own practice, times: "
        f"{', '.join(told)}{missing}"
    )


def on_one_machine(base: Trained, ours: Trained) -> tuple[BySeed, BySeed]:
    """Minutes by seed, of seeds whose two runs were made and timed alike: one machine, as many at a
    time, both by the processor's seconds or both by the clock's."""

    def where(one: Trained, seed: int) -> object:
        meta = one.runs[seed].meta
        return meta.get("hardware"), meta.get("processes"), bool(meta.get("cpu_phases"))

    a, b = base.minutes(), ours.minutes()
    same = [s for s in a if s in b and where(base, s) == where(ours, s)]
    return {s: a[s] for s in same}, {s: b[s] for s in same}


def cheaper(results: Results) -> str | None:
    """At the paper's sizes; at others the ratio is that of their D."""
    found, plan, words, told = results.full, results.full_plan, [], []
    for task, title in plan.tasks.items() if found else ():
        one, own = (found[f"{task}-fedqhd-{encoders}"] for encoders in ENCODERS)
        measured = ratio(*on_one_machine(one, own))
        if measured is None:
            words.append(OPEN)
            continue
        mean, half = measured
        low, high = CHEAPER
        outside = mean + half < low or mean - half > high
        inside = mean - half >= low and mean + half <= high
        words.append(HOLDS if inside else FAILS if outside else OPEN)
        told.append(f"{title} {mean:.1f} ± {half:.1f}")
    return f"**{together(words)}**, times: {', '.join(told)}" if told else None


# Clients and targets


def more(results: Results, task: str) -> str | None:
    ends = by_clients(results, task)
    few, many = min(ends), max(ends)
    difference = gap(ends[many], ends[few])
    if difference is None:
        return None
    found = results.parts["clients"]
    cells = [found[f"{task}-{n}"] for n in (many, few)]
    share = 100 * difference[0] / abs(float(np.mean(list(ends[few].values()))))
    word = is_better(difference, RULES["margin"][task])
    verdict = said(word, difference, len(ends[few]), cells, RULES["margin"][task])
    line, (mean, half) = RULES["solved"][task], gap(ends[many], dict.fromkeys(ends[many], 0.0)) or (
        np.nan, np.nan)  # fmt: skip
    solved = "solved" if mean - half >= line else "not solved" if mean + half < line else "open"
    return f"{verdict}: N = {many} against N = {few}, {share:+.0f}%; at {line:g}: {solved}"


def unsynced(results: Results, task: str) -> str | None:
    found = results.parts["unsynced"]
    ours, alone = (found[f"{task}-{m}"] for m in ("fedqhd", "independent"))
    verdict = gained(ours, alone, RULES["margin"][task])
    if verdict is None:
        return None
    column = list(results.plan.tasks).index(task)
    paper = (str(PAPER["table1"][m]["shared"][column]) for m in ("fedqhd", "independent"))
    return (
        f"{verdict}: {shown(ended(ours))} against {shown(ended(alone))}; "
        f"the paper's are {' and '.join(paper)}"
    )
