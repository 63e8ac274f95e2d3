"""FedProx for Q-learning: a client's TD loss pulls it towards the server's Q.

Paper: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous
Networks" (MLSys 2020), Algorithm 2, whose local objective is F_k(θ) + μ/2 ‖θ − θ_r‖².

    client k   θ ← θ_r; updates along −∇ [TD loss + μ/2 ‖θ − θ_r‖²]
    server     θ_{r+1} = mean θ

μ = 0 is FedAvg-DQN. Where we differ: the paper solves the local objective to an accuracy of choice;
here the number of updates is set, as everybody does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedrl.algorithms.q_learning import QLearning, TDStep
from fedrl.core.limits import not_negative
from fedrl.core.types import Word

if TYPE_CHECKING:
    import jax


class FedProxDQN(QLearning):
    """Q-learning whose clients are pulled towards the server's Q, weights averaged."""

    @dataclass(frozen=True)
    class Settings(QLearning.Settings):
        """How strong the pull is, and how clients learn."""

        name: Word = "fedprox-dqn"
        # μ: strength of the pull towards the round's weights; 0 is without.
        mu: float = 0.01

        def __post_init__(self) -> None:
            super().__post_init__()
            not_negative(self, "algorithm.", "mu")

    settings: Settings

    def loss(self, now: TDStep) -> jax.Array:
        return now.total(super().loss(now)) + self.settings.mu / 2 * now.squared_distance()
