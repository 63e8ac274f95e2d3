"""Which tasks succeed: a JSON file `{"task id": true, …}`, plain or .gz, one entry for every task.

Whoever has rolled out a model on the tasks writes it with `write_labels`. Labels of other people's
may lack some of a world's tasks: `unlabelled = "leave_out"` then deals out the others alone.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from fedrl.core import seeding
from fedrl.core.types import UserError
from fedrl.partition.settings import Settings, TaskLike, require_seed

FORMAT = 'a JSON object {"task id": true or false} (fedrl.partition.write_labels writes it)'


def read_labels(path: str | Path) -> dict[str, bool]:
    try:
        raw = Path(path).read_bytes()
        labels = json.loads(gzip.decompress(raw) if Path(path).suffix == ".gz" else raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: not a .gz file: {error}") from error
    except OSError as error:
        raise UserError(
            f"{path}: cannot read the labels ({error.strerror}); they are {FORMAT}"
        ) from error
    except ValueError as error:
        raise UserError(f"{path}: not a JSON file of labels: {error}") from error
    if not isinstance(labels, dict):
        raise UserError(f"{path}: labels are {FORMAT}")
    for task, label in labels.items():
        if not isinstance(label, bool):
            raise UserError(f"{path}: the label of {task!r} is {label!r}; it must be true or false")
    return labels


def write_labels(path: str | Path, labels: Mapping[str, bool]) -> None:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    ordered = {task: bool(labels[task]) for task in sorted(labels)}
    path.write_text(json.dumps(ordered, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


def load_labels(settings: Settings) -> dict[str, bool] | None:
    """The labels that the settings name, if any."""
    return read_labels(settings.labels) if settings.labels else None


def draw_labels(tasks: Iterable[TaskLike], rate: float, seed: int) -> dict[str, bool]:
    """Made-up labels, each task successful with probability `rate`: for a look at a partition."""
    if not 0 <= rate <= 1:
        raise UserError(f"the success rate is {rate}; it is a share from 0 to 1")
    require_seed(seed)
    ids = sorted(task.id for task in tasks)
    drawn = seeding.generator(seed, "partition labels").random(len(ids)) < rate
    return dict(zip(ids, drawn.tolist(), strict=True))


def pool_of(
    tasks: Sequence[TaskLike], settings: Settings, labels: Mapping[str, bool] | None
) -> Sequence[TaskLike]:
    """What is dealt out: all tasks, or those that the labels speak of."""
    if labels is None or settings.unlabelled == "refuse":
        return tasks
    known = [task for task in tasks if task.id in labels]
    if not known:
        raise UserError(
            f"labels says nothing of any of the {len(tasks)} tasks: it is of another world"
        )
    return known


def successes(tasks: Sequence[TaskLike], labels: Mapping[str, bool] | None) -> np.ndarray:
    """Whether each task succeeds [N]."""
    if labels is None:
        raise UserError(
            f"strategy hardness needs labels, the file that says which tasks succeed: {FORMAT}; "
            "for a look with made-up labels `fedrl partition` has --success-rate P"
        )
    unknown = [task.id for task in tasks if task.id not in labels]
    if unknown:
        raise UserError(
            f"labels says nothing of {len(unknown)} of {len(tasks)} tasks, such as {unknown[0]!r}: "
            'it needs true or false for every task, or unlabelled = "leave_out"'
        )
    return np.array([labels[task.id] for task in tasks], dtype=bool)
