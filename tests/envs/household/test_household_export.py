"""Problems written as PDDL and as game files, and read back the same."""

from __future__ import annotations

import hashlib
import json
import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.household_kitchen import KITCHEN

from fedrl.core.types import UserError
from fedrl.envs.household import alfworld
from fedrl.envs.household.domain import domain, grammar, logic
from fedrl.envs.household.export import to_pddl, write_game
from fedrl.envs.household.game import Game
from fedrl.envs.household.generate import generate
from fedrl.envs.household.layout import GENERATIONS, Layout
from fedrl.envs.household.pddl import parse
from fedrl.envs.household.problem import KINDS
from fedrl.envs.household.rooms import SIZES


def again(problem):
    return parse(to_pddl(problem), problem.id, problem.task, problem.scene)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10**6), st.sampled_from(SIZES), st.sampled_from(KINDS))
def test_a_generated_problem_reads_back_as_it_was(index, size, kind):
    problem = generate(0, index, size, kind)
    assert again(problem) == problem


def test_odd_states_survive_the_round_trip():
    assert again(KITCHEN) == KITCHEN


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


@pytest.mark.parametrize(
    "generation, digests",
    [
        ("2.1.2", ("6ee06677b93079e6", "3ab5bff5c4da5608")),
        ("2.1.1", ("855e2e006b897942", "f776ba05d73167bf")),
    ],
)
def test_domain_and_grammar_stay_the_same_to_the_byte(generation, digests):
    """The real engine, which says more, is not installed everywhere."""
    written = (domain(generation), grammar("put a mug in desk", generation))
    found = tuple(hashlib.sha256(text.encode()).hexdigest()[:16] for text in written)
    assert found == digests


def _calls(text):
    return re.findall(r"#([\w.()]+)#", text)


def test_a_task_with_quotation_marks_stays_one_string():
    rules = json.loads(grammar('put a "big" mug in shelf', "2.1.2").split('"""')[1])
    assert rules["task"] == [{"rhs": 'Your task is to: put a "big" mug in shelf.'}]


@pytest.mark.slow
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
