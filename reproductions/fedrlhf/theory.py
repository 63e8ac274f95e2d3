"""Theorem 4.1's bound beside what it bounds: measured once per seed and λ, and kept.

The theorem is about policy gradients with plain steps and a uniform mean, so these runs are not the
ones of the tables (`algorithms/fedrlhf_bound.py` says what is exact and what is an estimate).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from reproductions.fedqhd.numbers import prose

from fedrl.config.build import build_algorithm
from fedrl.config.loading import resolve
from fedrl.config.schema import Config
from fedrl.core.atomic_files import write_atomically
from fedrl.report import plots
from fedrl.runs.grid import digest
from reproductions.markdown import missing, number, picture, table

TITLE = "The bound of Theorem 4.1"
TERMS = ("transient", "noise", "feedback", "drift")
Row = Mapping[str, float]
File = Mapping[str, Any]


@dataclass(frozen=True)
class Measurement:
    """One run of the theorem's algorithm; the recipe's λ is `lam`."""

    lam: float
    seed: int
    rounds: int
    recipe: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"bound: λ = {self.lam:g}, seed {self.seed}"

    def config(self) -> Config:
        return resolve({**self.recipe, "rounds": self.rounds, "seed": self.seed})

    def path(self, folder: Path) -> Path:
        name = f"lam{self.lam:g}-seed{self.seed}.{digest(self.config())}.json"
        return folder / "bounds" / name


def compute(one: Measurement, folder: Path) -> None:
    from fedrl.algorithms.fedrlhf.ratings.algorithm import FedRLHF
    from fedrl.algorithms.fedrlhf.ratings.bound import measure

    algorithm = build_algorithm(one.config())
    assert isinstance(algorithm, FedRLHF)
    found = measure(algorithm, one.rounds, one.seed)
    rows = [row._asdict() | {"paper": row.paper, "repaired": row.repaired} for row in found.rows]
    kept = {"lam": one.lam, "constants": found.constants._asdict(), "rows": rows}
    path = one.path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(kept, indent=1).encode())


def read(one: Measurement, folder: Path) -> File | None:
    path = one.path(folder)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


# Reading


def by_lam(files: Sequence[File]) -> dict[float, list[File]]:
    found: dict[float, list[File]] = {}
    for file in files:
        found.setdefault(float(file["lam"]), []).append(file)
    return dict(sorted(found.items()))


def column(files: Sequence[File], name: str) -> np.ndarray:
    """[seeds, rounds]"""
    return np.array([[row[name] for row in file["rows"]] for file in files])


def kept(files: Sequence[File], name: str) -> bool:
    """Whether a bound is nowhere below the gap that it bounds, nor below that of the mean θ."""
    worst = np.maximum(column(files, "gap"), column(files, "averaged"))
    return bool((column(files, name) >= worst).all())


# The section


def section(files: Sequence[File], pictures: Path) -> str:
    groups = by_lam(files)
    if not groups:
        return missing(TITLE)
    some = next(iter(groups.values()))
    first = some[0]["constants"]
    shown = ("gap", "averaged", "now", *TERMS, "paper", "repaired")
    rows = [
        [f"{lam:g}", str(same[0]["rows"][end]["round"])]
        + [compact(column(same, name)[:, end]) for name in shown]
        for lam, same in groups.items()
        for end in (0, -1)
    ]
    head = ("λ", "T", "mean gap", "gap of θ_avg", "gap of θ_T", "transient", "noise", "feedback",
            "drift", "the paper's bound", "repaired")  # fmt: skip
    told = "; ".join(
        f"λ = {lam:g}: " + ", ".join(
            f"{symbol} = {compact(np.array([file['constants'][name] for file in same]))}"
            for name, symbol in (("smoothness", "L"), ("pl", "μ"), ("gradient", "G"),
                                 ("noise", "σ"))
        )
        for lam, same in groups.items()
    )  # fmt: skip
    text = f"""J(θ*) − J is how much less than the best choices a policy earns of the shaped reward.
        The theorem bounds it for policy gradients with plain steps of η = 1/(Lτ) and a uniform
        mean: K = {first["clients"]}, τ = {first["steps"]}, {len(some)} seeds; feedback is asked for
        once and then fixed. J and its gradient are exact, and so is σ² at a point. L is the
        largest that was found and may be too low, μ the smallest along the run; G and σ are the
        largest. {told}. The policies here have no μ > 0 that holds everywhere, so the bound is one
        for these runs and no promise.

        *Repaired* leaves out the term of feedback, which the proof subtracts in every round
        although H is part of J, and adds one for clients that drift apart in τ > 1 steps, which the
        proof drops. The gap itself goes down by little, because plain steps of this size learn
        slowly; the bounds are far above it, and above what J can be at all, until T is large."""
    image = figure(groups, pictures)
    return "\n\n".join([f"## {TITLE}", prose(text), table(head, rows), image])


def compact(values: np.ndarray) -> str:
    mean = float(values.mean())
    return number(values, 3 if abs(mean) < 1 else 2 if abs(mean) < 10 else 0)


def figure(groups: Mapping[float, Sequence[File]], pictures: Path) -> str:
    import matplotlib

    drawn, row = plots.figure(len(groups), (4.6, 3.2))
    with matplotlib.rc_context(plots.STYLE):
        for axes, (lam, same) in zip(row, groups.items(), strict=True):
            rounds = column(same, "round")[0]
            lines = {
                "mean of J(θ*) − J(θ_t), measured": column(same, "gap"),
                "‖∇J‖², measured": column(same, "slope"),
                "the paper's bound": column(same, "paper"),
                "repaired bound": column(same, "repaired"),
            }
            plots.band_plot(axes, rounds, lines, log=True)
            axes.set_title(f"λ = {lam:g}")
            axes.set_xlabel("rounds T")
        plots.legend(drawn, row[0])
    return picture(drawn, pictures, "bound", "the bound of Theorem 4.1 beside the measured gap")
