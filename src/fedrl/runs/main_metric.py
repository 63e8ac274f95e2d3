"""Which number of a run is told first: success, or the return where rewards are numbers.

An episode of the household is won or lost. A reward function of one's own may pay anything, and
what counts as a success of it is a threshold that nobody may have thought of: it stays at 0% while
the return, which is what the agent is trained for, rises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedrl.envs.prompts.rewards import REWARDS

MAIN = ("eval/success", "eval/accuracy", "eval/return", "eval/reward")
SUCCESS, RETURN = "eval/success", "eval/return"
BY_FUNCTIONS = ("prompts", "tools")
"""Worlds whose episodes are paid by the functions that `world.reward` names."""


def pays_numbers(settings: Mapping[str, object]) -> bool:
    """Whether a run with these settings (`world.name`, …) pays numbers: those of verifiers, and
    reward functions but for a single one of ours, which says right or wrong."""
    if settings.get("algorithm.reward") == "success":  # it is trained for that alone
        return False
    if settings.get("world.name") == "verifiers":
        return True
    names = settings.get("world.reward")
    if settings.get("world.name") not in BY_FUNCTIONS or not isinstance(names, Sequence):
        return False
    return len(names) > 1 or any(name not in REWARDS.builtin for name in names)


def main_metrics(settings: Mapping[str, object]) -> tuple[str, ...]:
    """The first of these that a run has is told first."""
    return (RETURN, *(m for m in MAIN if m != RETURN)) if pays_numbers(settings) else MAIN


def beside(main: str, settings: Mapping[str, object]) -> str:
    """What is told beside the main number: success where the return leads; else nothing."""
    return SUCCESS if main == RETURN and pays_numbers(settings) else ""
