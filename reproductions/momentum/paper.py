"""The momentum paper, measured: all cells of a scale, tuned step sizes first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fedrl.runs.process_pool import cores
from reproductions.momentum import cells as plan
from reproductions.momentum.page import write
from reproductions.seed_cells import Cell, Measured, measure

Say = Callable[[str], None]
Found = dict[str, Measured]

PARTS = (
    *plan.PARTS,
    "cartpole",
    "equal_step",
    "figure2",
    "walker2d",
    "halfcheetah",
)


@dataclass
class Results:
    """By part, what was measured; and the step sizes that tuning chose."""

    parts: dict[str, Found] = field(default_factory=dict)
    rates: dict[str, dict[tuple[str, float], float]] = field(default_factory=dict)


def measure_all(scale: str, only: tuple[str, ...], folder: Path, say: Say) -> Results:
    """Compute the wanted parts that are missing; read whatever there is of the others."""
    sizes = plan.SCALES[scale]
    results = Results()

    def get(part: str, cells: list[Cell], processes: int) -> Found:
        wanted = not only or part.removeprefix("tune_").removeprefix("figure1_") in only
        return measure(folder, cells, say, processes if wanted else 0)

    for part, cells in plan.PARTS.items():
        results.parts[part] = get(part, cells(sizes), 1)
    tasks = plan.tasks(sizes)
    for key in ("cartpole", "walker2d", "halfcheetah"):
        task = tasks[key]
        learners = sizes.learners
        tuned = get(f"tune_{key}", plan.tuning(key, task, learners), cores())
        if len(tuned) < len(learners) * len(task.rates):
            continue
        results.parts[f"tune_{key}"] = tuned
        results.rates[key] = plan.chosen(tuned, task, learners)
        figure = plan.figure1(key, task, results.rates[key])
        results.parts[f"figure1_{key}"] = get(f"figure1_{key}", figure, cores())
        if key == "cartpole":
            results.parts["equal_step"] = get(
                "equal_step", plan.equal_step(task, learners), cores()
            )
            second = plan.figure2(task, results.rates[key], sizes.agents)
            results.parts["figure2"] = get("figure2", second, cores())
    return results


def write_page(results: Results, scale: str, page: Path) -> None:
    write(results.parts, plan.tasks(plan.SCALES[scale]), scale, page)
