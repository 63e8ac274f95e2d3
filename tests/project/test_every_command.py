"""Every `fedrl` command that README and docs show is understood by the command line: its flags are
there and its arguments can be read. `fedrl run` is resolved by test_docs_commands.py; the paths of
docs/start are run by test_reader_paths.py."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest
from support.repository import DOCS, ROOT

from fedrl import cli
from fedrl.cli.parser import Parser
from fedrl.core.types import UserError

PAGES = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md",
    *(page for page in sorted(DOCS.rglob("*.md")) if "results" not in page.parts),
]  # fmt: skip
NO_PARSER = ("run", "list", "completion")
"""Read by hand, and tested elsewhere."""
STANDS_FOR = re.compile(r"…|[<>|$`]")


class Parsed(Exception):
    pass


def shown(page: Path) -> list[str]:
    """Commands in indented blocks, lines joined where they go on; comments are left out."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.S).replace("\\\n", " ")
    found = re.findall(r"^ {4}(?:.*?[;&] *|.*?\bdo )?(fedrl [a-z].*)$", text, re.M)
    return [line.split(" #")[0].split("; done")[0].split(" && ")[0].strip() for line in found]


COMMANDS = sorted({
    line
    for page in PAGES
    for line in shown(page)
    if not STANDS_FOR.search(line) and line.split()[1] not in NO_PARSER
})  # fmt: skip


def test_commands_were_found():
    kinds = {line.split()[1] for line in COMMANDS}
    assert len(COMMANDS) > 60
    assert kinds > {"report", "sweep", "watch", "eval", "export", "flower", "warmstart", "plan"}


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_that_a_page_shows_is_understood(line: str, monkeypatch):
    def stop(self, args=None, namespace=None):
        found, rest = argparse.ArgumentParser.parse_known_args(self, args, namespace)
        raise Parsed(found, rest)

    def whole(self, args=None, namespace=None):
        found, rest = argparse.ArgumentParser.parse_known_args(self, args, namespace)
        if rest:
            raise UserError(f"unrecognized arguments: {' '.join(rest)}")
        raise Parsed(found, rest)

    monkeypatch.setattr(Parser, "parse_known_args", stop)
    monkeypatch.setattr(Parser, "parse_args", whole)
    _, name, *words = shlex.split(line)
    with pytest.raises(Parsed) as told:
        cli.find(name)(words)
    _, rest = told.value.args
    for word in rest:
        if word.startswith("--"):
            assert re.match(r"--(world|partition|algorithm|federation|privacy)\.|--[a-z_-]+$", word)
