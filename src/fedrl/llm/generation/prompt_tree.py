"""Prompts that begin alike are read once: which tokens are computed, and where each is needed.

Sorted, a prompt shares with the one before it all that it shares with any earlier one. The rest of
it is fresh; a token that is not belongs to the last prompt before it that was fresh there. In
prompts of the household and the shop (chat, groups of eight) a quarter to two fifths of the tokens
of a turn are shared, most of them within a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class PromptTree(NamedTuple):
    """U different prompts with T tokens in all, F of them fresh."""

    ids: np.ndarray  # [F] the fresh tokens
    positions: np.ndarray  # [F] in their prompts
    asked: list[int]  # [U] fresh tokens of each prompt
    read: list[int]  # [U] its length
    where: np.ndarray  # [T] of every token, prompt behind prompt, the number of the fresh one
    last: np.ndarray  # [U] of the prompt's last token


def prompt_tree(prompts: Sequence[tuple[int, ...]]) -> PromptTree:
    """Of different prompts in ascending order."""
    read = np.array([len(prompt) for prompt in prompts])
    along = np.arange(read.max())
    inside = along < read[:, None]
    ids = np.full(inside.shape, -1)  # no token: two ends are not alike
    ids[inside] = [token for prompt in prompts for token in prompt]
    same = (ids[1:] == ids[:-1]) & inside[1:]
    shared = np.concatenate([[0], np.cumprod(same, axis=1).sum(1)])
    fresh = inside & (along >= shared[:, None])
    numbers = np.where(fresh, np.cumsum(fresh).reshape(fresh.shape) - 1, -1)
    owner = np.maximum.accumulate(
        np.where(along >= shared[:, None], np.arange(len(prompts))[:, None], 0), axis=0
    )
    everywhere = numbers[owner, along]
    return PromptTree(
        ids[fresh],
        np.broadcast_to(along, fresh.shape)[fresh],
        (read - shared).tolist(),
        read.tolist(),
        everywhere[inside],
        everywhere[np.arange(len(prompts)), read - 1],
    )
