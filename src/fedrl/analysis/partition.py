"""`fedrl partition`: what each client would hold, and in words how much they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedrl.partition import Measures, Settings, TaskLike, load_labels, measure, partition
from fedrl.partition.labels import pool_of


@dataclass(frozen=True)
class PartitionReport:
    """Which tasks each client holds (`shares`, ids), and how much the clients differ.

    `notes` are sentences about settings that do nothing here, `own` those about what lies in the
    clients' own folders, where they bring such.
    """

    tasks: Sequence[TaskLike]
    settings: Settings
    shares: list[list[str]]
    measures: Measures
    labels: Mapping[str, bool] | None
    notes: Sequence[str] = ()
    own: Sequence[str] = ()


def deal(
    tasks: Sequence[TaskLike],
    clients: int,
    settings: Settings,
    seed: int,
    labels: Mapping[str, bool] | None = None,
    notes: Sequence[str] = (),
) -> PartitionReport:
    """Make the partition and measure it; `labels` replace the file's."""
    if labels is None:
        labels = load_labels(settings)
    shares = partition(tasks, clients, settings, seed, labels)
    pool = pool_of(tasks, settings, labels)
    measures = measure(shares, pool, labels)
    return PartitionReport(pool, settings, shares, measures, labels, notes)


def lines(measures: Measures) -> list[str]:
    """The measures for a terminal, one characteristic a line."""
    scenes = f" and {measures.scenes:,} scenes" if measures.scenes > 1 else ""
    rows = {
        "pool": f"{measures.tasks:,} tasks in "
        f"{_count(measures.categories, 'category', 'categories')}{scenes}",
        "clients": f"{measures.clients:,} with {_sizes(measures)} each",
        "coverage": f"{measures.coverage:.1%} of the pool lies with at least one client",
    }
    if measures.clients > 1:
        rows["sharing"] = (
            f"two clients have {measures.overlap:.1%} of their tasks in common; a task that is "
            f"held lies with {measures.clients_per_task:.2f} clients"
            if measures.overlap
            else "no task lies with two clients"
        )
    rows["categories"] = _divergence(measures.category_divergence, measures.category_chance)
    if scenes:
        rows["scenes"] = _divergence(measures.scene_divergence, measures.scene_chance)
    if measures.success_mean is not None:
        rows["success"] = (
            f"rate {measures.success_mean:.3f} ± {measures.success_std:.3f} over clients "
            f"(variance {measures.success_variance:.4f}; "
            f"by chance ± {measures.success_chance:.3f}); of the pool {measures.success_pool:.3f}"
        )
    return [
        *(f"{name:<12}{text}" for name, text in rows.items()),
        "divergence: total variation, the share of a client's tasks to exchange for the mix of the",
        "pool, mean over clients; by chance: that of clients of these sizes that draw any tasks",
    ]


def _sizes(measures: Measures) -> str:
    if measures.size_min == measures.size_max:
        return _count(measures.size_min, "task", "tasks")
    return (
        f"{measures.size_mean:.1f} ± {measures.size_std:.1f} tasks "
        f"({measures.size_min:,} to {measures.size_max:,}, variance {measures.size_variance:,.0f})"
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _divergence(measured: float, chance: float) -> str:
    return f"divergence {measured:.3f} (by chance {chance:.3f})"
