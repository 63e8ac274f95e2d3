"""Settings of PAvg, FedSVRPG-M and FedHAPG-M."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedrl.aggregation import server_optimizers
from fedrl.core.limits import at_least_one, not_negative
from fedrl.core.types import UserError, Word


@dataclass(frozen=True)
class Settings:
    """Settings shared by the three methods; `name` sets the method and β's default."""

    # The method: pavg, fedsvrpg-m, fedhapg-m, or one that is built on them.
    name: Word = "fedsvrpg-m"
    # Momentum β in (0, 1]: the share of the fresh gradient. 1 anchors nothing (PAvg).
    beta: float = 0.2
    # K: local steps per round.
    local_steps: int = 10
    # η: local step size.
    lr: float = 0.05
    # λ: server step size; 0 stands for ηK, with which the server takes the clients' mean step.
    server_lr: float = 0.0
    # How the server moves along u: plain ascent is the paper's.
    server_optimizer: server_optimizers.Name = "sgd"
    # Trajectories per local step; the paper samples one.
    trajectories: int = 1
    # B: trajectories per client for u_0; 0 stands for the paper's ⌈K/(Rβ²)⌉.
    initial_trajectories: int = 0
    # Cap on the importance weight; 0 is off.
    weight_clip: float = 0.0
    # Cap on the norm of a local direction u_{r,k}; 0 is off.
    direction_clip: float = 0.0
    # Factor on every reward inside the gradient estimate (not on reported returns).
    return_scale: float = 1.0
    # Shift and scale the rewards-to-go of each minibatch to mean 0 and variance 1.
    standardize: bool = False
    # Table policy of tabular worlds: softmax logits, or the probabilities themselves.
    policy: Literal["softmax", "direct"] = "softmax"
    # Smallest probability of the direct table policy.
    floor: float = 0.02
    # Standard deviation (its logarithm) with which a Gaussian policy starts.
    log_std: float = 0.0
    # Episodes per client in an evaluation (sampled worlds; tabular ones are solved exactly).
    eval_episodes: int = 10

    @property
    def method(self) -> str:
        return "hapg" if self.name == "fedhapg-m" else "svrpg"

    def __post_init__(self) -> None:
        if not 0 < self.beta <= 1:
            raise UserError(f"algorithm.beta is {self.beta}; it must lie in (0, 1]")
        if self.name == "pavg" and self.beta != 1:
            raise UserError("algorithm.name is pavg, which is β = 1: set algorithm.beta = 1.0")
        at_least_one(self, "algorithm.", "local_steps", "trajectories", "eval_episodes")
        not_negative(
            self, "algorithm.", "server_lr", "initial_trajectories", "weight_clip", "direction_clip"
        )
        if self.lr <= 0:
            raise UserError(f"algorithm.lr is {self.lr}; it must be positive")
        if self.policy == "direct" and self.name == "fedhapg-m":
            raise UserError(
                "algorithm.policy is direct, for which J is not twice differentiable: "
                'FedHAPG-M needs algorithm.policy = "softmax"'
            )
