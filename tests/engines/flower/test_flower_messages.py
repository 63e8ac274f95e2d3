"""Headings come back as they were, and anything else is damaged."""

from __future__ import annotations

import json

import pytest

from fedrl.core import serialization
from fedrl.engines.flower import messages


def test_headings_come_back():
    job = messages.Job("n", 3, 2**62 + 1, "run", "", 5, 0.1 + 0.2, "rounds = 1\n", "d")
    assert messages.from_json(messages.to_json(job), messages.Who, messages.Job) == job
    answer = messages.Answer("n", 3, "", 0.1, {"train/return": 1 / 3}, True, "d")
    assert messages.from_json(messages.to_json(answer), messages.Answer) == answer


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "name"},
        {"kind": "no such kind"},
        {"client": "3"},
        {"client": True},
        {"client": 2**70},
        {"metrics": {"a": "b"}},
        {"metrics": [1.0]},
        {"kept": 1},
        {"weight": None},
        {"weight": 10**400},
        {"metrics": {"env/steps": 10**400}},
        {"more": 1},
    ],
)
def test_headings_with_anything_else_are_damaged(change: dict):
    data = json.loads(messages.to_json(messages.Answer("n", 3))) | change
    with pytest.raises(serialization.Damaged):
        messages.from_json(json.dumps(data), messages.Answer)


@pytest.mark.parametrize("field", ["round", "attempt"])
@pytest.mark.parametrize("value", [-1, 2**31, 1.0, True, "1", None])
def test_rounds_and_attempts_are_counts(field: str, value: object):
    job = messages.Job("n", 3, 1, "run", "", 5, 0.0, "", "d", round=2**31 - 1, attempt=4)
    assert messages.from_json(messages.to_json(job), messages.Job) == job
    changed = json.dumps(json.loads(messages.to_json(job)) | {field: value})
    with pytest.raises(serialization.Damaged):
        messages.from_json(changed, messages.Job)


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", '{"kind": []}', "[" * 100_000])
def test_what_is_no_heading_is_damaged(text: str):
    with pytest.raises(serialization.Damaged):
        messages.from_json(text, messages.Answer)
