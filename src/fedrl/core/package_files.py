"""Files beside the code, which the wheel carries along: tables to read and change, style sheets."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

Tables = dict[str, Any]
"""What a TOML file holds, before a reader gives it types."""


def package_text(package: str, name: str) -> str:
    """The file `name` in the folder of `package` (a module's `__package__`)."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def package_toml(package: str, name: str) -> Tables:
    """The tables of the TOML file `name` in the folder of `package`."""
    return tomllib.loads(package_text(package, name))
