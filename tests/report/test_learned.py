"""What a report says first of one run of a language agent, and of small evaluations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.pages import write_run

from fedrl.report import terminal
from fedrl.report.learned import few_tasks_warnings
from fedrl.report.page import headline
from fedrl.report.run_groups import Group, group_runs, main_metric
from fedrl.runs.evaluated_tasks import few_tasks
from fedrl.runs.read import load

WON = '[world]\nname = "household"\n'
PAID = '[world]\nname = "prompts"\nreward = ["./mine.py:score"]\n'


def groups(folder: Path, world: str = WON, tasks: int = 200, seeds: int = 1, **more) -> list[Group]:
    """Runs whose success goes from 47% to 55%, and their return from 0.1 to 0.3."""
    runs = []
    for seed in range(seeds):
        path = write_run(
            folder / str(seed), seed=seed, rounds=3, done=3, algorithm='name = "fedagent"', **more
        )
        config = path / "config.toml"
        config.write_text(config.read_text().replace('[world]\nname = "cartpole"\n', world))
        meta = json.loads((path / "meta.json").read_text())
        (path / "meta.json").write_text(json.dumps(meta | {"evaluated_tasks": tasks}))
        values = [(0.47, 0.1), (0.5, 0.2), (0.5, 0.25), (0.55, 0.3)]
        lines = [
            {"round": r, "eval/success": won, "eval/return": paid, "env/steps": r,
             "cohort/failed_so_far": 0}
            for r, (won, paid) in enumerate(values)
        ]  # fmt: skip
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        runs.append(load(path))
    return group_runs(runs)


def test_one_run_says_what_was_learned(tmp_path: Path):
    found = groups(tmp_path)
    assert headline(found, main_metric(found)).learned == (
        ": before training 47.0% (40.2% – 53.9%), after round 3 55.0% (48.1% – 61.7%); "
        "95% intervals of 200 tasks"
    )


def test_without_the_count_there_is_no_interval_and_of_more_seeds_no_such_words(tmp_path: Path):
    old = groups(tmp_path / "old", tasks=0)
    assert headline(old, "eval/success").learned == ": before training 47.0%, after round 3 55.0%"
    assert headline(groups(tmp_path / "two", seeds=2), "eval/success").learned == ""


def test_where_rewards_are_numbers_the_return_leads_and_success_stands_beside_it(tmp_path: Path):
    found = groups(tmp_path, PAID)
    assert main_metric(found) == "eval/return"
    said = headline(found, "eval/return")
    assert said.finals[0][1] == "0.3"
    assert said.learned == " (success rate 55.0%): before training 0.1, after round 3 0.3"
    first, second = terminal.summary(found).splitlines()[:2]
    assert "final return  final success rate" in first
    assert "0.3" in second
    assert "55.0%" in second


@pytest.mark.parametrize(("count", "points"), [(4, "25"), (29, "3.4"), (30, ""), (0, "")])
def test_an_evaluation_in_which_chance_decides_is_called_that(
    tmp_path: Path, count: int, points: str
):
    lines = few_tasks_warnings(groups(tmp_path, tasks=count))
    if not points:
        assert lines == []
        return
    assert few_tasks(count).startswith(f"evaluated on {count} tasks: one task is {points} points")
    assert lines == [f"E{few_tasks(count)[1:]}."]
