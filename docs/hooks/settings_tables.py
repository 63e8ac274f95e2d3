"""Tables of settings and of recipes, written from the code when the site is built.

    <!-- settings: algorithm fedqhd -->      of a method: its own first, then those of its family
    <!-- settings: algorithm qavg: lr samples -->  these first, and the others folded
    <!-- settings: world cartpole -->        of a world
    <!-- settings: privacy -->               of a table of every recipe
    <!-- recipes -->                         what comes with fedrl, each with its first line
    <!-- recipe: momentum/cartpole -->       that file, folded
    <!-- every recipe -->                    all files, folded

The meaning of a setting is the comment above its field, which `fedrl run RECIPE --help` prints too,
and its symbol is the one that the comment names.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Collection

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

from fedrl.api.listing import catalogue
from fedrl.config import parts
from fedrl.config.help import comments
from fedrl.config.loading import find_recipe, recipes_folder
from fedrl.config.schema import Config

MARK = re.compile(r"^<!-- settings: (\w+)(?: ([\w-]+))?(?:: ([\w ]+))? -->$", re.M)
EVERY = "<!-- every recipe -->"
RECIPE = re.compile(r"^<!-- recipe: ([\w/]+) -->$", re.M)
SYMBOL = re.compile(
    r"^([A-Za-zα-ω](?:_\w)?)(?=:| of | in | at )|^(?:[A-Za-z]+,? ){1,4}([α-ω])(?=[.;:]| in \()"
)
"""At the beginning of a comment ("K: local steps"), or behind a few words ("Discount γ.")."""
MANY = 16
"""Settings that a page shows at once; more are folded, or nobody finds what follows them."""


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    written = MARK.sub(lambda found: table(found[1], found[2] or "", found[3] or ""), markdown)
    written = written.replace("<!-- recipes -->", recipes())
    every = "\n".join(recipe_file(name) for name in catalogue().recipes)
    return RECIPE.sub(lambda found: recipe_file(found[1]), written.replace(EVERY, every))


def recipe_file(name: str) -> str:
    """What the file says, behind a line that opens."""
    path = find_recipe(name)
    text = path.read_text(encoding="utf-8").rstrip().replace("\n", "\n    ")
    place = path.relative_to(recipes_folder().parent).as_posix()
    return f'??? note "{place}"\n\n    ```toml\n    {text}\n    ```\n'


def recipes() -> str:
    """Every recipe and sweep with the line that says what it is."""
    found = catalogue()
    lines = ["| command | what |", "| --- | --- |"]
    for word, named in (("run", found.recipes), ("sweep", found.sweeps)):
        lines += [f"| `fedrl {word} {name}` | {escaped(text)} |" for name, text in named.items()]
    return "\n".join(lines)


def table(section: str, name: str, first: str = "") -> str:
    """The table of one settings class, in Markdown; those of `first` before all others."""
    if not name:
        settings = type(getattr(Config(), section))
        return rows(section, settings, [f.name for f in dataclasses.fields(settings)], {})
    part = parts.find(section, name)
    fields = [f.name for f in dataclasses.fields(part.settings)]
    said = first.split() or written_in(part.settings)
    own = first.split() or [f for f in fields if f in said]
    family = [f for f in fields if f not in said and f != "name"]
    text = rows(section, part.settings, own or fields, part.defaults)
    if len(own or fields) > MANY:
        inner = text.replace("\n", "\n    ")
        text = f'??? note "All {len(own or fields)} settings, with defaults"\n\n    {inner}\n'
    if own and family:
        inner = rows(section, part.settings, family, part.defaults).replace("\n", "\n    ")
        text += f'\n\n??? note "Settings of its family"\n\n    {inner}\n'
    return text


def written_in(settings: type) -> set[str]:
    """Fields that the class itself writes down, new ones and other defaults."""
    for cls in settings.__mro__:
        own = set(inspect.get_annotations(cls)) - {"name"}
        if own:
            return own
    return set()


def rows(section: str, settings: type, names: Collection[str], changed: typing.Mapping) -> str:
    meaning, hints = comments(settings), typing.get_type_hints(settings)
    head = ("setting", "default", "symbol", "meaning")
    cells: list[tuple[str, str, str, str]] = []
    defaults = {f.name: default(f) for f in dataclasses.fields(settings)}
    for name in names:
        if name == "name":
            continue
        text = meaning.get(name, "")
        found = SYMBOL.search(text)
        symbol = (found[1] or found[2]) if found else ""
        if choice := choices(hints[name]):
            text += f" ({choice})"
        value = changed.get(name, defaults[name])
        cells.append((f"`{name}`", said(value), symbol, escaped(text)))
    kept = [0, 1, 3] if not any(cell[2] for cell in cells) else [0, 1, 2, 3]
    return "\n".join(
        "| " + " | ".join(row[column].replace("|", "\\|") for column in kept) + " |"
        for row in (head, ("---",) * 4, *cells)
    )


def escaped(text: str) -> str:
    """A comment as Markdown: what is in backticks stays, the rest has no marks of its own."""
    parts = text.split("`")
    parts[::2] = [p.replace("<", "&lt;").replace("*", r"\*") for p in parts[::2]]
    return "`".join(parts)


def default(field: dataclasses.Field) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def said(value: object) -> str:
    """A default as a recipe would say it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return str(value) if value != "" else "empty"


def choices(hint: object) -> str:
    values = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    return ", ".join(f"`{value}`" for value in values)
