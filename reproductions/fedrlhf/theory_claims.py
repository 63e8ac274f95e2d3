"""FedRLHF's Lemmas 4.1 and 4.2 and Theorems 4.1 and 4.2: tables and verdicts, from records.

On ratings an expectation is a mean over draws of a round, with its interval; on the bandit all
outcomes are enumerated. `verdicts.toml` has the rules.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedrl.algorithms.fedrlhf.ratings.bound import Constants
from fedrl.algorithms.fedrlhf.ratings.lemmas import (
    distance_bound,
    least_gain,
    repaired_gain,
    sample_complexity,
)
from reproductions.fedrlhf import drift, theory
from reproductions.fedrlhf.bandit import column
from reproductions.fedrlhf.cells import RULES, bandit_key
from reproductions.pages import Row, markdown_table
from reproductions.records import Data
from reproductions.runner import run_name
from reproductions.statements import Statement, judged
from reproductions.study import Study
from reproductions.verdicts import FAILS, HOLDS, OPEN, number, together

ROUNDING = 1e-9
"""Relative: with one step Lemma 4.1 is an equality."""
SHARES = RULES["theory"]["gaps"]


@dataclass(frozen=True)
class Theory:
    """Records of runs by λ, and of the bandit."""

    runs: Mapping[str, Sequence[Data]]
    bandit: Data | None

    def values(self, lam: str) -> list[Data]:
        return [record["values"] for record in self.runs[lam]]

    @property
    def every(self) -> list[Data]:
        return [record for several in self.runs.values() for record in several]

    @property
    def lemmas(self) -> list[Data]:
        return list(self.bandit["values"]["lemmas"]) if self.bandit else []

    @property
    def theorem(self) -> list[Data]:
        return list(self.bandit["values"]["theorem"]) if self.bandit else []


def read_theory(study: Study) -> Theory:
    store = study.place.store
    runs: dict[str, list[Data]] = {}
    for cell in study.grid.cells["bound"]:
        found = (store.read("bound", run_name(cell, seed), cell.digest(seed))
                 for seed in cell.seeds)  # fmt: skip
        runs[cell.labels["lam"]] = [record for record in found if record is not None]
    return Theory(runs, store.read(*bandit_key()))


def constants_of(values: Data) -> Constants:
    return Constants(**values["constants"])


# Statements


def theory_statements(study: Study) -> list[Statement]:
    found = read_theory(study)
    seeds = max(map(len, found.runs.values()), default=0)
    both = [*found.every, *([found.bandit] if found.bandit else [])]

    def said(where: str, claim: str, text: str | None, records: Sequence[Data]) -> Statement:
        return judged(where, claim, text, records, seeds)

    return [
        said("Lemma 4.1", "Lemma 4.1 bounds how far clients go in a round", distance(found), both),
        said("Lemma 4.2", "Lemma 4.2: what a round gains at least", descent(found), both),
        said("Theorem 4.1", "Theorem 4.1 bounds the gap to the best policy", bound(found),
             found.every),
        said("Theorem 4.2", "Theorem 4.2: so many clients and rounds reach ε", samples(found),
             both),
    ]  # fmt: skip


def distance(found: Theory) -> str | None:
    words, shares = [], []
    for values in (record["values"] for record in found.every):
        most = distance_bound(constants_of(values))
        for mean, half in itertools.chain(*(look["distances"] for look in values["looks"])):
            words.append(HOLDS if mean + half <= most else FAILS if mean - half > most else OPEN)
            shares.append(mean / most)
    exact = [row["distance"] <= row["distance_bound"] * (1 + ROUNDING) for row in found.lemmas]
    if not words or not exact:
        return None
    word = together([*words, HOLDS if all(exact) else FAILS])
    return (
        f"**{word}**: on ratings in {words.count(HOLDS):,} of {len(words):,} runs, rounds and "
        f"clients, at most {100 * max(shares):.0f}% of what it allows; enumerated, in "
        f"{sum(exact)} of {len(exact)} bandits"
    )


def descent(found: Theory) -> str | None:
    words, mended = list[str](), list[str]()
    for values in (record["values"] for record in found.every):
        constants = constants_of(values)
        for look in values["looks"]:
            mean, half = look["gain"]
            for said, rule in ((words, least_gain), (mended, repaired_gain)):
                least = rule(constants, look["slope"])
                said.append(HOLDS if mean - half >= least else FAILS if mean + half < least
                            else OPEN)  # fmt: skip
    paper, repaired = (kept(found.lemmas, name) for name in ("paper", "repaired"))
    if not words or not paper:
        return None
    word = together([*words, HOLDS if all(paper) else FAILS])
    broken = [row for row, fine in zip(found.lemmas, paper, strict=True) if not fine]
    where = sorted({f"τ = {row['steps']}" for row in broken})
    apart = f", not with {' and '.join(where)} and a crowd of clients that drift" if broken else ""
    return (
        f"**{word}**: on ratings in {words.count(HOLDS)} of {len(words)} runs and rounds (repaired "
        f"in {mended.count(HOLDS)}); enumerated, in {sum(paper)} of {len(paper)} bandits{apart}; "
        f"repaired, in {sum(repaired)}"
    )


def kept(rows: Sequence[Data], name: str) -> list[bool]:
    return [row["gain"] >= row[name] - ROUNDING for row in rows]


def bound(found: Theory) -> str | None:
    measured = [record["values"] for record in found.every]
    if not measured:
        return None
    paper, repaired = (theory.kept(measured, name) for name in ("paper", "repaired"))
    ratio = theory.column(measured, "paper")[:, -1] / theory.column(measured, "gap")[:, -1]
    apart = drift.theorem_4_1()
    paper &= apart.gap <= apart.paper
    repaired &= apart.gap <= apart.repaired
    return (
        f"**{HOLDS if paper else FAILS}**: of two kinds of clients that drift apart in "
        f"{drift.STEPS} steps a gap of {apart.gap:.1e} is left where the bound says "
        f"{apart.paper:.1e}; on ratings after {measured[0]['rows'][-1]['round']} rounds it is "
        f"{ratio.min():.0f} to {ratio.max():,.0f} times the gap; repaired, it "
        f"{'holds in both' if repaired else 'fails'}"
    )


def samples(found: Theory) -> str | None:
    rows = found.theorem
    if not rows or not found.every:
        return None
    reached = (column(rows, "gap") <= column(rows, "epsilon")) & (
        column(rows, "averaged") <= column(rows, "epsilon")
    )
    ratio = column(rows, "samples") / column(rows, "took")
    apart = drift.theorem_4_2()
    word = HOLDS if reached.all() and apart.gap <= apart.epsilon else FAILS
    asked = [
        sample_complexity(constants, share * constants.start)
        for constants in (constants_of(record["values"]) for record in found.every)
        for share in SHARES
    ]
    few, many = min(one.clients for one in asked), max(one.clients for one in asked)
    clients = constants_of(found.every[0]["values"]).clients
    says = "nothing" if few > clients else "something only of some"
    return (
        f"**{word}**: of two kinds of clients that drift apart in {drift.STEPS} steps, "
        f"{apart.samples.clients:,} of them for {apart.samples.rounds:,} rounds, a gap of "
        f"{apart.gap:.1e} is left for ε = {apart.epsilon:.1e}; on bandits that meet its conditions "
        f"it is reached in {int(reached.sum())} of {len(rows)}, "
        f"where it asks for {ratio.min():.0f} to {ratio.max():.0f} times the samples that are "
        f"needed; on ratings it asks for {few:,} to {many:,} clients, and of the {clients} that "
        f"there are it says {says}"
    )


# Tables

HEADS = {
    "lemmas": ("λ", "round", "distance of the farthest client", "Lemma 4.1", "gain of J",
               "Lemma 4.2", "repaired"),
    "samples": ("λ", "ε / first gap", "T", "K", "λ H_max allowed", "there is", "N asked for",
                "K · T it took"),
    "enumerated": ("τ", "clients", "λ", "Lemma 4.1", "Lemma 4.2", "repaired"),
    "asked": ("τ", "ε / first gap", "K", "T", "N asked for", "N it took", "reached",
              "largest gap / ε"),
}  # fmt: skip


def tables(found: Theory) -> dict[str, str]:
    """As the page shows them; nothing of what has no record."""
    rows = {
        "lemmas": list(lemma_rows(found)), "samples": list(sample_rows(found)),
        "enumerated": list(enumerated_rows(found)), "asked": list(asked_rows(found)),
    }  # fmt: skip
    return {
        name: markdown_table(HEADS[name], [[str(cell) for cell in row] for row in some])
        if some else ""
        for name, some in rows.items()
    }  # fmt: skip


def lemma_rows(found: Theory) -> Iterator[Row]:
    """By λ and round: the farthest client's distance and the gain, beside what the lemmas say."""
    for lam in found.runs:
        several = found.values(lam)
        looks = several[0]["looks"] if several else []
        for place, look in enumerate(looks):
            constants = [constants_of(values) for values in several]
            here = [values["looks"][place] for values in several]
            slopes = [one["slope"] for one in here]
            yield [
                lam, str(look["round"]),
                number(np.array([max(m for m, _ in one["distances"]) for one in here]), 4),
                number(np.array([distance_bound(c) for c in constants]), 4),
                number(np.array([one["gain"][0] for one in here]), 4),
                number(np.array(list(map(least_gain, constants, slopes))), 4),
                number(np.array(list(map(repaired_gain, constants, slopes))), 4),
            ]  # fmt: skip


def sample_rows(found: Theory) -> Iterator[Row]:
    """On ratings: what Theorem 4.2 asks for, by λ and ε, and the rounds that it took."""
    for lam in found.runs:
        several = found.values(lam)
        for share in SHARES if several else ():
            constants = [constants_of(values) for values in several]
            asked = [sample_complexity(c, share * c.start) for c in constants]
            took = [first_below(v, share * c.start)
                    for v, c in zip(several, constants, strict=True)]  # fmt: skip
            known = [c.clients * t for c, t in zip(constants, took, strict=True) if t]
            late = len(took) - len(known)
            there = f"{np.median(known):,.0f}" if known else "–"
            yield [
                lam, f"{share:g}", between([one.rounds for one in asked]),
                between([one.clients for one in asked]),
                f"{max(one.feedback for one in asked):.1g}",
                f"{max(c.feedback for c in constants):.2g}",
                between([one.total for one in asked]),
                there + (f" ({late} of {len(took)} seeds did not get there)" if late else ""),
            ]  # fmt: skip


def first_below(values: Data, epsilon: float) -> int:
    """Rounds until the mean gap is at ε; 0 if never."""
    return next((row["round"] for row in values["rows"] if row["gap"] <= epsilon), 0)


def between(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def enumerated_rows(found: Theory) -> Iterator[Row]:
    """By τ and how many clients there are of both kinds, how many bandits keep what."""
    keys = dict.fromkeys((row["steps"], row["crowd"], row["lam"]) for row in found.lemmas)
    for steps, crowd, lam in keys:
        rows = [one for one in found.lemmas
                if (one["steps"], one["crowd"], one["lam"]) == (steps, crowd, lam)]  # fmt: skip
        near = sum(one["distance"] <= one["distance_bound"] * (1 + ROUNDING) for one in rows)
        of = f" of {len(rows)}"
        yield [
            str(steps), "a crowd of each" if crowd else "two", f"{lam:g}", f"{near}{of}",
            f"{sum(kept(rows, 'paper'))}{of}", f"{sum(kept(rows, 'repaired'))}{of}",
        ]  # fmt: skip


def asked_rows(found: Theory) -> Iterator[Row]:
    """Theorem 4.2 where it applies, by τ and ε."""
    for steps, share in dict.fromkeys((row["steps"], row["share"]) for row in found.theorem):
        rows = [one for one in found.theorem if (one["steps"], one["share"]) == (steps, share)]
        far = max(column(rows, "gap").max(), column(rows, "averaged").max())
        ratio = column(rows, "gap") / column(rows, "epsilon")
        within = (column(rows, "gap") <= column(rows, "epsilon")).sum()
        yield [
            str(steps), f"{share:g}", between([one["clients"] for one in rows]),
            between([one["rounds"] for one in rows]), between([one["samples"] for one in rows]),
            between([int(one["took"]) for one in rows]), f"{within} of {len(rows)}",
            f"{100 * ratio.max():.0f}%" if np.isfinite(far) else "–",
        ]  # fmt: skip
