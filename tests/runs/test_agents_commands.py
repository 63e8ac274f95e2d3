"""`fedrl eval --split`, `fedrl eval` and `fedrl label` with an agent that wins every even task."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.prompt_files import write_rewards, write_rows

from fedrl import api
from fedrl.cli import call
from fedrl.config.loading import resolve, to_toml
from fedrl.config.schema import Config
from fedrl.envs.prompts.settings import Settings as Prompts
from fedrl.envs.text import Task
from fedrl.federation import round_loop
from fedrl.runs import agents, evaluate
from fedrl.runs.run_dir import RunDir


class Even:
    """Wins the tasks with an even number; counts what it played."""

    def __init__(self, count: int) -> None:
        tasks = [Task(str(2 * i), "even") for i in range(count)] + [Task("1", "odd")]
        self.world = SimpleNamespace(splits=("train", "unseen"), tasks=lambda split: tasks)
        self.settings, self.eval_tasks, self.played = None, tasks, 0

    def play_tasks(self, theta: Any, tasks: Any, seed: int) -> Any:
        self.played += len(tasks)
        won = [int(task.id) % 2 == 0 for task in tasks]
        return SimpleNamespace(won=won, returns=[0.25 + w / 2 for w in won])

    def evaluate_clients(self, state: Any, seed: int, episodes: int) -> np.ndarray:
        return np.array([0.25, 0.75])

    def measure_clients(self, state: Any, kept: Any, seed: int, episodes: int) -> list[dict]:
        return [
            {"eval/success": rate, "eval/return": 3 * rate, "tasks": 4.0} for rate in (0.25, 0.75)
        ]


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Even:
    agent = Even(16)
    snapshot = round_loop.Snapshot(3, [{"theta": {}}])
    monkeypatch.setattr(agents, "load_agent", lambda path: (agent, snapshot))
    return agent


# The interval


def test_all_won_does_not_mean_certain(agent: Even, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["eval", "RUN", "--split", "unseen"]) == 0
    told = capsys.readouterr().out
    even = next(line for line in told.splitlines() if "even" in line)
    assert "100.0%" in even
    assert "80.6% – 100.0%" in even
    assert "±" not in told


def test_several_models_have_no_interval(
    agent: Even, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    several = round_loop.Snapshot(3, [{"theta": {}}] * 2)
    monkeypatch.setattr(agents, "load_agent", lambda path: (agent, several))
    assert call(["eval", "RUN", "--split", "unseen"]) == 0
    told = capsys.readouterr().out
    assert "94.1%" in told
    assert "interval" not in told
    assert "±" not in told


# Labels


def test_labels_go_where_one_says(
    agent: Even, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = tmp_path / "run", tmp_path / "deep" / "labels.json"
    run.mkdir()
    assert call(["label", str(run)]) == 2
    assert "--out" in capsys.readouterr().err
    assert call(["label", str(run), "--out", str(out)]) == 0
    labels = json.loads(out.read_text())
    assert labels == {str(2 * i): True for i in range(16)} | {"1": False}
    assert list(run.iterdir()) == []
    with pytest.raises(SystemExit):
        call(["label", "--help"])
    assert "A tool for simulations: it sees the tasks of all clients" in " ".join(
        capsys.readouterr().out.split()
    )


def test_labels_of_a_model_are_of_the_recipes_world(
    agent: Even, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built = []

    def build(config: Config) -> Even:
        built.append(config)
        return agent

    monkeypatch.setattr(agents, "build_algorithm", build)
    monkeypatch.setattr(agent, "init", lambda seed: {"theta": {}}, raising=False)
    out = tmp_path / "labels.json"
    flags = ["--recipe", "fedagent/demo", "--world.train", "70", "--out", str(out)]
    assert call(["label", "models/mine", *flags]) == 0
    assert json.loads(out.read_text()) == {str(2 * i): True for i in range(16)} | {"1": False}
    (config,) = built
    assert (config.algorithm.model, config.world.train) == ("models/mine", 70)
    assert call(["label", "models/mine", "--out", str(out), "--world.train", "70"]) == 2
    assert "--recipe RECIPE" in capsys.readouterr().err


def test_a_place_for_labels_is_tried_before_the_episodes(
    agent: Even, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "labels.json"
    assert call(["label", "RUN", "--out", str(out)]) == 2
    told = capsys.readouterr().err
    assert f"--out {out}: cannot write this file" in told
    assert told.count("\n") == 1
    assert agent.played == 0


# By client


@pytest.mark.parametrize(("agents_", "head"), [(True, "success"), (False, "mean return")])
def test_the_column_says_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    agents_: bool, head: str,
) -> None:  # fmt: skip
    plain = SimpleNamespace(evaluate_clients=Even(1).evaluate_clients)
    monkeypatch.setattr(evaluate, "build_algorithm", lambda config: Even(1) if agents_ else plain)
    (tmp_path / "checkpoints").mkdir()
    RunDir(tmp_path).checkpoint(round_loop.Snapshot(3, [{"theta": {}}]))
    recipe = {"name": "x", "federation": {"clients": 2}, "algorithm": {"name": "pavg"},
              "world": {"name": "cartpole"}}  # fmt: skip
    (tmp_path / "config.toml").write_text(to_toml(resolve(recipe)))
    assert call(["eval", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert ("success" in told, "mean return" in told) == (head == "success", head != "success")


# Rewards that are numbers


def test_the_return_leads_where_rewards_are_numbers(
    agent: Even, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.world.settings = Prompts(reward=("./mine.py:score",))
    assert call(["eval", "RUN", "--split", "unseen"]) == 0
    told = capsys.readouterr().out
    assert "mean return on unseen" in told
    everything = next(line for line in told.splitlines() if " all " in line)
    assert re.search(r"17 .* 0\.721 .* 94\.1%", everything)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "RUN").mkdir()
    (tmp_path / "RUN" / "config.toml").write_text(
        'seed = 4\n[algorithm]\nname = "fedagent"\n[world]\nname = "prompts"\n'
    )
    assert call(["eval", "RUN", "--split", "unseen", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["return"] == pytest.approx((16 * 0.75 + 0.25) / 17)
    assert (found["run"], found["world"], found["run_seed"]) == ("RUN", "prompts", 4)
    assert found["measure"] == "mean return"
    assert found["mean"] == found["all"]["return"] == found["return"]
    assert [(row["name"], row["tasks"], row["success"]) for row in found["rows"]] == [
        ("even", 16, 1.0), ("odd", 1, 0.0),
    ]  # fmt: skip
    low, high = found["all"]["interval"]
    assert low < found["all"]["success"] < high


@pytest.mark.parametrize("reward", ["./my_rewards.py:length", "exact_match"])
def test_clients_are_told_by_return_where_rewards_are_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reward: str
) -> None:
    monkeypatch.chdir(write_rewards(tmp_path).parent)
    monkeypatch.setattr(evaluate, "build_algorithm", lambda config: Even(1))
    (tmp_path / "checkpoints").mkdir()
    RunDir(tmp_path).checkpoint(round_loop.Snapshot(3, [{"theta": {}}]))
    recipe = {"name": "x", "federation": {"clients": 2}, "algorithm": {"name": "fedagent"},
              "world": {"name": "prompts", "reward": [reward],
                        "source": str(write_rows(tmp_path / "sums.jsonl"))}}  # fmt: skip
    (tmp_path / "config.toml").write_text(to_toml(resolve(recipe)))
    assert call(["eval", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    if reward == "exact_match":
        assert (found["measure"], found["by_client"]) == ("success", [0.25, 0.75])
        assert "success" not in found
        assert found["rows"][1] == {
            "name": "1", "tasks": 4, "success": 0.75, "return": None,
            "interval": pytest.approx([0.301, 0.954], abs=1e-3),
        }  # fmt: skip
        assert found["all"] == {
            "name": "all", "tasks": 8, "success": 0.5, "interval": None, "return": None,
        }  # fmt: skip
        return
    assert [row["return"] for row in found["rows"]] == [0.75, 2.25]
    assert [row["success"] for row in found["rows"]] == [0.25, 0.75]
    assert (found["measure"], found["by_client"]) == ("mean return", [0.75, 2.25])
    assert found["success"] == [0.25, 0.75]
    assert call(["eval", str(tmp_path)]) == 0
    assert "mean 1.5000, worst 0.7500, best 2.2500; success 50.0%" in capsys.readouterr().out


# In Python


def test_the_door_gives_what_the_commands_print(
    agent: Even, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = api.Run(tmp_path)
    found = run.evaluate_split("unseen")
    assert (found.round, found.split, found.models) == (3, "unseen", 1)
    assert dict(zip(found.category, found.won)) == {"even": 1.0, "odd": 0.0}
    assert found.mean == pytest.approx(16 / 17)
    assert run.label(tmp_path / "labels.json").sum() == 16
    assert capsys.readouterr() == ("", "")
