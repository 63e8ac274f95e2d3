"""The linear policy on ratings of organisations' own users: the same numbers on every engine."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("cryptography", reason="secure aggregation needs the extra privacy")

from support.flower_runs import same_numbers, train
from support.own_data import MEMBERS, Nodes, on_nodes
from support.own_ratings import organisations, recipe, rows_of, write

pytestmark = pytest.mark.slow

LINEAR = {
    "policy": "linear", "optimizer": "sgd", "lr": 0.3, "rows": "holders", "ask_again": False,
}  # fmt: skip


def test_nodes_and_workers_give_the_numbers_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    canary = organisations(tmp_path)
    more = {
        "algorithm": LINEAR, "aggregate": {"name": "mean"},
        "privacy": {"secure": True, "clip": 5.0},  # nodes send counts of movies in no other way
    }  # fmt: skip
    here = train(recipe(tmp_path, tmp_path / "here", **more))
    apart = ("--engine", "workers", "--workers", "1")
    same_numbers(here, train(recipe(tmp_path, tmp_path / "workers", *apart, **more)))
    alone = tmp_path / "driver"  # it has nothing of the clients'
    write(alone / "data" / "public" / "movielens", rows_of("public"))
    nodes = Nodes(tmp_path / "nodes", [tmp_path / "data" / member for member in MEMBERS])
    flower = ("--engine", "flower", "--connection", "test")
    there = on_nodes(recipe(alone, tmp_path / "there", *flower, **more), nodes, monkeypatch)
    same_numbers(here, there)
    assert not any(canary.found_in(text.encode()) for text in nodes.crossed)
    others = [tmp_path / "nodes" / f"node-{client}" for client in (0, 1)]
    for place in (there, here, alone, *others):
        for path in place.rglob("*"):
            assert not (path.is_file() and canary.found_in(path.read_bytes())), path
