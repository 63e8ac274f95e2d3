"""Clients that lie on purpose: a rehearsal of what a rule of aggregation is worth.

`[attack] share = 0.2, kind = "sign-flip"` makes a fifth of the clients Byzantine, drawn by the
run's seed: a larger share adds clients and keeps those that were there. Such a client works as any
other and then sends something else, in every round, with the weight, the numbers and the state
of an honest one. It knows what a client knows: the broadcast, its own data, its own update. With
Δ for its honest change and s for `strength`, it sends

    sign-flip     −s Δ
    scale         s Δ
    noise         normal numbers, s times as large as Δ's root mean square
    same-value    s times that root mean square in every place
    free-rider    nothing new: Δ = 0
    poison        what it honestly learns from rewards, or people's answers, of the opposite sign

Each is a function (Δ, s, random) -> what is sent in Δ's place, with Δ by flat names in double
precision; one from outside is named as everything from outside is (`core/registry.py`).
Δ is the update itself where a method sends changes. Where it sends values (FedQHD's readouts and
teachers, DQN's weights: `sends_parameters`), Δ is the difference to what was broadcast under that
name, and the lie is added to that. A name alone does not tell: FedRLHF's changes are named as its
parameters are. What is too large for its dtype becomes the largest number: an infinite one would be
refused. Under a mean, a share p of sign-flippers turns the others' common change round as soon as
s > (1 − p) / p.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedrl.aggregation.settings import part
from fedrl.clients.wrapped_algorithm import ResultWrapper
from fedrl.core import seeding, tree
from fedrl.core.abilities import Batched, Poisonable, sends_parameters
from fedrl.core.limits import above_zero
from fedrl.core.registry import Entry, Table, load
from fedrl.core.types import Algorithm, Job, Result, Tensors, UserError, Word

Change = dict[str, np.ndarray]
Attack = Callable[[Change, float, np.random.Generator], Change]

_BUILTIN: dict[str, Entry] = {}
ATTACKS = Table("attacks", "attack.kind", _BUILTIN)
"""Attacks by name; those that come with fedrl are below."""


def _attack(name: str) -> Callable[[Attack], Attack]:
    def listed(attack: Attack) -> Attack:
        place, summary = f"{__name__}:{attack.__name__}", str(attack.__doc__).splitlines()[0]
        _BUILTIN[name] = Entry(place, "", summary)
        return attack

    return listed


@_attack("sign-flip")
def sign_flip(change: Change, strength: float, random: np.random.Generator) -> Change:
    """−s Δ."""
    return {name: -strength * honest for name, honest in change.items()}


@_attack("scale")
def scale(change: Change, strength: float, random: np.random.Generator) -> Change:
    """s Δ."""
    return {name: strength * honest for name, honest in change.items()}


@_attack("noise")
def noise(change: Change, strength: float, random: np.random.Generator) -> Change:
    """Normal numbers, s times as large as Δ's root mean square."""
    size = strength * root_mean_square(change)
    return {name: size * random.standard_normal(part.shape) for name, part in change.items()}


@_attack("same-value")
def same_value(change: Change, strength: float, random: np.random.Generator) -> Change:
    """s times Δ's root mean square in every place."""
    size = strength * root_mean_square(change)
    return {name: np.full(part.shape, size) for name, part in change.items()}


@_attack("free-rider")
def free_rider(change: Change, strength: float, random: np.random.Generator) -> Change:
    """Nothing new."""
    return {name: np.zeros(part.shape) for name, part in change.items()}


@_attack("poison")
def poison(change: Change, strength: float, random: np.random.Generator) -> Change:
    """What was learned from rewards, or people's answers, of the opposite sign (`Poisonable`)."""
    return change


def find(kind: str) -> Attack:
    """The attack of a name."""
    attack: Attack = load(ATTACKS.find(kind), ATTACKS.key, kind)
    if isinstance(attack, type) or not callable(attack):
        raise UserError(f"attack.kind = {kind!r} is no function (change, strength, random)")
    return attack


@dataclass(frozen=True)
class Settings:
    """Which clients lie, and how."""

    # Numbers of the Byzantine clients; none by default.
    clients: tuple[int, ...] = ()
    # Or their share of all clients, rounded up; the run's seed draws who they are.
    share: float = 0.0
    # sign-flip, scale: a multiple of the honest change. noise, same-value: numbers as large as
    # that. free-rider: no change at all. poison: learned from rewards or answers turned round.
    kind: Word = "sign-flip"
    # How many times as large as an honest change; not read by free-rider and poison.
    strength: float = 10.0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise UserError(f"attack.share is {self.share}; it is a share from 0 to 1")
        if self.clients and self.share:
            raise UserError("attack.clients and attack.share both say who lies: remove one")
        ATTACKS.find(self.kind)
        above_zero(self, "attack.", "strength")

    def check(self, clients: int, kind: str) -> None:
        """Refuse what cannot be in a federation of this kind with so many clients."""
        if not all(0 <= client < clients for client in self.clients):
            raise UserError(f"attack.clients names clients outside 0 to {clients - 1}")
        if (self.clients or self.share) and kind != "federated":
            raise UserError(
                f'[attack] is for clients that share a model, but federation.kind is "{kind}": '
                "remove it"
            )


def byzantine_clients(settings: Settings, clients: int, seed: int) -> frozenset[int]:
    """Who lies: those that are named, or the first ⌈share · N⌉ of an order that the seed draws."""
    if settings.clients:
        return frozenset(settings.clients)
    order = seeding.generator(seed, "attackers").permutation(clients)
    return frozenset(order[: part(settings.share, clients)].tolist())


class Attacked(ResultWrapper):
    """An algorithm some of whose clients lie; everything else is the algorithm's own."""

    def __init__(
        self, algorithm: Algorithm, settings: Settings, byzantine: Collection[int]
    ) -> None:
        super().__init__(algorithm)
        self.settings = settings
        self.byzantine = byzantine
        find(settings.kind)  # says what is wrong with it before a client would
        self.poison: Callable[[Job], Result] | None = None
        if settings.kind == "poison":
            if not isinstance(algorithm, Poisonable):
                raise UserError(
                    f'attack.kind is "poison", which {type(algorithm).__name__} cannot show: '
                    "choose another kind"
                )
            self.poison = algorithm.poisoned

    def local(self, job: Job) -> Result:
        if job.client in self.byzantine and self.poison is not None:
            return self.poison(job)
        return super().local(job)

    def _many(self, jobs: Sequence[Job]) -> list[Result]:
        """Honest work in one call; what was learned from poison one by one."""
        assert isinstance(self.algorithm, Batched)
        apart = self.byzantine if self.poison is not None else ()
        together = [job for job in jobs if job.client not in apart]
        honest = iter(self.algorithm.local_many(together) if together else ())
        return [
            self.local(job) if job.client in apart else self.sent(job, next(honest)) for job in jobs
        ]

    def sent(self, job: Job, result: Result) -> Result:
        if job.client not in self.byzantine:
            return result
        base = tree.flatten(job.broadcast) if sends_parameters(self.algorithm) else {}
        return replace(result, update=attack_update(result.update, base, self.settings, job.seed))


def attack_update(update: Tensors, base: Tensors, settings: Settings, seed: int) -> Tensors:
    """What a Byzantine client says instead; `base` are the broadcast's values by flat names."""
    flat = tree.flatten(update)
    start = {name: np.asarray(base.get(name, 0.0), np.float64) for name in flat}
    change = {name: leaf.astype(np.float64) - start[name] for name, leaf in flat.items()}
    wrong = find(settings.kind)(change, settings.strength, seeding.generator(seed, "attack"))
    sent = {}
    for name, leaf in flat.items():
        most = np.finfo(leaf.dtype).max
        sent[name] = np.clip(start[name] + wrong[name], -most, most).astype(leaf.dtype)
    return tree.unflatten(sent)


def root_mean_square(change: Change) -> float:
    squares = sum(float(np.square(part).sum()) for part in change.values())
    return math.sqrt(squares / max(1, sum(part.size for part in change.values())))
