"""Which test files pytest need not import, for an expression after `-m`."""

from __future__ import annotations

import re
from pathlib import Path

PYTESTMARK = re.compile(r"^pytestmark = (\[[^]]*\]|.*)$", re.MULTILINE)


def markers_of_file(path: Path) -> set[str]:
    """The markers that all tests of a file have, read from its text."""
    assigned = PYTESTMARK.search(path.read_text(encoding="utf-8"))
    return set(re.findall(r"\bmark\.(\w+)", assigned[1])) if assigned else set()


def left_out(expression: str) -> set[str]:
    """Markers whose tests `-m expression` leaves out: "not slow and not machines" names two. An
    expression of another form may take such tests back in, and names none."""
    if re.search(r"\bor\b|\(", expression):
        return set()
    parts = [re.fullmatch(r"not (\w+)", part.strip()) for part in expression.split(" and ")]
    return {part[1] for part in parts if part}
