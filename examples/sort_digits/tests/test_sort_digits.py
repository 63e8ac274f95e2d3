"""The data and the functions by hand, and a run on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fedrl_sort_digits import correct, problems, right_places, write

import fedrl

SIZES = {"train": 80, "test": 20, "public": 40}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("data"), sizes=SIZES)


def test_the_functions_pay_what_they_should():
    said, right = ["1247", "1274", "124", " 1247\n"], ["1247"] * 4
    assert correct(prompts=[""] * 4, completions=said, answer=right) == [1.0, 0.0, 0.0, 1.0]
    assert right_places([""] * 4, said, right) == [1.0, 0.5, 0.0, 1.0]


def test_no_problem_is_in_two_files(data: Path):
    lines = {
        split: [json.loads(line) for line in (data / f"{split}.jsonl").read_text().splitlines()]
        for split in SIZES
    }
    assert {split: len(rows) for split, rows in lines.items()} == SIZES
    asked = [row["prompt"] for rows in lines.values() for row in rows]
    assert len(set(asked)) == len(asked)
    known = {row["prompt"]: row["answer"] for row in problems()}
    assert (known["up 4172="], known["down 4172="]) == ("1247", "7421")


def test_it_is_warm_started_trained_and_evaluated(data: Path, tmp_path: Path):
    rewards = ["fedrl_sort_digits:correct", "fedrl_sort_digits:right_places"]
    world = {"name": "prompts", "source": str(data), "reward": rewards, "category": "kind"}
    how = {"tasks": 40, "steps": 30, "batch": 32, "width": 32, "layers": 1}
    model = fedrl.warm_start(world | {"answer": "answer"}, tmp_path / "model", **how)
    recipe = {
        "rounds": 2,
        "federation": {"clients": 3},
        "algorithm": {
            "name": "fedagent", "model": str(model), "local_epochs": 1, "tasks": 4, "group": 3,
            "lr": 1e-3, "kl": 0.0, "answer_tokens": 6, "eval_split": "test", "device": "cpu",
        },
        "world": world | {"weights": [1.0, 0.2]},
        "partition": {"strategy": "preference", "size": 10, "omega": 2.0},
    }  # fmt: skip
    run = fedrl.run(recipe, out=tmp_path)
    assert run.status == "finished"
    assert set(run.clients["status"]) == {"ok"}
    assert {"eval/success_up", "eval/success_down"} <= run.rounds[2].keys()
    assert run.rounds[2]["env/steps"] == 2 * 3 * 4 * 3
    assert len(run.evaluate_split("test", 0).won) == 20
