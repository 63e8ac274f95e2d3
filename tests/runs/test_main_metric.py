"""Which number is told first: success where episodes are won or lost, else the return."""

from __future__ import annotations

import pytest

from fedrl.federation.round_loop import Round
from fedrl.runs.main_metric import main_metrics, pays_numbers
from fedrl.runs.progress import Quiet

OWN = {"world.name": "prompts", "world.reward": ["./mine.py:score"]}


@pytest.mark.parametrize(
    ("settings", "numbers"),
    [
        (OWN, True),
        (OWN | {"world.name": "tools"}, True),
        (OWN | {"world.reward": ["exact_match", "number_match"]}, True),
        ({"world.name": "verifiers"}, True),
        (OWN | {"world.reward": ["exact_match"]}, False),
        (OWN | {"algorithm.reward": "success"}, False),
        ({"world.name": "household"}, False),
        ({"world.name": "webshop"}, False),
        ({}, False),
    ],
)
def test_rewards_that_are_numbers_lead_with_the_return(settings: dict, numbers: bool):
    assert pays_numbers(settings) == numbers
    assert main_metrics(settings)[0] == ("eval/return" if numbers else "eval/success")


def test_a_line_of_progress_has_the_return_and_success_beside_it():
    done = Round(2, 8, {"eval/success": 0.0, "eval/return": 0.31}, [], {})
    shown = Quiet()
    assert shown.line(done).startswith("round 2/8  eval/success 0  …")
    shown.settings = OWN
    assert shown.line(done).startswith("round 2/8  eval/return 0.31  eval/success 0  ")
