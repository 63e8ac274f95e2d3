"""FedAgent on an OpenEnv server: what a lost server costs, and what a node takes from a recipe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("websockets", reason="the extra openenv is not installed")
pytest.importorskip("torch", reason="the extra llm is not installed")

from support.openenv_server import DESCRIPTION, stand_in
from support.small_talkers import talker

import fedrl
from fedrl.core.types import UserError
from fedrl.engines.flower.node_plan import Refused
from fedrl.engines.flower.policy import Policy
from fedrl.engines.flower.policy_check import Node, check

pytestmark = pytest.mark.slow


def tables(folder: Path, url: str, **more: object) -> dict[str, object]:
    return {
        "name": "game",
        "rounds": 2,
        "out": str(folder / "runs"),
        "federation": {"clients": 2, "retries": 0},
        "algorithm": {
            "name": "fedagent", "model": str(folder / "model"), "local_epochs": 1, "tasks": 3,
            "group": 4, "lr": 1e-3, "kl": 0.0, "answer_tokens": 2, "device": "cpu",
        },
        "world": {"name": "openenv", "url": url, "train": 14, "unseen": 7, "max_steps": 3}
        | dict(more),
        "partition": {"size": 5},
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    talker(tmp_path / "model", f"task {DESCRIPTION} saw did it lies between and")
    return tmp_path


def test_a_server_that_hangs_up_costs_one_update_and_the_run_goes_on(folder: Path) -> None:
    with stand_in() as server:

        def after(done) -> None:
            if done.round == 0:
                server.hang_ups = 1

        run = fedrl.run(tables(folder, server.url), callbacks=[after], progress=False)
    clients = [json.loads(line) for line in (run.path / "clients.jsonl").open()]
    failed = [line for line in clients if line["status"] == "failed"]
    assert [(line["round"], line["client"]) for line in failed] == [(1, 0)]
    assert failed[0]["reason"] == "the OpenEnv server closed the connection"
    assert len(clients) == 4
    metrics = [json.loads(line) for line in (run.path / "metrics.jsonl").open()]
    assert [line["round"] for line in metrics] == [0, 1, 2]
    assert all("eval/success" in line for line in metrics)


def test_a_server_that_is_lost_for_all_stops_the_run_with_one_line(folder: Path) -> None:
    with stand_in() as server:

        def after(done) -> None:
            server.mode = "close"

        with pytest.raises(UserError, match="the OpenEnv server closed the connection"):
            fedrl.run(tables(folder, server.url), callbacks=[after], progress=False)


def test_a_node_calls_only_the_server_that_its_owner_names(folder: Path) -> None:
    config = fedrl.api.configure(tables(folder, "http://192.0.2.1:80"))
    with pytest.raises(Refused, match=r"world\.url: this node calls only servers"):
        check(config, Policy(), Node(folder, frozenset({"algorithm.model", "out"})))
    own = frozenset({"world.url", "algorithm.model", "out"})
    check(config, Policy(), Node(folder, own))
