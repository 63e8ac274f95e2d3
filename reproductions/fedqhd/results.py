"""What was measured for FedQHD: runs by part, errors by draw, and what could not be measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedrl.runs.grid import Trained
from fedrl.runs.read import Run
from reproductions.fedqhd.cells import Scale

Found = Mapping[str, Trained]


@dataclass(frozen=True)
class Results:
    """`errors[part]` has a list of points for every draw; `absent` says which tasks cannot run.

    `full` is what there is of Table 1 at the paper's sizes, beside a smaller scale.
    """

    scale: Scale
    parts: Mapping[str, Found]
    errors: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]]
    ridge: float  # λ whose errors are judged
    absent: Mapping[str, str]
    tuned_at: str
    full: Found

    def runs(self) -> Iterator[Run]:
        for found in self.parts.values():
            for one in found.values():
                yield from one.runs.values()
