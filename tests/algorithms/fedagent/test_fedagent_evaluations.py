"""What else is evaluated: a client's model once it has trained, and further splits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra llm")
pytest.importorskip("rapidfuzz", reason="needs the extra gym")

from support.agent_runs import recipe, train
from support.shop_runs import shop_model, shop_recipe

from fedrl.algorithms.fedagent.agent_model import OWN
from fedrl.algorithms.fedagent.held_out import in_own_scenes
from fedrl.config.build import build_algorithm
from fedrl.core import seeding, tree
from fedrl.core.types import Job, UserError
from fedrl.envs.client_worlds import owner_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("easier_game")]


def begun(model: Path, **change):
    algorithm = build_algorithm(recipe(model, algorithm=change))
    return algorithm, algorithm.broadcast(algorithm.init(5), 1)


def lines(path: Path, name: str) -> list[dict]:
    return [json.loads(line) for line in (path / name).read_text().splitlines()]


@pytest.mark.parametrize("change", [{}, {"lora_rank": 2}, {"optimizer_state": "kept"}], ids=str)
def test_playing_after_training_moves_nothing(model, change):
    """The update and what is kept are the same to the bit, and so is all that was reported."""
    plain, sent = begun(model, **change)
    asked, _ = begun(model, eval_trained=7, **change)
    without, result = (one.local(Job(1, sent, None, 3)) for one in (plain, asked))
    for name, array in without.update.items():
        assert array.tobytes() == result.update[name].tobytes()
    assert any(array.any() for array in without.update.values())
    one, other = (dict(tree.leaves(r.state or {})) for r in (without, result))
    assert {n: a.tobytes() for n, a in one.items()} == {n: a.tobytes() for n, a in other.items()}
    more = {name: value for name, value in result.metrics.items() if name not in without.metrics}
    assert set(more) <= {"trained/success", "trained/own_success"} <= asked.reports
    assert without.metrics == {n: v for n, v in result.metrics.items() if n not in more}


def test_it_is_the_trained_model_that_plays_and_with_the_clients_own_adapters(model, monkeypatch):
    algorithm, sent = begun(model, eval_trained=5, personal_rank=2, lora_lr=1e-2)
    played = []
    real = type(algorithm.trainer).play

    def noted(self, theta, ids, seed, doing):
        found = real(self, theta, ids, seed, doing=doing)
        assert doing == "evaluating_trained"
        played.append((theta, list(ids), found.won))
        return found

    monkeypatch.setattr(type(algorithm.trainer), "play", noted)
    result = algorithm.local(Job(0, sent, None, 3))
    ((theta, ids, won),) = played
    for name, array in result.update.items():
        assert np.array_equal(sent["theta"][name] + array, theta[name]) or np.allclose(
            sent["theta"][name] + array, theta[name]
        )
    own = result.state[OWN]
    assert any(array.any() for array in own.values())
    assert all(np.array_equal(array, theta[name]) for name, array in own.items())
    assert len(set(ids[:5])) == 5
    assert set(ids[:5]) <= {task.id for task in algorithm.eval_tasks}
    assert result.metrics["trained/success"] == np.mean(won[:5])


def test_a_run_records_it_by_client_and_round(model, tmp_path):
    path = train(recipe(model, algorithm={"eval_trained": 4}), tmp_path)
    for line in lines(path, "clients.jsonl"):
        assert 0 <= line["trained/success"] <= 1
        assert (4 * line["trained/success"]).is_integer()
    rounds = lines(path, "metrics.jsonl")
    assert "trained/success" not in rounds[0]
    assert 0 <= rounds[-1]["trained/success"] <= 1
    assert rounds[-1]["env/episodes"] == 2 * 2 * 3 * 2  # evaluations are no training


def test_own_scenes_are_those_that_a_client_trains_in(model):
    algorithm, _ = begun(model, eval_trained=4)
    world = algorithm.world
    where = {task.id: task.scene for split in ("train", "seen") for task in world.tasks(split)}
    train_tasks = world.tasks("train")
    scene = train_tasks[0].scene
    share = [task.id for task in train_tasks if task.scene == scene]
    found = in_own_scenes(world, share, 3)
    assert found
    assert {where[task] for task in found} == {scene}
    assert not set(found) & {task.id for task in train_tasks}
    assert len(in_own_scenes(world, [task.id for task in train_tasks], 9)) == 9


def test_a_client_with_a_shop_of_its_own_plays_in_both(tmp_path, monkeypatch):
    model = shop_model(tmp_path / "model")
    own = {"world": {"variants": ("reranking",)}, "algorithm": {"eval_trained": 3}}
    algorithm = build_algorithm(shop_recipe(model, tmp_path, **own))
    played = []
    real = type(algorithm.trainer).play
    monkeypatch.setattr(
        type(algorithm.trainer), "play",
        lambda self, theta, ids, *rest, **more: (
            played.append(list(ids)) or real(self, theta, ids, *rest, **more)
        ),
    )  # fmt: skip
    result = algorithm.local(Job(2, algorithm.broadcast(algorithm.init(0), 1), None, 5))
    assert [owner_of(task)[0] for task in played[0]] == [-1] * 3 + [2] * 3
    assert 0 <= result.metrics["trained/own_success"] <= 1
    whole = build_algorithm(shop_recipe(model, tmp_path, federation={"kind": "centralized"}, **own))
    sent = whole.broadcast(whole.init(0), 1)
    for seed in (5, 5, 6):
        whole.local(Job(0, sent, None, seed))
    drawn = [[owner_of(task)[0] for task in one[3:]] for one in played[1:]]
    assert drawn[0] == drawn[1]  # by the seed, of four worlds three
    assert all(len(set(one)) == 3 and set(one) < set(range(4)) for one in drawn)


def test_no_more_is_played_than_was_asked_for(tmp_path, monkeypatch):
    """Of a client with the worlds of all: some of them, or some more in the first ones."""
    model = shop_model(tmp_path / "model")
    own = {"world": {"variants": ("reranking",)}, "federation": {"kind": "centralized"}}
    algorithm = build_algorithm(shop_recipe(model, tmp_path, **own))
    for count in (1, 2, 3, 4, 5, 6):
        drawn = [algorithm._own_parts(Job(0, {}, None, seed), count) for seed in range(9)]
        assert {sum(map(len, parts)) for parts in drawn} == {count}
        assert {len(parts) for parts in drawn} == {min(count, 4)}
        worlds = {tuple(owner_of(part[0])[0] for part in parts) for parts in drawn}
        assert (len(worlds) > 1) == (count < 4)
        assert set().union(*worlds) == set(range(4))


def test_the_shared_model_plays_in_every_clients_own_scenes(model):
    more = {"partition": {"strategy": "scenes", "size": 6, "fallback": "shared"}}
    algorithm = build_algorithm(recipe(model, algorithm={"eval_own": 2, "eval_tasks": 3}, **more))
    world = algorithm.world
    where = {task.id: task.scene for split in ("train", "seen") for task in world.tasks(split)}
    played = []
    algorithm.trainer.play = lambda theta, ids, seed, doing: (
        played.append(list(ids)) or type("Won", (), {"won": [True, False] * 5})
    )
    algorithm.trainer.evaluate = lambda *rest: {"eval/success": 0.5}
    found = algorithm.evaluate([{"theta": {}}], [list(range(5))], 1, 9)
    assert found["eval/own_success"] == 0.5
    (ids,) = played
    for client, share in enumerate(algorithm.shares):
        two = ids[2 * client : 2 * client + 2]
        assert {where[task] for task in two} <= {where[task] for task in share}
        assert not set(two) & set(share)


@pytest.mark.parametrize("kind", ["centralized", "local", "independent"])
def test_whoever_learns_alone_is_judged_in_scenes_of_its_own(model, tmp_path, kind):
    change = {
        "federation": {"kind": kind, "cohort": 0, "clients": 3}, "rounds": 1,
        "partition": {"strategy": "scenes", "size": 6, "fallback": "shared"},
        "algorithm": {"eval_own": 2, "eval_tasks": 3, "eval_trained": 2},
    }  # fmt: skip
    last = lines(train(recipe(model, **change), tmp_path), "metrics.jsonl")[-1]
    for name in ("eval/own_success", "trained/success", "trained/own_success"):
        assert 0 <= last[name] <= 1


def scene_of(model: Path) -> str:
    return build_algorithm(recipe(model)).world.tasks("train")[0].scene


def test_every_evaluation_plays_further_splits(model, tmp_path):
    scene = scene_of(model)
    change = {"world": {"withheld": (scene,)}, "algorithm": {"eval_splits": ("withheld", "seen")}}
    path = train(recipe(model, **change), tmp_path / "a")
    plain = train(recipe(model, world={"withheld": (scene,)}), tmp_path / "b")
    for with_it, without in zip(
        lines(path, "metrics.jsonl"), lines(plain, "metrics.jsonl"), strict=True
    ):
        more = {"eval/withheld_success", "eval/seen_success"}
        assert set(with_it) - set(without) == more
        assert all(0 <= with_it[name] <= 1 for name in more)
        assert {n: v for n, v in with_it.items() if n not in more} == without
    algorithm = build_algorithm(recipe(model, **change))
    assert {task.scene for task in algorithm.more_eval_tasks["withheld"]} == {scene}
    played = []
    algorithm.trainer.play = lambda theta, ids, seed, *rest: (
        played.append((list(ids), seed)) or type("Won", (), {"won": [True, False, False, False]})
    )
    algorithm.trainer.evaluate = lambda *rest: {"eval/success": 0.5}
    found = algorithm.evaluate([{"theta": {}}, {"theta": {}}], [[0], [1]], 1, 9)
    assert found["eval/withheld_success"] == 0.25
    assert [ids for ids, _ in played[:2]] == [
        [task.id for task in algorithm.more_eval_tasks["withheld"]]
    ] * 2
    assert {seed for _, seed in played[:2]} == {seeding.derive(9, "withheld")}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"eval_splits": ("attic",)}, "algorithm.eval_splits is 'attic'"),
        ({"eval_splits": ("unseen",)}, "'unseen' is what algorithm.eval_split plays"),
        ({"eval_splits": ("train",)}, "is both trained on and evaluated"),
        ({"eval_splits": ("public",)}, "its warm start was shown task"),
        ({"eval_trained": -1}, "eval_trained is -1"),
    ],
)
def test_mistakes_are_named(model, change, told):
    with pytest.raises(UserError, match=told):
        build_algorithm(recipe(model, algorithm=change))
