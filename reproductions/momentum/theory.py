"""The theory's own diagnostics, measured: linear speed-up, and the bound of Theorem 6.4."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedrl.report import plots
from reproductions.markdown import missing, panel, picture, table
from reproductions.seed_cells import Measured


@dataclass(frozen=True)
class Constants:
    """What Theorem 6.4 is made of, for softmax tables and rewards in [0, 1].

    G and M bound the gradient and the Hessian of log π (Assumption 6.1): √2 and 1/2. W is the
    largest weight variance seen (6.3), σ² the gradient's variance as measured (6.2).
    """

    horizon: int
    gamma: float
    variance: float
    weight_variance: float
    gap: float

    @property
    def smoothness(self) -> float:
        """L̄ = max(L, L̃_1, L̃_2, L̃_3) of Proposition 1, Lemmas B.2, C.1 and C.2."""
        g, m, h = math.sqrt(2), 0.5, self.horizon
        scale = h / (1 - self.gamma)
        smooth, lipschitz, bound = scale * (m + h * g * g), scale * m, scale * g
        weight = h * (2 * h * g * g + m) * (self.weight_variance + 1)
        first = math.sqrt(smooth**2 + 24 * weight * bound**2 + 6 * lipschitz**2)
        second = math.sqrt(lipschitz**2 + 2 * weight * bound**2)
        third = math.sqrt(2 * weight * bound**2 + 2 * lipschitz**2)
        return max(smooth, first, second, third)

    def bound(self, clients: int, steps: int, rounds: int) -> float:
        """(L̄Δσ/(NKR))^{2/3} + L̄Δ/R, the right side of Eq. (6) without its numeric constant."""
        product = self.smoothness * self.gap
        noise = (product * math.sqrt(self.variance) / (clients * steps * rounds)) ** (2 / 3)
        return noise + product / rounds


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """Of log y against log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def section(found: Mapping[str, Measured], pictures: Path) -> str:
    if not found:
        return missing("The theory: linear speed-up and the bound of Theorem 6.4")
    sizes = sorted({one.cell.clients for one in found.values()})
    betas = sorted({float(one.cell.algorithm["beta"]) for one in found.values()})
    errors = {
        beta: np.stack(
            [found[f"N={n},beta={beta}"].curves["eval/direction_error"][:, 1:].mean(1)
             for n in sizes], 1
        )  # [seeds, sizes]
        for beta in betas
    }  # fmt: skip
    one = next(iter(found.values())).cell
    steps, rounds = one.algorithm["local_steps"], one.rounds
    rows, holds = [], True
    lower = bool((errors[betas[0]].mean(0) < errors[1.0].mean(0)).all())
    for n in sizes:
        cell = found[f"N={n},beta={betas[0]}"]
        base = found[f"N={n},beta=1.0"]
        variance = float(base.curves["eval/direction_error"][:, 1:].mean()) * n * steps
        returns = cell.curves["eval/return"]
        constants = Constants(
            one.world["horizon"],
            0.9,
            variance,
            float(cell.curves["train/weight_var"].max()),
            10.0 - float(returns[:, 0].mean()),
        )
        left = float(cell.curves["eval/grad_norm_sq"].mean())
        right = constants.bound(n, steps, rounds)
        holds &= left <= right
        rows.append([
            str(n), f"{errors[betas[0]].mean(0)[sizes.index(n)]:.4f}",
            f"{errors[1.0].mean(0)[sizes.index(n)]:.4f}", f"{left:.4f}", f"{right:.3g}",
            f"{right / left:.1g}", f"{constants.weight_variance:.3f}",
        ])  # fmt: skip
    lines = {f"β = {beta}": errors[beta] for beta in betas}
    title = "error of the direction, ‖u − ∇J‖²"
    figure = plots.curves([panel(title, "agents N", np.array(sizes), lines, log=True)])
    figure.axes[0].set_xscale("log", base=2)
    figure.axes[0].set_xticks(sizes, [str(n) for n in sizes])
    image = picture(figure, pictures, "speedup", "error of the server's direction by agents")
    slopes = ", ".join(
        f"{slope(np.array(sizes), errors[beta].mean(0)):.2f} for β = {beta}" for beta in betas
    )
    head = ("N", f"‖u − ∇J‖², β = {betas[0]}", "‖u − ∇J‖², β = 1", "mean ‖∇J‖²",
            "Theorem 6.4's bound", "bound / measured", "largest weight variance")  # fmt: skip
    return f"""## The theory: linear speed-up and the bound of Theorem 6.4

Softmax tables, κ = 1, H = {one.world["horizon"]}, K = {steps}, η = {one.algorithm["lr"]},
R = {rounds}, {one.seeds} seeds; everything but the sampled trajectories is exact. The error of the
server's direction falls with the number of agents with a log-log slope of {slopes} (−1 is linear
speed-up), and momentum {"lowers" if lower else "does not lower"} it at every N. The bound is
computed with measured σ² and W and without its unnamed numeric constant; it {
        "holds" if holds else "is violated"
    }, and the table shows how far it is from the truth.

{table(head, rows)}

{image}"""
