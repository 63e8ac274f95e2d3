"""A run on nodes is followed as any other: its driver writes the same folder."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from support.own_data import MEMBERS, Nodes, on_nodes
from support.own_ratings import organisations, recipe

from fedrl.report.watch.following import Followed

pytestmark = pytest.mark.slow


def test_a_run_on_nodes_is_followed_from_round_to_round(tmp_path: Path, monkeypatch):
    organisations(tmp_path)
    nodes = Nodes(tmp_path / "nodes", [tmp_path / "data" / member for member in MEMBERS])
    config = recipe(tmp_path, tmp_path / "runs", "--engine", "flower", "--connection", "test")
    path = on_nodes(config, nodes, monkeypatch)
    run = Followed(path)
    run.read()
    assert run.news(-1, 0, 0)["rounds"] == [0, 1, 2]
    assert run.about()["status"] == "finished"
    assert {client for _, client, _ in run.clients} == {0, 1, 2}
    on_nodes(None, nodes, monkeypatch, path, rounds=4)
    run.read()
    news = run.news(run.edition, 3, len(MEMBERS) * 2)
    assert news["rounds"] == [3, 4]
    assert len(news["clients"]) == len(MEMBERS) * 2
    assert "personal/accuracy" in run.client_metrics()
