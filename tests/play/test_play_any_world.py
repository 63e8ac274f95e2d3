"""Any text world in the terminal: what a person types, what it costs and what they see."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.prompt_files import prompts, write_rows

from fedrl.cli.play import play as command
from fedrl.core.types import UserError
from fedrl.envs.text import Task, Turn
from fedrl.play.any_world import play


class Door:
    """It opens at the second knock."""

    name, splits, max_steps, knocks = "door", ("train", "test"), 3, 0
    goal = "get in"

    def tasks(self, split: str) -> list[Task]:
        return [Task("the-door", "door")] if split == "train" else []

    def start(self, task: str, seed: int = 0) -> tuple[Door, Turn]:
        self.knocks = 0
        return self, Turn("a door", 0.0, False, ["knock"], {"won": False})

    def step(self, command: str) -> Turn:
        self.knocks += command == "knock"
        won = self.knocks == 2
        return Turn("open" if won else "closed", float(won), won, ["knock"], {"won": won})


def typed(*words: str):
    left = list(words)

    def ask(prompt: str) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    return ask


def test_words_of_the_page_cost_no_step(capsys):
    assert play(Door(), "train", None, typed("?", "hint", "", "knock", "sing", "knock", "n")) == 0
    told = capsys.readouterr().out
    assert told.count("Type a command") == 1
    assert "1  knock" in told
    assert "this world has no expert" in told
    assert "Won after 3 steps: reward 1." in told


def test_the_step_limit_ends_a_task_and_another_may_follow(capsys):
    assert (
        play(Door(), "train", "the-door", typed("a", "b", "c", "y", "knock", "next", "quit")) == 0
    )
    told = capsys.readouterr().out
    assert "Not won after 3 steps: reward 0." in told
    assert "left after 1 step" in told
    assert told.count("task the-door") == 3
    with pytest.raises(UserError, match="has no tasks"):
        play(Door(), "test", None, typed())


def test_ctrl_c_leaves(capsys):
    def interrupted(prompt: str) -> str:
        raise KeyboardInterrupt

    assert play(Door(), "train", None, interrupted) == 130


def test_a_prompt_is_answered_and_paid(tmp_path: Path, capsys):
    world = prompts(write_rows(tmp_path / "sums.jsonl"), answer="answer")
    assert play(world, "train", "row-0000034", typed("hint", "7")) == 0
    told = capsys.readouterr().out
    assert "3+4=" in told
    assert "reward 1" in told


def test_the_command_takes_any_text_world_and_no_other(tmp_path: Path, monkeypatch, capsys):
    source = write_rows(tmp_path / "sums.jsonl")
    monkeypatch.setattr("builtins.input", lambda prompt: "quit")
    words = ["--world.source", str(source), "--world.reward", "exact_match"]
    assert command(["prompts", *words]) == 0
    with pytest.raises(UserError, match="cartpole is no text world; choose from household"):
        command(["cartpole"])
    with pytest.raises(UserError, match="--port is for the shop's page; prompts is played"):
        command(["prompts", *words, "--port", "80"])
    with pytest.raises(SystemExit):
        command(["prompts", "--help"])
    assert "--world.split-seed 0" in capsys.readouterr().out
