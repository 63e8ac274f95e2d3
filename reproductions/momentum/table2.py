"""Table 2's claims: what its cells show of β, of the paper's levels and of κ.

Only what the paper does not fix is ours: λ, H and R were chosen so that the levels of its thirty
cells come out. What these cells show is told, and judged nowhere.
"""

from __future__ import annotations

import numpy as np

from fedrl.core.types import Tables
from fedrl.report import plots
from reproductions.momentum.judging import RULES, difference
from reproductions.momentum.parts import Part
from reproductions.verdicts import FAILS, OPEN, alike, together

CHOSEN = "λ, H and R, which the paper does not say, were chosen by these thirty cells"


def small_beta_wins(part: Part) -> str | None:
    smallest, gaps = part.axis("beta")[0], []
    for kappa in part.axis("kappa"):
        found = difference(part, f"beta={smallest},kappa={kappa}", f"beta=1.0,kappa={kappa}",
                           "final")  # fmt: skip
        if found is None:
            return None
        gaps.append(found[0])
    mean, half = np.mean([gap for gap, _ in gaps]), max(half for _, half in gaps)
    return f"(β = {smallest} is {mean:+.2f} above, ± {half:.2f} at most)"


def as_published(part: Part, paper: Tables) -> str | None:
    """Cell by cell, within the paper's ± and our interval."""
    if not part.whole:
        return None
    misses = []
    for name, cell in part.cells.items():
        ours = part.final(name)
        assert ours is not None
        row, columns = paper[cell.labels["beta"]], paper["kappas"]
        theirs = row[columns.index(float(cell.labels["kappa"]))]
        mean, half = plots.interval(ours)
        if abs(float(mean) - theirs) > paper["spread"] + float(half):
            misses.append(f"β = {cell.labels['beta']}, κ = {cell.labels['kappa']}: "
                          f"{float(mean):.3f}, theirs {theirs:.3f}")  # fmt: skip
    agree = len(part.cells) - len(misses)
    more = f"; not {', '.join(misses)}, out of the paper's own row" if misses else ""
    return f"({agree} of {len(part.cells)} agree{more})"


def flat(part: Part, start: str = "") -> str | None:
    """No difference to κ = 0 at any κ, for every β of the cells whose names start so."""
    first, *others = part.axis("kappa", start)
    words, largest, missing = [], 0.0, 0
    for beta in part.axis("beta", start):
        for kappa in others:
            here, there = (f"{start}beta={beta},kappa={k}" for k in (kappa, first))
            found = difference(part, here, there, "final")
            if found is None:
                missing += 1
                continue
            words.append(alike(found[0], RULES["margin"]["random_mdp"]))
            largest = max(largest, abs(found[0][0]))
    if not words:
        return None
    words += [OPEN] * bool(missing and FAILS not in words)
    lacking = f", {missing} cells missing" if missing else ""
    return f"**{together(words)}** (moves by up to {largest:.2f}{lacking})"
