"""Platforms that bring reviews of their own: simulated, and on nodes that hold one's each."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="models that write need the extra llm")
pytest.importorskip("transformers", reason="models that write need the extra llm")
pytest.importorskip("flwr", reason="needs the extra flower")

from support.flower_runs import records, same_numbers, train
from support.own_data import MEMBERS, Nodes, on_nodes, write_lines
from support.own_reviews import SIZES, organisations, recipe, rows_of
from support.review_runs import make_model

from fedrl.config.build import build_algorithm
from fedrl.core.types import Job, UserError
from fedrl.envs.imdb.own import open_folder
from fedrl.envs.imdb.world import Settings
from fedrl.runs import train as runs
from fedrl.runs.evaluate import evaluate

pytestmark = pytest.mark.slow

CANARY = "zanzibar9"
FLOWER = ("--engine", "flower", "--connection", "test")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "reviews", steps=30)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return organisations(tmp_path_factory.mktemp("platforms"), CANARY)


def test_a_client_trains_on_all_that_its_folder_holds(place: Path, model: Path, tmp_path: Path):
    algorithm = build_algorithm(recipe(place, model, tmp_path))
    for client, member in enumerate(MEMBERS):
        train, held = algorithm.world.train[client], algorithm.world.held[client]
        texts = {" ".join(row["text"].split()) for row in rows_of(member, CANARY)}
        assert {review.text for review in (*train, *held)} == texts
        assert len(train) + len(held) == SIZES[member]
        apart = member == "north"  # its test.jsonl is held out
        assert len(train) == (8 if apart else max(round(0.8 * SIZES[member]), 1))
    drawn = algorithm.batches([0], seed=1)
    seen = sum(len(batch.prompts) for batch in drawn)
    assert seen == 4
    every = build_algorithm(recipe(place, model, tmp_path, world={"held_out": 0.0}))
    assert [len(every.world.train[k]) for k in range(3)] == [8, *(SIZES[m] for m in MEMBERS[1:])]
    one = every.local(Job(1, every.init(0), None, 1))
    assert one.weight == 1
    assert "personal/reward" not in one.metrics


@pytest.mark.parametrize("held_out", ["public", "clients"])
def test_nodes_give_the_numbers_of_the_simulation(
    place: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_out: str
):
    more = {"partition": {"held_out": held_out}}
    apart = ("--engine", "workers", "--workers", "1")
    here = train(recipe(place, model, tmp_path / "here", *apart, **more))
    same_numbers(here, train(recipe(place, model, tmp_path / "inprocess", **more)))
    alone = tmp_path / "driver" / "data"  # the driver has nothing of the clients'
    lines = map(json.dumps, rows_of("public"))
    write_lines(alone / "public" / "imdb" / "reviews.jsonl", lines)
    nodes = Nodes(
        tmp_path / "nodes", [place / "data" / m for m in MEMBERS], "--algorithm.model", str(model)
    )
    more = {"partition": {"held_out": held_out, "folder": str(alone)}}
    config = recipe(place, model, tmp_path / "there", *FLOWER, **more)
    there = on_nodes(config, nodes, monkeypatch)
    same_numbers(here, there)
    last = json.loads((there / "metrics.jsonl").read_text().splitlines()[-1])
    assert ("held/reward" in last) == (held_out == "clients") != ("eval/reward" in last)
    told = "".join(nodes.crossed) + "".join(
        path.read_bytes().decode("latin-1")
        for folder in (there, here, tmp_path / "nodes", alone)
        for path in folder.rglob("*")
        if path.is_file()
    )
    assert CANARY not in told


def test_a_client_judges_what_it_was_sent(place: Path, model: Path, tmp_path: Path):
    config = recipe(place, model, tmp_path, partition={"held_out": "clients"})
    algorithm = build_algorithm(config)
    job = Job(0, algorithm.init(0), None, 5)
    judged = algorithm.judge(job)
    assert len(judged) == len(algorithm.world.held[0])
    np.testing.assert_array_equal(judged, algorithm.judge(job))
    told = algorithm.local(Job(0, algorithm.init(0), None, 0)).metrics
    assert algorithm.judge(Job(0, algorithm.init(0), None, 0)).mean() == pytest.approx(
        told["held/reward"]
    )


def test_a_run_resumes_and_is_evaluated(place: Path, model: Path, tmp_path: Path):
    whole = train(recipe(place, model, tmp_path / "a"))
    path = train(recipe(place, model, tmp_path / "b", rounds=1))
    config, run = runs.resume(path, ["--rounds", "2"])
    runs.train(config, run, build_algorithm(config))
    same_numbers(whole, path)
    found = evaluate(path, 5, 0).by_client
    assert np.isnan(found[1])  # South holds nothing out
    assert np.isfinite(found[[0, 2]]).all()


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (None, r"has no reviews\.jsonl, train\.jsonl or train/pos/"),
        (['{"text": "secret"}'], r'line 1 is not \{"text": …, "label": 0 or 1\}'),
        (["{}", "secret"], "line 1 is not"),
        (['{"text": "secret'], "line 1 is not JSON"),
        (['{"text": "secret", "label": "good"}'], "line 1: text is no text, or label is neither"),
        (['{"text": "secret", "label": 1}'], r"holds no review of world\.shortest = 200"),
    ],
)
def test_mistakes_name_the_client_and_reach_no_coordinator(
    place: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines, line: str
):
    organisations(tmp_path)
    file = tmp_path / "data" / "west" / "imdb" / "reviews.jsonl"
    file.unlink()
    if lines is not None:
        write_lines(file, lines)
    config = recipe(tmp_path, model, tmp_path / "out")
    algorithm = build_algorithm(config)
    with pytest.raises(UserError, match=line) as found:
        runs.start(config, algorithm)
    assert str(found.value).startswith("client 2 (west): ")
    assert "\n" not in str(found.value)
    alone = tmp_path / "driver" / "data"
    write_lines(alone / "public" / "imdb" / "reviews.jsonl", map(json.dumps, rows_of("public")))
    nodes = Nodes(
        tmp_path / "nodes", [tmp_path / "data" / m for m in MEMBERS],
        "--algorithm.model", str(model),
    )  # fmt: skip
    more = {"partition": {"folder": str(alone)}, "rounds": 1}
    config = recipe(tmp_path, model, tmp_path / "there", *FLOWER, **more)
    path = on_nodes(config, nodes, monkeypatch)
    failed = {r["client"]: r["reason"] for r in records(path) if r["status"] == "failed"}
    assert set(failed) == {2}
    assert "the node's own log says why" in failed[2]
    assert "secret" not in failed[2]
    assert any("imdb" in said for said in nodes.logs[2])


def test_what_lies_apart_as_test_is_never_trained_on(tmp_path: Path):
    for split, count in (("train", 12), ("test", 5)):
        rows = [{"text": f"{split} {n} " + "good film " * 30, "label": n % 2} for n in range(count)]
        if split == "train":
            rows.append({"text": "test 0 " + "good film " * 30, "label": 0})  # in both
        path = tmp_path / "imdb" / f"{split}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = open_folder(Settings(source="imdb"), tmp_path / "imdb", seed=0)
    assert len(found.train) == 12
    assert len(found.held) == 5
    assert all(review.text.startswith("test") for review in found.held)
    assert not any(review.text.startswith("test") for review in found.train)
