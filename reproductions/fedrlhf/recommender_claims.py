"""What the linear policy of `fedrlhf/movielens` was built to reach, judged: not the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reproductions.fedrlhf.cells import RULES
from reproductions.fedrlhf.results import OWN, Results, at, percent, plain
from reproductions.fedrlhf.text_claims import seconds
from reproductions.results import BySeed, Trained
from reproductions.statements import Statement, judged, records_of
from reproductions.verdicts import FAILS, HOLDS, OPEN, alike, gap, in_words, not_below, signed

RATED = RULES["ratings"]
WHERE = "Section 6.1"
NOT_BELOW = 10
"""Users with so many or fewer: not below the majority; with more, above it."""
PERCENT = 100.0


def recommender_statements(results: Results) -> Iterator[Statement]:
    for clients in results.crowds:
        found = results.learners(clients)
        yield from above_majority(found["linear"], clients)
        yield near_centralized(found["linear"], found["centralized"], clients)
        for name, words in (("alone", "every client's own linear policy"),
                            ("network", "the paper's network")):  # fmt: skip
            if name in found:
                yield better(f"above {words}", found["linear"], found[name], clients)
        for name, words in (("logistic", "a client's own logistic regression"),
                            ("factors", "matrix factorisation in one place")):  # fmt: skip
            told = results.told(clients, name, "accuracy")
            claim = f"above {words}, which is told the stars"
            yield compared(claim, found["linear"], told, clients)
        if clients == max(results.crowds):
            yield ranked(found["linear"], clients)


def claim_of(clients: int, claim: str) -> str:
    return f"Linear policy, K = {clients}: own policies {claim}"


def planned(clients: int) -> int:
    seeds: Mapping[str, int] = RATED["recommender"]
    return seeds.get(str(clients), 0)


def above_majority(one: Trained, clients: int) -> Iterator[Statement]:
    own, often = at(one, OWN), at(one, "eval/majority")
    if clients > NOT_BELOW:
        yield compared("above the majority class", one, often, clients)
        return
    margin, difference, text = RATED["accuracy"], gap(own, often, PERCENT), None
    if difference is not None:
        mean, half = difference
        told = in_words(not_below(difference, margin), (mean + margin, half), len(own),
                        planned(clients), seconds([one]))  # fmt: skip
        text = told.replace(signed((mean + margin, half)), signed(difference))
        text += f"; {percent(own)}% and {percent(often)}%"
    claim = claim_of(clients, f"not below the majority class (by {margin:g} point)")
    yield judged(WHERE, claim, text, records_of([one]), len(own), True)


def better(claim: str, one: Trained, other: Trained, clients: int) -> Statement:
    return compared(claim, one, at(other, OWN), clients, [other])


def compared(
    claim: str, one: Trained, base: BySeed, clients: int, others: list[Trained] | None = None
) -> Statement:
    own, margin = at(one, OWN), RATED["accuracy"]
    difference, cells, text = gap(own, base, PERCENT), [one, *(others or [])], None
    seeds = len(set(own) & set(base))
    if difference is not None:
        mean, half = difference
        word = HOLDS if mean - half > 0 else FAILS if mean + half < margin else OPEN
        told = in_words(word, difference, seeds, planned(clients), seconds(cells), margin)
        text = f"{told}; {percent(own)}% and {percent(base)}%"
    return judged(WHERE, claim_of(clients, claim), text, records_of(cells), seeds, True)


def near_centralized(one: Trained, central: Trained, clients: int) -> Statement:
    margin, own, base = RATED["accuracy"], at(one, OWN), at(central, OWN)
    difference, seeds = gap(own, base, PERCENT), len(set(own) & set(base))
    text = None
    if difference is not None:
        told = in_words(alike(difference, margin), difference, seeds, planned(clients),
                        seconds([one, central]), margin, within=True)  # fmt: skip
        text = f"{told}; {percent(own)}% and {percent(base)}%"
    claim = claim_of(clients, f"within {margin:g} point of the same model trained centrally")
    return judged(WHERE, claim, text, records_of([one, central]), seeds, True)


def ranked(one: Trained, clients: int) -> Statement:
    level, ranks = RATED["rank"], at(one, "personal/spearman")
    difference, text = gap(ranks, dict.fromkeys(ranks, level)), None
    if difference is not None:
        mean, half = difference
        word = HOLDS if mean - half >= 0 else FAILS if mean + half < 0 else OPEN
        told = in_words(word, difference, len(ranks), planned(clients), seconds([one]), digits=3)
        text = f"{told}; {plain(ranks)}"
    claim = claim_of(clients, f"have a Spearman of {level:g}")
    return judged(WHERE, claim, text, records_of([one]), len(ranks), True)
