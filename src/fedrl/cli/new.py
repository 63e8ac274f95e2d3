"""`fedrl new`: a package of one's own, with a test and a recipe that work at once."""

import argparse
import importlib.util
import keyword
import re
from pathlib import Path
from typing import NamedTuple

from fedrl.cli.parser import Parser
from fedrl.core.types import UserError

NEW = """\
Write a small package into a new folder: a method, a world or a rule of aggregation, its test, a
recipe. It works as it is; from there on it is yours.

  fedrl new method my-method && pip install -e my-method
  pytest my-method && fedrl run my-method/recipe.toml
"""


class Kind(NamedTuple):
    """What a package brings: the group of its entry point, and how its name is written in code."""

    group: str
    is_class: bool
    summary: str


KINDS = {
    "method": Kind("fedrl.algorithms", True, "policy gradients with weight decay"),
    "world": Kind("fedrl.worlds", True, "a corridor, slippery for some clients"),
    "rule": Kind("fedrl.aggregators", False, "the mean of the updates nearest to the median"),
}
FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "recipe.toml": "{kind}_recipe.toml",
    "src/{module}/__init__.py": "{kind}.py",
    "tests/test_{module}.py": "{kind}_test.py",
}
"""Files of a package, and their templates; `.jinja` is added."""


def new(argv: list[str]) -> int:
    """A package of one's own: method, world or rule."""
    parser = Parser(
        "fedrl new", description=NEW, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=tuple(KINDS), metavar="KIND", help="method, world or rule")
    parser.add_argument("name", metavar="NAME", help="its name in recipes, and its folder's")
    parser.add_argument(
        "--in", type=Path, default=Path(), metavar="FOLDER", dest="place", help="beside what; here"
    )
    asked = parser.parse_args(argv)
    folder = write(asked.kind, asked.name, asked.place)
    print(f"{folder} is written; next:")
    print(f"  pip install -e {folder}")
    print(f"  pytest {folder}")
    print(f"  fedrl run {folder / 'recipe.toml'}")
    return 0


def write(kind: str, name: str, place: Path) -> Path:
    """The package in a new folder of its name; nothing is left of one that cannot be written."""
    from fedrl.core.package_files import render

    module = check(kind, name)
    camel_case = "".join(map(str.capitalize, module.split("_")))
    folder = place / name
    values = {
        "name": name,
        "module": module,
        "kind": kind,
        "thing": camel_case if KINDS[kind].is_class else module,
        "group": KINDS[kind].group,
        "summary": KINDS[kind].summary,
    }
    texts = {
        file.format(**values): render(__package__, _template(source, kind), **values)
        for file, source in FILES.items()
    }
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


def _template(source: str, kind: str) -> str:
    return f"templates/{source.format(kind=kind)}.jinja"


def check(kind: str, name: str) -> str:
    """The module's name, if a package can be called so."""
    from fedrl.config.parts import TABLES

    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name) or keyword.iskeyword(module):
        raise UserError(
            f"{name!r} cannot be a package's name: small letters, digits and single hyphens, "
            "a letter first, such as my-method"
        )
    table = {"method": "algorithm", "world": "world", "rule": "aggregate"}[kind]
    if name in TABLES[table]:
        raise UserError(f"there is a {kind} called {name!r} already: `fedrl list` shows them")
    if importlib.util.find_spec(module) is not None:
        raise UserError(f"Python has a module {module!r} here already: choose another name")
    return module
