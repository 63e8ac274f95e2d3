"""Problems written as PDDL and as game files: read back the same, and played by the real engine."""

from __future__ import annotations

import itertools
import json
import lzma
import re
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.household_kitchen import KITCHEN
from support.realdata import data, parity

from fedrl.core.types import UserError
from fedrl.datasets import alfworld as dataset
from fedrl.envs.household import alfworld
from fedrl.envs.household.domain import domain, grammar, logic
from fedrl.envs.household.expert import Expert
from fedrl.envs.household.export import to_pddl, write_game
from fedrl.envs.household.game import Game
from fedrl.envs.household.generate import generate
from fedrl.envs.household.layout import GENERATIONS, Layout
from fedrl.envs.household.pddl import parse
from fedrl.envs.household.problem import KINDS
from fedrl.envs.household.rooms import SIZES
from fedrl.envs.household.world import Household, Settings


def again(problem):
    return parse(to_pddl(problem), problem.id, problem.task, problem.scene)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10**6), st.sampled_from(SIZES), st.sampled_from(KINDS))
def test_a_generated_problem_reads_back_as_it_was(index, size, kind):
    problem = generate(0, index, size, kind)
    assert again(problem) == problem


def test_odd_states_survive_the_round_trip():
    assert again(KITCHEN) == KITCHEN


@pytest.mark.realdata
def test_genuine_problems_survive_the_round_trip():
    for record in itertools.islice(dataset.games(data("alfworld"), "valid_unseen"), 60):
        problem = parse(record.pddl_problem, record.id, record.task, record.floor_plan)
        assert again(problem) == problem


@pytest.mark.parametrize("generation", GENERATIONS)
def test_domain_and_grammar_name_the_same_actions_and_only_known_predicates(generation):
    text = domain(generation)
    assert text.count("(") == text.count(")")
    actions = set(re.findall(r"\(:action (\w+)", text))
    words = grammar("put a mug in shelf", generation)
    assert set(re.findall(r"^action (\w+)", words, re.MULTILINE)) == actions
    assert ("help" in actions) == (generation == "2.1.2")
    used = set(re.findall(r"\((\w+) \?", text)) - {"exists"}
    assert used <= set(logic().predicates)
    types = set(re.findall(r"(\w+)Type\)", text))
    assert types <= {name for names in logic().named.values() for name in names.split()}
    rules = json.loads(words.split('"""')[1])
    called = {name for lines in rules.values() for line in lines for name in _calls(line["rhs"])}
    called |= set(re.findall(r'feedback :: "#(.+?)#"', words))
    assert called <= set(rules)


def _calls(text):
    return re.findall(r"#([\w.()]+)#", text)


def test_a_task_with_quotation_marks_stays_one_string():
    rules = json.loads(grammar('put a "big" mug in shelf', "2.1.2").split('"""')[1])
    assert rules["task"] == [{"rhs": 'Your task is to: put a "big" mug in shelf.'}]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_game_file_has_what_alfworld_looks_for_and_a_walkthrough_that_wins(tmp_path, generation):
    for kind in KINDS:
        problem = generate(1, 0, "small", kind)
        path = tmp_path / kind / "game.tw-pddl"
        write_game(problem, path, generation)
        content = json.loads(path.read_text())
        assert content["solvable"] is True
        game = Game(Layout(problem, generation))
        for command in content["walkthrough"]:
            assert command in game.admissible
            game.step(command)
        assert game.won
        described = json.loads(path.with_name("traj_data.json").read_text())
        assert described["pddl_params"]["object_target"] == problem.goal.object
        assert (described["pddl_params"]["toggle_target"] != "") == (kind == "look")


def test_without_the_package_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "textworld", None)
    monkeypatch.setattr(alfworld, "IDLE", [])
    with pytest.raises(UserError, match="needs the package textworld: pip install alfworld"):
        alfworld.play(generate(0, 0, "tiny"))


def test_a_missing_game_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"no game file .*game\.tw-pddl"):
        alfworld.play(tmp_path / "game.tw-pddl")


# In the real engine


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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
