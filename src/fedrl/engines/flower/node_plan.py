"""What a node takes from a recipe, and which files of its folder are no recipe's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fedrl.core.narrow_numbers import Precision
from fedrl.core.types import Algorithm
from fedrl.engines.flower import own_data_book
from fedrl.engines.flower.adapter import HOME
from fedrl.engines.flower.kept_model import FOLDER as JOINED
from fedrl.engines.flower.policy import Policy
from fedrl.privacy.client_ledger import Budget
from fedrl.privacy.secure_aggregation import Terms

RECIPES = "recipes"
"""Where those lie that wait for a person (`approval.py`)."""
OWN = frozenset(
    {
        "states",
        HOME,
        "secret",
        "key",
        "opened",
        "ledger",
        "memory",
        "supernode",
        own_data_book.BOOK,
        JOINED,
        RECIPES,
        "policy",
        "audit",
        "now",
        "running",
    }
)
"""Names in a node's folder that are the node's own, whatever their endings: no recipe's."""


class Refused(Exception):
    """What this node does not do for a recipe, in one line that may be told to the server; `own` is
    what its owner reads beside it, and nobody else."""

    final = True  # the same job would be refused again

    def __init__(self, line: str, own: str = "") -> None:
        super().__init__(line)
        self.own = own


class PolicyChanged(Refused):
    """Between two looks at it: by the new one the job may well be done."""

    final = False


@dataclass(frozen=True)
class Plan:
    """What a node takes from a recipe: how to build the algorithm, and how to send.

    With `terms` the algorithm gives vectors for a secure sum (`clients/masked_updates.py`).
    `budget` is the node's own ε, if it has one, `reports` whether the recipe alone asks for metrics
    beside a sum, `seed` is the recipe's, `data` what the client brings, if it does. `policy` is the
    node's, by which the recipe was taken, `noise` the multiplier of what nodes add to an answer,
    `rounds` how many the recipe has, if that is known, `origin` what kind of run it is of.
    """

    build: Callable[[], Algorithm]
    precision: Precision
    piece: int
    warm: bool
    terms: Terms | None = None
    budget: Budget | None = None
    reports: bool = False
    seed: int = 0
    data: Path | None = None
    policy: Policy = field(default_factory=Policy)
    noise: float = 0.0
    rounds: int | None = None
    origin: str = ""
