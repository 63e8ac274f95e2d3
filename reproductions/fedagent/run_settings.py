"""The settings of a chapter's own runs, in words: what its cells share, and what they differ in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fedrl.config.loading import as_dict
from fedrl.core.types import Json
from fedrl.runs.read import flatten
from reproductions.grid import Cell

ESTIMATORS = {"grpo": "GRPO", "gigpo": "GiGPO", "rloo": "RLOO", "ppo": "PPO"}
PAID = {"success": "success", "score": "the score", "auto": "success"}
"""Of a world whose episodes are won or lost, `auto` is success."""
UNTOLD = frozenset({
    "name", "seed", "out", "rounds", "eval_every", "checkpoint_every", "federation.kind",
    "federation.client", "federation.cohort", "partition.labels",
})  # fmt: skip
"""What is no difference between two learners, or is said elsewhere."""


def phrases(cell: Cell) -> list[tuple[str, str]]:
    """What is said of a run, each with the place for its value."""
    config = cell.resolved()
    own = config.algorithm
    name = ESTIMATORS.get(own.estimator, own.estimator)
    weighing = (
        "every episode weighing the same" if own.by_episode else "every token weighing the same"
    )
    return [
        ("{} clients", str(config.federation.clients)),
        ("with {} tasks each", str(config.partition.size)),
        ("M = {} clients per round", str(cell.clients_per_round)),
        ("τ = {} local epochs", str(own.local_epochs)),
        ("of {} tasks", str(own.tasks)),
        ("× {} episodes", str(own.group)),
        ("at temperature {}", f"{own.temperature:g}"),
        ("paid by {}", PAID[own.reward]),
        ("{}", name),
        ("with {}", weighing),
        ("minibatches of {} steps", str(own.minibatch)),
        ("AdamW {}", f"{own.lr:g}"),
        ("KL {}", f"{own.kl:g}"),
        ("at most {} steps per episode", str(config.world.max_steps)),
    ]  # fmt: skip


GLUED = ("with", "of", "×", "at temperature")
"""How phrases begin that belong to the one before."""


def settings_of(cells: Iterable[Cell]) -> str:
    """One sentence; where cells differ it has all of their values."""
    found: dict[str, dict[str, None]] = {}
    for cell in cells:
        for phrase, value in phrases(cell):
            found.setdefault(phrase, {})[value] = None
    said = ""
    for phrase, values in found.items():
        glue = " " if phrase.startswith(GLUED) else ", "
        said += (glue if said else "") + phrase.format(" or ".join(values))
    return f"{said}."


def flat(cell: Cell) -> Json:
    said = flatten(as_dict(cell.resolved()))
    return {k: Path(v).name if k == "algorithm.model" else v
            for k, v in said.items() if k not in UNTOLD}  # fmt: skip


def differences(others: Mapping[str, Cell], base: Cell, varied: Sequence[Cell] = ()) -> str:
    """By title, in which settings a cell differs from the base; nothing where none does. What is
    `varied` on purpose, between these cells, is no difference."""
    usual = flat(base)
    rows = [flat(cell) for cell in varied]
    free = {k for row in rows for k in row if any(row.get(k) != one.get(k) for one in rows)}
    told = []
    for title, cell in others.items():
        other = flat(cell)
        keys = [k for k in other if other[k] != usual.get(k) and k not in free]
        if keys:
            told.append(f"{title}: {', '.join(f'`{k} = {other[k]}`' for k in keys)}")
    return "; ".join(told)
