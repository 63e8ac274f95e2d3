"""How many tasks a language agent is evaluated on: kept in meta.json, and said where it is few."""

from __future__ import annotations

from fedrl.core.number_format import counted
from fedrl.core.types import Algorithm
from fedrl.runs.evaluate import PlaysTasks

KEY = "evaluated_tasks"
FEW = 30
"""Below this a task is more than three points, and an interval of 95% some 35 wide."""


def evaluated_tasks(algorithm: Algorithm) -> int:
    """0 where nobody evaluates on tasks here: of other methods, and where clients do it."""
    if getattr(getattr(algorithm, "dealt", None), "held_out", "") == "clients":
        return 0
    return len(algorithm.eval_tasks) if isinstance(algorithm, PlaysTasks) else 0


def few_tasks(count: int) -> str:
    """A line where the evaluation is small, else nothing."""
    if not 0 < count < FEW:
        return ""
    return (
        f"evaluated on {counted(count, 'task')}: one task is {100 / count:.2g} points, so that "
        "chance decides what changes from round to round (algorithm.eval_tasks; hold out more)"
    )
