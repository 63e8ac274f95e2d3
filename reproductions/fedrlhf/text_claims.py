"""FedRLHF's findings on reviews and what became of them, by the rules of `verdicts.toml`.

Everything is judged by intervals over seeds: a number of the paper's is reached if the lower end of
ours is at it or above.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from fedrl.report import plots
from fedrl.runs.read import Run
from reproductions.fedrlhf import reviews
from reproductions.fedrlhf.cells import RULES
from reproductions.fedrlhf.results import PAPER, Found, at, by_client, plain
from reproductions.pages import NOT_MEASURED
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
    together,
)

TEXT = RULES["reviews"]
NAMES = {"smoke": "smoke", "small": "built-in model", "full": "language model"}
"""Of IMDb's scales."""
VARIANTS = {
    "paper": ", with the paper's step size",
    "loglikelihood": ", with R0 of the log-likelihood",
    "gpt2": ", with GPT-2's architecture",
}


def text_statements(texts: Mapping[str, Found]) -> list[Statement]:
    """Of these scales."""
    return [one for scale, found in texts.items() for one in on_reviews(found, scale)]


def on_reviews(found: Found, scale: str) -> Iterator[Statement]:
    where, ours, central = f"IMDb, {NAMES[scale]}: ", found["fedrlhf"], found["centralized"]
    planned = TEXT["full"] if scale == "full" else TEXT["seeds"]
    yield rises(where, ours, planned)
    for name, words in VARIANTS.items():
        if name in found:
            beside = TEXT["full"] if scale == "full" else TEXT["others"]
            yield rises(where, found[name], beside, words, ours=name != "paper")
    yield from compared(where, ours, central, planned)
    yield from losses(where, ours, central, planned)
    for name, words in {"fedrlhf": "", "loglikelihood": VARIANTS["loglikelihood"]}.items():
        if name in found:
            yield from ordered(where, found[name], planned, words)


def rises(where: str, one: Trained, planned: int, words: str = "", ours: bool = False) -> Statement:
    first, last, paper = at(one, "eval/reward", 0), at(one, "eval/reward"), PAPER["reviews"]["rise"]
    claim = f"{where}the global mean reward rises by {paper} in five rounds{words}"
    risen = gap(last, first)
    said = None
    if risen is not None:
        word, short = reaches(risen, paper)
        told = in_words(word, short, len(last), planned, seconds([one]), digits=3)
        said = f"{told}; {plain(first)} → {plain(last)}, {short[0] + paper:+.3f}"
    return judged("Figure 4", claim, said, records_of([one]), len(last), ours)


def reaches(level: Difference, paper: float) -> tuple[str, Difference]:
    """The verdict on a number of the paper's, and how far ours is from it."""
    mean, half = level[0] - paper, level[1]
    word = HOLDS if mean - half >= 0 else FAILS if mean + half < 0 else OPEN
    return word, (mean, half)


def is_better(difference: Difference, margin: float = TEXT["margin"]) -> str:
    mean, half = difference
    return HOLDS if mean - half > 0 else FAILS if mean + half < margin else OPEN


# Beside one who has all


def compared(where: str, ours: Trained, central: Trained, planned: int) -> Iterator[Statement]:
    both, source = records_of([ours, central]), "Figure 11"
    last = gap(at(ours, "eval/reward"), at(central, "eval/reward"))
    seeds = len(at(ours, "eval/reward").keys() & at(central, "eval/reward").keys())

    def text(difference: Difference | None, sign: int = 1) -> str | None:
        if difference is None:
            return None
        turned = (sign * difference[0], difference[1])
        return in_words(is_better(turned), turned, seeds, planned, seconds([ours, central]),
                        TEXT["margin"], 3)  # fmt: skip

    claim = f"{where}FedRLHF ends above centralized training at equal samples"
    yield judged("Figure 4", claim, text(last), both, seeds)
    claim = f"{where}it lies above it from {PAPER['reviews']['samples']:,} texts on"
    yield judged(source, claim, crossing(ours, central), both, seeds)
    claim = f"{where}centralized training is ahead at first"
    first = gap(at(central, "eval/reward", 1), at(ours, "eval/reward", 1))
    yield judged(source, claim, text(first), both, seeds)


def crossing(ours: Trained, central: Trained) -> str | None:
    """With every evaluation from the paper's number of texts on."""
    points, _ = reviews.samples(ours)
    late = [number for number, texts in enumerate(points) if texts >= PAPER["reviews"]["samples"]]
    found = {number: gap(at(ours, "eval/reward", number), at(central, "eval/reward", number))
             for number in late}  # fmt: skip
    known = {number: one for number, one in found.items() if one is not None}
    if len(points) and not late:
        return "so many texts are not written at this scale"
    if not late or len(known) < len(late):
        return None
    word = together([is_better(one) for one in known.values()])
    shown = ", ".join(f"{mean:+.3f} ± {half:.3f}" for mean, half in known.values())
    return f"**{word}**: {shown} after rounds {', '.join(map(str, known))}"


# Losses


def losses(where: str, ours: Trained, central: Trained, planned: int) -> Iterator[Statement]:
    """On held-out prompts: the critic's error and the KL penalty; the policy's part is 0 there."""
    fallen = {name: reduced(one, 0, one.cell.rounds)
              for name, one in (("ours", ours), ("central", central))}  # fmt: skip
    difference = gap(fallen["ours"], fallen["central"])
    said = None
    if difference is not None:
        word = alike(difference, TEXT["margin"])
        told = in_words(word, difference, len(fallen["ours"]), planned, seconds([ours, central]),
                        TEXT["margin"], 3, within=True)  # fmt: skip
        said = f"{told}; by {plain(fallen['ours'])} and {plain(fallen['central'])}"
    claim = f"{where}both reduce the loss alike"
    yield judged("Figure 11", claim, said, records_of([ours, central]))
    later = gap(reduced(ours, 0, 1), reduced(ours, 1, ours.cell.rounds))
    claim = f"{where}the loss falls fast at first: more in round 1 than in all later ones"
    yield judged("Figure 10", claim, by_sign(later, ours, planned), records_of([ours]))
    own = clients_reduced(ours)
    first = {seed: row[0] for seed, row in own.items()}
    rest = {seed: max(row[1:]) for seed, row in own.items()}
    claim = f"{where}client 0's loss falls most"
    more = gap(first, rest)
    text = None
    if more is not None:
        text = in_words(
            is_better(more), more, len(own), planned, seconds([ours]), TEXT["margin"], 3
        )
    yield judged("Figure 10", claim, text, records_of([ours]))
    ends = {seed: run_loss(run, 0, ours.cell.rounds) for seed, run in ours.runs.items()}
    known = {seed: value for seed, value in ends.items() if np.isfinite(value)}
    claim = f"{where}and comes near 0 (below {TEXT['margin']:g})"
    yield judged("Figure 10", claim, near_zero(known, ours, planned), records_of([ours]))


def reduced(one: Trained, before: int, after: int) -> dict[int, float]:
    first, last = at(one, "eval/loss", before), at(one, "eval/loss", after)
    return {seed: first[seed] - last[seed] for seed in first.keys() & last.keys()}


def clients_reduced(one: Trained) -> dict[int, list[float]]:
    """By seed, how much each client's loss fell, from the model that all began with."""
    clients, last = range(len(reviews.weights(one))), one.cell.rounds
    found = {seed: [reviews.shared(run, "loss", k, 0) - run_loss(run, k, last) for k in clients]
             for seed, run in one.runs.items()}  # fmt: skip
    return {seed: row for seed, row in found.items() if np.isfinite(row).all()}


def run_loss(run: Run, client: int, number: int) -> float:
    return by_client(run, "personal/loss", number).get(client, float("nan"))


def by_sign(difference: Difference | None, one: Trained, planned: int) -> str | None:
    if difference is None:
        return None
    mean, half = difference
    word = HOLDS if mean - half > 0 else FAILS if mean + half < 0 else OPEN
    return in_words(word, difference, len(one.runs), planned, seconds([one]), digits=3)


def near_zero(ends: BySeed, one: Trained, planned: int) -> str | None:
    difference = gap(ends, dict.fromkeys(ends, TEXT["margin"]))
    if difference is None:
        return None
    mean, half = difference
    word = HOLDS if mean + half < 0 else FAILS if mean - half > 0 else OPEN
    told = in_words(word, difference, len(ends), planned, seconds([one]), digits=3)
    return f"{told}; {plain(ends)}"


# In the order of λ_k


def ordered(where: str, one: Trained, planned: int, words: str) -> Iterator[Statement]:
    for metric, word, sign in (("sentiment", "more", 1), ("intrinsic", "less", -1)):
        name = reviews.REWARDS[metric]
        claims = {
            f"{where}a larger λ_k means {word} {name} for client k, in order{words}":
                reviews.changes(one, metric),
            f"{where}the same of what a round of the client's own training changes{words}":
                reviews.trained_changes(one, metric),
        }  # fmt: skip
        for claim, moved in claims.items():
            text = in_order(one, moved, sign, planned)
            yield judged("Figure 5", claim, text, records_of([one]), len(moved), bool(words))


def in_order(
    one: Trained, moved: Mapping[int, Sequence[float]], sign: int, planned: int
) -> str | None:
    """By the slope of clients' changes against λ_k, a number by seed."""
    if not moved:
        return None
    lams = np.array(reviews.weights(one))
    slopes = np.array([np.polyfit(lams, np.array(row), 1)[0] for row in moved.values()])
    mean, half = (float(x) for x in plots.interval(slopes))
    turned, least = (sign * mean, half), TEXT["slope"]
    word = is_better(turned, least)
    told = in_words(word, (mean, half), len(slopes), planned, seconds([one]), least, 3)
    ranks = ", ".join(f"{rank:.1f}" for rank in reviews.ranked(one, moved))
    return f"{told} per unit of λ_k; Spearman {ranks} by seed"


def seconds(cells: Iterable[Trained]) -> float:
    """One more seed of all of these."""
    return sum(float(np.mean([run.seconds for run in one.runs.values()]))
               for one in cells if one.runs)  # fmt: skip


# As the page shows them


def rows(statements: Iterable[Statement]) -> list[tuple[str, str | None, str | None]]:
    """The claim, the verdict and what was found; None where a record is missing."""
    found = []
    for one in statements:
        there = one.verdict != NOT_MEASURED
        claim = f"*{one.claim}*" if one.ours else one.claim
        found.append((claim, f"**{one.verdict}**" if there else None,
                      one.found if there else None))  # fmt: skip
    return found
