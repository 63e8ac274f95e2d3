"""Reward functions for answers that can be checked, in TRL's signature; they read `answer`.

They take prompts as texts or as chat messages, like every reward function: a completion is a text,
or a list with the assistant's message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Completion = str | Sequence[Mapping[str, str]]

NUMBER = re.compile(r"[-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?")
ROUNDING = 1e-9
"""Relative difference up to which two numbers are the same."""


def text_of(completion: Completion) -> str:
    return completion if isinstance(completion, str) else str(completion[-1]["content"])


def exact_match(
    completions: Sequence[Completion], answer: Sequence[object], **columns: object
) -> list[float]:
    """1 for the very answer, whatever the blanks around it."""
    return [
        float(text_of(said).strip() == str(right).strip())
        for said, right in zip(completions, answer, strict=True)
    ]


def contains_answer(
    completions: Sequence[Completion], answer: Sequence[object], **columns: object
) -> list[float]:
    """1 where the answer stands somewhere in the completion, as a word of its own."""
    return [
        float(
            re.search(
                rf"(?<!\w){re.escape(str(right).strip())}(?!\w)", text_of(said), re.IGNORECASE
            )
            is not None
        )
        for said, right in zip(completions, answer, strict=True)
    ]


def number_match(
    completions: Sequence[Completion], answer: Sequence[object], **columns: object
) -> list[float]:
    """1 where the last number of the completion is the last number of the answer."""
    pairs = zip(completions, answer, strict=True)
    return [
        float(_same(last_number(text_of(said)), last_number(str(right)))) for said, right in pairs
    ]


def last_number(text: str) -> float | None:
    """Of "she pays $1,250.50." it is 1250.5."""
    found = NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return False
    return abs(one - other) <= ROUNDING * max(abs(one), abs(other))
