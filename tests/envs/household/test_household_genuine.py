"""The genuine ALFWorld games: every one loads, none is won at the start, the expert wins all."""

from __future__ import annotations

import pytest
from support.realdata import data, parity

from fedrl.datasets import alfworld
from fedrl.envs.household.expert import demonstrate
from fedrl.envs.household.game import Game
from fedrl.envs.household.layout import Layout
from fedrl.envs.household.parity import replay
from fedrl.envs.household.pddl import parse
from fedrl.envs.household.problem import FOLDERS

pytestmark = pytest.mark.realdata


@pytest.mark.slow
@pytest.mark.parametrize(
    "split, count", [("train", 3553), ("valid_seen", 140), ("valid_unseen", 134)]
)
def test_the_expert_wins_every_genuine_game_within_fifty_steps(split, count):
    played = 0
    for record in alfworld.games(data("alfworld"), split):
        problem = parse(record.pddl_problem, record.id, record.task, record.floor_plan)
        assert problem.goal.kind == FOLDERS[record.task_type]
        game = Game(Layout(problem))
        assert not game.won
        commands = demonstrate(game)
        assert game.won, record.id
        assert len(commands) <= 50
        played += 1
    assert played == count


@pytest.mark.parametrize("generation", ["2.1.1", "2.1.2"])
def test_the_real_engines_transcripts_replay_without_a_mismatch(generation):
    files = sorted(parity().glob(f"alfworld_{generation}*.jsonl.xz"))
    assert files
    for line in replay(files, data("alfworld")):
        assert line.passed, line.examples
