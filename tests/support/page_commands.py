"""Every `fedrl …` that README, CONTRIBUTING and docs show: in blocks, in tables, in sentences."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from fedrl import cli
from support.repository import DOCS, ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
FENCED = re.compile(r"^```.*?^```", re.S | re.M)
BLOCK_LINE = re.compile(r"^ {4,}([^`→\n]*?)(?: #.*)?$", re.M)
"""A line of an indented block, without its comment. One with a backtick is prose inside a list, one
with an arrow is a drawing."""
INLINE = re.compile(r"`([^`]+)`")
NESTED = re.compile(r"\$\((fedrl [^)]*)\)")
BETWEEN = re.compile(r" #|;|&&| &$|\|\| | \| |\bdo |\s{3,}|$", re.M)
"""What ends a command: a comment, another command, prose beside it."""
OPEN = re.compile(r"…|[\[\]]|\w\|\w|\$(?!PWD)")
"""What stands for something that the reader fills in."""
LOOPED = {"$seed": "0", "$s": "0", "$rows": "holders", "$k": "1"}
"""Variables of the loops that pages show, and one of their values."""


@dataclass(frozen=True)
class Shown:
    """A command, spaces made one, and the pages that have it; `inline`: none has it in a block."""

    line: str
    pages: tuple[str, ...]
    inline: bool

    @property
    def words(self) -> list[str]:
        """What follows `fedrl`, without what stands for more: `RUN…`, `[--own]`, `small|full`."""
        text = re.sub(r"(\w)\|[\w|]+", r"\1", self.line)
        text = re.sub(r"…|[\[\]]", "", text)
        for variable, value in LOOPED.items():
            text = text.replace(variable, value)
        return shlex.split(text)[1:]

    @property
    def whole(self) -> bool:
        return not OPEN.search(self.line)


def fenced_commands() -> list[str]:
    """None should be there: fenced blocks are what programs print, and files."""
    pages = (FENCED.findall(page.read_text("utf-8")) for page in PAGES)
    return [c for blocks in pages for c in re.findall(r"^(?:\$ )?fedrl .*", "".join(blocks), re.M)]


def shown() -> list[Shown]:
    places: dict[str, set[tuple[str, bool]]] = {}
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        text = re.sub(r" *\\\n +", " ", FENCED.sub("", page.read_text("utf-8")))
        for found in BLOCK_LINE.findall(text):
            for line in _commands(found):
                places.setdefault(line, set()).add((name, False))
        for found in INLINE.findall(BLOCK_LINE.sub("", text)):
            for line in _commands(" ".join(found.split())):
                places.setdefault(line, set()).add((name, True))
    return [
        Shown(line, tuple(sorted({page for page, _ in where})), all(inline for _, inline in where))
        for line, where in sorted(places.items())
    ]


def _commands(text: str) -> Iterator[str]:
    for nested in NESTED.findall(text):
        yield from _commands(nested)
    text = NESTED.sub("DIGEST", text)
    for part in BETWEEN.split(text):
        found = re.search(r"(?:^|[\s/])(fedrl ([a-z]+)\b.*)$", part)
        if found and found[2] in cli.COMMANDS:
            yield " ".join(found[1].split())


SHOWN = shown()


def runs() -> list[str]:
    """What follows `fedrl run` where it can be run as it stands: of a recipe that fedrl has."""
    found = [one for one in SHOWN if one.words[0] == "run" and "…" not in one.line]
    lines = [shlex.join(one.words[1:]) for one in found]
    own_file_or_form = re.compile(r"(^| )\./|\b[A-Z]{2,}\b|--seed S\b|\.toml|^$|^--")
    return sorted({line for line in lines if not own_file_or_form.search(line)})
