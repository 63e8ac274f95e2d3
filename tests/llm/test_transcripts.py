"""Episodes to read: which ones of an evaluation are kept, and how long they may be."""

from __future__ import annotations

import json

import pytest

from fedrl.llm.transcripts import (
    MOST_CHARACTERS,
    MOST_STEPS,
    Episode,
    Step,
    common_limit,
    cut,
    from_record,
    kept_of,
    record,
    shortened,
)


def test_two_tasks_are_always_kept_and_two_are_drawn():
    kept = [kept_of(60, seed) for seed in range(40)]
    assert all(len(set(one)) == 4 and one == sorted(one) for one in kept)
    assert set.intersection(*map(set, kept)) == {0, 30}
    assert len(set().union(*kept)) > 40
    assert kept_of(60, 7) == kept_of(60, 7)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_an_evaluation_of_few_tasks_keeps_them_all(count: int):
    assert kept_of(count, 5) == list(range(count))


def test_a_record_comes_back_as_it_was():
    steps = (Step("<think>x</think>", "go", True, "a\x00room"), Step("", "", False, "Nothing."))
    one = Episode("t", "pick", "put a mug", "a room", True, steps, 0.5)
    assert from_record(json.loads(json.dumps(record(one)))) == one


def test_no_episode_is_longer_than_its_bound():
    loud = tuple(Step("s" * 9000, "c" * 9000, True, "w" * 9000) for _ in range(5 * MOST_STEPS))
    one = shortened(Episode("t", "k", "g" * 9000, "b" * 9000, False, loud))
    assert len(one.steps) == MOST_STEPS
    assert one.length == len(loud)
    assert len(json.dumps(record(one))) < 2 * MOST_CHARACTERS
    last = shortened(Episode("t", "k", "g", "b", False, (*loud, Step("end", "end", True, "end"))))
    assert last.steps[-1].saw == "end"


def test_only_long_texts_are_cut():
    steps = (Step("go", "go", True, "w" * (2 * MOST_CHARACTERS)), Step("look", "look", True, "x"))
    one = shortened(Episode("t", "k", "goal", "begin", True, steps))
    assert (one.goal, one.begin, one.steps[1], one.left_out) == ("goal", "begin", steps[1], 0)
    assert one.steps[0].saw.startswith("w" * (MOST_CHARACTERS // 2))
    assert one.steps[0].saw.endswith("more characters)")
    assert len(one.steps[0].saw) < MOST_CHARACTERS + 40


def test_short_texts_leave_room_for_long_ones():
    assert common_limit([5, 100, 100], 105) == 50
    assert common_limit([5, 6, 7], 100) == 7
    assert common_limit([10, 10, 10, 10], 20) == 5
    assert cut("abcdef", 4) == "abcd … (2 more characters)"


@pytest.mark.parametrize("line", [{}, {"steps": 3}, {"steps": ["x"]}, {"steps": [{}]}])
def test_what_no_run_wrote_is_refused(line: dict):
    with pytest.raises((LookupError, TypeError, ValueError)):
        from_record(line)
