"""FedRLHF's findings on ratings and what became of them, by the rules of `verdicts.toml`.

Everything is judged by intervals over seeds, seed by seed between two rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from reproductions.fedrlhf import tradeoff
from reproductions.fedrlhf.cells import RULES
from reproductions.fedrlhf.rates import Rate
from reproductions.fedrlhf.recommender_claims import recommender_statements
from reproductions.fedrlhf.results import (
    OWN,
    PAPER,
    Results,
    at,
    medians,
    percent,
    personal,
    plain,
    spreads,
)
from reproductions.fedrlhf.text_claims import seconds
from reproductions.results import BySeed, Trained
from reproductions.statements import Statement, judged, records_of
from reproductions.verdicts import (
    FAILS,
    HOLDS,
    OPEN,
    Difference,
    alike,
    gap,
    in_words,
    not_below,
    signed,
)

RATED = RULES["ratings"]
POINTS, RANKS = RATED["accuracy"], RATED["spearman"]
PERCENT = 100.0
OTHERS = RATED["others"]


def ratings_statements(results: Results) -> list[Statement]:
    return [
        *(one for clients in results.clients for one in on_network(results, clients)),
        *of_feedback(results), *of_tradeoff(results), *recommender_statements(results),
    ]  # fmt: skip


def is_above(difference: Difference, margin: float) -> str:
    """No gain that counts, where none of the interval reaches the margin."""
    mean, half = difference
    return HOLDS if mean - half > 0 else FAILS if mean + half < margin else OPEN


def higher(
    where: str, claim: str, ours: BySeed, base: BySeed, cells: Sequence[Trained], planned: int,
    factor: float = 1.0, shown: str = "", own: bool = False,
) -> Statement:  # fmt: skip
    """A claim that ours is above the other."""
    difference, margin = gap(ours, base, factor), POINTS if factor > 1 else RANKS
    text = None
    if difference is not None:
        told = in_words(is_above(difference, margin), difference, len(set(ours) & set(base)),
                        planned, seconds(cells), margin, 1 if factor > 1 else 3)  # fmt: skip
        text = f"{told}{shown and '; '}{shown}"
    return judged(where, claim, text, records_of(cells), len(set(ours) & set(base)), own)


# The paper's network


def on_network(results: Results, clients: int) -> Iterator[Statement]:
    found = results.methods(clients)
    ours, labels, plain_run, alone, central = found.values()
    place = f"{'MovieLens' if results.genuine else 'Generated ratings'}, K = {clients}: "
    curve, spread = (
        ("Figures 2 and 6", "Figures 3 and 7") if clients <= 10 else ("Figure 8", "Figure 9")
    )
    planned = len(ours.cell.seeds)
    first, last = at(ours, "eval/accuracy", 1), at(ours, "eval/accuracy")
    if clients == 10:
        yield reached(place, ours, labels, planned)
    yield higher(curve, f"{place}the global accuracy rises over rounds", last, first, [ours],
                 planned, PERCENT, f"{percent(first)} → {percent(last)}%")  # fmt: skip
    often, own = at(ours, "eval/majority"), at(ours, OWN)
    shown = f"{percent(last)}% where the majority has {percent(often)}%"
    yield higher(curve, f"{place}the global policy is above the majority class", last, often,
                 [ours], planned, PERCENT, shown, own=True)  # fmt: skip
    yield higher(curve, f"{place}so are clients' own policies", own, often, [ours], planned,
                 PERCENT, f"{percent(own)}%", own=True)  # fmt: skip
    for claim, other in (
        ("feedback helps: above λ = 0, own policies", plain_run),
        ("above the network that is told the labels, own policies", labels),
    ):
        yield higher("Section 6.1", f"{place}{claim}", own, at(other, OWN), [ours, other], planned,
                     PERCENT, own=True)  # fmt: skip
    yield higher("Section 6.1", f"{place}federation helps: global above every client alone", last,
                 at(alone, "eval/accuracy"), [ours, alone], planned, PERCENT, own=True)  # fmt: skip
    yield matched(place, ours, central, planned)
    end = ours.cell.rounds
    middle = [medians(ours, "personal/spearman", number) for number in (1, end)]
    yield higher(spread, f"{place}the median client's Spearman rises over rounds", middle[1],
                 middle[0], [ours], planned,
                 shown=f"{plain(middle[0], 2)} → {plain(middle[1], 2)}")  # fmt: skip
    if clients > 10:
        yield higher(spread, f"{place}clients' accuracies spread out over rounds",
                     spreads(ours, end), spreads(ours, 1), [ours], planned, PERCENT,
                     "of the deviation over clients")  # fmt: skip


def reached(place: str, ours: Trained, labels: Trained, planned: int) -> Statement:
    """The paper's accuracy, less its deviation."""
    paper, spread = PAPER["ratings"]["last"]
    last, leaky = at(ours, "eval/accuracy"), at(labels, "eval/train_accuracy")
    short = gap({seed: PERCENT * level for seed, level in last.items()},
                dict.fromkeys(last, paper - spread))  # fmt: skip
    text = None
    if short is not None:
        mean, half = short
        word = HOLDS if mean - half >= 0 else FAILS if mean + half < 0 else OPEN
        told = in_words(word, short, len(last), planned, seconds([ours]))
        beside = f"; in the release's protocol, which is no evaluation, {percent(leaky)}%"
        text = f"{told}; {percent(last)}% on held-out ratings{beside if leaky else ''}"
    return judged("Figure 2, Section 6.1.4", f"{place}{paper}% ± {spread} after five rounds", text,
                  records_of([ours, labels]), len(last))  # fmt: skip


def matched(place: str, ours: Trained, central: Trained, planned: int) -> Statement:
    margin = RATED["centralized"]
    claim = f"{place}FedRLHF matches centralized training (no worse than by {margin:g} points)"
    last, base = at(ours, "eval/accuracy"), at(central, "eval/accuracy")
    difference, text = gap(last, base, PERCENT), None
    if difference is not None:
        word, (mean, half) = not_below(difference, margin), difference
        told = in_words(word, (mean + margin, half), len(last), planned, seconds([ours, central]))
        text = told.replace(signed((mean + margin, half)), signed(difference))
        text += f"; centralized {percent(base)}%"
    both = records_of([ours, central])
    return judged("Section 6.1", claim, text, both, len(set(last) & set(base)))


# Feedback


def of_feedback(results: Results) -> Iterator[Statement]:
    found, client = results.parts["feedback"], results.flipped
    rank = {kind: at(one, "eval/spearman") for kind, one in found.items()}
    planned, where = RATED["feedback"], "Section 3.2"
    for claim, ours, base in (
        ("Feedback: meant above shuffled, the global policy's Spearman", "told", "shuffled"),
        ("Feedback: meant above none, the global policy's Spearman", "told", "none"),
        ("Feedback: shuffled above none (it should not be)", "shuffled", "none"),
    ):
        yield higher(where, claim, rank[ours], rank[base], [found[ours], found[base]], planned,
                     shown=f"{plain(rank[ours], 2)} and {plain(rank[base], 2)}",
                     own=True)  # fmt: skip
    own = {
        (kind, others): personal(found[kind], "personal/accuracy", client, others)
        for kind in ("told", "flipped")
        for others in (False, True)
    }
    both = [found["told"], found["flipped"]]
    claim = "Feedback: one person's opposite lowers that client's own accuracy"
    yield higher(where, claim, own["told", False], own["flipped", False], both, planned, PERCENT,
                 own=True)  # fmt: skip
    moved = gap(own["flipped", True], own["told", True], PERCENT)
    text = None if moved is None else in_words(
        alike(moved, OTHERS), moved, len(own["told", True]), planned, seconds(both), OTHERS,
        within=True,
    )  # fmt: skip
    claim = f"Feedback: and leaves the others' where it was (within {OTHERS:g} points)"
    yield judged(where, claim, text, records_of(both), len(own["told", True]), True)


# The theorems


def of_tradeoff(results: Results) -> Iterator[Statement]:
    columns, cells = tradeoff.measured(results), list(results.parts["tradeoff"].values())
    said: dict[str, str | None] = dict.fromkeys(("P", "rate", "J_g", "samples", "floor"))
    if columns:
        rates, lams = tradeoff.fitted(results, columns), results.lams
        each = seconds(cells)
        power = tradeoff.shown_rate(rates.excess, 2)
        over = tradeoff.fitted_over(rates.excess, lams)
        found = f"(what feedback adds to P grows as λ to the power {power}: over {over})"
        said["P"] = f"**{squared(rates.excess)}** {found}"
        said["rate"] = f"**{as_fast(rates.excess)}** {found}"
        said["J_g"] = straight(rates.performance, -1, 4, lams, columns["J_g"], each)
        said["samples"] = straight(rates.samples, 1, 0, lams, columns["samples"], each)
        gaps = tradeoff.slacks(results)
        said["floor"] = (
            f"**{HOLDS if min(gaps) >= 0 else FAILS}** (in {sum(g >= 0 for g in gaps):,} of "
            f"{len(gaps):,} rounds, {np.mean(gaps):.2f} apart)"
        )
    seeds = len(columns["P"]) if columns else 0
    power = RATED["power"]
    for where, claim, key in (
        ("Theorem 5.2", "P is of O(λ²): it grows no faster", "P"),
        ("Theorem 5.2", f"and as fast: its exponent is 2 (within ±{power:g})", "rate"),
        ("Theorem 5.2", "J_g falls linearly in λ", "J_g"),
        ("Theorem 5.2", "samples grow linearly in λ", "samples"),
        ("Theorem 5.1", "J_g is at its lower bound or above", "floor"),
    ):
        yield judged(where, f"{where}: {claim}", said[key], records_of(cells), seeds, key == "rate")


def squared(rate: Rate) -> str:
    """Within the margin of 2, or below 2: the theorem's O allows for slower."""
    power = RATED["power"]
    if math.isnan(rate.half):
        return OPEN
    if abs(rate.mean - 2) + rate.half <= power or rate.mean + rate.half < 2:
        return HOLDS
    return FAILS if rate.mean - rate.half > 2 + power else OPEN


def as_fast(rate: Rate) -> str:
    """Within the margin of 2 on either side: more than the theorem says."""
    return OPEN if math.isnan(rate.half) else alike((rate.mean - 2, rate.half), RATED["power"])


def straight(
    rate: Rate, sign: int, digits: int, lams: Sequence[float], values: np.ndarray, each: float
) -> str:
    """The direction, by seeds, and whether a line says it."""
    mean, half = sign * rate.mean, rate.half
    explained = tradeoff.straightness(lams, values)
    word = HOLDS if mean - half > 0 else FAILS if mean + half < 0 else OPEN
    if word == HOLDS and not explained >= RATED["straight"]:
        word = FAILS
    seeds = len(rate.by_seed)
    told = in_words(word, (rate.mean, half), seeds, RATED["crowd"], each, digits=digits)
    never = int((~np.isfinite(values)).sum())
    late = f"; {never} of {values.size} runs never got there and are left out" if never else ""
    return (f"{told} per unit of λ; a line explains {PERCENT * explained:.0f}% of the mean's "
            f"differences{late}")  # fmt: skip
