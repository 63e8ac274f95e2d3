"""A kitchen small enough to know by heart, with the odd corners of the genuine games in it."""

from __future__ import annotations

from dataclasses import replace

from fedrl.envs.household.problem import Goal, Problem, Receptacle, Thing

HAND = frozenset({"pickupable"})
FOOD = HAND | {"cleanable", "heatable", "coolable", "sliceable"}

KITCHEN = Problem(
    id="test/kitchen",
    task="put a hot apple in fridge",
    goal=Goal("heat", "Apple", "Fridge"),
    start="loc_bar_0",
    locations=("loc_bar_0", "loc_bar_1", "loc_bar_2", "loc_bar_3", "loc_bar_4"),
    receptacles=(
        Receptacle("CounterTop_bar_1", "CounterTop", "loc_bar_1"),
        Receptacle("Fridge_bar_1", "Fridge", "loc_bar_2", openable=True),
        Receptacle("Microwave_bar_1", "Microwave", "loc_bar_3", openable=True),
        Receptacle("Shelf_bar_1", "Shelf", "loc_bar_1"),
        Receptacle("Sink_bar_1_bar_SinkBasin", "SinkBasin", "loc_bar_4"),
    ),
    things=(
        Thing("Apple_bar_1", "Apple", ("loc_bar_1",), FOOD),
        Thing("Apple_bar_2", "Apple", ("loc_bar_1",), FOOD),
        Thing("DeskLamp_bar_1", "DeskLamp", ("loc_bar_1",), frozenset({"toggleable"})),
        Thing("Knife_bar_1", "Knife", ("loc_bar_4",), HAND | {"cleanable"}),
        Thing("Mug_bar_1", "Mug", ("loc_bar_1",), HAND | {"isReceptacleObject", "coolable"}),
        Thing("Spoon_bar_1", "Spoon", ("loc_bar_1",), HAND),
    ),
    inside=(
        ("Apple_bar_1", "CounterTop_bar_1"),
        ("Apple_bar_2", "CounterTop_bar_1"),
        ("DeskLamp_bar_1", "Shelf_bar_1"),
        ("Knife_bar_1", "Sink_bar_1_bar_SinkBasin"),
        ("Mug_bar_1", "CounterTop_bar_1"),
        ("Mug_bar_1", "Shelf_bar_1"),  # listed in two receptacles, as in the genuine games
    ),
    can_contain=frozenset(
        (receptacle, thing)
        for receptacle in ("CounterTop", "Fridge", "Microwave", "Shelf", "SinkBasin")
        for thing in ("Apple", "Mug", "Spoon", "Knife")
        if (receptacle, thing) not in {("Fridge", "Knife"), ("Microwave", "Knife")}
    ),
    held_in=(("Spoon_bar_1", "Mug_bar_1"),),
    scene="kitchen",
)


def kitchen(kind: str, thing: str, target: str) -> Problem:
    return replace(KITCHEN, goal=Goal(kind, thing, target))
