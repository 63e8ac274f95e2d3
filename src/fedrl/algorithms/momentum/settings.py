"""Settings of PAvg, FedSVRPG-M and FedHAPG-M."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fedrl.algorithms.policy_gradient import settings as policy_gradient
from fedrl.core.limits import not_negative
from fedrl.core.types import UserError, Word


@dataclass(frozen=True)
class Settings(policy_gradient.Settings):
    """Settings shared by the three methods; `name` sets the method and β's default."""

    # The method: pavg, fedsvrpg-m, fedhapg-m, or one that is built on them.
    name: Word = "fedsvrpg-m"
    # Momentum β in (0, 1]: the share of the fresh gradient. 1 anchors nothing (PAvg).
    beta: float = 0.2
    # B: trajectories per client for u_0; 0 stands for the paper's ⌈K/(Rβ²)⌉.
    initial_trajectories: int = 0
    # Cap on the importance weight; 0 is off.
    weight_clip: float = 0.0
    # w > 0: local step k is lr/(w + adaptive_factor·Σ_{j≤k} ‖g_j‖²)^{1/3}, a sum from each round's
    # beginning, as in the authors' release; 0: all are lr, as in the paper. It needs a server_lr.
    adaptive_offset: float = 0.0
    # Factor of the sum of squared gradients; the authors' release has 5.
    adaptive_factor: float = 1.0
    # Table policy of tabular worlds: softmax logits, or the probabilities themselves.
    policy: Literal["softmax", "direct"] = "softmax"
    # Smallest probability of the direct table policy.
    floor: float = 0.02

    @classmethod
    def unread(cls, given: Mapping[str, object]) -> tuple[str, ...]:
        """Settings that nothing reads beside these of a recipe: with β = 1 no gradient is weighted
        but FedHAPG-M's, and there is no u_0."""
        if given.get("beta", cls.beta) != 1:
            return ()
        weighted = given.get("name", cls.name) == "fedhapg-m"
        return ("initial_trajectories",) if weighted else ("initial_trajectories", "weight_clip")

    @property
    def method(self) -> str:
        return "hapg" if self.name == "fedhapg-m" else "svrpg"

    def __post_init__(self) -> None:
        if not 0 < self.beta <= 1:
            raise UserError(f"algorithm.beta is {self.beta}; it must lie in (0, 1]")
        if self.name == "pavg" and self.beta != 1:
            raise UserError("algorithm.name is pavg, which is β = 1: set algorithm.beta = 1.0")
        super().__post_init__()
        not_negative(self, "algorithm.", "initial_trajectories", "weight_clip", "adaptive_offset",
                     "adaptive_factor")  # fmt: skip
        if self.adaptive_offset and not self.server_lr:
            raise UserError(
                "algorithm.adaptive_offset makes local steps shorter than lr, so that λ = lr·K is "
                "not what clients go: set algorithm.server_lr"
            )
        if self.policy == "direct" and self.name == "fedhapg-m":
            raise UserError(
                "algorithm.policy is direct, for which J is not twice differentiable: "
                'FedHAPG-M needs algorithm.policy = "softmax"'
            )
