"""A node whose --data is another folder than the one that recipes begin in."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from support.asked_nodes import RATINGS, text

from fedrl.core.types import UserError
from fedrl.engines.flower import node_recipes
from fedrl.engines.flower.own_data_book import NOT_THERE
from fedrl.engines.in_process import one_line, shareable


@pytest.mark.parametrize("data", ["own/ratings", "empty"])
def test_a_folder_too_low_or_empty_is_told_with_what_it_should_be(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDRL_DATA", "")  # which a worker sets
    for folder in ("own/ratings", "empty"):
        (tmp_path / folder).mkdir(parents=True)
    recipe = text(RATINGS, {"partition": {"strategy": "own"}}).replace(
        'name = "movielens"', 'name = "movielens"\nsource = "ratings"'
    )
    with pytest.raises(UserError) as error:
        node_recipes.build(recipe, str(tmp_path), str(tmp_path / data), ())
    assert one_line(error.value) == NOT_THERE  # and no name of an exception
    assert shareable(error.value)
    there = f"there is no {tmp_path / data}/ratings, which this recipe names (world.source)"
    assert there in capsys.readouterr().err  # for its owner
    with pytest.raises(UserError) as error:  # it is there, and something else is wrong with it
        node_recipes.build(recipe, str(tmp_path), str(tmp_path / "own"), ())
    assert NOT_THERE not in str(error.value)
