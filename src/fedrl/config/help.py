"""`fedrl run RECIPE --help`: every setting of the recipe, its value and its meaning.

The meaning is the comment above a field of a settings class: written once, where the code is read.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from typing import Any

from rich.console import Console
from rich.table import Table

from fedrl.config import parts
from fedrl.config.schema import Config


def comments(cls: type) -> dict[str, str]:
    """The comment above each field of a dataclass, inherited ones too."""
    found: dict[str, str] = {}
    above: list[str] = []
    sources = [inspect.getsource(c) for c in cls.__mro__ if dataclasses.is_dataclass(c)]
    for line in "\n".join(sources).splitlines():
        text = line.strip()
        if text.startswith("#"):
            above.append(text.lstrip("# "))
        else:
            if match := re.match(r"(\w+):", text):
                found.setdefault(match[1], " ".join(above))
            above = []
    return found


def show(config: Config, prog: str) -> None:
    console = Console(highlight=False)
    console.print(f"usage: {prog} \\[--key VALUE …] \\[--seeds 0-9] \\[--dry-run]")
    console.print("       fedrl run --resume RUN        go on with a run that was stopped\n")
    top = [f for f in dataclasses.fields(config) if not _is_section(getattr(config, f.name))]
    console.print(_table("", config, [f.name for f in top]))
    for field in dataclasses.fields(config):
        section = getattr(config, field.name)
        if _is_section(section):
            console.print(f"\n\\[{field.name}] {_summary(type(section))}", style="bold")
            names = [f.name for f in dataclasses.fields(section)]
            console.print(_table(f"{field.name}.", section, names))


def _summary(settings: type) -> str:
    """The first line of its docstring, unless that is the signature that dataclasses write."""
    doc = inspect.getdoc(settings) or ""
    return "" if doc.startswith(f"{settings.__name__}(") else doc.partition("\n")[0]


def _choice(prefix: str, name: str, hint: Any) -> str:
    """The values to choose from, where there are few."""
    tables = {table.key: table for table in parts.TABLES.values()}
    if table := tables.get(prefix + name):
        return f"({', '.join(table)}, or your own: ./file.py:Name, package.module:Name)"
    values = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    return f"({', '.join(map(str, values))})" if values else ""


def _is_section(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _table(prefix: str, section: Any, names: list[str]) -> Table:
    meaning = comments(type(section))
    hints = typing.get_type_hints(type(section))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="cyan")
    table.add_column()
    for name in names:
        value = getattr(section, name)
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        choice = _choice(prefix, name, hints[name])
        table.add_row(f"  --{prefix}{name}", shown, f"{meaning.get(name, '')} {choice}".strip())
    return table
