"""The expert wins from every state it can be put into, also after an agent has made a mess."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.household_kitchen import kitchen

from fedrl.envs.household.expert import Expert, demonstrate
from fedrl.envs.household.game import Game
from fedrl.envs.household.layout import GENERATIONS, Layout

GOALS = [
    ("pick", "Knife", "CounterTop"),
    ("pick", "Mug", "Fridge"),
    ("look", "Knife", "DeskLamp"),
    ("clean", "Apple", "Microwave"),
    ("heat", "Apple", "Shelf"),
    ("cool", "Mug", "SinkBasin"),
    ("pick_two", "Apple", "Fridge"),
]


@pytest.mark.parametrize("goal", GOALS, ids="-".join)
@pytest.mark.parametrize("search", [False, True])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_it_wins_every_type_of_task(goal, search, generation):
    game = Game(Layout(kitchen(*goal), generation))
    commands = demonstrate(game, search)
    assert game.won
    assert len(commands) <= (25 if search else 11)
    game.reset()
    for command in commands:  # a demonstration is a list of commands that anyone can replay
        assert not game.won
        assert command in game.admissible
        game.step(command)
    assert game.won


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(GOALS), st.booleans(), st.lists(st.integers(0, 10**6), max_size=40))
def test_it_recovers_from_any_mess(goal, search, moves):
    game = Game(Layout(kitchen(*goal)))
    expert = Expert(game, search)
    for move in moves:
        if game.won:
            return
        command = game.admissible[move % len(game.admissible)]
        game.step(command)
        expert.watch(command)
    for _ in range(40):
        if game.won:
            return
        command = expert.advise()
        assert command in game.admissible
        game.step(command)
        expert.watch(command)
    raise AssertionError("not won in 40 steps")


def test_the_searching_expert_does_not_know_what_it_has_not_seen():
    game = Game(Layout(kitchen("pick", "Knife", "Shelf")))
    commands = demonstrate(game, search=True)
    assert "go to countertop 1" in commands  # looked there first: the knife is in the sink
    assert len(commands) > len(demonstrate(Game(game.layout)))
