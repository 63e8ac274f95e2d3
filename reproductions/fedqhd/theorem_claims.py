"""Theorem 1, Lemma 1 and Theorem 2, judged by the draws of `theory.py`.

A verdict is None where a record is missing.
"""

from __future__ import annotations

from reproductions.fedqhd import theory
from reproductions.fedqhd.results import Results
from reproductions.pages import Row
from reproductions.verdicts import FAILS, HOLDS

IDENTICAL, WITHIN = 1e-8, 1.0 + 1e-6


def theorem_claims(results: Results) -> list[Row]:
    return [
        ("Theorem 1: what a client cannot represent on anchors changes nothing that it compiles",
         invisible(results)),
        ("Lemma 1: h̄ bounds how far a client's oracle is from the mean of all",
         between_oracles(results)),
        ("Theorem 2: three terms bound the federation gap", federation_gap(results)),
    ]  # fmt: skip


def largest(results: Results, key: str, anchors: int | None = None) -> float | None:
    """Over all draws, or those with so many anchors; nothing where one is missing."""
    if len(results.theorems) < sum(1 for _ in theory.draws(results.plan.sizes.draws)):
        return None
    points = [point for record in results.theorems for point in record["values"]]
    return max(float(p[key]) for p in points if anchors in (None, p["anchors"]))


def invisible(results: Results) -> str | None:
    most = largest(results, "residual")
    if most is None:
        return None
    word = HOLDS if most < IDENTICAL else FAILS
    return f"**{word}**: at most {most:.0e} of the largest weight in {len(results.theorems)} draws"


def between_oracles(results: Results) -> str | None:
    most = largest(results, "lemma")
    if most is None:
        return None
    word = HOLDS if most <= WITHIN else FAILS
    return f"**{word}**: at most {most:.2g} of the bound in {len(results.theorems)} draws"


def federation_gap(results: Results) -> str | None:
    """As printed, and with what its proof passes over."""
    few, many = theory.ANCHORS
    below, above = (largest(results, "theorem", count) for count in theory.ANCHORS)
    repaired = largest(results, "repaired")
    if below is None or above is None or repaired is None:
        return None
    word = HOLDS if max(below, above) <= WITHIN else FAILS
    return (
        f"**{word}** as printed: with {few} anchors for up to {max(theory.SIZES)} features the gap "
        f"is up to {below:.1g} times the bound ({worst(results)}), {usual(results):.1f} times with "
        f"λ = {max(theory.RIDGES):g}; with {many} anchors at most {above:.2g} of it; with what no "
        f"anchor sees added, at most {repaired:.3f} of it in {len(results.theorems)} draws"
    )


def worst(results: Results) -> str:
    """The draw that is furthest out of the bound."""
    record = max(results.theorems, key=lambda one: float(one["values"][0]["theorem"]))
    point, clients = record["values"][0], "aligned" if "aligned" in record["cell"] else "own"
    return f"{clients} encoders, λ = {point['ridge']:g}"


def usual(results: Results) -> float:
    """The largest share of the bound with the larger λ, which recipes have."""
    points = [point for record in results.theorems for point in record["values"]]
    return max(float(p["theorem"]) for p in points if p["ridge"] == max(theory.RIDGES))
