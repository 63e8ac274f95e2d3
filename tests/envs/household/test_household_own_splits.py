"""Games of one's own: nothing is trained on that is held out under another name."""

from __future__ import annotations

import pytest

from fedrl.core.types import UserError
from fedrl.envs.household.world import _Genuine


@pytest.fixture
def games(tmp_path, monkeypatch) -> _Genuine:
    monkeypatch.setattr("fedrl.envs.household.world.alfworld.require_some", lambda folder: None)
    return _Genuine(tmp_path, own=True)


def test_a_game_of_two_splits_is_named(games: _Genuine):
    games._require_apart("train", "train/a", b"one game")
    games._require_apart("unseen", "valid_unseen/b", b"another")
    with pytest.raises(UserError, match="valid_unseen/c is the same game as train/a"):
        games._require_apart("unseen", "valid_unseen/c", b"one game")
    with pytest.raises(UserError, match="train/d is the same game as valid_unseen/b"):
        games._require_apart("train", "train/d", b"another")


def test_a_game_may_come_twice_in_one_split_or_in_two_that_nobody_trains_on(games: _Genuine):
    games._require_apart("train", "train/a", b"one game")
    games._require_apart("train", "train/b", b"one game")
    games._require_apart("seen", "valid_seen/c", b"another")
    games._require_apart("unseen", "valid_unseen/d", b"another")
