"""episodes.jsonl: what a run keeps of its evaluations, and that it obeys a run's promises."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="FedAgent needs the extra llm")
pytest.importorskip("transformers", reason="FedAgent needs the extra llm")

from support.agent_runs import WORLD, recipe, train
from support.own_prompts import organisations
from support.own_prompts import recipe as own_recipe
from support.repository import TESTS

from fedrl.algorithms.fedagent.local_trainer import LocalTrainer
from fedrl.config.build import build_algorithm, build_world
from fedrl.config.loading import to_toml
from fedrl.core import seeding
from fedrl.llm.transcripts import from_record, kept_of
from fedrl.runs import train as runs

# Every test trains a model for some rounds.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("easier_game")]
NAME = "episodes.jsonl"


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / NAME).read_text().splitlines()]


def resumed(path: Path, rounds: int) -> None:
    config, directory = runs.resume(path, ["--rounds", str(rounds)])
    runs.train(config, directory, build_algorithm(config))


def test_every_evaluation_keeps_what_seed_and_round_say(model, tmp_path, monkeypatch):
    rollouts, play = [], LocalTrainer.play

    def noted(self, *words, **more):
        rollouts.append(play(self, *words, **more))
        return rollouts[-1]

    monkeypatch.setattr(LocalTrainer, "play", noted)
    config = recipe(model, rounds=3, eval_every=2)
    path = train(config, tmp_path)
    tasks = build_algorithm(config).eval_tasks
    evaluated = [0, 2, 3]
    kept = {n: kept_of(len(tasks), seeding.derive(0, "evaluate", n)) for n in evaluated}
    found = lines(path)
    wanted = [(n, tasks[i].id) for n in evaluated for i in kept[n]]
    assert [(line["round"], line["task"]) for line in found] == wanted
    # They are the evaluation's own episodes: as they ended there, and word for word.
    assert len(rollouts) == len(evaluated)
    played = [(rollout, i) for n, rollout in zip(evaluated, rollouts) for i in kept[n]]
    for line, (rollout, i) in zip(found, played):
        one = from_record(line)
        assert one.won == rollout.won[i]
        assert one.reward == rollout.returns[i]
        assert one.length == len(one.steps) == rollout.lengths[i] <= WORLD["max_steps"]
        own = [sample for sample in rollout.samples if sample.episode == i]
        assert [step.command for step in one.steps] == [sample.command for sample in own]
        assert [one.begin, *(step.saw for step in one.steps[:-1])] == [s.situation for s in own]
        assert one.goal in one.begin


def test_keeping_episodes_changes_no_number(model, tmp_path, monkeypatch):
    kept = train(recipe(model), tmp_path / "a")
    monkeypatch.setattr("fedrl.runs.train.ShowsEpisodes", type("Nobody", (), {}))
    without = train(recipe(model), tmp_path / "b")
    assert (kept / NAME).stat().st_size
    assert not (without / NAME).exists()
    for name in ("metrics.jsonl", "clients.jsonl"):
        assert (kept / name).read_bytes() == (without / name).read_bytes()


def test_of_several_models_the_first_is_shown(model, tmp_path):
    alone = {"kind": "independent", "clients": 3, "cohort": 0}
    path = train(recipe(model, rounds=1, federation=alone), tmp_path)
    assert [line["round"] for line in lines(path)] == [0] * 4 + [1] * 4


def test_a_resumed_run_has_the_same_episodes_to_the_byte(model, tmp_path):
    whole = train(recipe(model, rounds=3), tmp_path / "a")
    half = train(recipe(model, rounds=1), tmp_path / "b")
    with (half / NAME).open("ab") as log:  # of a round that was never saved, and half a line
        log.write(b'{"round": 2, "task": "x"}\n{"round": 2, "ta')
    resumed(half, 3)
    assert (half / NAME).read_bytes() == (whole / NAME).read_bytes()


KILLED = """
import os, signal, sys, tomllib
from pathlib import Path
sys.path.insert(0, {tests!r})
from support.agent_runs import won_by_walking
from fedrl.config.build import build_algorithm
from fedrl.config.loading import resolve
from fedrl.envs.household.game import Game
from fedrl.runs import train as runs
from fedrl.runs.logs import Logs
Game._goal_holds = won_by_walking
append = Logs.append
def torn(self, name, records):
    records = list(records)
    if name == "episodes.jsonl" and records and records[0]["round"] == 2:
        append(self, name, records[:2])
        with open(self.folder / name, "ab") as log:
            log.write(b'{{"round": 2, "task": "un')
        os.kill(os.getpid(), signal.SIGKILL)
    append(self, name, records)
Logs.append = torn
config = resolve(tomllib.loads(Path({recipe!r}).read_text()))
runs.train(config, runs.start(config), build_algorithm(config), progress=None)
"""


def test_a_run_that_was_killed_in_the_middle_of_a_line_ends_with_the_same_bytes(model, tmp_path):
    whole = train(recipe(model, rounds=3), tmp_path / "a")
    text = to_toml(recipe(model, rounds=3, out=str(tmp_path / "b")))
    (tmp_path / "recipe.toml").write_text(text)
    program = KILLED.format(tests=str(TESTS), recipe=str(tmp_path / "recipe.toml"))
    ended = subprocess.run([sys.executable, "-c", program], timeout=300, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    (half,) = (tmp_path / "b").glob("*/*")
    assert (half / NAME).read_bytes().endswith(b'"task": "un')
    resumed(half, 3)
    for name in (NAME, "metrics.jsonl", "clients.jsonl"):
        assert (half / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize("damage", ["gone", "short", "other", "no text"])
def test_what_is_lost_of_the_episodes_stops_no_resume(model, tmp_path, damage):
    whole = train(recipe(model, rounds=2), tmp_path / "a")
    half = train(recipe(model, rounds=1), tmp_path / "b")
    log = half / NAME
    data = log.read_bytes()
    if damage == "gone":
        log.unlink()
    else:
        log.write_bytes({"short": data[:500], "other": data.replace(b"go to", b"no to"),
                         "no text": b"\xff\x00" * 900}[damage])  # fmt: skip
    before = log.read_bytes() if log.exists() else b""
    resumed(half, 2)
    assert (half / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    new = [line for line in (whole / NAME).read_bytes().splitlines() if b'"round": 2' in line]
    assert log.read_bytes().splitlines()[-len(new) :] == new
    if damage in ("short", "no text"):  # nothing damaged is thrown away
        assert (half / f"{NAME}.damaged").read_bytes() == before
    resumed(half, 2)  # said once, it is settled


def test_the_file_is_as_private_as_its_folder(model, tmp_path):
    public = train(recipe(model, rounds=1), tmp_path / "a")
    noise = {"clip": 1.0, "noise": 1.0, "delta": 1e-3}
    pytest.importorskip("dp_accounting", reason="noise needs the extra privacy")
    private = train(recipe(model, rounds=1, privacy=noise), tmp_path / "b")
    for path in (public, private):
        modes = {(path / name).stat().st_mode & 0o777 for name in (NAME, "metrics.jsonl")}
        assert len(modes) == 1
    assert (private / NAME).stat().st_mode & 0o077 == 0
    assert lines(private)


# Whose tasks they are


def test_no_task_that_a_client_holds_is_shown(model, tmp_path):
    config = recipe(model, rounds=2)
    held = {task for share in build_world(config).shares for task in share}
    path = train(config, tmp_path)
    shown = {line["task"] for line in lines(path)}
    assert shown
    assert not shown & held


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return organisations(tmp_path_factory.mktemp("organisations"), "zanzibar9")


@pytest.mark.parametrize("public", [True, False], ids=["public", "no public folder"])
@pytest.mark.parametrize("engine", ["inprocess", "workers"])
def test_where_clients_evaluate_on_their_own_nothing_is_written(place, tmp_path, public, engine):
    folder = place / "data"
    if not public:
        folder = tmp_path / "data"
        folder.mkdir()
        for member in ("north", "south", "west"):
            (folder / member).symlink_to(place / "data" / member)
    chosen = {"held_out": "clients", "folder": str(folder)}
    path = train(own_recipe(place, tmp_path, "--engine", engine, partition=chosen), tmp_path)
    assert "held/success" in (path / "metrics.jsonl").read_text()
    assert not (path / NAME).exists()


def test_with_data_of_their_own_the_coordinators_tasks_are_shown(place, tmp_path):
    path = train(own_recipe(place, tmp_path), tmp_path)
    mine = (place / "data" / "public" / "sums.jsonl").read_text()
    prompts = {json.loads(line)["prompt"] for line in mine.splitlines()}
    shown = lines(path)
    assert {line["round"] for line in shown} == {0, 1, 2}
    assert all(any(prompt in line["begin"] for prompt in prompts) for line in shown)
    assert "zanzibar9" not in (path / NAME).read_text()
