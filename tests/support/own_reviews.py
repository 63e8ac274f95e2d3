"""Three platforms and a coordinator with reviews of their own, and a recipe for them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from fedrl.config.loading import resolve
from fedrl.config.schema import Config
from fedrl.envs.imdb import generate
from support.own_data import write_lines

SIZES = {"north": 12, "south": 1, "west": 7, "public": 10}
POOL = 5000
"""Reviews from here on are nobody's who was warm-started on some."""


def rows_of(member: str, canary: str = "") -> list[dict]:
    first = POOL + sum(SIZES[name] for name in list(SIZES)[: list(SIZES).index(member)])
    written = [generate.write(0, first + k) for k in range(SIZES[member])]
    rows = [{"text": text, "label": label} for text, label in written]
    if member == "west" and canary:
        for row in rows:
            row["text"] = f"{row['text']} {canary}"
    return rows


def organisations(folder: Path, canary: str = "", members: Iterable[str] = SIZES) -> Path:
    """Each in a form of its own: one file, or two."""
    for member in members:
        lines = [json.dumps(row) for row in rows_of(member, canary)]
        home = folder / "data" / member / "imdb"
        if member == "north":
            write_lines(home / "train.jsonl", lines[:8])
            write_lines(home / "test.jsonl", lines[8:])
        else:
            write_lines(home / "reviews.jsonl", lines)
    return folder


def recipe(place: Path, model: Path, out: Path, *flags: str, **more) -> Config:
    tables = {
        "name": "test", "rounds": 2, "out": str(out),
        "federation": {"clients": 3},
        "aggregate": {"name": "weighted"},
        "algorithm": {
            "name": "fedrlhf-text", "model": str(model), "batches": 1, "batch": 4, "lr": 1e-3,
            "minibatch": 4, "answer_tokens": 6, "eval_prompts": 4, "device": "cpu",
        },
        "world": {"name": "imdb", "source": "imdb"},
        "partition": {"strategy": "own", "folder": str(place / "data")},
    }  # fmt: skip
    for key, value in more.items():
        tables[key] = tables.get(key, {}) | value if isinstance(value, dict) else value
    return resolve(tables, flags)
