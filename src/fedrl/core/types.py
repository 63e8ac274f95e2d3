"""The vocabulary: what servers, clients, engines and algorithms say to each other.

Everything that crosses a boundary is named tensors (NumPy arrays, nested at most once) and plain
scalars, because that is what NumPy, safetensors and Flower all speak. JAX and PyTorch stay inside
`Algorithm.local`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

Tensors = dict[str, Any]
"""`{"name": ndarray}` or `{"group": {"name": ndarray}}`; leaves may also be int, float or str."""

Json = dict[str, Any]
"""An object of a JSON or TOML file, with whatever it holds."""

Tables = Mapping[str, Any]
"""The same to be read only: a recipe's tables, settings of a program."""

JsonValue = bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"] | None
"""What JSON holds."""

Record = dict[str, int | float | str]
"""A line of `clients.jsonl`: round, client, status, why it failed, or what it reported."""

Metrics = dict[str, float]
"""Flat `group/name` keys: `eval/return`, `train/weight_mean`, `comm/bytes_up`."""


Word = Annotated[str, "word"]
"""A setting's text: one of the program's own words, such as a split's name."""

FilePath = Annotated[str, "path"]
"""A setting's text that names a file or folder, or one of the program's own words in its place."""

ModelName = Annotated[str, "model"]
"""A setting's text that names a folder or file with a model, or one to fetch from Hugging Face."""

Address = Annotated[str, "address"]
"""A setting's text that names a server to call: never a recipe's to choose on another's machine."""

Assignment = Annotated[str, "assignment"]
"""A setting's text that gives an argument a value: `words=200`, `hard=true`, `level=easy`."""

CodeName = Annotated[str, "code"]
"""A setting's text that names code, as `package.module:Name` or `package:Id`, if it has a colon."""

CodeCall = Annotated[str, "call"]
"""The same with arguments: on another's machine its owner's to say."""


class UserError(Exception):
    """A mistake that the user can mend: shown as it is, one or two lines, without a traceback."""


class TooFew(Exception):
    """Fewer updates than an aggregator has a meaning for: like a round below the quorum."""


class Shareable(str):
    """An error's text that was written for the server: it quotes nothing that a client holds.

    `raise RuntimeError(Shareable("…"))`. Of any other exception in a client's work, a `UserError`
    too, only the type leaves the client.
    """


WORKER = "FEDRL_WORKER"
"""Environment variable with the number, from 0, of a process that computes beside others. Those
that use GPUs take one each by it."""


@dataclass(frozen=True)
class Spec:
    """Shape and dtype that one tensor of an update must have; checked on the wire."""

    shape: tuple[int, ...]
    dtype: str


class Range(NamedTuple):
    """Numbers that a client may report under one name; `whole` ones are counts."""

    low: float
    high: float
    whole: bool = False


SHARE = Range(-1e-3, 1.001)
"""A share of 1; single precision may round it up."""


@dataclass(frozen=True)
class Job:
    """One client's work in one round. `seed` is all the randomness that it gets.

    `round` and `attempt`, from 0, are for engines whose clients keep count of what they tell.
    """

    client: int
    broadcast: Tensors
    state: Tensors | None
    seed: int
    round: int = 0
    attempt: int = 0


@dataclass(frozen=True)
class Result:
    """What a client sends back: the update, its weight and metrics.

    `state` is what the client keeps on its own disk until its next round. Engines that simulate
    clients carry it for them, and the run's checkpoint stands for those disks; no other code of the
    server reads it.
    """

    client: int
    update: Tensors
    weight: float = 1.0
    state: Tensors | None = None
    metrics: Metrics = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """A client that gave nothing usable in this round, and why, in one line.

    `final`: it has refused, and asking it again in the same round would be the same.
    """

    client: int
    reason: str
    final: bool = False


@runtime_checkable
class Algorithm(Protocol):
    """One federated method. All state is in the arguments; nothing important hides on `self`.

    `initial_exchange` says whether round 0 is an exchange too (FedSVRPG-M's first gradient
    estimate u_0); otherwise round 0 only evaluates the initial parameters. `reports` are the names
    of the numbers that a client may tell about its round: with `declare`, all that leaves it. See
    `Bounded`.
    """

    initial_exchange: bool
    reports: frozenset[str]

    def init(self, seed: int) -> Tensors:
        """The server's first state."""

    def broadcast(self, state: Tensors, round: int) -> Tensors:
        """What the server sends to every client of the round."""

    def declare(self, broadcast: Tensors) -> Mapping[str, Spec]:
        """Names, shapes and dtypes of what may leave a client in this round."""

    def local(self, job: Job) -> Result:
        """A client's work, where its private data lives."""

    def step(self, state: Tensors, mean: Tensors, round: int) -> Tensors:
        """The server's step with the aggregated update."""

    def evaluate(
        self, states: Sequence[Tensors], owners: Sequence[Sequence[int]], round: int, seed: int
    ) -> Metrics:
        """Metrics of the server's states: one, or one per client when nothing is aggregated.

        `owners[i]` are the clients whose data state i was trained on.
        """

    def evaluate_clients(self, state: Tensors, seed: int, episodes: int) -> np.ndarray:
        """Mean return of one state for every client [N], for `fedrl eval`."""
