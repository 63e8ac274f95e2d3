"""What a model folder remembers of its warm start: the tasks that the model was shown.

They may be nobody's afterwards: a run refuses to train a client or to evaluate on one of them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedrl.core.source_code import without_folders
from fedrl.envs.text import Configured, Fingerprinted, TextWorld

FILE = "warmstart.json"


def shown_tasks(model: str) -> set[str]:
    """Ids of the tasks (or texts) that this model folder's warm start showed it."""
    return set(_record(model).get("tasks", ()))


def shown_among(model: str, world: TextWorld, tasks: Collection[str]) -> set[str]:
    """Which of these tasks of a world the model's warm start was shown, whatever they were called.

    Tasks with contents are compared by these: rows of two tables are numbered alike. Names decide
    where nothing else can: in other worlds, and of a record without contents in the same data.
    """
    record = _record(model)
    named = set(record.get("named", record.get("tasks", ())))
    if not isinstance(world, Fingerprinted):
        return named.intersection(tasks)
    if "contents" not in record:
        return named.intersection(tasks) if _same_data(record, world) else set()
    contents = set(record["contents"])
    if contents.isdisjoint(world.fingerprints(list(tasks))):
        return set()
    return {task for task in tasks if not contents.isdisjoint(world.fingerprints([task]))}


def shown_record(model: str, world: object, shown: Iterable[str]) -> dict[str, list[str]]:
    """All that a model has been shown once it is also shown these tasks: by id under "tasks", and
    of these under "contents" the digests of those that have such, under "named" the others."""
    record, now = _record(model), list(dict.fromkeys(shown))
    before = set(record.get("tasks", ()))
    contents = set(record.get("contents", ()))
    named = set(record.get("named", before))
    if isinstance(world, Fingerprinted):
        contents |= world.fingerprints(now)
    else:
        named.update(now)
    kept = {"tasks": [*sorted(before.difference(now)), *now], "named": sorted(named)}
    return kept | ({"contents": sorted(contents)} if contents else {})


def told_record(model: str) -> dict[str, Any]:
    """The record as others may have it: of files their names alone; empty if there is none."""
    record = _record(model)
    return record | {k: _without_folders(record[k]) for k in ("settings", "world") if k in record}


def _without_folders(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_folders(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_folders(each) for each in value]
    if not isinstance(value, str):
        return value
    here = value.startswith(".") or Path(value.partition(":")[0]).exists()
    return value if value.count("/") == 1 and not here else without_folders(value)  # an id of a hub


def _same_data(record: Mapping[str, Any], world: TextWorld) -> bool:
    """Whether the warm start was in this world with these data, as far as its record says."""
    then = record.get("world") or {}
    now = asdict(world.settings) if isinstance(world, Configured) else {}
    keys = [key for key in ("name", "source") if key in then]
    return all(then[key] in (now.get(key), _without_folders(now.get(key))) for key in keys)


def _record(model: str) -> dict[str, Any]:
    record = Path(model) / FILE
    return json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Keep how the model was made, and under "tasks" all that it has been shown."""
    text = json.dumps(record, indent=1) + "\n"
    (folder / FILE).write_text(text, encoding="utf-8")
