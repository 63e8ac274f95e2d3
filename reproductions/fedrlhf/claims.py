"""FedRLHF's findings and what became of them, decided by the measured numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from reproductions.fedrlhf import reviews, theory, tradeoff
from reproductions.fedrlhf.rates import Rate
from reproductions.fedrlhf.results import (
    OWN,
    PAPER,
    Found,
    Results,
    at,
    medians,
    percent,
    personal,
    plain,
    spreads,
)
from reproductions.results import BySeed
from reproductions.verdicts import FAILS, HOLDS, OPEN, above, alike, gap, not_below, signed

Row = tuple[str, str | None, str | None]
"""The claim, the verdict and what was found; None where a record is missing."""
NEAR = 0.5
"""How far from the theorem's exponent 2 a slope may be."""
STRAIGHT = 0.9
"""Share of differences that a line must explain to be called one."""
NAMES = {"smoke": "smoke", "small": "built-in model", "full": "language model"}
"""Of IMDb's scales."""


def claims(results: Results) -> list[Row]:
    return [
        *(row for clients in results.clients for row in ratings(results, clients)),
        *answers(results), *rates(results), bound(results),
        *(row for scale, found in results.texts.items() for row in on_reviews(found, scale)),
    ]  # fmt: skip


def judged(claim: str, ours: BySeed, base: BySeed, shown: str = "", factor: float = 1.0) -> Row:
    """A claim that ours is above the other."""
    difference = gap(ours, base, factor)
    if difference is None:
        return claim, None, None
    digits = 1 if factor > 1 else 3
    return claim, f"**{above(difference)}**", f"{shown}{signed(difference, digits)}"


# MovieLens


def ratings(results: Results, clients: int) -> Iterator[Row]:
    ours, labels, plain_run, alone, central = results.methods(clients).values()
    where = f"{'MovieLens' if results.genuine else 'Generated ratings'}, K = {clients}: "
    first, last = at(ours, "eval/accuracy", 1), at(ours, "eval/accuracy")
    if clients == 10:
        yield reached(where, last, at(labels, "eval/train_accuracy"))
    yield judged(f"{where}the global accuracy rises over rounds", last, first,
                 f"{percent(first)} → {percent(last)}: ", 100)  # fmt: skip
    often = at(ours, "eval/majority")
    yield judged(f"*{where}the global policy is above the majority class*", last, often,
                 f"{percent(often)} is the majority's: ", 100)  # fmt: skip
    own = at(ours, OWN)
    yield judged(f"*{where}so are clients' own policies*", own, often, f"{percent(own)}: ", 100)
    yield judged(f"*{where}feedback helps: above λ = 0, own policies*", own,
                 at(plain_run, OWN), "", 100)  # fmt: skip
    yield judged(f"*{where}above the network that is told the labels, own policies*", own,
                 at(labels, OWN), "", 100)  # fmt: skip
    yield judged(f"*{where}federation helps: global above every client alone*", last,
                 at(alone, "eval/accuracy"), "", 100)  # fmt: skip
    yield matched(f"{where}FedRLHF matches centralized training", last,
                  at(central, "eval/accuracy"))  # fmt: skip
    end = ours.cell.rounds
    middle = [medians(ours, "personal/spearman", number) for number in (1, end)]
    yield judged(f"{where}the median client's Spearman rises over rounds", middle[1], middle[0],
                 f"{plain(middle[0], 2)} → {plain(middle[1], 2)}: ")  # fmt: skip
    if clients > 10:
        yield judged(f"{where}clients' accuracies spread out over rounds", spreads(ours, end),
                     spreads(ours, 1), "deviation over clients: ", 100)  # fmt: skip


def reached(where: str, last: BySeed, leaky: BySeed) -> Row:
    paper, spread = PAPER["ratings"]["last"]
    claim = f"{where}{paper}% ± {spread} after five rounds"
    difference = gap({s: 100 * level for s, level in last.items()}, dict.fromkeys(last, paper))
    if difference is None:
        return claim, None, None
    word = HOLDS if difference[0] >= -spread else FAILS
    beside = f"; in the release's protocol, which is no evaluation, {percent(leaky)}"
    found = f"{percent(last)} on held-out ratings: {signed(difference)}{beside if leaky else ''}"
    return claim, f"**{word}**", found


def matched(claim: str, ours: BySeed, base: BySeed, margin: float = 5.0) -> Row:
    """No worse than five points below."""
    claim, difference = f"{claim} (no worse than by {margin:g} points)", gap(ours, base, 100)
    if difference is None:
        return claim, None, None
    return claim, f"**{not_below(difference, margin)}**", signed(difference)


def answers(results: Results) -> Iterator[Row]:
    found, client = results.parts["feedback"], results.flipped
    rank = {kind: at(one, "eval/spearman") for kind, one in found.items()}
    both = f"{plain(rank['told'], 2)} and {plain(rank['shuffled'], 2)}: "
    claim = "*Feedback: meant above shuffled, the global policy's Spearman*"
    yield judged(claim, rank["told"], rank["shuffled"], both)
    yield judged("*meant above none*", rank["told"], rank["none"])
    yield judged("*shuffled above none (it should not be)*", rank["shuffled"], rank["none"])
    own = {
        (kind, others): personal(found[kind], "personal/accuracy", client, others)
        for kind in ("told", "flipped")
        for others in (False, True)
    }
    yield judged("*One person's opposite lowers that client's own accuracy*", own["told", False],
                 own["flipped", False], "", 100)  # fmt: skip
    moved = gap(own["flipped", True], own["told", True], 100)
    yield ("*and leaves the others' where it was (within 2 points)*",
           None if moved is None else f"**{alike(moved, 2.0)}**",
           None if moved is None else signed(moved))  # fmt: skip


# The theorems


def rates(results: Results) -> Iterator[Row]:
    columns = tradeoff.measured(results)
    names = (
        f"Theorem 5.2: P grows like λ² (within ±{NEAR:g})",
        "Theorem 5.2: J_g falls linearly in λ",
        "Theorem 5.2: samples grow linearly in λ",
        "Theorem 5.1 bounds J_g from below",
    )
    if not columns:
        yield from ((name, None, None) for name in names)
        return
    found, lams = tradeoff.fitted(results, columns), results.lams
    yield (
        names[0],
        f"**{squared(found.excess)}**",
        "what feedback adds to P grows as λ to the power "
        f"{tradeoff.shown_rate(found.excess, 2)}, over {tradeoff.fitted_over(found.excess, lams)}",
    )
    yield straight(names[1], found.performance, -1, 4, lams, columns["J_g"])
    yield straight(names[2], found.samples, 1, 0, lams, columns["samples"])
    gaps = tradeoff.slacks(results)
    yield (
        names[3],
        f"**{HOLDS if min(gaps) >= 0 else FAILS}**",
        f"in {sum(g >= 0 for g in gaps):,} of {len(gaps):,} rounds, {np.mean(gaps):.2f} apart",
    )


def squared(rate: Rate) -> str:
    """An interval within NEAR of 2; or one without 2 in it: the theorem's O allows for slower."""
    if math.isnan(rate.half):
        return OPEN
    if abs(rate.mean - 2) + rate.half <= NEAR:
        return HOLDS
    if rate.mean + rate.half < 2:
        return "slower than λ², which O(λ²) allows"
    return FAILS if rate.mean - rate.half > 2 else OPEN


def straight(
    claim: str, rate: Rate, sign: int, digits: int, lams: Sequence[float], values: np.ndarray
) -> Row:
    """The direction, by seeds, and whether a line says it."""
    way, explained = above((sign * rate.mean, rate.half)), tradeoff.straightness(lams, values)
    if way == HOLDS and not explained >= STRAIGHT:
        way = "the direction holds, a line does not"
    never = int((~np.isfinite(values)).sum())
    late = f"; {never} of {values.size} runs never got there and are left out" if never else ""
    found = (
        f"{tradeoff.shown_rate(rate, digits)} per unit of λ; a line explains "
        f"{100 * explained:.0f}% of the mean's differences{late}"
    )
    return claim, f"**{way}**", found


def bound(results: Results) -> Row:
    claim = "Theorem 4.1 bounds the gap to the best policy"
    measured = [one for several in results.bounds.values() for one in several]
    if not measured:
        return claim, None, None
    paper, repaired = (theory.kept(measured, name) for name in ("paper", "repaired"))
    ratio = theory.column(measured, "paper")[:, -1] / theory.column(measured, "gap")[:, -1]
    found = (
        f"after {measured[0]['rows'][-1]['round']} rounds it is {ratio.min():.0f} to "
        f"{ratio.max():,.0f} times the gap; repaired, it {'holds too' if repaired else 'fails'}"
    )
    return claim, f"**{HOLDS if paper else FAILS}**", found


# IMDb


def on_reviews(found: Found, scale: str) -> Iterator[Row]:
    where = f"IMDb, {NAMES[scale]}: "
    ours, central = found["fedrlhf"], found["centralized"]
    first, last = at(ours, "eval/reward", 0), at(ours, "eval/reward")
    rise, paper = gap(last, first), PAPER["reviews"]["rise"]
    claim = f"{where}the global mean reward rises by {paper} in five rounds"
    if rise is None:
        yield claim, None, None
    else:
        word = HOLDS if rise[0] >= paper else FAILS
        yield claim, f"**{word}**", f"{plain(first)} → {plain(last)}: {signed(rise, 3)}"
    yield judged(f"{where}FedRLHF ends above centralized training at equal samples", last,
                 at(central, "eval/reward"))  # fmt: skip
    for metric, word, sign in (("sentiment", "more", 1), ("intrinsic", "less", -1)):
        name = reviews.REWARDS[metric]
        claim = f"{where}a larger λ_k means {word} {name} for client k, in order"
        yield in_order(claim, reviews.order(ours, metric), sign, "the change in five rounds")
        claim = f"{where}the same of what a round of the client's own training changes"
        yield in_order(claim, reviews.trained_order(ours, metric), sign, "that change")


def in_order(claim: str, ranks: np.ndarray, sign: int, what: str) -> Row:
    """A claim that something grows (or falls) with λ_k; `ranks` are correlations by seed."""
    if not len(ranks):
        return claim, None, None
    word = OPEN if sign * ranks.mean() > 0 else FAILS
    if (sign * ranks >= 0.9 - 1e-9).all():
        word = HOLDS
    shown = ", ".join(f"{rank:.1f}" for rank in ranks)
    return claim, f"**{word}**", f"Spearman of λ_k and {what}: {shown} by seed"
