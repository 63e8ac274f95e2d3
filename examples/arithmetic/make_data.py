"""Sums to solve, as JSONL files: `python make_data.py FOLDER` writes train, test and public.

A line is {"prompt": "17+25=", "answer": "042", "kind": "add"}: numbers have leading zeros, so that
digits of one weight stand below each other for a model that has just begun to count.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping
from pathlib import Path

SIZES = {"train": 4000, "test": 400, "public": 4000}


def problems() -> list[dict[str, str]]:
    """All of them: sums of two numbers below 100, and differences that are not negative."""
    pairs = [(a, b) for a in range(100) for b in range(100)]
    sums = [(f"{a:02}+{b:02}=", a + b, "add") for a, b in pairs]
    differences = [(f"{a:02}-{b:02}=", a - b, "subtract") for a, b in pairs if a >= b]
    return [
        {"prompt": prompt, "answer": f"{right:03}", "kind": kind}
        for prompt, right, kind in sums + differences
    ]


def write(folder: Path, seed: int = 0, sizes: Mapping[str, int] = SIZES) -> Path:
    """No problem is in two files."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = random.Random(seed).sample(problems(), sum(sizes.values()))
    for split, size in sizes.items():
        lines = [json.dumps(drawn.pop()) + "\n" for _ in range(size)]
        (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


if __name__ == "__main__":
    print(write(Path(sys.argv[1] if len(sys.argv) > 1 else "data/arithmetic")))
