"""FedAgent's Theorem 1 as numbers: how far from the best a federation may end, and why.

Paper: "Federated Agent Reinforcement Learning", Theorem 1 and its proof. K clients, M of them per
round drawn without replacement, τ local steps of size η, T rounds; θ̃ is an iterate drawn
uniformly from θ_0 … θ_{T-1}. With η = 1/(Lτ)

    E[J(θ*) − J(θ̃)] ≤ L/(μT) · (J(θ*) − J(θ_0))                                    transient
                     + 1/(2μ) · [ (G² + σ²)/M                                       noise
                                + 2(K−M)/(M(K−1)) · ζ²                              sampling
                                + (τ−1)²/(2τ²) · (G² + σ²) ]                        drift

It assumes that every client's J_k has L-Lipschitz gradients of norm at most G, that a step's
gradient is unbiased with variance at most σ², that the clients' gradients lie within ζ of their
mean (root mean square), and that J meets the Polyak-Łojasiewicz condition
2μ (J(θ*) − J(θ)) ≤ ‖∇J(θ)‖².

Where we differ: shorter steps are allowed too. With λ = Lητ ≤ 1 the paper's one-step inequality is
δ_{t+1} ≤ (1 − μλ/L) δ_t + λ/(2L) · [λ · noise + λ · sampling + λ² · drift], with the brackets as
above: what has mean zero (noise, sampling) enters only squared, through smoothness. So the
transient is divided by λ, noise and sampling are multiplied by it, and drift by λ²; λ = 1 is the
theorem.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from fedrl.core.limits import at_least_one
from fedrl.core.types import UserError


@dataclass(frozen=True)
class Problem:
    """What the theorem knows of the clients."""

    gradient: float  # G
    noise: float  # σ
    heterogeneity: float  # ζ
    smoothness: float  # L
    pl: float  # μ
    gap: float  # J(θ*) − J(θ_0)
    clients: int  # K

    def __post_init__(self) -> None:
        _above_zero(G=self.gradient, L=self.smoothness, mu=self.pl, gap=self.gap)
        for name, value in (("sigma", self.noise), ("zeta", self.heterogeneity)):
            if not 0 <= value < math.inf:
                raise UserError(f"--{name} is {value:g}; it must not be negative")
        at_least_one(self, "--", "clients")
        if self.pl > self.smoothness * (1 + 1e-9):
            raise UserError(
                f"--mu is {self.pl:g} and --L is {self.smoothness:g}: no function curves less than "
                "its PL constant says, so mu must not be above L"
            )
        steepest = self.gradient**2 / (2 * self.gap)
        if self.pl > steepest * (1 + 1e-9):
            raise UserError(
                f"--mu is {self.pl:g}: with gradients of at most G = {self.gradient:g} and a gap "
                f"of {self.gap:g}, the PL condition allows at most G²/(2·gap) = {steepest:.4g}"
            )


def _above_zero(**flags: float) -> None:
    for name, value in flags.items():
        if not 0 < value < math.inf:
            raise UserError(f"--{name} is {value:g}; it must be above 0")


@dataclass(frozen=True)
class Plan:
    """What a federation does: M clients per round, τ local steps, T rounds, η (None: 1/(Lτ))."""

    cohort: int
    steps: int
    rounds: int
    lr: float | None = None

    def __post_init__(self) -> None:
        at_least_one(self, "--", "cohort", "steps", "rounds")
        if self.lr is not None:
            _above_zero(lr=self.lr)

    @property
    def total(self) -> int:
        """Local steps of all clients together: what a plan costs."""
        return self.cohort * self.steps * self.rounds


class Terms(NamedTuple):
    """The four parts of the bound, in the units of J."""

    transient: float
    noise: float
    sampling: float
    drift: float

    @property
    def total(self) -> float:
        return sum(self)

    @property
    def floor(self) -> float:
        """What is left however long one trains."""
        return self.noise + self.sampling + self.drift

    @property
    def largest(self) -> str:
        return max(self._fields, key=lambda name: getattr(self, name))


def bound(problem: Problem, plan: Plan) -> Terms:
    """The theorem's bound on E[J(θ*) − J(θ̃)], term by term."""
    clients, cohort, steps = problem.clients, plan.cohort, plan.steps
    if cohort > clients:
        raise UserError(f"--cohort is {cohort}, but there are only {clients} clients (--clients)")
    share = step_share(problem, plan)
    second_moment = problem.gradient**2 + problem.noise**2
    left_out = (clients - cohort) / (cohort * (clients - 1)) if clients > 1 else 0.0
    scale = 1 / (2 * problem.pl)
    return Terms(
        transient=problem.smoothness * problem.gap / (problem.pl * share * plan.rounds),
        noise=scale * share * second_moment / cohort,
        sampling=scale * share * 2 * left_out * problem.heterogeneity**2,
        drift=scale * share**2 * (steps - 1) ** 2 / (2 * steps**2) * second_moment,
    )


def step_share(problem: Problem, plan: Plan) -> float:
    """λ = Lητ in (0, 1]: how much of the theorem's step is taken."""
    if plan.lr is None:
        return 1.0
    share = problem.smoothness * plan.lr * plan.steps
    if share > 1 + 1e-9:
        raise UserError(
            f"--lr is {plan.lr:g}; the theorem needs a local step of at most 1/(L·steps) = "
            f"{1 / (problem.smoothness * plan.steps):.4g}"
        )
    return min(share, 1.0)


def best_lr(problem: Problem, plan: Plan) -> float:
    """The η ≤ 1/(Lτ) with the lowest bound for this M, τ and T."""
    full = 1 / (problem.smoothness * plan.steps)
    whole = bound(problem, Plan(plan.cohort, plan.steps, plan.rounds))

    def slope(share: float) -> float:  # of the bound, which is convex in λ
        return -whole.transient / share**2 + whole.noise + whole.sampling + 2 * whole.drift * share

    if slope(1.0) <= 0:
        return full
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return high * full
