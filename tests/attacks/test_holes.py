"""The list of holes: each has tests that there are, and one of them or its search is in here."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
HOLES = tomllib.loads((HERE / "holes.toml").read_text(encoding="utf-8"))["hole"]


@pytest.mark.parametrize("hole", HOLES, ids=lambda hole: hole["was"][:40])
def test_every_hole_has_its_tests(hole: dict):
    named = [*hole["tests"], *([hole["search"]] if "search" in hole else [])]
    assert hole["tests"]
    for one in named:
        path, _, name = one.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, one
    assert any(one.startswith("tests/attacks/") for one in named)


def test_no_hole_is_listed_twice_and_every_file_here_is_of_one():
    """Files of attacks that no hole names are those of what stays possible, and this."""
    words = [hole["was"] for hole in HOLES]
    assert len(set(words)) == len(words)
    named = {one.partition("::")[0] for hole in HOLES
             for one in [*hole["tests"], hole.get("search", "")]}  # fmt: skip
    there = {f"tests/attacks/{path.name}" for path in HERE.glob("test_*.py")}
    apart = {"tests/attacks/test_holes.py", "tests/attacks/test_what_stays_possible.py"}
    assert there - named == apart
