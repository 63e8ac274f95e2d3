"""Items that are made when they are asked for."""

from __future__ import annotations

import pytest

from fedrl.core.lazy_sequence import LazySequence


def test_items_are_made_once_and_only_those_that_are_asked_for():
    made = []

    def read(k: int) -> int:
        made.append(k)
        return k * k

    squares = LazySequence(5, read)
    assert len(squares) == 5
    assert not made
    assert (squares[3], squares[-2], squares[3]) == (9, 9, 9)
    assert made == [3]
    assert squares[1:3] == [1, 4]
    assert list(squares) == [0, 1, 4, 9, 16]
    assert sorted(made) == [0, 1, 2, 3, 4]
    for wrong in (5, -6):
        with pytest.raises(IndexError):
            squares[wrong]


def test_no_more_than_so_many_are_kept():
    made = []
    items = LazySequence(3, lambda k: made.append(k) or k, kept=1)
    assert [items[0], items[1], items[0]] == [0, 1, 0]
    assert made == [0, 1, 0]
