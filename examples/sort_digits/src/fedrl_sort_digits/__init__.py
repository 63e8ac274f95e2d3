"""Digits to put in order: a data set of prompts, and reward functions in TRL's signature.

`python -m fedrl_sort_digits FOLDER` writes train.jsonl, test.jsonl and public.jsonl with lines like
{"prompt": "up 4172=", "answer": "1247", "kind": "up"}. With `--organisations` it writes a folder of
such files for each of three organisations that share nothing, and a public one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

SIZES = {"train": 4000, "test": 400, "public": 2000}
KINDS = ("up", "down")
ORGANISATIONS = {
    "north": ({"up": 900}, 100),
    "south": ({"down": 300}, 100),
    "west": ({"mirror": 600}, 100),
    "public": ({"up": 800, "down": 800, "mirror": 800}, 300),
}
"""What each has to learn from, by kind, and how many tasks it only evaluates on."""


def correct(prompts, completions, answer, **columns) -> list[float]:
    """1 for the right order."""
    return [float(said.strip() == right) for said, right in zip(completions, answer)]


def right_places(prompts, completions, answer, **columns) -> list[float]:
    """The share of digits that stand where they belong: something to learn from at first."""
    return [
        sum(digit == wanted for digit, wanted in zip(said.strip(), right)) / len(right)
        if len(said.strip()) == len(right)
        else 0.0
        for said, right in zip(completions, answer)
    ]


def answer(kind: str, digits: str) -> str:
    """Upwards, downwards, or from behind."""
    if kind == "mirror":
        return digits[::-1]
    return "".join(sorted(digits, reverse=kind == "down"))


def problems(kinds: Sequence[str] = KINDS) -> list[dict[str, str]]:
    """All of these kinds, of four digits."""
    return [
        {"prompt": f"{kind} {n:04}=", "answer": answer(kind, f"{n:04}"), "kind": kind}
        for kind in kinds
        for n in range(10_000)
    ]


def write(folder: Path, seed: int = 0, sizes: Mapping[str, int] = SIZES) -> Path:
    """No problem is in two files."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = random.Random(seed).sample(problems(), sum(sizes.values()))
    for split, size in sizes.items():
        lines = [json.dumps(drawn.pop()) + "\n" for _ in range(size)]
        (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def write_organisations(folder: Path, seed: int = 0) -> Path:
    """A folder of tasks for each; no problem is anywhere twice."""
    dice = random.Random(seed)
    left = {kind: dice.sample(problems([kind]), 10_000) for kind in (*KINDS, "mirror")}
    for name, (kinds, held) in ORGANISATIONS.items():
        train = [left[kind].pop() for kind, count in kinds.items() for _ in range(count)]
        test = [left[kind].pop() for kind in kinds for _ in range(held // len(kinds))]
        place = folder / name / "tasks"
        place.mkdir(parents=True, exist_ok=True)
        for split, rows in (("train", train), ("test", test)):
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (place / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    return folder
