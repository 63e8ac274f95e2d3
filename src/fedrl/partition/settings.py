"""The recipe's section `[partition]`, and what a partition may know of a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from fedrl.types import UserError


class TaskLike(Protocol):
    """What a partition may know of a task: never its content."""

    @property
    def id(self) -> str: ...

    @property
    def category(self) -> str: ...

    @property
    def scene(self) -> str: ...


@dataclass(frozen=True)
class Settings:
    """Which tasks each client holds."""

    # uniform: any tasks. preference: every client its own mix of categories. coverage: clients with
    # many tasks and with few. hardness: clients with easy tasks and with hard ones. scenes: no two
    # clients share a scene.
    strategy: Literal["uniform", "preference", "coverage", "hardness", "scenes"] = "uniform"
    # L: tasks per client; with coverage the mean over clients, unless overlap says another.
    size: int = 100
    # ω of preference: noise on the shares of the categories; 0.1 mild, 0.9 strong.
    omega: float = 0.5
    # What preference adds its noise to. logit: log(p/(1−p)) of the pool's shares p, as in the
    # paper's Algorithm 2, which favours large categories a little. log: log p, as in its text:
    # without noise the pool's own shares.
    anchor: Literal["logit", "log"] = "logit"
    # ξ of coverage and ξ′ of hardness: how alike the clients are; 1 wild, 256 even.
    xi: float = 16.0
    # r of coverage and hardness: in how many clients a task (hardness: a successful one) lies on
    # average. 0: as many as `size` tasks per client make (hardness: at the pool's success rate).
    overlap: float = 0.0
    # Fewest tasks (hardness: successful ones) of a client; 0: 1 task (hardness: none).
    fewest: int = 0
    # Most tasks (hardness: successful ones) of a client; 0: twice the mean (hardness: all).
    most: int = 0
    # File that says which tasks succeed, as `fedrl label` writes it; hardness needs it.
    labels: str = ""

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UserError(f"partition.size is {self.size}; it must be at least 1")
        if self.omega < 0:
            raise UserError(f"partition.omega is {self.omega}; it must not be negative")
        if not self.xi > 0:
            raise UserError(f"partition.xi is {self.xi}; it must be above 0")
        for key in ("overlap", "fewest", "most"):
            if getattr(self, key) < 0:
                raise UserError(f"partition.{key} is {getattr(self, key)}; 0 chooses it for you")
        if self.most and self.fewest > self.most:
            raise UserError(
                f"partition.fewest = {self.fewest} is above partition.most = {self.most}"
            )
        if self.strategy == "hardness" and self.most > self.size:
            raise UserError(
                f"partition.most = {self.most} successful tasks do not fit into "
                f"partition.size = {self.size}"
            )
