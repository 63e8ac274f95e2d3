"""Settings that every federated policy gradient has."""

from __future__ import annotations

from dataclasses import dataclass

from fedrl.aggregation import server_optimizers
from fedrl.core.limits import at_least_one, not_negative
from fedrl.core.types import UserError, Word


@dataclass(frozen=True)
class Settings:
    """Local steps, step sizes and trajectories; a method's own settings inherit from these."""

    # The method.
    name: Word = ""
    # K: local steps per round.
    local_steps: int = 10
    # Client i takes K·(1 + local_steps_spread·x_i) local steps, x_i ~ U(-1, 1), at least one.
    local_steps_spread: float = 0.0
    # K_i of every client in turn, instead; from the first again where there are more clients.
    client_steps: tuple[int, ...] = ()
    # η: local step size.
    lr: float = 0.05
    # λ: server step size; 0 stands for ηK, with which the server takes the clients' mean step.
    server_lr: float = 0.0
    # How the server moves along u: plain ascent is the papers'; `momentum` keeps
    # v ← 0.9 v + u and moves along v, `adam` has moments of 0.9 and 0.99.
    server_optimizer: server_optimizers.Name = "sgd"
    # Trajectories per local step.
    trajectories: int = 1
    # Cap on the norm of a local direction u_{r,k}; 0 is off.
    direction_clip: float = 0.0
    # Factor on every reward inside the gradient estimate (not on reported returns).
    return_scale: float = 1.0
    # Shift and scale the rewards-to-go of each minibatch to mean 0 and variance 1.
    standardize: bool = False
    # Gradients per step played, not per trajectory: g is divided by the minibatch's mean length.
    mean_over_steps: bool = False
    # Standard deviation (its logarithm) with which a Gaussian policy starts.
    log_std: float = 0.0
    # Episodes per client in an evaluation (sampled worlds; tabular ones are solved exactly).
    eval_episodes: int = 10

    def __post_init__(self) -> None:
        at_least_one(self, "algorithm.", "local_steps", "trajectories", "eval_episodes")
        not_negative(self, "algorithm.", "server_lr", "direction_clip")
        if self.lr <= 0:
            raise UserError(f"algorithm.lr is {self.lr}; it must be positive")
        if not 0 <= self.local_steps_spread <= 1:
            raise UserError(
                f"algorithm.local_steps_spread is {self.local_steps_spread}; it must lie in [0, 1]"
            )
        if any(steps < 1 for steps in self.client_steps):
            raise UserError("algorithm.client_steps has a number below 1: use 1 or more for each")
        if self.client_steps and self.local_steps_spread:
            raise UserError(
                "algorithm.client_steps and local_steps_spread both say how many steps clients "
                "take: remove one"
            )

    @property
    def most_steps(self) -> int:
        """The most local steps that any client takes."""
        if self.client_steps:
            return max(self.client_steps)
        return max(1, round(self.local_steps * (1 + self.local_steps_spread)))

    @property
    def unequal(self) -> bool:
        """Whether clients may take different numbers of local steps."""
        return bool(self.client_steps) or self.local_steps_spread > 0
