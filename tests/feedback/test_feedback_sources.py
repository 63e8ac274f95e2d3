"""Simulated people and logs as sources of feedback."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedrl.core.types import UserError
from fedrl.feedback.queries import Answer, Query
from fedrl.feedback.sources.logged import source
from fedrl.feedback.sources.simulated import SimulatedPerson

PERSON = SimulatedPerson({"50": 4.0, "318": 2.0, "7": 2.0}, noise=0.0)


def rate(key: str, score: float) -> Query:
    return Query(f"rate/{key}/{score:g}", "rate", (key,), ("a movie",), (score,))


def compare(first: str, second: str, scores: tuple[float, float]) -> Query:
    keys = first, second
    return Query(f"compare/{first}/{second}", "compare", keys, ("one", "two"), scores)


def said(question: Query, person: SimulatedPerson = PERSON, seed: int = 0) -> float:
    (answer,) = person.answers([question], seed)
    assert answer.question == question.id
    return answer.value


@pytest.mark.parametrize(
    ("score", "value"), [(5.0, -1), (4.6, -1), (4.5, 0), (4.0, 0), (3.5, 0), (3.4, 1), (0.5, 1)]
)
def test_a_score_is_right_within_half_a_star(score, value):
    assert said(rate("50", score)) == value


@pytest.mark.parametrize(
    ("first", "second", "scores", "value"),
    [
        ("50", "318", (1.0, 2.0), -1),  # the first is better, the model says the second
        ("318", "50", (2.0, 1.0), 1),
        ("50", "318", (2.0, 1.0), 0),  # the model is right
        ("50", "318", (2.0, 2.0), -1),  # the model sees no difference
        ("318", "7", (2.0, 2.0), 0),
        ("318", "7", (2.0, 1.0), 0),  # both as good
    ],
)
def test_a_comparison_is_answered_where_the_model_is_wrong(first, second, scores, value):
    assert said(compare(first, second, scores)) == value


def test_noise_is_gaussian_and_the_questions_own():
    noisy = SimulatedPerson({"50": 4.0}, noise=0.5)
    values = [said(rate("50", 4.0), noisy, seed) for seed in range(4000)]
    assert set(values) == {-1.0, 0.0, 1.0}
    # P(|noise| > 0.5) with a standard deviation of 0.5 is 0.3173, and both sides are alike.
    assert np.mean(np.abs(values)) == pytest.approx(0.3173, abs=0.03)
    assert np.mean(values) == pytest.approx(0, abs=0.03)
    first, second = rate("50", 4.0), rate("50", 3.5)
    for seed in range(20):
        both = noisy.answers([first, second], seed)
        assert both[::-1] == noisy.answers([second, first], seed)


def test_a_person_knows_what_they_were_given_and_by_those_keys():
    """A question by place instead of id, or about something held out, is an error, not a guess."""
    with pytest.raises(KeyError):
        said(rate("0", 3.0))


def test_a_log_is_replayed(tmp_path):
    path = tmp_path / "answers.jsonl"
    first, second, third = rate("50", 4.0), rate("50", 3.5), compare("50", "318", (1.0, 2.0))
    fourth, fifth = rate("7", 1.0), rate("7", 2.0)
    lines = [
        {"time": 1.0, "sit": 50},
        {"question": first.id, "value": 1.0},
        {"question": third.id, "value": 0.5},
        {"time": 2.0, "undo": third.id},
        {"question": first.id, "value": -1.0},
        {"question": second.id, "value": 0},
        {"time": 3.0, "question": fourth.id, "value": None},
        {"time": 4.0, "skip": fifth.id},
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    found = source(path).answers([third, second, first, fourth, fifth], seed=0)
    assert found == [Answer(second.id, 0.0), Answer(first.id, -1.0)]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('{"question": "a", "value": 2}', "line 1 says 2.0"),
        ('{"question": "a", "value": NaN}', "line 1 says nan"),
        ('{"question": "a"}', "line 1 is no answer"),
        ('{"value": null}', "line 1 is no answer"),
        ("word", "line 1 is no answer"),
        ("[1]", "line 1 is no answer"),
    ],
)
def test_a_damaged_log_names_the_line(tmp_path, line, wrong):
    path = tmp_path / "answers.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(UserError, match=wrong):
        source(path)
    with pytest.raises(UserError, match="cannot read the answers"):
        source(tmp_path / "none.jsonl")
    path.write_bytes(b'{"question": "\xff"}')
    with pytest.raises(UserError, match=r"cannot read the answers in .*: not UTF-8"):
        source(path)
