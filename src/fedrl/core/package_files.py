"""Files beside the code, which the wheel carries along: tables, style sheets, page templates."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from fedrl.core.types import Json

if TYPE_CHECKING:
    from jinja2 import Environment

UNPRINTABLE = {code: "\N{REPLACEMENT CHARACTER}" for code in range(32) if chr(code) not in "\n\t"}
"""HTML cannot carry control characters, not even escaped."""


def package_text(package: str, name: str) -> str:
    """The file `name` in the folder of `package` (a module's `__package__`)."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def package_toml(package: str, name: str) -> Json:
    """The tables of the TOML file `name` in the folder of `package`."""
    return tomllib.loads(package_text(package, name))


def render(package: str, name: str, /, **values: object) -> str:
    """The page that the template `name` in the folder of `package` makes of the values.

    Values are text and come out escaped; only what a template marks as safe is HTML already.
    """
    page = _templates(package).get_template(name).render(values)
    return page.lstrip()  # the lines of macros, which stand before it


@cache
def _templates(package: str) -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        loader=FunctionLoader(lambda name: package_text(package, name)),
        autoescape=True,
        finalize=lambda value: value.translate(UNPRINTABLE) if isinstance(value, str) else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
