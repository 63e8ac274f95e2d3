"""All settings of an experiment, as frozen dataclasses: what a recipe's tables may hold.

`[algorithm] name`, `[world] name` and `[aggregate] name` choose the classes of these tables;
`loading.py` fills them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from fedrl import partition, privacy
from fedrl.aggregation import rules
from fedrl.aggregation.settings import Settings as Aggregate
from fedrl.clients import attacks, faults
from fedrl.config import flower
from fedrl.config.flag_parsing import require_text
from fedrl.core.limits import at_least_one, not_negative
from fedrl.core.types import FilePath, UserError, Word
from fedrl.federation import async_settings
from fedrl.federation.client_sampling import Settings


@dataclass(frozen=True)
class Config:
    """A whole experiment."""

    # Folder of the run under `out`; the recipe's name by default.
    name: Word = "run"
    # All randomness comes from this number.
    seed: int = 0
    # R: rounds of communication.
    rounds: int = 100
    # inprocess: clients in this process, compiled together where the method can.
    # workers: clients in processes of their own, which a deadline can stop.
    # flower: clients on other machines, through the SuperLink that `connection` names.
    engine: Literal["inprocess", "workers", "flower"] = "inprocess"
    # The SuperLink of engine = "flower": a name that `fedrl flower up` has written, or a file.
    connection: FilePath = ""
    # Worker processes; 0 is one per core.
    workers: int = 0
    # Where run directories go.
    out: FilePath = "runs"
    # Evaluate every so many rounds, and after the last.
    eval_every: int = 1
    # Write a checkpoint every so many rounds, and after the last.
    checkpoint_every: int = 1
    # Live trackers: tensorboard, wandb, trackio.
    track: tuple[Word, ...] = ()
    # Where the method and the world come from, if not from fedrl: package:version:hash of the code.
    # A run writes it into its config.toml, and nodes compare it with what they have.
    packages: tuple[Word, ...] = ()
    # What all clients must hold alike (model, tokenizer, movies, …), as name:digest. The driver of
    # nodes sends it, and nodes compare it with what they have before they compute.
    agree: tuple[Word, ...] = ()
    # Settings that the recipe chose for another method and that are kept, as method:key. Naming
    # another method by a flag writes it; it moves no number, and reports warn of it.
    borrowed: tuple[Word, ...] = ()
    federation: Settings = field(default_factory=Settings)
    # Classes of the chosen method's and world's own modules, also of ones from outside.
    algorithm: Any = None
    world: Any = None
    partition: partition.Settings = field(default_factory=partition.Settings)
    async_buffer: async_settings.Settings = field(default_factory=async_settings.Settings)
    # The class of the rules that come with fedrl, or the own one of a rule from outside.
    aggregate: Any = field(default_factory=Aggregate)
    privacy: privacy.Settings = field(default_factory=privacy.Settings)
    faults: faults.Settings = field(default_factory=faults.Settings)
    attack: attacks.Settings = field(default_factory=attacks.Settings)
    flower: flower.Settings = field(default_factory=flower.Settings)

    def __post_init__(self) -> None:
        at_least_one(self, "", "rounds", "eval_every", "checkpoint_every")
        if not self.out or not re.fullmatch(r"[\w.+-]+", self.name) or set(self.name) == {"."}:
            raise UserError(
                f"name is {self.name!r} and out is {self.out!r}: a folder's name and its parent, "
                "neither of them empty"
            )
        require_text(self.out, "out")
        not_negative(self, "", "seed")
        if self.workers < 0:
            raise UserError(f"workers is {self.workers}; 0 is one per core")
        if self.workers and self.engine != "workers":
            raise UserError(f'workers is {self.workers}, which needs engine = "workers"')
        if (self.engine == "flower") != bool(self.connection):
            raise UserError(
                'engine = "flower" and connection go together: --engine flower --connection NAME'
            )
        if self.engine == "inprocess":
            if self.federation.deadline:
                raise UserError(
                    'federation.deadline needs clients that can be stopped: set engine = "workers"'
                )
            if self.faults.clients and self.faults.kind in ("hang", "exit"):
                raise UserError(
                    f'faults.kind = "{self.faults.kind}" would stop the whole run: '
                    'set engine = "workers"'
                )
        if self.faults.clients and self.faults.kind == "hang" and not self.federation.deadline:
            raise UserError('faults.kind = "hang" needs federation.deadline, or the run waits too')
        if self.faults.clients and not all(
            0 <= c < self.federation.clients for c in self.faults.clients
        ):
            raise UserError(
                f"faults.clients names clients outside 0 to {self.federation.clients - 1}"
            )
        self.async_buffer.check(self.federation, self.privacy, self.engine)
        self.async_buffer.check_rule(self.rule, self.federation.clients)
        self.rule.check(self.combined, self.federation.kind)
        privacy.check(
            self.privacy,
            self.federation.kind,
            self.aggregate.name,
            self.rule.rule,
            self.federation.clients_per_round,
        )
        self.attack.check(self.federation.clients, self.federation.kind)

    def __reduce__(self) -> tuple[Any, ...]:
        """To another process as the recipe that it is: classes may come from anywhere."""
        from fedrl.config import loading, parts

        used = {
            self.algorithm.name, self.world.name, self.aggregate.name, self.attack.kind,
            *parts.rewards(self.world),
        }  # fmt: skip
        return loading.rebuilt, (loading.as_dict(self), parts.registered(used))

    @property
    def combined(self) -> int:
        """Updates that become one in a server step, if no client fails."""
        return self.async_buffer.size or self.federation.clients_per_round

    @property
    def rule(self) -> rules.Chosen:
        """The rule of aggregation; a buffer could hold all liars that there are."""
        among = self.federation.clients if self.async_buffer.size else 0
        return rules.chosen(self.aggregate, among)


SECTIONS = (
    Settings,
    partition.Settings,
    async_settings.Settings,
    privacy.Settings,
    faults.Settings,
    attacks.Settings,
    flower.Settings,
)
