"""What a model folder remembers of its warm start: the tasks that the model was shown.

They may be nobody's afterwards: a run refuses to train a client or to evaluate on one of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = "warmstart.json"


def shown_tasks(model: str) -> set[str]:
    """Ids of the tasks (or texts) that this model folder's warm start showed it."""
    record = Path(model) / FILE
    return (
        set(json.loads(record.read_text(encoding="utf-8"))["tasks"]) if record.is_file() else set()
    )


def shown_contents(model: str) -> set[str]:
    """Digests of what these tasks hold, where their world has such (`Fingerprinted`)."""
    record = Path(model) / FILE
    if not record.is_file():
        return set()
    return set(json.loads(record.read_text(encoding="utf-8")).get("contents", ()))


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Keep how the model was made, and under "tasks" all that it has been shown."""
    text = json.dumps(record, indent=1) + "\n"
    (folder / FILE).write_text(text, encoding="utf-8")
