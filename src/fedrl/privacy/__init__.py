"""What the server, and whoever gets the model, can learn of one client, bounded by mathematics.

A client's update is scaled down to length C, Gaussian noise is added to the sum or by every client
(differential privacy at the level of clients), and an accountant says what all rounds together
give away (ε at δ). With secure aggregation the server sees only the sum of the updates. Everything
here is pure: the round loop drives it, whatever the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from fedrl.core.limits import not_negative
from fedrl.core.types import UserError


class Spent(Exception):
    """The next exchange with the clients would exceed the target ε."""


@dataclass(frozen=True)
class Settings:
    """What is kept from the server and from those who get the model; nothing by default."""

    # C: longest update (L2, over all its numbers together); longer ones are scaled down. 0 is off.
    clip: float = 0.0
    # z: noise multiplier; the noise on the sum of updates has standard deviation z·C. 0 is off.
    noise: float = 0.0
    # central: on the sum, and the server is trusted (with secure, the clients add it in shares).
    # local: every client adds all of it to its own update.
    where: Literal["central", "local"] = "central"
    # δ of (ε, δ); 0 is 1 / N^1.1 for N clients, and at most 0.00001.
    delta: float = 0.0
    # Target ε: the run ends before the round that would exceed it. 0 is none.
    epsilon: float = 0.0
    # Secure aggregation: the server sees only the sum of the updates.
    secure: bool = False
    # Share of a round's clients that must stay to the end of a secure aggregation; at least 3 must.
    threshold: float = 0.66
    # Let clients report their metrics, which nothing protects, in spite of noise or secure.
    reports: bool = False
    # Noise from the run's seed instead of the operating system: reproducible, for simulations
    # only. Whoever knows the seed can subtract it.
    seeded: bool = False

    def __post_init__(self) -> None:
        not_negative(self, "privacy.", "clip", "noise", "epsilon")
        if not 0 <= self.delta < 1:
            raise UserError(f"privacy.delta is {self.delta}; it must lie in [0, 1)")
        if not 0.5 < self.threshold <= 1:
            raise UserError(
                f"privacy.threshold is {self.threshold}; it is a share above 0.5, so that no two "
                "halves of the clients can be asked for different secrets, and at most 1"
            )
        if self.noise and not self.clip:
            raise UserError("privacy.noise is relative to privacy.clip: set privacy.clip too")
        if self.secure and not self.clip:
            raise UserError(
                "privacy.secure needs privacy.clip: it is the range of the numbers that are added"
            )
        if self.secure and self.where == "local":
            raise UserError(
                'privacy.secure with privacy.where = "local" would add noise twice over: set '
                'privacy.where = "central", whose noise the clients then add in shares'
            )
        for key in ("epsilon", "delta", "seeded"):
            if getattr(self, key) and not self.noise:
                raise UserError(f"privacy.{key} needs privacy.noise: without noise there is no ε")

    @property
    def on(self) -> bool:
        return self.clip > 0

    @property
    def silent(self) -> bool:
        """Whether the clients' own metrics stay with them."""
        return (self.noise > 0 or self.secure) and not self.reports


class Rule(Protocol):
    """What a rule of aggregation declares of itself (`aggregation/rule.py`)."""

    secure: bool
    weighs: bool


def check(settings: Settings, kind: str, name: str, rule: Rule, cohort: int) -> None:
    """Refuse combinations whose promise would not hold. `name` is the rule's in the recipe.

    `cohort` is the clients of a round.
    """
    if not settings.on:
        return
    if kind != "federated":
        raise UserError(
            f'[privacy] protects clients from a server; with federation.kind = "{kind}" nobody '
            "shares anything: remove it"
        )
    if settings.secure and cohort < 3:
        raise UserError(
            f"privacy.secure adds up at least 3 clients, and a round has {cohort}: raise "
            "federation.cohort or federation.clients"
        )
    if rule.weighs and (settings.noise or settings.secure):
        raise UserError(
            f'aggregate.name = "{name}" lets a client with a large weight through the bound '
            'privacy.clip: set aggregate.name = "mean"'
        )
    if not rule.secure and settings.secure:
        raise UserError(
            f'aggregate.name = "{name}" looks at single updates, which privacy.secure hides: set '
            'aggregate.name = "mean"'
        )
    if not rule.secure and settings.noise and settings.where == "central":
        raise UserError(
            f'aggregate.name = "{name}" is no sum, so central noise protects nothing: set '
            'aggregate.name = "mean" or privacy.where = "local"'
        )
