"""What an algorithm may offer beside what every `Algorithm` has: whoever can use it asks for it.

Each is a Protocol that is looked for at run time, so a method has what its methods are called, and
inherits nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from fedrl.core.data_outline import DataOutline
from fedrl.core.types import Algorithm, Job, Json, Range, Result, Tensors, UserError


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


WAITING = "fedrl.waiting"
"""The logger of what a process waits for: told where all its other talk goes nowhere, too."""


class GpuBusy(UserError):
    """There was no room on a GPU for as long as there was patience. Says what else runs there,
    which is the business of this machine's people alone."""


class GpuUse(NamedTuple):
    """What a process will do with a language model: by that it takes its place on a GPU."""

    learns: bool = False  # else it plays alone
    evaluates: bool = True
    workers: int = 0  # processes that it starts and that learn beside it
    patience: float | None = None  # seconds to wait for room; None: as long as it takes
    reserved: bool = False  # by the driver, of which this is a worker
    whole: bool = True  # if so: it could reserve all that would be taken


@runtime_checkable
class SharesGpu(Protocol):
    """An algorithm with a model that takes room on a GPU, which may be waited for or refused."""

    def take_gpu(self, use: GpuUse) -> bool:
        """Whether it is all that would be taken, not the least alone that is needed."""
        ...


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
