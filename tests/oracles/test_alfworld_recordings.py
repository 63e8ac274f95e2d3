"""The genuine ALFWorld games and recordings of the real engine: ours plays and writes the same."""

from __future__ import annotations

import itertools
import re

import pytest
from support.realdata import data, parity

from fedrl.datasets import alfworld
from fedrl.envs.household.expert import demonstrate
from fedrl.envs.household.export import to_pddl
from fedrl.envs.household.game import Game
from fedrl.envs.household.layout import Layout
from fedrl.envs.household.parity import replay
from fedrl.envs.household.pddl import parse
from fedrl.envs.household.problem import FOLDERS
from fedrl.envs.household.rooms import flags, house

pytestmark = [pytest.mark.slow, pytest.mark.realdata]


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


def test_genuine_problems_survive_the_round_trip():
    for record in itertools.islice(alfworld.games(data("alfworld"), "valid_unseen"), 60):
        problem = parse(record.pddl_problem, record.id, record.task, record.floor_plan)
        written = to_pddl(problem)
        assert parse(written, problem.id, problem.task, problem.scene) == problem


def test_the_tables_agree_with_the_genuine_games():
    pairs, able, words = set(), {}, set()
    for split in ("valid_seen", "valid_unseen", "valid_train"):
        for record in alfworld.games(data("alfworld"), split):
            problem = parse(record.pddl_problem, record.id, record.task)
            pairs |= problem.can_contain
            able |= {thing.type: thing.flags for thing in problem.things}
            goal = problem.goal
            words.add((goal.kind, _template(problem.task, goal)))
    ours = {(receptacle, t) for receptacle, found in house().fits.items() for t in found}
    assert pairs <= ours
    assert {t: flags(t) for t in able if t in _known()} == {
        t: found for t, found in able.items() if t in _known()
    }
    assert words == {(kind, text) for kind, texts in house().wordings.items() for text in texts}


def test_every_pair_that_fits_occurs_in_the_genuine_games():
    pairs = set()
    for split in ("train", "valid_seen", "valid_unseen"):
        for record in alfworld.games(data("alfworld"), split):
            pairs |= parse(record.pddl_problem, record.id, record.task).can_contain
    assert pairs == {(receptacle, t) for receptacle, found in house().fits.items() for t in found}


def _known() -> set[str]:
    carried = {otype for room in house().rooms.values() for otype in room.things}
    return carried | {t for types in house().able.values() for t in types}


def _template(text, goal):
    text = re.sub(rf"\b{goal.object.lower()}\b", "{o}", text)
    return re.sub(rf"\b{goal.target.lower()}\b", "{r}", text)
