"""Clients whose worlds differ: shops of their own in every federation, and disjoint scenes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra llm")
pytest.importorskip("rapidfuzz", reason="needs the extra gym")

from support.flower_runs import same_numbers, train
from support.realdata import data
from support.shop_runs import shop_model, shop_recipe

from fedrl.algorithms.fedagent.held_out import check_apart, mean_over_worlds, plain_names
from fedrl.config.build import build_algorithm
from fedrl.config.loading import resolve
from fedrl.core.types import Job, UserError
from fedrl.envs.client_worlds import ClientWorlds, owner_of
from fedrl.envs.household.world import Household
from fedrl.envs.household.world import Settings as HouseholdSettings
from fedrl.envs.text import Task
from fedrl.envs.webshop.client_shops import ClientShops
from fedrl.runs.evaluate import evaluate
from fedrl.runs.warmstart import Settings as WarmStart
from fedrl.runs.warmstart import warmstart

pytestmark = pytest.mark.slow

KINDS = ("catalogue", "lookalikes", "fields", "ranking", "reranking")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop_model(tmp_path_factory.mktemp("models") / "shop")


def metrics(run: Path) -> dict:
    return json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])


def results(world: ClientWorlds, client: int, query: str) -> str:
    task = world.tasks_of(client, "train")[0].id
    episode, _ = world.start(task)
    return episode.step(f"search[{query}]").observation.split("[SEP]", 2)[2]


@pytest.fixture(scope="module")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    world = {"source": str(data("webshop")), "products": 1000}
    return shop_model(tmp_path_factory.mktemp("models") / "genuine", **world), world


@pytest.mark.realdata
@pytest.mark.parametrize("kind", [*KINDS, "catalogue,lookalikes,fields,ranking,reranking"])
def test_fedagent_trains_on_the_genuine_catalogue_with_every_variant(
    genuine: tuple[Path, dict], tmp_path: Path, kind: str
):
    model, world = genuine
    chosen = world | {"variants": tuple(kind.split(","))}
    flags = ("--federation.cohort", "2", "--algorithm.eval_own", "1")
    config = shop_recipe(model, tmp_path, *flags, world=chosen)
    last = metrics(train(config))
    assert {"train/success", "eval/success", "eval/own_success"} <= set(last)
    shops = build_algorithm(config).world
    assert isinstance(shops, ClientWorlds)
    queries = ("wood console table", "women shoes with rubber sole", "shampoo")
    assert any(results(shops, 0, query) != results(shops, 1, query) for query in queries)


@pytest.mark.realdata
def test_fedagent_trains_in_disjoint_genuine_scenes(tmp_path: Path):
    source = str(data("alfworld"))
    house = Household(HouseholdSettings(source=source))
    how = WarmStart(tasks=10, steps=20, width=16, layers=1, batch=8, lr=1e-2, spread=0.02)
    model = warmstart(house, how, tmp_path / "model")
    scenes = sorted({task.scene for task in house.tasks("train")})
    aside = tuple(scenes[::14])
    config = resolve(
        {
            "name": "test", "rounds": 1, "out": str(tmp_path / "runs"),
            "federation": {"clients": 10, "cohort": 2},
            "algorithm": {
                "name": "fedagent", "model": str(model), "local_epochs": 1, "tasks": 2,
                "group": 2, "lr": 1e-3, "kl": 0.0, "answer_tokens": 6, "prompt_tokens": 200,
                "device": "cpu", "eval_split": "withheld", "eval_tasks": 4,
            },
            "world": {"name": "household", "source": source, "max_steps": 3, "withheld": aside},
            "partition": {"strategy": "scenes", "size": 30},
        }
    )  # fmt: skip
    algorithm = build_algorithm(config)
    scene = {task.id: task.scene for task in house.tasks("train")}
    rooms = [{scene[task] for task in share} for share in algorithm.shares]
    assert sum(map(len, rooms)) == len(set().union(*rooms)) > 10
    assert len(aside) == 8
    assert not set().union(*rooms) & set(aside)
    assert {scene[task.id] for task in algorithm.eval_tasks} <= set(aside)
    assert "eval/success" in metrics(train(config))


def test_withheld_scenes_are_a_split_and_a_mistake_is_named():
    plain = Household(HouseholdSettings(size="tiny", train=60))
    scene = plain.tasks("train")[0].scene
    house = Household(HouseholdSettings(size="tiny", train=60, withheld=(scene,)))
    assert plain.splits == house.splits[:-1]
    aside, rest = house.tasks("withheld"), house.tasks("train")
    assert {task.scene for task in aside} == {scene}
    assert sorted([*aside, *rest]) == sorted(plain.tasks("train"))
    assert house.start(aside[0].id)[1].observation
    wrong = Household(HouseholdSettings(size="tiny", train=60, withheld=("attic-1",)))
    with pytest.raises(UserError, match="no training task plays in scene 'attic-1'"):
        wrong.tasks("train")


OWN = {"world": {"variants": ("catalogue", "reranking")}, "algorithm": {"eval_own": 2}}


def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    clients: list[int] = []
    make = ClientShops.of_client

    def noted(self, client, tasks):
        clients.append(client)
        return make(self, client, tasks)

    monkeypatch.setattr(ClientShops, "of_client", noted)
    return clients


def test_a_client_opens_its_own_shop_alone(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clients = opened(monkeypatch)
    algorithm = build_algorithm(shop_recipe(model, tmp_path, **OWN))
    assert all(owner_of(t)[0] == k for k, share in enumerate(algorithm.shares) for t in share)
    assert clients == []
    state = algorithm.init(0)
    algorithm.local(Job(2, algorithm.broadcast(state, 1), None, 5))
    assert clients == [2]


def test_every_federation_holds_the_shops_that_it_should(model: Path, tmp_path: Path):
    def built(kind: str, **more):
        return build_algorithm(
            shop_recipe(model, tmp_path, federation={"kind": kind} | more, **OWN)
        )

    everyone = built("federated")
    pool = {task.id for task in everyone.world.tasks("train")}
    dealt = {owner_of(task)[1] for share in everyone.shares for task in share}
    assert everyone.data_outline().trained == len(dealt)
    (whole,) = built("centralized").shares
    owners, ids = zip(*map(owner_of, whole))
    assert (set(owners), set(ids), len(ids)) == ({0, 1, 2, 3}, pool, len(pool))
    assert max(map(owners.count, range(4))) - min(map(owners.count, range(4))) <= 1
    alone = built("local", client=3)
    assert alone.shares[3] == everyone.shares[3]
    assert built("independent").shares == everyone.shares


@pytest.mark.parametrize("kind", ["federated", "centralized", "local", "independent"])
def test_evaluation_is_in_the_plain_shop_and_in_the_clients_own(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
):
    run = train(shop_recipe(model, tmp_path, federation={"kind": kind}, **OWN))
    last = metrics(run)
    assert 0 <= last["eval/own_success"] <= 1
    shown = [json.loads(line) for line in (run / "episodes.jsonl").read_text().splitlines()]
    assert {owner_of(line["task"])[0] for line in shown} == {-1}  # nothing of a client's world
    found = evaluate(run, 2, 0)
    assert len(found.by_client) == (1 if kind == "centralized" else 4)
    algorithm = build_algorithm(shop_recipe(model, tmp_path, federation={"kind": kind}, **OWN))
    played: list[list[str]] = []
    monkeypatch.setattr(
        type(algorithm.trainer), "play",
        lambda self, theta, ids, *words, **others: played.append(list(ids)) or Won(ids),
    )  # fmt: skip
    own = {"federated": [0, 1, 2, 3], "centralized": [0, 1, 2, 3], "local": [0]}.get(kind, [0])
    said = algorithm.evaluate([{"theta": {}}], [own], 1, 3)
    assert {owner_of(task)[0] for task in played[0]} == {-1}
    assert [owner_of(task)[0] for task in played[1]] == [k for k in own for _ in range(2)]
    public = {task.id for task in algorithm.eval_tasks}
    assert {owner_of(task)[1] for task in played[1]} <= public
    assert said["eval/own_success"] == mean_over_worlds(Won(played[1]).won, [[1, 2]] * len(own))


class Won:
    """A rollout of these tasks, of which those of even numbers are won."""

    def __init__(self, ids):
        self.won = [int(owner_of(task)[1][-1]) % 2 == 0 for task in ids]
        self.returns, self.lengths = [1.0] * len(ids), [1] * len(ids)
        self.invalid, self.truncated, self.samples = [0] * len(ids), [0] * len(ids), ids


def test_worlds_count_the_same_and_those_without_tasks_do_not_count():
    parts = [["a", "b", "c", "d"], [], ["e"], ["f", "g"]]
    won = [True, False, False, False, True, True, False]
    assert mean_over_worlds(won, parts) == pytest.approx((0.25 + 1 + 0.5) / 3)


def test_clients_play_other_ones_of_the_held_out_tasks(model: Path, tmp_path: Path):
    from fedrl.algorithms.fedagent.held_out import own_parts

    more = {"world": {"variants": ("reranking",)}, "algorithm": {"eval_own": 5, "eval_tasks": 20}}
    algorithm = build_algorithm(shop_recipe(model, tmp_path, **more))
    world, public = algorithm.world, algorithm.eval_tasks
    assert isinstance(world, ClientWorlds)
    parts = own_parts(world, range(4), algorithm.settings, public, 5)
    assert sorted(owner_of(task)[1] for part in parts for task in part) == [t.id for t in public]


def test_a_task_is_the_same_in_whosever_world_it_is_played():
    worlds = ClientWorlds(lambda: None, lambda client: None, 4, alike=True)
    trained = plain_names(worlds, [["client-3:goal-1"]])
    with pytest.raises(UserError, match="task goal-1 is both trained on and evaluated"):
        check_apart(worlds, [Task("goal-1", "")], trained, "")


def test_own_worlds_can_only_be_evaluated_where_there_are_such(model: Path, tmp_path: Path):
    with pytest.raises(UserError, match=r"algorithm.eval_own is 2, but no client has a world of"):
        build_algorithm(shop_recipe(model, tmp_path, algorithm={"eval_own": 2}))


def test_folders_of_ones_own_are_difference_enough(model: Path, tmp_path: Path):
    goods = [
        {"asin": f"B{n:09}", "name": f"Oak table {n}", "full_description": "", "pricing": "$10",
         "small_description": ["solid"], "customization_options": {}, "category": "garden",
         "query": "tables", "product_category": "Home › Tables"}
        for n in range(3)
    ]  # fmt: skip
    told = {"attributes": ["solid"], "instruction": "Find me tables",
            "instruction_attributes": ["solid"]}  # fmt: skip
    for client in ("a", "b", "public"):
        folder = tmp_path / "data" / client / "shop"
        folder.mkdir(parents=True)
        (folder / "items_shuffle_1000.json").write_text(json.dumps(goods))
        ins = json.dumps({good["asin"]: told for good in goods})
        (folder / "items_ins_v2_1000.json").write_text(ins)
    more = {
        "world": {"source": "shop", "products": 3, "validation": 1, "public": 0,
                  "variants": ("reranking",)},
        "partition": {"strategy": "own", "folder": str(tmp_path / "data")},
        "federation": {"clients": 2},
    }  # fmt: skip
    with pytest.raises(UserError, match="every shop is as its owner has it"):
        build_algorithm(shop_recipe(model, tmp_path, **more))


def test_workers_give_the_numbers_of_one_process(model: Path, tmp_path: Path):
    here = train(shop_recipe(model, tmp_path / "a", "--rounds", "2", **OWN))
    workers = ("--rounds", "2", "--engine", "workers", "--workers", "2")
    there = train(shop_recipe(model, tmp_path / "b", *workers, **OWN))
    one, other = metrics(here), metrics(there)
    same = [name for name in one if name.startswith(("eval/", "train/"))]
    assert "eval/own_success" in same
    np.testing.assert_array_equal([one[n] for n in same], [other[n] for n in same])


def test_nodes_give_the_numbers_of_one_process(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("flwr", reason="needs the extra flower")
    from support.own_data import Nodes, on_nodes

    workers = ("--engine", "workers", "--workers", "1")
    here = train(shop_recipe(model, tmp_path / "a", *workers, **OWN))
    folder = tmp_path / "empty"
    folder.mkdir()
    nodes = Nodes(tmp_path / "nodes", [folder] * 4, "--algorithm.model", str(model))
    flower = ("--engine", "flower", "--connection", "test")
    there = on_nodes(shop_recipe(model, tmp_path / "b", *flower, **OWN), nodes, monkeypatch)
    same_numbers(here, there)
    assert "eval/own_success" in metrics(there)
