"""Our games, domain and grammar in the real ALFWorld engine: the same words, commands and end."""

from __future__ import annotations

import itertools
import json
import lzma
import sys

import numpy as np
import pytest
from support.realdata import data, parity

from fedrl.datasets import alfworld as dataset
from fedrl.envs.household import alfworld
from fedrl.envs.household.expert import Expert
from fedrl.envs.household.export import write_game
from fedrl.envs.household.game import Game
from fedrl.envs.household.generate import generate
from fedrl.envs.household.layout import Layout
from fedrl.envs.household.pddl import parse
from fedrl.envs.household.problem import KINDS
from fedrl.envs.household.rooms import SIZES
from fedrl.envs.household.world import Household, Settings

pytestmark = pytest.mark.slow


@pytest.fixture
def engine():
    reason = "install alfworld to compare with the real engine"
    pytest.importorskip("textworld", reason=reason)
    return pytest.importorskip("alfworld", reason=reason)


def compare(game, episode, command):
    """Play one command in both engines; the same words, commands and end."""
    turn = episode.step(command)
    assert game.step(command) == turn.observation
    assert list(game.admissible) == list(turn.admissible)
    assert game.won == turn.done == turn.info["won"] == bool(turn.reward)
    return turn


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size, generation", [*zip(SIZES, ["2.1.2"] * 4), ("tiny", "2.1.1")])
def test_generated_games_play_and_are_won_in_the_real_engine(engine, kind, size, generation):
    problem = generate(2, 0, size, kind)
    episode, first = alfworld.play(problem, generation)
    game = Game(Layout(problem, generation))
    assert (game.reset(), list(game.admissible)) == (first.observation, list(first.admissible))
    assert episode.goal == problem.task
    rng = np.random.default_rng(0)
    for _ in range(5):  # side trips, then the way to the goal from wherever they led
        turn = compare(game, episode, str(rng.choice(game.admissible)))
        if turn.done:
            break
    expert = Expert(game)
    while not turn.done:
        turn = compare(game, episode, expert.advise())
    assert episode.step("look").observation == "The game is over."


def test_a_game_file_and_a_household_task_play_in_the_real_engine(engine, tmp_path):
    world = alfworld.Alfworld(Household(Settings(size="tiny", unseen=3)))
    task = world.tasks("unseen")[0]
    arguments = list(sys.argv)
    episode, first = world.start(task.id)
    assert sys.argv == arguments
    problem = world.household.problem(task.id)
    write_game(problem, tmp_path / "game.tw-pddl")
    from_file, same = alfworld.play(tmp_path / "game.tw-pddl")
    assert same == first
    commands = world.demonstrate(task.id)
    for command in commands:
        turn = episode.step(command)
        assert from_file.step(command) == turn
    assert turn.done
    assert turn.reward == 1.0


@pytest.mark.realdata
@pytest.mark.parametrize("generation, count", [("2.1.2", 3), ("2.1.2_states", 1), ("2.1.1", 2)])
def test_our_domain_and_grammar_replay_the_real_engines_transcripts(engine, generation, count):
    path = parity() / f"alfworld_{generation}.jsonl.xz"
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in itertools.islice(lines, count)]
    games = {
        game.id: game
        for split in {record["id"].partition("/")[0] for record in records}
        for game in dataset.games(data("alfworld"), split)
    }
    for record in records:
        game = games[record["id"]]
        problem = parse(game.pddl_problem, game.id, game.task)
        episode, first = alfworld.play(problem, record["generation"])
        assert first.observation == record["reset"]["observation"]
        assert first.admissible == record["reset"]["admissible"]
        for step in record["steps"]:
            turn = episode.step(step["command"])
            assert turn.observation == step["observation"]
            assert turn.admissible == step["admissible"]
            assert (turn.reward, turn.done) == (step["score"], step["done"])
