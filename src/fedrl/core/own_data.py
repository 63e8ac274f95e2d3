"""What methods and settings offer where data is somebody's own: pins, digests, a judgement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fedrl.core.types import Job


@runtime_checkable
class Pins(Protocol):
    """Settings that name data of one's own, which a run takes for the same as long as it lasts."""

    digest: str

    def pinned(self, digest: str | None = None) -> Any:
        """The same settings with the data's digest, its own if none is given, and with files of
        code as they are named from anywhere."""


@runtime_checkable
class JudgesOwn(Protocol):
    """An algorithm whose clients can judge a model on what they hold out of their own data."""

    def judge(self, job: Job) -> np.ndarray:
        """A score of each held-out item under what the client was sent, and keeps [n]."""
        ...


@runtime_checkable
class JudgesEpisodes(JudgesOwn, Protocol):
    """One whose held-out items are episodes, which are paid and won or lost."""

    def judge_episodes(self, job: Job) -> tuple[np.ndarray, np.ndarray]:
        """Of each held-out item what it was paid, and whether it was won [n]."""
        ...


@runtime_checkable
class ComparesContents(Protocol):
    """An algorithm that can tell whether a client trains on what all are evaluated on."""

    def contents_in_common(self, client: int) -> int:
        """How many tasks; 0 where nobody can tell."""
        ...


@runtime_checkable
class Agrees(Protocol):
    """An algorithm whose clients must hold some things alike: a vocabulary, a model, the actions.

    `agreement` names them with a digest each: of one client's, or, without one, of what the run's
    coordinator has. It is compared before round 1.
    """

    def agreement(self, client: int | None = None) -> Mapping[str, str]: ...
