"""Complete examples of a documentation page, as the files that a reader would save them as."""

from __future__ import annotations

import re
from pathlib import Path

from support.repository import DOCS

EXAMPLE = re.compile(r"<!-- example -->\n```python\n(.*?)```", re.DOTALL)


def saved_examples(page: str, folder: Path) -> dict[str, str]:
    """By the name of its class, what a recipe calls each: `/folder/Name.py:Name`."""
    names = {}
    for code in EXAMPLE.findall((DOCS / page).read_text(encoding="utf-8")):
        (name,) = re.findall(r"^class (\w+)", code, re.MULTILINE)
        assert len([line for line in code.splitlines() if line.strip()]) <= 40, name
        file = folder / f"{name}.py"
        file.write_text(code, encoding="utf-8")
        names[name] = f"{file}:{name}"
    return names
