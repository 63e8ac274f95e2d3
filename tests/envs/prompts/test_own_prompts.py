"""Prompts of a client's own: however few, and a coordinator who has some to evaluate on alone."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra llm")

from support.flower_runs import train
from support.own_data import write_lines
from support.own_prompts import organisations, recipe, rows_of
from support.prompt_files import ROWS

from fedrl.cli import call
from fedrl.config.build import build_algorithm, build_world
from fedrl.core.types import UserError
from fedrl.envs.prompts.settings import Settings
from fedrl.envs.prompts.world import OwnWorld
from fedrl.report.client_panel import client_panels
from fedrl.report.run_groups import Group
from fedrl.runs import read
from fedrl.runs import train as runs
from fedrl.runs.agents import label_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return organisations(tmp_path_factory.mktemp("organisations"))


def own(source: Path, **more):
    return OwnWorld(Settings(source=str(source), reward=("exact_match",), **more), 3, 0)


def lines(rows: list[dict]) -> list[str]:
    return [json.dumps(row) for row in rows]


def test_the_only_prompt_is_trained_on_and_of_few_one_is_held_out(tmp_path: Path):
    for count, trained, tested in ((1, 1, 0), (2, 1, 1), (3, 2, 1), (20, 18, 2)):
        world = own(write_lines(tmp_path / f"{count}.jsonl", lines(ROWS[:count])))
        assert (len(world.tasks("train")), len(world.tasks("test"))) == (trained, tested)
    greedy = own(tmp_path / "2.jsonl", test=0.4, public=0.5)
    assert [len(greedy.tasks(s)) for s in ("train", "test", "public")] == [1, 1, 0]


def test_a_coordinator_may_have_test_jsonl_alone(place: Path, tmp_path: Path):
    for member in ("north", "south", "west"):
        write_lines(tmp_path / "data" / member / "sums" / "train.jsonl", lines(rows_of(member)))
    write_lines(tmp_path / "data" / "public" / "sums" / "test.jsonl", lines(rows_of("public")))
    config = recipe(
        place, tmp_path / "out", rounds=1, world={"source": "sums"},
        partition={"folder": str(tmp_path / "data")},
    )  # fmt: skip
    algorithm = build_algorithm(config)
    assert len(algorithm.eval_tasks) == len(rows_of("public"))
    assert train(config)
    alone = own(tmp_path / "data" / "public" / "sums")
    assert not alone.tasks("train")
    assert len(pickle.loads(pickle.dumps(alone)).tasks("test")) == len(alone.tasks("test"))
    with pytest.raises(UserError, match=r"no prompt 'x'; they are called like row-0000000"):
        alone.row("x")


@pytest.mark.parametrize("split", ["train", "test", "public"])
def test_a_coordinator_may_have_any_of_the_files(place: Path, tmp_path: Path, split: str):
    for member in ("north", "south", "west", "public"):
        at = tmp_path / "data" / member / "sums"
        write_lines(at / "train.jsonl", [] if member == "public" else lines(rows_of(member)))
    write_lines(at / f"{split}.jsonl", lines(rows_of("public")))
    config = recipe(
        place, tmp_path, world={"source": "sums", "test": 0.0},
        partition={"folder": str(tmp_path / "data")},
    )  # fmt: skip
    assert len(build_algorithm(config).eval_tasks) == len(rows_of("public"))


def test_a_coordinator_without_the_split_is_evaluated_on_with_all_that_it_has(
    place: Path, tmp_path: Path
):
    config = recipe(place, tmp_path, world={"test": 0.0})
    algorithm = build_algorithm(config)
    assert len(algorithm.eval_tasks) == len(rows_of("public"))
    assert [len(share) for share in algorithm.shares] == [20, 7, 12]


def test_a_dry_run_and_a_run_say_what_each_folder_holds(
    place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    config = recipe(place, tmp_path, rounds=1, world={"test": 0.5})
    told = [
        "client 0 (north): 20 tasks, 10 trained on, held out 10 test",
        "client 1 (south): 7 tasks, 3 trained on, held out 4 test",
        "client 2 (west): 12 tasks, 6 trained on, held out 6 test",
        "public: 15 train, 15 test; nobody trains on them",
    ]
    assert [line.partition(";")[0] for line in runs.plan(config)[-5:-2]] == told[:3]
    assert runs.plan(config)[-2] == told[3]
    with caplog.at_level("INFO", logger="fedrl"):
        runs.start(config, build_algorithm(config)).close()
    assert [line.partition(";")[0] for line in caplog.messages[:3]] == told[:3]


def test_a_run_keeps_what_its_clients_are_called(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    path = train(recipe(place, tmp_path, rounds=1))
    (panel,) = client_panels([Group("run", [read.load(path)])])
    assert list(panel.lines) == ["client 0 (north)", "client 1 (south)", "client 2 (west)"]
    assert call(["eval", str(path)]) == 0
    assert "1 (south)" in capsys.readouterr().out


def test_a_dry_run_refuses_a_client_that_trains_on_what_is_evaluated(place: Path, tmp_path: Path):
    for member in ("north", "south", "west", "public"):
        rows = rows_of("public" if member == "west" else member)
        write_lines(tmp_path / "data" / member / "sums.jsonl", lines(rows))
    folder = {"folder": str(tmp_path / "data")}
    config = recipe(place, tmp_path / "out", partition=folder, world={"test": 0.0})
    with pytest.raises(UserError, match=r"client 2 \(west\) trains on \d+ of the tasks"):
        runs.plan(config)


def test_a_model_is_labelled_on_what_clients_bring(place: Path, tmp_path: Path):
    config = recipe(place, tmp_path, world={"test": 0.0})
    assert len(label_model(config, tmp_path / "labels.json", 0)) == 20 + 7 + 12
    named = json.loads((tmp_path / "labels.json").read_text())
    assert "client-2:" in str(named)


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ([], "holds no prompts"),
        ([{"prompt": "1+1=", "kind": "add"}, {"kind": "add"}], "has no column 'prompt'"),
        ([{"prompt": 5, "kind": "add"}], "has neither a text nor chat messages"),
        ([{"prompt": "1+1=", "kind": "add"}, {"prompt": " ", "kind": "add"}], "has nothing in 'pr"),
        ([{"question": "1+1=", "kind": "add"}], "world.prompt is 'prompt', which .* has not"),
    ],
)
def test_what_is_wrong_with_a_clients_prompts_names_the_client(
    place: Path, tmp_path: Path, rows: list[dict], line: str
):
    for member in ("north", "south", "west", "public"):
        own_rows = rows if member == "south" else rows_of(member)
        write_lines(tmp_path / "data" / member / "sums.jsonl", lines(own_rows))
    config = recipe(place, tmp_path / "out", partition={"folder": str(tmp_path / "data")})
    algorithm = build_algorithm(config)
    with pytest.raises(UserError, match=line) as found:
        runs.start(config, algorithm)
    assert str(found.value).startswith("client 1 (south): ")
    assert "\n" not in str(found.value)
    with pytest.raises(UserError) as looked:  # before any model is loaded
        runs.plan(config)
    assert str(looked.value) == str(found.value)
    write_lines(tmp_path / "data" / "public" / "sums.jsonl", [])
    with pytest.raises(UserError, match=r"public: world\.source: .* holds no prompts"):
        build_world(config).world.tasks("test")
