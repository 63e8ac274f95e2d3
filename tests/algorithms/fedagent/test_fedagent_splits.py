"""Who has seen which task: clients, the evaluation and the warm start never share one."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from fedrl.algorithms.fedagent.algorithm import FedAgent
from fedrl.algorithms.fedagent.settings import Settings
from fedrl.core.types import UserError
from fedrl.envs.household.world import Household
from fedrl.envs.household.world import Settings as Home
from fedrl.envs.text import PartitionedWorld

WORLD = Household(Home(size="tiny", train=40, unseen=60, public=20))
TRAIN = [task.id for task in WORLD.tasks("train")]


def agent(*shares: list[str], **settings) -> FedAgent:
    dealt = PartitionedWorld(WORLD, tuple(tuple(share) for share in shares))
    return FedAgent(Settings(**settings), dealt, 1, [[i] for i in range(len(shares))])


def folder(path: Path, tasks: list[str]) -> str:
    (path / "warmstart.json").write_text(json.dumps({"tasks": tasks}))
    return str(path)


def test_a_task_that_is_evaluated_is_never_trained_on():
    unseen = [task.id for task in WORLD.tasks("unseen")]
    with pytest.raises(UserError, match="both trained on and evaluated"):
        agent(TRAIN[:3], [TRAIN[4], unseen[7]])


@pytest.mark.parametrize(("split", "words"), [("unseen", "evaluated"), ("train", "a client's")])
def test_what_a_warm_start_was_shown_is_nobodys_else(tmp_path, split, words):
    shown = [task.id for task in WORLD.tasks("public")]
    agent(TRAIN[:5], model=folder(tmp_path, shown))
    more = [*shown, next(iter(WORLD.tasks(split))).id]
    with pytest.raises(UserError, match=f"its warm start was shown .* which is {words}"):
        agent(TRAIN[:5], model=folder(tmp_path, more))


@pytest.mark.parametrize("count", [1, 7, 30, 59, 60, 100, 0])
def test_an_evaluation_of_some_tasks_is_spread_over_all(count):
    tasks = list(WORLD.tasks("unseen"))
    chosen = [tasks.index(task) for task in agent(TRAIN[:5], eval_tasks=count).eval_tasks]
    assert len(chosen) == len(set(chosen)) == min(count or len(tasks), len(tasks))
    gaps = {b - a for a, b in pairwise(chosen)}
    assert max(gaps, default=1) - min(gaps, default=1) <= 1
