"""Digits to put in order: a data set of prompts, and reward functions in TRL's signature.

`python -m fedrl_sort_digits FOLDER` writes train.jsonl, test.jsonl and public.jsonl with lines like
{"prompt": "up 4172=", "answer": "1247", "kind": "up"}.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path

SIZES = {"train": 4000, "test": 400, "public": 2000}


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


def problems() -> list[dict[str, str]]:
    """All of them: four digits, upwards or downwards."""
    return [
        {"prompt": f"{kind} {n:04}=", "answer": "".join(sorted(f"{n:04}", reverse=down)),
         "kind": kind}
        for kind, down in (("up", False), ("down", True))
        for n in range(10_000)
    ]  # fmt: skip


def write(folder: Path, seed: int = 0, sizes: Mapping[str, int] = SIZES) -> Path:
    """No problem is in two files."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = random.Random(seed).sample(problems(), sum(sizes.values()))
    for split, size in sizes.items():
        lines = [json.dumps(drawn.pop()) + "\n" for _ in range(size)]
        (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder
