"""How many episodes a process's evaluations play at a time, and which setting that comes from.

A sampler without a stream holds all of an evaluation side by side, so its cache grows with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Evaluation(NamedTuple):
    key: str  # the setting that says how large it is: eval_tasks, eval_own or eval_trained
    each: int  # episodes for its every one
    episodes: int

    def with_at_most(self, value: int) -> int:
        """Episodes, if the setting were no more than this."""
        return min(self.episodes, value * self.each)


def episodes_of(evaluations: Sequence[Evaluation], change: Mapping[str, Any] | None = None) -> int:
    """Of the largest, with some settings changed."""
    change = change or {}
    return max(
        (one.with_at_most(change[one.key]) if one.key in change else one.episodes)
        for one in (*evaluations, Evaluation("", 1, 0))
    )


def smaller(evaluations: Sequence[Evaluation], rows: int) -> dict[str, int]:
    """The setting of the largest evaluation, at a value with which it takes no more than a
    rollout's rows, or as few as there can be; nothing where it takes no more now."""
    largest = max(evaluations, key=lambda one: one.episodes, default=None)
    if largest is None or largest.episodes <= rows:
        return {}
    value = max(rows // largest.each, 1)
    if largest.key != "eval_tasks" and largest.with_at_most(value) == largest.episodes:
        value = 0  # one in each world are too many: none; of eval_tasks 0 would be all
    return {largest.key: value}
