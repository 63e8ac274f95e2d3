"""The recipe's section `[partition]`, and what a partition may know of a task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from fedrl.core.limits import one_of
from fedrl.core.registry import suggestion
from fedrl.core.types import FilePath, UserError, Word

Strategy = Literal["uniform", "preference", "coverage", "hardness", "scenes", "own"]
Anchor = Literal["logit", "log"]

ALWAYS = frozenset({"strategy", "size", "labels", "unlabelled"})
"""Knobs of every strategy: with labels each of them is measured."""
READS: dict[Strategy, frozenset[str]] = {
    "uniform": ALWAYS,
    "preference": ALWAYS | {"omega", "anchor"},
    "coverage": ALWAYS | {"xi", "overlap", "fewest", "most"},
    "hardness": ALWAYS | {"xi", "overlap", "fewest", "most"},
    "scenes": ALWAYS | {"divergence", "fallback"},
    "own": frozenset({"strategy", "size", "folder", "held_out", "digests"}),
}
"""The knobs that a strategy reads; the others do nothing."""


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
    # clients share a scene. own: nothing is dealt; a client holds all that its own folder holds.
    strategy: Strategy = "uniform"
    # L: tasks per client; with coverage the mean over clients, unless overlap says another. With
    # own: the most that a client can count for where clients are weighed by what they hold.
    size: int = 100
    # With own, a folder of folders: one of each client's data, clients in the order of their names,
    # and `public`, the coordinator's. world.source then names what lies in each. A node's data is
    # in its own `--data`, and the driver of nodes needs `public` alone.
    folder: FilePath = "data"
    # With own, what the model is evaluated on: held-out tasks of the coordinator's public folder,
    # or every client's own, which it plays when it takes part and reports as held/….
    held_out: Literal["public", "clients"] = "public"
    # With own: digests of the clients' data, and of the public. A run writes them into its
    # config.toml (a driver of nodes the public one's), and refuses data that has changed.
    digests: tuple[Word, ...] = ()
    # ω of preference: noise on the shares of the categories; 0.1 mild, 0.9 strong.
    omega: float = 0.5
    # What preference adds its noise to. logit: log(p/(1−p)) of the pool's shares p, as in the
    # paper's Algorithm 2, which favours large categories a little. log: log p, as in its text:
    # without noise the pool's own shares.
    anchor: Anchor = "logit"
    # ξ of coverage and ξ′ of hardness: how alike the clients are; 1 wild, 256 even.
    xi: float = 16.0
    # r of coverage and hardness: in how many clients a task (hardness: a successful one) lies on
    # average. 0: as many as `size` tasks per client make (hardness: at the pool's success rate).
    overlap: float = 0.0
    # Fewest tasks (hardness: successful ones) of a client; 0: 1 task (hardness: none).
    fewest: int = 0
    # Most tasks (hardness: successful ones) of a client; 0: twice the mean (hardness: all).
    most: int = 0
    # div of scenes: the share of a client's tasks that play in scenes of its own; the others are
    # any tasks, as with uniform.
    divergence: float = 1.0
    # With scenes, what a client whose scenes hold too few tasks gets: refuse is an error, fewer
    # leaves it with these, shared fills them up with any tasks.
    fallback: Literal["refuse", "fewer", "shared"] = "refuse"
    # JSON file {"task id": true or false}, plain or .gz, that says which tasks succeed; hardness
    # needs it, the other strategies are measured with it.
    labels: FilePath = ""
    # Tasks that the labels say nothing of: refuse is an error, leave_out deals out the others.
    unlabelled: Literal["refuse", "leave_out"] = "refuse"

    def __post_init__(self) -> None:
        for key, choice in (("strategy", Strategy), ("anchor", Anchor)):
            value = getattr(self, key)
            if value not in get_args(choice):
                raise UserError(
                    f"{key} is {value!r}; {suggestion(str(value), list(get_args(choice)))}"
                )
        if self.size < 1:
            raise UserError(f"size is {self.size}; a client needs at least 1 task")
        if not 0 <= self.omega < math.inf:
            raise UserError(f"omega is {self.omega}; it must be finite and not negative")
        if not 0 < self.xi < math.inf:
            raise UserError(f"xi is {self.xi}; it must be finite and above 0")
        if not 0 <= self.divergence <= 1:
            raise UserError(f"divergence is {self.divergence}; it is a share from 0 to 1")
        one_of("fallback", self.fallback, ("refuse", "fewer", "shared"))
        for key in ("overlap", "fewest", "most"):
            if not 0 <= getattr(self, key) < math.inf:
                raise UserError(
                    f"{key} is {getattr(self, key)}; it must be above 0, or 0 to be chosen for you"
                )
        one_of("unlabelled", self.unlabelled, ("refuse", "leave_out"))
        one_of("held_out", self.held_out, ("public", "clients"))
        if self.strategy == "own" and not self.folder:
            raise UserError("folder is empty; it names the folder of the clients' folders")
        if self.most and self.fewest > self.most:
            raise UserError(f"fewest = {self.fewest} is above most = {self.most}")
        if self.strategy == "hardness" and self.most > self.size:
            raise UserError(
                f"most = {self.most} successful tasks do not fit into a client of "
                f"size = {self.size}: lower most or raise size"
            )

    def unread(self, names: Sequence[str]) -> list[str]:
        """A sentence for each of these knobs that does nothing here: what somebody set in vain."""
        unread = [
            f"{name} is not read by strategy {self.strategy}"
            for name in names
            if name not in READS[self.strategy]
        ]
        if self.strategy == "coverage" and self.overlap and "size" in names:
            unread.append("size is not read by strategy coverage when overlap is set")
        return unread


def require_seed(seed: int) -> None:
    if seed < 0:
        raise UserError(f"seed is {seed}; it must not be negative")
