"""`fedrl.new_package`: a package of one's own, with a test and a recipe that work at once."""

from __future__ import annotations

import importlib.util
import keyword
import re
from pathlib import Path
from typing import NamedTuple

from fedrl.config.parts import TABLES
from fedrl.core.limits import one_of
from fedrl.core.package_files import render
from fedrl.core.types import UserError


class Kind(NamedTuple):
    """What a package brings: the table of recipes that names it, and its example."""

    table: str
    is_class: bool
    summary: str


KINDS = {
    "method": Kind("algorithm", True, "policy gradients with weight decay"),
    "world": Kind("world", True, "a corridor, slippery for some clients"),
    "rule": Kind("aggregate", False, "the mean of the updates nearest to the median"),
}
FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "recipe.toml": "{kind}_recipe.toml",
    "src/{module}/__init__.py": "{kind}.py",
    "tests/test_{module}.py": "{kind}_test.py",
}
"""Files of a package, and their templates; `.jinja` is added."""


def new_package(kind: str, name: str, place: str | Path = "") -> Path:
    """Write a method, a world or a rule into a new folder `place/name`; where it is."""
    one_of("KIND", kind, list(KINDS))
    module, chosen = check_name(kind, name), KINDS[kind]
    camel_case = "".join(map(str.capitalize, module.split("_")))
    values = {
        "name": name,
        "module": module,
        "kind": kind,
        "table": chosen.table,
        "group": f"fedrl.{TABLES[chosen.table].group}",
        "thing": camel_case if chosen.is_class else module,
        "summary": chosen.summary,
    }
    texts = {
        file.format(**values): render(
            __package__, f"templates/{template.format(**values)}.jinja", **values
        )
        for file, template in FILES.items()
    }
    folder = Path(place) / name
    try:
        folder.mkdir(parents=True)
        for file, text in texts.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text.rstrip()}\n", encoding="utf-8")
    except FileExistsError as error:
        raise UserError(f"{folder} is there already: choose another name") from error
    except OSError as error:
        raise UserError(f"cannot write {error.filename}: {error.strerror}") from error
    return folder


def check_name(kind: str, name: str) -> str:
    """The module's name, if a package can be called so."""
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name) or keyword.iskeyword(module):
        raise UserError(
            f"{name!r} cannot be a package's name: small letters, digits and single hyphens, "
            "a letter first, such as my-method"
        )
    if name in TABLES[KINDS[kind].table]:
        raise UserError(f"there is a {kind} called {name!r} already: `fedrl list` shows them")
    if importlib.util.find_spec(module) is not None:
        raise UserError(f"Python has a module {module!r} here already: choose another name")
    return module
