"""Organisations that bring games and shops of their own: simulated, and on nodes with one each."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra llm")
pytest.importorskip("flwr", reason="needs the extra flower")

from support.agent_runs import make_model
from support.flower_runs import records, same_numbers, train
from support.own_data import MEMBERS, Nodes, on_nodes
from support.own_worlds import (
    GAMES,
    KINDS,
    PRODUCTS,
    WORLDS,
    WRITES,
    households,
    products_of,
    recipe,
    shops,
)

from fedrl.config.build import build_algorithm
from fedrl.core.types import UserError
from fedrl.envs.webshop.shop import Settings, WebShop
from fedrl.envs.webshop.store import Store
from fedrl.runs import train as runs
from fedrl.runs.evaluate import evaluate

pytestmark = pytest.mark.slow

CANARY = "zanzibar9"
FLOWER = ("--engine", "flower", "--connection", "test")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "agent")


@pytest.mark.parametrize("held_out", ["public", "clients"])
@pytest.mark.parametrize("kind", list(WORLDS))
def test_nodes_give_the_numbers_of_the_simulation(
    kind: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_out: str
):
    WRITES[kind](tmp_path, canary=CANARY)
    more = {"partition": {"held_out": held_out}}
    apart = ("--engine", "workers", "--workers", "1")
    here = train(recipe(kind, tmp_path, model, tmp_path / "here", *apart, **more))
    if held_out == "public":
        same_numbers(here, train(recipe(kind, tmp_path, model, tmp_path / "inprocess", **more)))
    alone = tmp_path / "driver"  # the driver has nothing of the clients'
    WRITES[kind](alone, ["public"])
    nodes = Nodes(
        tmp_path / "nodes", [tmp_path / "data" / m for m in MEMBERS],
        "--algorithm.model", str(model),
    )  # fmt: skip
    config = recipe(kind, alone, model, tmp_path / "there", *FLOWER, **more)
    there = on_nodes(config, nodes, monkeypatch)
    same_numbers(here, there)
    last = json.loads((there / "metrics.jsonl").read_text().splitlines()[-1])
    assert ("held/success" in last) == (held_out == "clients") != ("eval/success" in last)
    kept = [run / "episodes.jsonl" for run in (here, there)]  # of the coordinator's tasks alone
    assert [log.exists() for log in kept] == [held_out == "public"] * 2
    assert held_out == "clients" or kept[0].read_bytes() == kept[1].read_bytes()
    told = "".join(nodes.crossed) + "".join(
        path.read_bytes().decode("latin-1")
        for folder in (there, here, tmp_path / "nodes", alone)
        for path in folder.rglob("*")
        if path.is_file()
    )
    assert CANARY not in told


def test_a_client_trains_on_all_games_of_its_folder(model: Path, tmp_path: Path):
    algorithm = build_algorithm(recipe("household", households(tmp_path), model, tmp_path))
    for client, member in enumerate(MEMBERS):
        assert len(algorithm.shares[client]) == GAMES[member]["train"]
        assert len(algorithm.own_held_out(client)) == GAMES[member].get("valid_unseen", 0)
        kinds = {task.category for task in algorithm.world.tasks_of(client, "train")}
        assert kinds == {KINDS[member]}
    assert len(algorithm.eval_tasks) == GAMES["public"]["valid_unseen"]
    run = train(recipe("household", tmp_path, model, tmp_path / "out", rounds=1))
    found = evaluate(run, 5, 0).by_client
    assert np.isnan(found[1])  # South holds nothing out
    assert np.isfinite(found[[0, 2]]).all()


def test_a_shop_of_ones_own_is_all_of_its_catalogue(model: Path, tmp_path: Path):
    shops(tmp_path)
    algorithm = build_algorithm(recipe("webshop", tmp_path, model, tmp_path))
    for client, member in enumerate(MEMBERS):
        shop = algorithm.world.of(client)
        assert len(shop.store.products) == PRODUCTS[member]
        playable = len(shop.goals) - len(shop.left_out)
        held = len(algorithm.own_held_out(client))
        assert held <= min(3, len(shop.goals) // 5)
        assert len(algorithm.shares[client]) + held == playable > held
    every = recipe("webshop", tmp_path, model, tmp_path, world={"validation": 0})
    algorithm = build_algorithm(every)
    for client in range(3):
        shop = algorithm.world.of(client)
        assert len(algorithm.shares[client]) == len(shop.goals) - len(shop.left_out)
    public = WebShop(Settings(validation=0), store=Store(products_of("public")))
    assert len(algorithm.eval_tasks) == len(public.tasks("train"))  # nobody trains there


@pytest.mark.parametrize(
    ("kind", "spoil", "line"),
    [
        ("household", "all", "has no json_2.1.1/train/TASK/TRIAL/game.tw-pddl"),
        ("household", "train", "holds no tasks to train on"),
        ("household", "broken", "Expecting value"),
        ("webshop", "all", "holds none of"),
        ("webshop", "broken", "has no 'name'"),
    ],
)
def test_mistakes_name_the_client_and_reach_no_coordinator(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, spoil: str, line: str
):
    WRITES[kind](tmp_path)
    spoiled(tmp_path / "data" / "west", kind, spoil)
    config = recipe(kind, tmp_path, model, tmp_path / "out")
    with pytest.raises(UserError, match=line) as found:
        runs.start(config, build_algorithm(config))
    assert str(found.value).startswith("client 2 (west): ")
    assert "\n" not in str(found.value)
    assert "fedrl data household" not in str(found.value)
    alone = tmp_path / "driver"
    WRITES[kind](alone, ["public"])
    nodes = Nodes(
        tmp_path / "nodes", [tmp_path / "data" / m for m in MEMBERS],
        "--algorithm.model", str(model),
    )  # fmt: skip
    config = recipe(kind, alone, model, tmp_path / "there", *FLOWER, rounds=1)
    path = on_nodes(config, nodes, monkeypatch)
    failed = {r["client"]: r["reason"] for r in records(path) if r["status"] == "failed"}
    assert set(failed) == {2}
    assert "the node's own log says why" in failed[2]
    assert not any(word in failed[2] for word in ("west", "json", "name'"))
    assert any(line in said for said in nodes.logs[2])


def spoiled(home: Path, kind: str, spoil: str) -> None:
    if kind == "webshop":
        file = home / "shop" / "items_shuffle.json"
        text = file.read_text()
        file.unlink()
        if spoil == "broken":
            file.write_text(text.replace('"name"', '"nome"', 1))
        return
    tree = home / "games" / "json_2.1.1"
    for file in sorted(tree.rglob("game.tw-pddl")):
        if spoil == "broken" and "train" in file.parts:
            file.write_text("no JSON")
        elif spoil == "all" or (spoil == "train" and "train" in file.parts):
            file.unlink()
