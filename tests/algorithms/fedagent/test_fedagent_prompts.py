"""FedAgent on prompts with reward functions: it trains, resumes, and survives people's mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra llm")

from support.prompt_files import ROWS, prompts, write_rewards, write_rows
from support.tiny_model import rollout as played

import fedrl
from fedrl.algorithms.fedagent.algorithm import FedAgent
from fedrl.algorithms.fedagent.settings import Settings
from fedrl.config.build import build_algorithm
from fedrl.config.loading import resolve
from fedrl.core.types import Job, Shareable, UserError
from fedrl.envs.text import PartitionedWorld
from fedrl.llm.rl.advantages import grpo
from fedrl.runs.warmstart import Settings as WarmStart
from fedrl.runs.warmstart import warmstart

pytestmark = pytest.mark.slow

CANARY = "zanzibar9"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sums, reward functions, and a model that has learned a little of the public ones."""
    place = tmp_path_factory.mktemp("prompts")
    write_rewards(place)
    write_rows(place / "sums.jsonl")
    how = WarmStart(tasks=30, steps=60, batch=32, width=32, layers=1, lr=1e-2, spread=0.02)
    warmstart(prompts(place / "sums.jsonl", public=0.4, answer="answer"), how, place / "model")
    return place


def recipe(folder: Path, *rewards: str, source: Path | None = None, **more) -> dict:
    names = [f"{folder / 'my_rewards.py'}:{name}" for name in rewards or ("correct", "length")]
    tables = {
        "name": "test", "rounds": 2,
        "federation": {"clients": 4, "cohort": 2},
        "algorithm": {
            "name": "fedagent", "model": str(folder / "model"), "local_epochs": 1, "tasks": 4,
            "group": 3, "lr": 1e-3, "kl": 0.0, "answer_tokens": 3, "device": "cpu",
            "eval_split": "test",
        },
        "world": {
            "name": "prompts", "source": str(source or folder / "sums.jsonl"), "reward": names,
            "category": "kind", "public": 0.4,
        },
        "partition": {"size": 5},
    }  # fmt: skip
    return {
        key: tables.get(key, {}) | more[key] if isinstance(more.get(key), dict) else
        more.get(key, tables.get(key))
        for key in tables | more
    }  # fmt: skip


def records(run: fedrl.Run) -> list[dict]:
    return [json.loads(line) for line in (run.path / "clients.jsonl").read_text().splitlines()]


def test_it_trains_in_any_partition_and_is_evaluated_and_reported(folder: Path, tmp_path: Path):
    run = fedrl.run(recipe(folder, partition={"strategy": "preference", "size": 6}), out=tmp_path)
    assert {record["status"] for record in records(run)} == {"ok"}
    assert run.rounds[2]["env/steps"] == 2 * 2 * 4 * 3
    assert {"eval/success_small", "eval/success_large"} <= run.rounds[0].keys()
    assert run.rounds[0]["eval/return"] != run.rounds[0]["eval/success"]  # lengths are paid, too
    (code,) = run.config["packages"]
    assert code.startswith("my_rewards.py:file:")
    assert len(run.config["world"]["digest"]) == 32
    found = run.evaluate_split("test", 0)
    assert len(found.won) == 10
    page = run.report()
    assert "reward" in Path(page).read_text(encoding="utf-8")


def test_workers_give_the_same_numbers(folder: Path, tmp_path: Path):
    here = fedrl.run(recipe(folder, rounds=1), out=tmp_path / "a")
    there = fedrl.run(recipe(folder, rounds=1), out=tmp_path / "b", engine="workers", workers=1)
    assert there.rounds == here.rounds


def test_rewards_are_learned_from_as_numbers_unless_success_is_asked_for(folder: Path):
    world = prompts(folder / "sums.jsonl", public=0.4)
    share = tuple(task.id for task in world.tasks("train")[:5])

    def trainer(**more):
        settings = Settings(model=str(folder / "model"), eval_split="test", device="cpu", **more)
        return FedAgent(settings, PartitionedWorld(world, (share,)), 1, [[0]]).trainer

    assert not trainer().pays_success
    assert trainer(reward="success").pays_success


def test_an_answer_that_nobody_can_score_is_left_out_of_its_group():
    whole = played(
        [[("", 1.0)], [("", 9.0)], [("", 3.0)], [("", 5.0)], [("", 6.0)]], [0, 0, 0, 1, 1]
    )
    whole.truncated = [False] * 5
    whole.scored = [True, False, True, False, False]
    left = whole.scored_only()
    assert left.returns == [1.0, 3.0]
    assert left.groups == [0, 0]
    assert [sample.episode for sample in left.samples] == [0, 1]
    np.testing.assert_allclose(grpo(left), [-(0.5**0.5), 0.5**0.5])
    whole.scored = [False] * 5
    with pytest.raises(UserError, match="no answer got a reward"):
        whole.scored_only()
    whole.scored = [True] * 5
    assert whole.scored_only() is whole


def test_data_that_changes_between_rounds_stops_the_run_and_it_goes_on_when_put_back(
    folder: Path, tmp_path: Path
):
    source = write_rows(tmp_path / "sums.jsonl")
    text = source.read_text()
    more = {"rounds": 3, "source": source}
    whole = fedrl.run(recipe(folder, **more), out=tmp_path / "whole")

    def change(done) -> None:
        if done.round == 1:
            source.write_text(text.replace('"answer": "7"', '"answer": "8"'))

    with pytest.raises(UserError) as raised:
        fedrl.run(recipe(folder, **more), out=tmp_path / "broken", callbacks=[change])
    assert "\n" not in str(raised.value)
    (broken,) = fedrl.load(tmp_path / "broken" / "*" / "*")
    reasons = {r["reason"] for r in records(broken) if r["status"] != "ok"}
    assert all("the data has changed" in reason for reason in reasons)
    with pytest.raises(UserError, match="not what the run began with"):
        fedrl.resume(broken.path)
    source.write_text(text)
    assert fedrl.resume(broken.path).rounds == whole.rounds


@pytest.mark.parametrize("wrong", ["raises", "nan", "infinite", "short", "words", "missing"])
def test_a_reward_that_fails_for_one_client_costs_its_update_and_tells_no_text(
    folder: Path, tmp_path: Path, wrong: str, monkeypatch: pytest.MonkeyPatch, capfd
):
    monkeypatch.delenv("FEDRL_DEBUG", raising=False)
    rows = [row | {"prompt": f"0{row['prompt']}"} for row in ROWS]  # none of the warm start's
    marked = [
        row | {"prompt": row["prompt"] + CANARY} if i % 8 == 0 else row
        for i, row in enumerate(rows)
    ]
    source = write_rows(tmp_path / "sums" / "train.jsonl", marked[:80]).parent
    write_rows(source / "test.jsonl", rows[80:])
    code = tmp_path / "odd.py"
    code.write_text(
        (folder / "my_rewards.py").read_text() + "\n"
        "def odd(prompts, **columns):\n"
        f"    if any('{CANARY}' in prompt for prompt in prompts) and len(prompts) == 12:\n"
        f"        return {wrong}(prompts=prompts, **columns)\n"
        "    return correct(prompts=prompts, **columns)\n"
    )
    world = {"reward": [f"{code}:odd"], "public": 0.0}
    run = fedrl.run(
        recipe(folder, source=source, world=world, federation={"cohort": 0, "quorum": 0.1},
               partition={"size": 8}, rounds=3),
        out=tmp_path,
    )  # fmt: skip
    failed = [record for record in records(run) if record["status"] != "ok"]
    assert failed
    assert all("world.reward 'odd' r" in record["reason"] for record in failed)
    assert run.status == "finished"
    for file in run.path.rglob("*"):
        if file.is_file():
            assert CANARY.encode() not in file.read_bytes(), file
    assert CANARY not in "".join(capfd.readouterr())


def test_a_reward_that_fails_in_evaluation_is_one_line(folder: Path, tmp_path: Path):
    with pytest.raises(UserError, match=r"world.reward 'raises' raised KeyError") as raised:
        fedrl.run(recipe(folder, "raises"), out=tmp_path)
    assert "\n" not in str(raised.value)


def test_clients_with_one_task_and_with_none(folder: Path, tmp_path: Path):
    run = fedrl.run(recipe(folder, partition={"size": 1}, rounds=1), out=tmp_path)
    assert {record["status"] for record in records(run)} == {"ok"}
    world = prompts(folder / "sums.jsonl", public=0.4)
    one = (world.tasks("train")[0].id,)
    settings = Settings(model=str(folder / "model"), eval_split="test", device="cpu")
    agent = FedAgent(settings, PartitionedWorld(world, (one, ())), 1, [[0], [1]])
    with pytest.raises(UserError, match="holds no tasks") as raised:
        agent.local(Job(1, {"theta": agent.init(0)["theta"]}, None, 0))
    assert isinstance(raised.value.args[0], Shareable)


def test_a_split_that_the_world_has_not_is_named(folder: Path, tmp_path: Path):
    with pytest.raises(UserError, match=r"algorithm.eval_split is 'unseen'; choose from train, te"):
        fedrl.run(recipe(folder, algorithm={"eval_split": "unseen"}), out=tmp_path)


def test_a_warm_start_on_other_splits_is_refused(folder: Path, tmp_path: Path):
    """What it was shown stays known, whatever split it is in now."""
    with pytest.raises(UserError, match="its warm start was shown task row-"):
        fedrl.run(recipe(folder, world={"split_seed": 5}), out=tmp_path)
    with pytest.raises(UserError, match=r"world\.answer is empty"):
        warmstart(prompts(folder / "sums.jsonl", public=0.4), WarmStart(tasks=3), tmp_path / "m")


def test_a_warm_start_on_other_prompts_in_the_same_rows_is_none_of_this_runs(folder: Path):
    """What lies in a row is compared, not its number."""
    others = [row | {"prompt": f"what is {row['prompt']}"} for row in ROWS]
    source = write_rows(folder / "other" / "sums.jsonl", others)
    built = build_algorithm(resolve(recipe(folder, source=source, world={"split_seed": 5})))
    assert built.eval_tasks


@pytest.mark.parametrize("split", ["test", "train"])
def test_shown_prompts_are_found_in_another_table_under_other_names(folder: Path, split: str):
    world = prompts(folder / "sums.jsonl", public=0.4)
    shown = [world.row(task.id) for task in world.tasks("public")]
    fresh = [row | {"prompt": f"what is {row['prompt']}"} for row in ROWS]
    place = folder / f"leaked-{split}"
    for name, rows in {"train": fresh[:60], "test": fresh[60:]}.items():
        write_rows(place / f"{name}.jsonl", rows + shown if name == split else rows)
    words = {"test": "evaluated", "train": "a client's"}[split]
    config = recipe(folder, source=place, world={"public": 0.0}, partition={"size": 25})
    with pytest.raises(UserError, match=f"was shown task {split}-.*, which is {words} here"):
        build_algorithm(resolve(config))


def test_a_small_evaluation_is_said_once_at_the_start(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    run = fedrl.run(recipe(folder, rounds=1), out=tmp_path)
    (said,) = (r.message for r in caplog.records if r.message.startswith("evaluated on"))
    assert said.startswith("evaluated on 10 tasks: one task is 10 points")
    assert json.loads((run.path / "meta.json").read_text())["evaluated_tasks"] == 10
