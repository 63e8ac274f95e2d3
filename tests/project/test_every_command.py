"""Every `fedrl` command that README and docs show, in a block, a table or a sentence, is understood
by the command line: its flags are there and its arguments can be read. That each is run, and by
what, test_commands_accounted.py says."""

from __future__ import annotations

import argparse
import re

import pytest
from support.page_commands import SHOWN, Shown, fenced_commands

from fedrl import api, cli
from fedrl.cli.parser import Parser
from fedrl.config.seeds import split_seeds
from fedrl.core.types import UserError

BY_HAND = ("list", "completion", "doctor")
"""Read without a parser, and tested in tests/cli."""
STANDS_FOR = {
    "N": "3", "S": "0", "$s": "0", "$seed": "0", "$rows": "holders", "KIND": "method",
    "WORLD": "household", "PAPER": "momentum", "PART": "figure2", "CLIENT": "0",
}  # fmt: skip
"""Words that a reader replaces, where a parser looks at them."""
PUBLISHED = {"NAME": "movielens"}
"""The same of `fedrl data`."""
SETTING = re.compile(r"--(world|partition|algorithm|federation|privacy|aggregate)\.[\w-]+")
RECIPES = ("momentum/cartpole", "fedagent/demo", "prompts/organisations")
"""What RECIPE may stand for: one of them has the settings that a page shows with it."""
NO_SETTING = ("--help", "--dry-run")
FLAGS_ALONE = {"fedrl run --engine flower", "fedrl run --resume", "fedrl run --resume RUN"}


class Parsed(Exception):
    pass


def test_commands_were_found():
    inline = [one for one in SHOWN if one.inline]
    assert len(SHOWN) > 350
    assert len(inline) > 150
    kinds = {one.words[0] for one in SHOWN}
    assert kinds == set(cli.COMMANDS)


def test_no_command_hides_in_what_programs_print():
    assert fenced_commands() == []


def replaced(one: Shown) -> list[str]:
    table = STANDS_FOR | (PUBLISHED if one.words[0] == "data" else {})
    return [table.get(word, word) for word in one.words]


@pytest.mark.parametrize(
    "one", [one for one in SHOWN if one.words[0] == "run"], ids=lambda one: one.line
)
def test_a_run_that_a_page_shows_can_be_configured(one: Shown):
    _, *words = replaced(one)
    words = [word for word in words if word not in NO_SETTING]
    if "--resume" in words or one.line in FLAGS_ALONE or not words:
        return
    if any(word.startswith("./") or word.endswith(".toml") for word in words):
        pytest.skip("a file that the reader writes: tests/project/test_docs.py runs those of pages")
    recipe = words.pop(0) if re.match(r"\w+/\w+|RECIPE", words[0]) else "RECIPE"
    doubts = [doubt(name, words) for name in (RECIPES if recipe == "RECIPE" else [recipe])]
    if one.whole:
        assert "" in doubts, doubts
    else:  # what stands for … may be what makes the rest fit together
        assert any("unknown" not in said for said in doubts), doubts


def doubt(recipe: str, flags: list[str]) -> str:
    try:
        seeds, shared = split_seeds(flags)
        configs = [api.configure(recipe, [*shared, *seed]) for seed in seeds]
        return "" if all(config.algorithm for config in configs) else "no algorithm"
    except UserError as error:
        return str(error)


@pytest.mark.parametrize(
    "one", [one for one in SHOWN if one.words[0] not in ("run", *BY_HAND)], ids=lambda one: one.line
)
def test_a_command_that_a_page_shows_is_understood(one: Shown, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Parser, "parse_known_args", read)
    monkeypatch.setattr(Parser, "parse_args", read_all)
    name, *words = (word for word in replaced(one) if word != "--help")
    if not words:
        assert cli.find(name)
        return
    with pytest.raises(Parsed):
        cli.find(name)(words)


def read_all(self, args=None, namespace=None):
    unknown = [word for word in flags_of(args) if word not in self._option_string_actions]
    assert not unknown, f"unrecognized arguments: {' '.join(unknown)}"
    parse(self, args, namespace)


def read(self, args=None, namespace=None):
    """Of commands that take settings of worlds and methods, too."""
    for word in flags_of(args):
        said = re.search(rf"{word}\b", self.epilog or "")
        assert said or word in self._option_string_actions or SETTING.fullmatch(word), word
    parse(self, args, namespace)


def parse(self, args, namespace):
    try:
        argparse.ArgumentParser.parse_known_args(self, args, namespace)
    except UserError as error:  # a sentence about a command need not say all of it
        if not re.search("arguments are required|expected one argument", str(error)):
            raise
    raise Parsed


def flags_of(args: list[str]) -> list[str]:
    own = args[: args.index("--")] if "--" in args else args
    return [word.partition("=")[0] for word in own if word.startswith("--")]
