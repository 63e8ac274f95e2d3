"""The household engine on a hand-made kitchen, sentence by sentence, and under random play."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.household_kitchen import KITCHEN, kitchen

from fedrl.core.types import UserError
from fedrl.envs.household.game import NOTHING, Game
from fedrl.envs.household.layout import GENERATIONS, Layout, kind_of, listed, numbered


def play(*commands: str, generation: str = "2.1.2") -> Game:
    game = Game(Layout(KITCHEN, generation))
    for command in commands:
        assert game.step(command) != NOTHING, command
    return game


def test_the_first_of_a_kind_gets_the_highest_number():
    assert numbered(["A_bar_1", "A_bar_2", "B_bar_1"]) == ["a 2", "a 1", "b 1"]
    assert kind_of("Sink_bar_1_bar_SinkBasin") == "sinkbasin"
    assert kind_of("Bathtub_bar_1_bar_BathtubBasin") == "bathtubbasin"
    assert [listed(["x"] * n) for n in range(3)] == ["nothing", "a x", "a x, and a x"]


def test_the_intro_lists_receptacles_and_the_task():
    assert Game(Layout(KITCHEN)).reset() == (
        "-= Welcome to TextWorld, ALFRED! =-\n\n"
        "You are in the middle of a room. Looking quickly around you, you see a countertop 1, "
        "a fridge 1, a microwave 1, a shelf 1, and a sinkbasin 1.\n\n"
        "Your task is to: put a hot apple in fridge."
    )


def test_a_hot_apple_ends_in_the_fridge():
    game = Game(Layout(KITCHEN))
    dialogue = [
        ("look", "You are in the middle of a room. Looking quickly around you, you see nothing."),
        (
            "go to countertop 1",
            "You arrive at countertop 1. On the countertop 1, you see a apple 2, a apple 1, "
            "and a mug 1.",
        ),
        ("look", "You are facing the countertop 1, and shelf 1. Next to it, you see nothing."),
        ("go to shelf 1", NOTHING),  # it stands at the same place
        ("take apple 2 from countertop 1", "You pick up the apple 2 from the countertop 1."),
        ("take mug 1 from shelf 1", NOTHING),  # hands are full
        ("inventory", "You are carrying: a apple 2."),
        ("examine apple 2", "There's nothing special about apple 2."),
        ("go to microwave 1", "You arrive at microwave 1. The microwave 1 is closed."),
        ("heat apple 2 with microwave 1", "You heat the apple 2 using the microwave 1."),
        ("examine apple 2", "This is a hot apple 2."),
        ("go to fridge 1", "You arrive at fridge 1. The fridge 1 is closed."),
        ("move apple 2 to fridge 1", NOTHING),
        ("open fridge 1", "You open the fridge 1. The fridge 1 is open. In it, you see nothing."),
    ]
    for command, answer in dialogue:
        assert game.step(command) == answer
        assert not game.won
    assert game.step(" move apple 2 to fridge 1\n") == "You move the apple 2 to the fridge 1."
    assert game.won


def test_the_older_wording():
    game = play("go to countertop 1", "take apple 1 from countertop 1", generation="2.1.1")
    assert "put apple 1 in/on countertop 1" in game.admissible
    assert game.step("help") == NOTHING
    assert "help" not in game.admissible
    assert game.step("go to fridge 1").startswith("You arrive at loc 3. The fridge 1")
    assert game.step("open fridge 1") != NOTHING
    assert game.step("put apple 1 in/on fridge 1") == "You put the apple 1 in/on the fridge 1."


def test_states_are_told_together():
    game = play("go to sinkbasin 1", "take knife 1 from sinkbasin 1", "go to countertop 1")
    assert game.step("slice apple 1 with knife 1") == "You sliced the apple 1 with the knife 1."
    for command in ("move knife 1 to countertop 1", "take apple 1 from countertop 1"):
        assert game.step(command) != NOTHING
    told = []
    for command in (
        "go to fridge 1", "cool apple 1 with fridge 1", "go to sinkbasin 1",
        "clean apple 1 with sinkbasin 1", "go to microwave 1", "heat apple 1 with microwave 1",
    ):  # fmt: skip
        assert game.step(command) != NOTHING
        told.append(game.step("examine apple 1"))
    assert told == [
        "This is a sliced apple 1.", "This is a cool sliced apple 1.",
        "This is a cool sliced apple 1.", "This is a cool and clean sliced apple 1.",
        "This is a cool and clean sliced apple 1.", "This is a hot and clean sliced apple 1.",
    ]  # fmt: skip


def test_an_object_listed_twice_stays_where_it_was_not_taken_from():
    game = play("go to countertop 1", "take mug 1 from shelf 1")
    assert game.step("examine countertop 1").endswith("a apple 2, a apple 1, and a mug 1.")
    assert game.step("examine mug 1") == "This is a normal mug 1. In it, you see a spoon 1."
    assert game.step("move mug 1 to countertop 1") != NOTHING
    # Taken from the shelf and put beside it at the same place: now it is "next to it".
    assert game.step("look").endswith("Next to it, you see a mug 1.")
    assert game.step("examine countertop 1").count("mug 1") == 1


def test_look_is_won_with_the_object_in_hand_at_a_lamp_that_is_on():
    game = Game(Layout(kitchen("look", "Knife", "DeskLamp")))
    for command in ("go to shelf 1", "use desklamp 1", "go to sinkbasin 1"):
        assert game.step(command) != NOTHING
    game.step("take knife 1 from sinkbasin 1")
    assert not game.won
    game.step("go to countertop 1")  # the lamp's place
    assert game.won


def test_two_must_be_in_the_same_receptacle():
    game = Game(Layout(kitchen("pick_two", "Apple", "SinkBasin")))
    for n in (1, 2):
        for command in (
            "go to countertop 1", f"take apple {n} from countertop 1",
            "go to sinkbasin 1", f"move apple {n} to sinkbasin 1",
        ):  # fmt: skip
            assert not game.won
            assert game.step(command) != NOTHING
    assert game.won


def test_an_unknown_generation_is_named():
    with pytest.raises(UserError, match=r"2\.1\.3.*2\.1\.2"):
        Layout(KITCHEN, "2.1.3")


def invariants(game: Game) -> None:
    layout = game.layout
    held = game.holding
    twice = {"Mug_bar_1"}
    for o, thing in enumerate(layout.problem.things):
        inside = [r for r, content in enumerate(game.contents) if o in content]
        if thing.id not in twice:
            assert len(inside) + (o == held) <= 1, f"{thing.id} in two places"
        states = game.states_of(o)
        assert not {"isHot", "isCool"} <= states
    assert all(content == sorted(set(content)) for content in game.contents)
    assert -1 <= held < len(layout.thing_names)


WORDS = [
    "go to", "take", "move", "put", "from", "to", "in/on", "with", "open", "close", "examine",
    "use", "slice", "heat", "clean", "cool", "look", "inventory", "help", "apple 1", "apple 2",
    "mug 1", "knife 1", "fridge 1", "microwave 1", "shelf 1", "countertop 1", "sinkbasin 1",
    "desklamp 1", "\n", "  ", "", "0", "-1", "🍎", "apple", "APPLE 1", "'; drop",
]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.integers(0, 10**6),
            st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join),
            st.text(max_size=20),
        ),
        max_size=60,
    ),
    st.sampled_from(GENERATIONS),
)
def test_random_and_garbled_play_keeps_the_world_whole(moves, generation):
    game = Game(Layout(KITCHEN, generation))
    for move in moves:
        before = list(game.admissible)
        command = before[move % len(before)] if isinstance(move, int) else move
        facts = (game.place, game.holding, list(game.opened), [list(c) for c in game.contents])
        answer = game.step(command)
        if command.strip() in before:
            assert answer != NOTHING
        else:
            assert answer == NOTHING
            assert facts == (game.place, game.holding, game.opened, game.contents)
        assert game.admissible == sorted(set(game.admissible))
        invariants(game)


def test_a_reset_forgets_everything():
    layout = Layout(KITCHEN)
    game = Game(layout)
    first = list(game.admissible)
    for command in ("go to countertop 1", "take mug 1 from shelf 1", "go to fridge 1"):
        game.step(command)
    game.step("cool mug 1 with fridge 1")
    game.reset()
    fresh = Game(layout)
    assert game.admissible == first
    for slot in ("contents", "opened", "holding", "place", "places", "states", "left", "won"):
        assert getattr(game, slot) == getattr(fresh, slot)
