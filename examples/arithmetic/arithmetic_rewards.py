"""Reward functions for sums, as TRL's GRPOTrainer takes them too."""

from __future__ import annotations


def correct(prompts, completions, answer, **columns) -> list[float]:
    """1 for the right number."""
    return [float(said.strip() == right) for said, right in zip(completions, answer)]


def right_digits(prompts, completions, answer, **columns) -> list[float]:
    """The share of digits that are right, in their places: something to learn from at first."""
    return [
        sum(digit == wanted for digit, wanted in zip(said.strip(), right)) / len(right)
        if len(said.strip()) == len(right)
        else 0.0
        for said, right in zip(completions, answer)
    ]
