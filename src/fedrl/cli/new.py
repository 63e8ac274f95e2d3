"""`fedrl new`: a package of one's own, with a test and a recipe that work at once."""

import shlex
from pathlib import Path

from fedrl.cli.parser import Parser

NEW = """\
Write a small package into a new folder: a method, a world or a rule of aggregation, its test, a
recipe. It works as it is; from there on it is yours.

  fedrl new method my-method && pip install -e my-method pytest
  python -m pytest my-method && fedrl run my-method/recipe.toml
"""


def new(argv: list[str]) -> int:
    """A package of one's own: method, world or rule."""
    parser = Parser("fedrl new", description=NEW)
    parser.add_argument("kind", metavar="KIND", help="method, world or rule")
    parser.add_argument("name", metavar="NAME", help="its name in recipes, and its folder's")
    parser.add_argument(
        "--in", type=Path, default=Path(), metavar="FOLDER", dest="place", help="beside what; here"
    )
    asked = parser.parse_args(argv)
    from fedrl import api

    folder = api.new_package(asked.kind, asked.name, asked.place)
    print(f"{folder} is written; next:")
    for command in (
        ["pip", "install", "-e", str(folder), "pytest"],
        ["python", "-m", "pytest", str(folder)],
        ["fedrl", "run", str(folder / "recipe.toml")],
    ):
        print(f"  {shlex.join(command)}")
    return 0
