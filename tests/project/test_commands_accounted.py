"""Every `fedrl …` that README and docs show, in a block, a table or a sentence, is accounted for:
run by a test that is named here, or there is a reason why not. A command that is only named, or
shown in its general form, counts where another of its kind is run."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest
from project import test_every_command_of_a_run as of_a_run
from project import test_every_run as of_a_recipe
from project import test_reader_paths as reader_paths
from support.page_commands import LOOPED, SHOWN, Shown
from support.repository import TESTS

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("torch", reason="needs the extra llm")
from project import test_commands_with_files as with_files
from project import test_federation_commands as of_a_federation
from project import test_flower_commands as of_flower

LISTS = {
    "test_every_run.py": {f"fedrl run {line}" for line in of_a_recipe.LEFT} | set(of_a_recipe.WARM),
    "test_every_command_of_a_run.py": set(of_a_run.LEFT),
    "test_commands_with_files.py": set(with_files.WITH_FILES),
    "test_flower_commands.py": set(of_flower.ALONE),
    "test_federation_commands.py, with machines": set(of_a_federation.FEDERATED),
    "test_reader_paths.py": {
        command.strip()
        for page in reader_paths.NEEDS
        for line in reader_paths.followed(page)
        for command in re.findall(r"fedrl [a-z][^;]*", line.split(" #")[0])
    },
}
"""Tests that take what they run from the pages: the commands of each."""
TABLES = tomllib.loads(Path(__file__).with_name("commands_accounted.toml").read_text("utf-8"))
ELSEWHERE: dict[str, list[str]] = TABLES["elsewhere"]
NOT_RUN: dict[str, list[str]] = TABLES["not_run"]


def by_table(line: str, rows: dict[str, list[str]]) -> str:
    return next(
        (name for name, kinds in rows.items() if any(re.search(k, line) for k in kinds)), ""
    )


def run_by(one: Shown) -> str:
    return listed(one) or by_table(one.line, ELSEWHERE)


def listed(one: Shown) -> str:
    line = " ".join(LOOPED.get(word, word) for word in one.line.split())
    return next((name for name, lines in LISTS.items() if {line, one.line} & lines), "")


def kind(one: Shown) -> tuple[str, ...]:
    return tuple(one.words[: 2 if one.words[0] == "flower" else 1])


def is_form(one: Shown) -> bool:
    """Only named, or with words in capitals for all that it is called with."""
    called = [word for word in one.words[len(kind(one)) :] if not word.startswith("-")]
    called = [] if one.line == "fedrl flower keys server" else called
    return not one.whole or all(re.fullmatch(r"[A-Z.a-z]*[A-Z]{2,}\S*|N|3", w) for w in called)


RUN = {kind(one) for one in SHOWN if run_by(one)}


@pytest.mark.parametrize("one", SHOWN, ids=lambda one: one.line)
def test_a_command_is_accounted_for(one: Shown):
    known = run_by(one) or by_table(one.line, NOT_RUN)
    assert known or (is_form(one) and (kind(one) in RUN or kind(one) == ("flower",))), one.pages


def test_most_are_run_from_the_page():
    assert len([one for one in SHOWN if listed(one)]) > 170


@pytest.mark.parametrize("named", ELSEWHERE)
def test_a_test_that_is_named_is_there(named: str):
    file, _, name = named.partition("::")
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    tests = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert name in tests


def test_every_row_is_of_some_command():
    lines = [one.line for one in SHOWN]
    kinds = [kind for rows in TABLES.values() for found in rows.values() for kind in found]
    assert [kind for kind in kinds if not any(re.search(kind, one) for one in lines)] == []
