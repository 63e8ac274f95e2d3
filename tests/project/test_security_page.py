"""docs/security.md: who can do what, every cell with a test that there is."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
WHO = ("An outsider", "A member", "The coordinator", "Two colluding", "Other users of a machine")
WHAT = ("read an update", "read data", "lower privacy", "stop a run", "spoil a run",
        "exhaust memory or disk")  # fmt: skip
WORDS = {"prevented", "detected", "possible"}
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
CELLS = [(who, what) for who in WHO for what in WHAT]


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


def section(who: str) -> dict[str, list[str]]:
    """By what is tried: word, why, tests."""
    _, _, rest = PAGE.partition(f"\n## {who}\n")
    found = rows(rest.partition("\n## ")[0])
    return {row[0]: row[1:] for row in found if row[0] in WHAT}


def overview() -> dict[tuple[str, str], str]:
    """The table on top, whose first column links to the sections."""
    found = rows(PAGE.partition("\n## ")[0])
    linked = {row[0].partition("[")[2].partition("]")[0].lower(): row[1:] for row in found}
    return {(who, what): linked[who.lower()][place]
            for who in WHO for place, what in enumerate(WHAT)}  # fmt: skip


@cache
def defined_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("who", "what"), CELLS)
def test_every_cell_says_what_and_why_and_names_tests_that_there_are(who: str, what: str):
    word, why, tests = section(who)[what]
    assert word in WORDS
    assert overview()[who, what] == word
    assert len(why.split()) >= 4, "no reason"
    named = NAMED.findall(tests)
    assert named, "no test"
    for path, name in named:
        assert (ROOT / path).is_file(), path
        assert name in defined_in(path), f"{path} has no {name}"


def test_nothing_else_is_named_and_everything_that_is_named_is():
    """A name that is misspelled so that it is no name of a test would be seen by nobody."""
    assert len(re.findall(r"test_\w+", PAGE)) == 2 * len(NAMED.findall(PAGE))


def test_a_name_that_is_wrong_would_be_found():
    assert "test_there_is_no_such" not in defined_in("tests/attacks/test_colluders.py")
    assert NAMED.findall("`tests/a/test_b.py::test_c`") == [("tests/a/test_b.py", "test_c")]
