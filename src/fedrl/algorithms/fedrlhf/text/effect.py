"""What a living person's answers change: how the model goes on from texts that were held out.

As it came to the client, and after it has learned there, from the same prompts and with the same
random numbers. It is written into the person's private folder (`feedback.effect`).
"""

from __future__ import annotations

from collections.abc import Sequence

from fedrl.feedback import effect
from fedrl.feedback.effect import Effect, Recommendation
from fedrl.feedback.store import Folder, Given

SHOWN = 3
"""Prompts that a person sees."""


def write_effect(
    place: Folder, heard: Given, round: int, prompts: Sequence[str], came: Sequence[str],
    learned: Sequence[str],
) -> None:  # fmt: skip
    """`came` and `learned` are whole texts, one to each prompt."""
    before, after = (
        tuple(Recommendation(text, None, prompt) for text, prompt in zip(texts, prompts))
        for texts in (came, learned)
    )
    answers = len({query for said in heard.values() for query in said})
    effect.write(place, Effect("texts", answers, before, after, round=round), heard)
