"""Three organisations and a coordinator with sums of their own, and a recipe for them."""

from __future__ import annotations

import json
from pathlib import Path

from fedrl.config.loading import resolve
from fedrl.config.schema import Config
from fedrl.runs.warmstart import Settings as WarmStart
from fedrl.runs.warmstart import warmstart
from support.own_data import write_lines
from support.prompt_files import ROWS, prompts, write_rows

SIZES = {"north": 20, "south": 7, "west": 12, "public": 30}


def rows_of(member: str, canary: str = "") -> list[dict]:
    """Sums of its own; West has a kind of task that nobody else has, and the canary."""
    first = sum(SIZES[name] for name in list(SIZES)[: list(SIZES).index(member)])
    rows = [dict(row) for row in ROWS[first : first + SIZES[member]]]
    if member == "west":
        for row in rows:
            row["kind"] = "words"
        if canary:
            rows[0] |= {"prompt": f"{canary}=", "answer": canary}
    return rows


def organisations(folder: Path, canary: str = "") -> Path:
    """`folder` with their data, and a model that has learned a little of other sums."""
    write_rows(folder / "sums.jsonl", ROWS[sum(SIZES.values()) :])  # nobody's
    how = WarmStart(tasks=24, steps=60, batch=32, width=32, layers=1, lr=1e-2, spread=0.02)
    warmstart(prompts(folder / "sums.jsonl", public=0.8, answer="answer"), how, folder / "model")
    for member in SIZES:
        rows = map(json.dumps, rows_of(member, canary))
        write_lines(folder / "data" / member / "sums.jsonl", rows)
    return folder


def recipe(place: Path, out: Path, *flags: str, **more) -> Config:
    tables = {
        "name": "test", "rounds": 2, "out": str(out),
        "federation": {"clients": 3},
        "algorithm": {
            "name": "fedagent", "model": str(place / "model"), "local_epochs": 1, "tasks": 4,
            "group": 3, "lr": 1e-3, "kl": 0.0, "answer_tokens": 3, "device": "cpu",
            "eval_split": "test",
        },
        "world": {
            "name": "prompts", "source": "sums.jsonl", "reward": ["exact_match"],
            "category": "kind",
        },
        "partition": {"strategy": "own", "folder": str(place / "data")},
    }  # fmt: skip
    for key, value in more.items():
        tables[key] = tables.get(key, {}) | value if isinstance(value, dict) else value
    return resolve(tables, flags)
