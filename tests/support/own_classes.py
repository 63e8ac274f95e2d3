"""Organisations with tasks for a text world of one's own, and with questions for a tool."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from fedrl.config.loading import resolve
from fedrl.config.schema import Config
from support.own_data import write_lines
from support.packages import install
from support.small_talkers import talker

PACKAGE = "own-quiz"
CODE = '''
import json
from dataclasses import dataclass
from pathlib import Path

from fedrl.envs.text import Task, Turn


@dataclass(frozen=True)
class QuizSettings:
    # A JSONL file: id, kind, split, question and answer of each task.
    source: str = "quiz.jsonl"
    max_steps: int = 2


class Asked:
    def __init__(self, row, limit):
        self.row, self.limit, self.steps, self.goal = row, limit, 0, row["question"]

    def step(self, command):
        self.steps += 1
        won = command.strip() == self.row["answer"]
        done = won or self.steps >= self.limit
        return Turn("yes" if won else "no", float(won), done, ["1", "2", "3"], {"won": won})


class Quiz:
    """questions of a file"""

    Settings, kinds = QuizSettings, ("text",)
    name, splits = "quiz", ("train", "test")

    def __init__(self, settings, clients, seed):
        self.max_steps = settings.max_steps
        lines = Path(settings.source).read_text(encoding="utf-8").splitlines()
        self.rows = {row["id"]: row for row in map(json.loads, lines)}

    def tasks(self, split):
        return [Task(id, row["kind"]) for id, row in self.rows.items() if row["split"] == split]

    def start(self, task, seed=0):
        episode = Asked(self.rows[task], self.max_steps)
        return episode, Turn(episode.goal, 0.0, False, ["1", "2", "3"], {"won": False})


@dataclass(frozen=True)
class NoSettings:
    pass


class Bare(Quiz):
    """reads nothing"""

    Settings = NoSettings


def price(item: str) -> int:
    """What an item costs.

    Args:
        item: its name
    """
    return {"tea": 4, "milk": 2}[item]


def right(prompts, completions, answer, **columns):
    return [float(said[-1]["content"].strip() == a) for said, a in zip(completions, answer)]
'''
TEMPLATE = (
    "{% if tools %}tools {{ tools | tojson }} {% endif %}"
    "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
)
WORDS = "what does tea milk cost ? yes no tools user assistant tool goal see act . : 0 8 9"
SIZES = {"north": 9, "south": 1, "west": 4, "public": 5}
"""To train on; `public` is only evaluated on."""
WORLDS = {
    "texts": {"name": "own_quiz:Quiz", "source": "quiz.jsonl"},
    "tools": {
        "name": "tools", "source": "quiz", "tools": ["own_quiz:price"],
        "reward": ["own_quiz:right"], "max_steps": 2, "category": "kind",
    },
}  # fmt: skip


def rows_of(member: str, canary: str = "") -> list[dict]:
    """Ids are the same in all folders; West has a kind of task that nobody else has."""
    kind = "rare" if member == "west" else "usual"
    splits = {"train": SIZES[member] * (member != "public"), "test": 2 if member != "south" else 0}
    if member == "public":
        splits["test"] = SIZES[member]
    return [
        {
            "id": f"{split}-{n}", "kind": kind, "split": split, "answer": str(1 + n % 3),
            "question": f"{member if member != 'west' else canary} {split} {n} what ?",
        }
        for split, count in splits.items()
        for n in range(count)
    ]  # fmt: skip


def write(folder: Path, members: Iterable[str] = SIZES, canary: str = "") -> Path:
    """Both forms of the same questions: one file for the world, files by split for the tool."""
    for member in members:
        rows = rows_of(member, canary)
        home = folder / "data" / member
        write_lines(home / "quiz.jsonl", map(json.dumps, rows))
        for split in ("train", "test"):
            asked = [
                {"prompt": [{"role": "user", "content": row["question"]}]} | row
                for row in rows
                if row["split"] == split
            ]
            if asked:
                write_lines(home / "quiz" / f"{split}.jsonl", map(json.dumps, asked))
    return folder


def make_model(folder: Path) -> Path:
    return talker(folder, WORDS, TEMPLATE, lively=True)


def install_code(folder: Path) -> Path:
    """The organisations' package; the folder goes on the path."""
    return install(folder, PACKAGE, CODE)


def recipe(kind: str, place: Path, model: Path, out: Path, *flags: str, **more) -> Config:
    tables = {
        "name": "test", "rounds": 2, "out": str(out),
        "federation": {"clients": 3},
        "algorithm": {
            "name": "fedagent", "model": str(model), "local_epochs": 1, "tasks": 2, "group": 3,
            "lr": 1e-2, "kl": 0.0, "answer_tokens": 2, "prompt_tokens": 300, "device": "cpu",
            "eval_split": "test",
        },
        "world": WORLDS[kind],
        "partition": {"strategy": "own", "folder": str(place / "data")},
    }  # fmt: skip
    for key, value in more.items():
        tables[key] = tables.get(key, {}) | value if isinstance(value, dict) else value
    return resolve(tables, flags)
