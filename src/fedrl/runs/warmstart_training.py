"""What the two warm starts share: supervised steps with their progress, and the folder's record."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from fedrl.core.registry import missing_extra
from fedrl.envs.text import Configured
from fedrl.llm.warmstart_record import write_record
from fedrl.runs.new_folder import new_folder

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from fedrl.llm.policy import Policy
    from fedrl.llm.pretrain.supervised import Supervised
    from fedrl.llm.rollout import Sample

Record = dict[str, Any]
"""What warmstart.json holds, as JSON."""


@contextmanager
def warmstart_folder(
    out: Path, doing: Literal["teaching", "reading"]
) -> Iterator[tuple[Path, Record]]:
    """A new model folder and the record to fill, which is written when the work is done."""
    with new_folder(out) as folder:
        start, record = time.perf_counter(), Record()
        try:
            from fedrl.llm.out_of_memory import explain_out_of_memory

            with explain_out_of_memory(doing=doing):
                yield folder, record
        except ModuleNotFoundError as error:
            raise missing_extra(error, "fedrl warmstart", "llm") from error
        record["seconds"] = round(time.perf_counter() - start, 1)
        write_record(folder, record)


def train(
    policy: Policy, samples: Sequence[Sample], plan: Supervised, console: Console, doing: str
) -> tuple[float, float]:
    """Supervised steps: the loss at the end, and the seconds that they took."""
    import torch

    from fedrl.llm.pretrain.supervised import train_supervised

    torch.manual_seed(plan.seed)
    start, losses = time.perf_counter(), list[float]()
    with console.status(doing) as status:

        def tell(step: int, loss: float) -> None:
            losses.append(loss)
            if step % 20 == 19:
                pace = 1e3 * (time.perf_counter() - start) / (step + 1)
                status.update(
                    f"step {step + 1} of {plan.steps}, loss {loss:.3f}, {pace:.0f} ms a step"
                )

        train_supervised(policy, samples, plan, tell)
    return last_tenth(losses), time.perf_counter() - start


def last_tenth(losses: Sequence[float]) -> float:
    """The mean of the last tenth: a single step's is noise."""
    tail = losses[-max(len(losses) // 10, 1) :]
    return sum(tail) / len(tail)


def training_record(
    settings: DataclassInstance,
    world: object,
    examples: int,
    policy: Policy,
    found: dict[str, float],
) -> Record:
    """What was taught to which model, in which world."""
    return {
        "settings": asdict(settings),
        "world": asdict(world.settings) if isinstance(world, Configured) else {},
        "examples": examples,
        "parameters": sum(p.numel() for p in policy.model.parameters()),
        "found": found,
    }
