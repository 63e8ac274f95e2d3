"""Settings that every federated Q-learner on the base has."""

from __future__ import annotations

from dataclasses import dataclass

from fedrl.aggregation import server_optimizers
from fedrl.algorithms.qhd.q_learning import Practice, remembers_a_batch
from fedrl.core.limits import above_zero, at_least_one, not_negative
from fedrl.core.types import UserError, Word

NETWORK_LR, TABLE_LR = 0.0003, 0.1


@dataclass(frozen=True)
class Settings(Practice):
    """How clients play, learn and agree; a method's own settings inherit from these.

    Networks read all but `local_steps` and `samples`; tables read those, `lr`, `double` and the
    server's.
    """

    # The method.
    name: Word = ""
    # Discount γ; tabular worlds have their own.
    gamma: float = 0.99
    # Networks: units of the two hidden layers.
    hidden: tuple[int, ...] = (128, 128)
    # Step size: of Adam for networks (0 stands for 0.0003), of plain steps for tables (for 0.1).
    lr: float = 0.0
    # Networks: transitions per update; the loss is their mean.
    batch: int = 32
    # Networks: TD errors beyond this count linearly, not squared (Huber); 0 squares all, as tables
    # always do.
    huber: float = 1.0
    # Steps between two copies of what is learned to the delayed target; 0 is never by steps.
    sync_steps: int = 500
    # Episodes between two copies; 0 is never by episodes.
    sync_episodes: int = 0
    # E of tables: updates of all entries between two exchanges.
    local_steps: int = 10
    # Tables: next states drawn for every state and action in an update; 0 takes the expectation.
    samples: int = 0
    # The server's step along the clients' mean change; 1 is the average itself.
    server_lr: float = 1.0
    # How the server moves along it: plain averaging is the papers';
    # `momentum` keeps 0.9 of its velocity, `adam` has moments of 0.9 and 0.99.
    server_optimizer: server_optimizers.Name = "sgd"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(self, "algorithm.", "batch", "local_steps")
        not_negative(self, "algorithm.", "lr", "samples")
        above_zero(self, "algorithm.", "server_lr")
        remembers_a_batch(self.replay, self.batch)
        if len(self.hidden) != 2 or min(self.hidden) < 1:
            raise UserError(
                f"algorithm.hidden is {list(self.hidden)}; name the units of two layers, above 0"
            )
