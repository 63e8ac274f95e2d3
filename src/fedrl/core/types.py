"""The vocabulary: what servers, clients, engines and algorithms say to each other.

Everything that crosses a boundary is named tensors (NumPy arrays, nested at most once) and plain
scalars, because that is what NumPy, safetensors and Flower all speak. JAX and PyTorch stay inside
`Algorithm.local`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from fedrl.core.data_outline import DataOutline

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


@runtime_checkable
class Bounded(Protocol):
    """An algorithm that knows how large the numbers can get that its clients report. A name that
    is not in `ranges` has the range of its group (`update_refusal.ranges`)."""

    ranges: Mapping[str, Range]


@runtime_checkable
class Batched(Protocol):
    """An algorithm that can do many clients in one compiled call; a test holds it to `local`."""

    def local_many(self, jobs: Sequence[Job]) -> list[Result]: ...


@runtime_checkable
class WarmUp(Protocol):
    """An algorithm that compiles: worker processes do it before the first client is waiting."""

    def warm_up(self) -> None: ...


class GpuUse(NamedTuple):
    """What a process will do with a language model: by that it takes its place on a GPU."""

    learns: bool = False  # else it plays alone
    evaluates: bool = True
    workers: int = 0  # processes that it starts and that learn beside it
    patience: float | None = None  # seconds to wait for room; None: as long as it takes


@runtime_checkable
class SharesGpu(Protocol):
    """An algorithm with a model that takes room on a GPU, which may be waited for or refused."""

    def take_gpu(self, use: GpuUse) -> None: ...


@runtime_checkable
class ShowsEpisodes(Protocol):
    """An algorithm whose evaluations are episodes that people can read. A run that keeps some sets
    `keep_episodes`, and each evaluation hands it a few records, of tasks that are the server's own:
    never of what a client trains on or holds out."""

    keep_episodes: Callable[[list[Json]], None] | None


@runtime_checkable
class Outlined(Protocol):
    """An algorithm with a large model: its first state by shapes alone, and what a client needs."""

    def outline(self) -> tuple[Tensors, list[str]]: ...


@runtime_checkable
class SavesModel(Protocol):
    """An algorithm that trains a language model, which can be written as an ordinary folder.

    `adapters` writes LoRA's alone. `prompt_outline` is a prompt with words that stand for a task's
    own.
    """

    def save(self, theta: Tensors, folder: Path, adapters: bool = False) -> None: ...

    def data_outline(self) -> DataOutline: ...

    def prompt_outline(self) -> str: ...


@runtime_checkable
class Policy(Protocol):
    """What was learned to do. `fedrl.core.policies` are in NumPy and can be written, those of
    language models are in `fedrl.llm.text_policy`."""

    def act(self, observation: Any, rng: np.random.Generator | None = None) -> Any:
        """The action for an observation, or those for a batch [b, …].

        With `rng` as in training, without it the most likely or most valuable one.
        """
        ...


@runtime_checkable
class GivesPolicy(Protocol):
    """An algorithm whose server's state is a policy; one per client where clients differ."""

    def policy(self, state: Tensors, client: int | None = None) -> Policy: ...


@runtime_checkable
class KeepsPolicies(Protocol):
    """An algorithm whose clients hold a policy of their own in what they keep between rounds."""

    def own_policy(self, kept: Tensors, state: Tensors, client: int) -> Policy: ...


@runtime_checkable
class KeepsAdapters(Protocol):
    """A `SavesModel` whose clients may keep a part of the model for themselves (`Result.state`)."""

    def evaluate_own(
        self, state: Tensors, kept: Mapping[int, Tensors], seed: int, episodes: int
    ) -> np.ndarray:
        """As `evaluate_clients`, with what each client has kept, if anything."""
        ...

    def own_theta(self, state: Tensors, kept: Tensors) -> Tensors | None:
        """The shared weights and those that a client kept; None where it keeps none."""
        ...


@runtime_checkable
class SendsParameters(Protocol):
    """An algorithm that says whether its clients send new values of what was broadcast under the
    same names. If not, and without it, updates are changes, whatever their names."""

    sends_parameters: bool


@runtime_checkable
class Poisonable(Protocol):
    """An algorithm that can show what a client sends whose rewards or answers were turned round."""

    def poisoned(self, job: Job) -> Result: ...


@runtime_checkable
class Weighs(Protocol):
    """An algorithm that says how much a client can weigh at most under `aggregate.name =
    "weighted"`: what a client claims beyond that does not count. 1: all weigh the same."""

    heaviest: float


@runtime_checkable
class PartialParticipation(Protocol):
    """An algorithm whose server also has to know which share of its clients the mean is of."""

    def step_partial(self, state: Tensors, mean: Tensors, round: int, share: float) -> Tensors: ...


@runtime_checkable
class ServerSamples(Protocol):
    """An algorithm whose server acts too. `server_world`, set when it is built, makes the clients'
    world with one environment more: the last is the server's own."""

    server_world: Callable[[], Any] | None


@runtime_checkable
class HeldApart(Protocol):
    """An algorithm some of whose tensors have rows that only some clients hold; from the others a
    row of zeros comes, which is no opinion about it.

    `held_apart` names these tensors, `counts` those that say who holds a row and are added up to
    divide by, `without_counts` the setting that does without them.
    """

    held_apart: frozenset[str]
    counts: frozenset[str]
    without_counts: str


@runtime_checkable
class TellsWhatIsHeld(HeldApart, Protocol):
    """A `HeldApart` of which some tensors tell what a client's data are about, so that these may
    leave its machine in secure sums alone: `in_secret` names them."""

    in_secret: frozenset[str]


def sends_parameters(algorithm: Algorithm) -> bool:
    return isinstance(algorithm, SendsParameters) and algorithm.sends_parameters


def server_step(
    algorithm: Algorithm, state: Tensors, mean: Tensors, round: int, share: float
) -> Tensors:
    """The server's step with the mean of this share of its clients."""
    if isinstance(algorithm, PartialParticipation):
        hook, after = "step_partial", algorithm.step_partial(state, mean, round, share)
    else:
        hook, after = "step", algorithm.step(state, mean, round)
    if not isinstance(after, dict) or ("theta" in state and "theta" not in after):
        got = "no theta" if isinstance(after, dict) else type(after).__name__
        raise UserError(
            f"{hook} of {type(algorithm).__name__} returned {got}: return the server's next state, "
            'such as {**state, "theta": …}'
        )
    return after
