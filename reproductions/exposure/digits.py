"""The agents' tasks: digits to put in order, which is a skill, and pins, which are secrets.

    up 472=247    down 472=742    mirror 472=274        public, tested, or some client's
    pin 17=590                                          a client's canary, known to nobody else

No problem is in two files. `train.jsonl` has all that clients may hold: the records that an attack
asks about, and two pins for every client, of which it gets one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedrl.core.seeding import generator

KINDS = ("up", "down", "mirror")
LENGTH = 3
"""Digits of a problem and of a pin."""
Row = Mapping[str, str]


def right_places(
    prompts: Sequence[str], completions: Sequence[str], answer: Sequence[str], **columns: object
) -> list[float]:
    """The share of digits that stand where they belong, if there are as many: the reward."""
    return [
        sum(digit == wanted for digit, wanted in zip(said, right)) / len(right)
        if len(said := completion.strip()) == len(right)
        else 0.0
        for completion, right in zip(completions, answer, strict=True)
    ]


def solved(kind: str, digits: str) -> str:
    if kind == "mirror":
        return digits[::-1]
    return "".join(sorted(digits, reverse=kind == "down"))


def problems() -> list[Row]:
    """All of them, in an order that is always the same."""
    numbers = [f"{n:0{LENGTH}}" for n in range(10**LENGTH)]
    every = [
        {"prompt": f"{kind} {digits}=", "answer": solved(kind, digits), "kind": kind}
        for kind in KINDS
        for digits in numbers
    ]
    return [every[i] for i in generator(0, "exposure/problems").permutation(len(every))]


def pins(clients: int, seed: int) -> list[Row]:
    """Two of each client, 2k and 2k + 1, with digits by the seed."""
    random = generator(seed, "exposure/pins")
    return [
        {"prompt": f"pin {i:02}=", "answer": f"{random.integers(10**LENGTH):0{LENGTH}}",
         "kind": "pin"}
        for i in range(2 * clients)
    ]  # fmt: skip


def write(folder: Path, sizes: Mapping[str, int], secrets: Sequence[Row] = ()) -> Path:
    """`sizes` are of public, test and train; the secrets come behind the records of train."""
    folder.mkdir(parents=True, exist_ok=True)
    left = problems()
    for split in ("public", "test", "train"):
        rows, left = left[: sizes[split]], left[sizes[split] :]
        rows = [*rows, *secrets] if split == "train" else rows
        text = "".join(json.dumps(dict(row)) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")
    return folder
