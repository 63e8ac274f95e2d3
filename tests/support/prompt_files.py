"""Data of prompts for tests: sums as JSONL, and reward functions that are right or wrong."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from fedrl.envs.prompts.settings import Settings
from fedrl.envs.prompts.world import Prompts

ROWS = [
    {"prompt": f"{a}+{b}=", "answer": str(a + b), "kind": "small" if a + b < 10 else "large"}
    for a in range(10)
    for b in range(10)
]
REWARDS = """
def correct(prompts, completions, answer, **columns):
    return [float(said == right) for said, right in zip(completions, answer)]

def length(completions, **columns):
    return [len(said) / 10 for said in completions]

def some(completions, answer, **columns):
    return [None if right == "7" else 0.25 for right in answer]

def none(completions, **columns):
    return [None] * len(completions)

async def awaited(completions, **columns):
    return [float(len(said)) for said in completions]

def raises(prompts, **columns):
    raise KeyError(prompts[0])

def leaves(**columns):
    raise SystemExit(3)

def nan(completions, **columns):
    return [float("nan")] * len(completions)

def infinite(completions, **columns):
    return [1.0] * (len(completions) - 1) + [float("inf")]

def short(completions, **columns):
    return [1.0] * (len(completions) - 1)

def words(completions, **columns):
    return ["1.0"] * len(completions)

def number(completions, **columns):
    return 1.0

def missing(completions, solution, **columns):
    return [1.0] * len(completions)

def single(completions):
    return [1.0] * len(completions)

def every(prompts, completions, completion_ids, answer, kind, trainer_state, log_extra, log_metric):
    return [1.0] * len(completions)

constant = 3
"""


def write_rows(path: Path, rows: Iterable[dict] = ROWS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_rewards(folder: Path) -> Path:
    path = folder / "my_rewards.py"
    path.write_text(REWARDS)
    return path


def prompts(source: Path, reward: str | tuple[str, ...] = "exact_match", **more) -> Prompts:
    names = (reward,) if isinstance(reward, str) else reward
    return Prompts(Settings(source=str(source), reward=names, **more))
