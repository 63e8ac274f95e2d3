"""A tool of one's own: questions about prices that only a function knows, and a reward for them.

python prices.py questions                    # writes questions/train.jsonl and test.jsonl
fedrl run prices.toml
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

PRICES = {"tea": 4, "milk": 2, "salt": 1, "rice": 7, "figs": 9, "corn": 3, "eggs": 6, "oil": 8}


def price(item: str) -> int:
    """What an item costs today.

    Args:
        item: the name of the item
    """
    if item not in PRICES:
        raise ValueError(f"nobody sells {item}")
    return PRICES[item]


def right(prompts, completions, price, **columns) -> list[float]:
    """1 for the right price as the last message, as TRL's GRPOTrainer would ask with tools."""
    return [
        float(str(messages[-1]["content"]).strip() == str(wanted))
        for messages, wanted in zip(completions, price)
    ]


def write(folder: Path) -> Path:
    """Every question of `train` in twenty wordings, of `test` in twelve others."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, places in (("train", range(20)), ("test", range(20, 32))):
        rows = [
            {
                "prompt": [{"role": "user", "content": f"Guest {n}: what does {item} cost?"}],
                "item": item,
                "price": cost,
            }
            for n in places
            for item, cost in PRICES.items()
        ]
        lines = [json.dumps(row) + "\n" for row in rows]
        (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "questions"))
