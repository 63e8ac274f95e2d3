"""QAvg: Q-learning in clients' own environments, Q averaged after every E updates.

Paper: Jin, Peng, Yang, Wang, Zhang, "Federated Reinforcement Learning with Environment
Heterogeneity" (AISTATS 2022), Section 4. The clients have the same states, actions and rewards, but
transitions P_k of their own.

    client k   Q_k ← Q; E times: Q_k(s,a) ← (1 − lr) Q_k(s,a)
                                            + lr [R(s,a) + γ Σ_s' P_k(s'|s,a) max_a' Q_k(s',a')]
    server     Q ← mean Q_k

With E = 1 that is one relaxed step of Q-iteration in the mean environment P̄ = mean P_k, so Q
converges to Q* of P̄ (`eval/q_error` is the distance to it). With E > 1 each client moves towards
its own Q*, and what the rounds converge to lies further off the larger E is, and the more the P_k
differ.

Where we differ: the step size is constant (the paper's decreases, and what E costs with it).
`samples` above 0 draws next states instead of taking the expectation. In a discrete world the same
target with a network, its replay and its delayed weights is the paper's DQNAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedrl.algorithms.q_learning import QLearning, TDStep
from fedrl.core.types import UserError, Word

if TYPE_CHECKING:
    import jax


class QAvg(QLearning):
    """Q averaged over clients whose transitions differ, by exact or sampled updates."""

    @dataclass(frozen=True)
    class Settings(QLearning.Settings):
        """E is `local_steps`; how clients learn."""

        name: Word = "qavg"
        # QAvg takes the largest value that Q has, and no other Q's choice: always false.
        double: bool = False

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.double:
                raise UserError("algorithm.double is true, which QAvg is not: leave it out")

    def target(self, now: TDStep) -> jax.Array:
        return now.bootstrap(now.q_delayed.max(-1))
