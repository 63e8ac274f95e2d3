"""`fedrl partition`: what each client would hold, in words and, on demand, in a figure."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fedrl.analysis import partition_figure
from fedrl.core.types import UserError
from fedrl.partition import Measures, Settings, TaskLike, load_labels, measure, partition

FORMATS = (".png", ".svg", ".pdf")


def command(
    tasks: Sequence[TaskLike],
    clients: int,
    settings: Settings,
    seed: int,
    plot: str | Path | None = None,
    labels: Mapping[str, bool] | None = None,
) -> Iterator[str]:
    """Make the partition and measure it; lines to print. `labels` replace the file's.

    The figure is drawn after the last number is out: a full disk does not cost the numbers.
    """
    path = None if plot is None else figure_path(plot)
    if labels is None:
        labels = load_labels(settings)
    rows = partition(tasks, clients, settings, seed, labels)
    found = measure(rows, tasks, labels)

    def told() -> Iterator[str]:
        yield from lines(found)
        if path is not None:
            try:
                partition_figure.draw(rows, tasks, settings, found, labels, path)
            except OSError as error:
                raise UserError(
                    f"--plot {path}: cannot write it ({error.strerror or error})"
                ) from error
            yield f"figure: {path}"

    return told()


def figure_path(plot: str | Path) -> Path:
    """The file that a figure will be, or an error that says why it cannot be."""
    path = Path(plot)
    if not str(plot):
        raise UserError("--plot is empty; name a file such as clients.png")
    if os.path.isdir(path):  # unlike Path's own, false for a name too long for any folder
        raise UserError(f"--plot {plot} is a folder; name a file in it, such as clients.png")
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"--plot {plot}: name a .png, .svg or .pdf file, such as clients.png")
    if not os.path.isdir(path.parent):
        raise UserError(f"--plot {plot}: there is no folder {path.parent}; make it first")
    if not _writable(path):
        raise UserError(f"--plot {plot}: no file can be written there; name another place")
    return path


def _writable(path: Path) -> bool:
    if os.path.exists(path):
        return os.access(path, os.W_OK)
    try:  # permissions do not tell: a file system may be read-only, or no place for files at all
        with tempfile.TemporaryFile(dir=path.parent):
            return True
    except OSError:
        return False


def lines(found: Measures) -> list[str]:
    """The measures for a terminal, one characteristic a line."""
    scenes = f" and {found.scenes:,} scenes" if found.scenes > 1 else ""
    told = {
        "pool": f"{found.tasks:,} tasks in {_count(found.categories, 'category', 'categories')}"
        + scenes,
        "clients": f"{found.clients:,} with {_sizes(found)} each",
        "coverage": f"{found.coverage:.1%} of the pool lies with at least one client",
    }
    if found.clients > 1:
        told["sharing"] = (
            f"two clients have {found.overlap:.1%} of their tasks in common; a task that is held "
            f"lies with {found.clients_per_task:.2f} clients"
            if found.overlap
            else "no task lies with two clients"
        )
    told["categories"] = _divergence(found.category_divergence, found.category_chance)
    if scenes:
        told["scenes"] = _divergence(found.scene_divergence, found.scene_chance)
    if found.success_mean is not None:
        told["success"] = (
            f"rate {found.success_mean:.3f} ± {found.success_std:.3f} over clients "
            f"(variance {found.success_variance:.4f}; by chance ± {found.success_chance:.3f}); "
            f"of the pool {found.success_pool:.3f}"
        )
    return [
        *(f"{name:<12}{text}" for name, text in told.items()),
        "divergence: total variation, the share of a client's tasks to exchange for the mix of the",
        "pool, mean over clients; by chance: that of clients of these sizes that draw any tasks",
    ]


def _sizes(found: Measures) -> str:
    if found.size_min == found.size_max:
        return _count(found.size_min, "task", "tasks")
    return (
        f"{found.size_mean:.1f} ± {found.size_std:.1f} tasks "
        f"({found.size_min:,} to {found.size_max:,}, variance {found.size_variance:,.0f})"
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _divergence(found: float, chance: float) -> str:
    return f"divergence {found:.3f} (by chance {chance:.3f})"
