"""`fedrl partition`: what each client would hold, in words and, on demand, in a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedrl.experiment import partition_plot
from fedrl.partition import Measures, Settings, TaskLike, load_labels, measure, partition


def command(
    tasks: Sequence[TaskLike],
    clients: int,
    settings: Settings,
    seed: int,
    plot: Path | None = None,
    labels: Mapping[str, bool] | None = None,
) -> list[str]:
    """Make the partition, measure it and draw it; what to print. `labels` replace the file's."""
    if labels is None:
        labels = load_labels(settings)
    rows = partition(tasks, clients, settings, seed, labels)
    found = measure(rows, tasks, labels)
    told = lines(found)
    if plot is not None:
        partition_plot.draw(rows, tasks, settings, found, labels, plot)
        told.append(f"figure: {plot}")
    return told


def lines(found: Measures) -> list[str]:
    """The measures for a terminal, one characteristic a line."""
    placed = round(found.clients * found.size_mean)
    told = [
        f"{'clients':<12}{found.clients:,} with {placed:,} tasks in all",
        f"{'sizes':<12}{found.size_mean:.1f} ± {found.size_std:.1f} tasks, "
        f"{found.size_min:,} to {found.size_max:,}",
        _distance("categories", found.categories, found.category_divergence, found.category_chance),
    ]
    if found.scenes > 1:
        told.append(_distance("scenes", found.scenes, found.scene_divergence, found.scene_chance))
    if found.success_mean is not None:
        told.append(
            f"{'success':<12}{found.success_mean:.3f} ± {found.success_std:.3f} of a client's "
            f"tasks (chance alone: ± {found.success_chance:.3f}); pool {found.success_pool:.3f}"
        )
    told.append(
        f"{'coverage':<12}{found.coverage:.1%} of {found.tasks:,} tasks, each held by "
        f"{found.clients_per_task:.2f} clients; two clients share {found.overlap:.1%}"
    )
    return told


def _distance(name: str, kinds: int, found: float, chance: float) -> str:
    return (
        f"{name:<12}{kinds:,}; a client's shares are {found:.3f} from the pool's "
        f"in total variation (chance alone: {chance:.3f})"
    )
