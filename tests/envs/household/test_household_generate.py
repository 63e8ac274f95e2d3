"""Generated household problems: solvable, sized as promised, all different, splits apart."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrl.core.types import UserError
from fedrl.envs.household import generate as module
from fedrl.envs.household.expert import demonstrate
from fedrl.envs.household.game import Game
from fedrl.envs.household.generate import (
    SPLITS,
    TRAINED,
    fingerprint,
    generate,
    task,
    tasks,
)
from fedrl.envs.household.layout import Layout
from fedrl.envs.household.problem import KINDS
from fedrl.envs.household.rooms import SIZES, house
from fedrl.envs.household.scenes import SCENES, scene

problems = st.builds(
    generate,
    seed=st.integers(0, 2**32),
    index=st.integers(0, 2**32),
    size=st.sampled_from(SIZES),
    kind=st.sampled_from((None, *KINDS)),
)


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(problems)
def test_a_problem_is_not_won_at_the_start_and_the_expert_wins_it(problem):
    game = Game(Layout(problem))
    assert not game.won
    demonstrate(game)
    assert game.won


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(problems)
def test_ids_are_unique_and_sorted_and_things_lie_where_they_can(problem):
    ids = [x.id.lower() for x in (*problem.receptacles, *problem.things)]
    assert len(set(ids)) == len(ids)
    assert [r.id.lower() for r in problem.receptacles] == sorted(ids[: len(problem.receptacles)])
    assert [t.id.lower() for t in problem.things] == sorted(ids[len(problem.receptacles) :])
    receptacles = {r.id: r for r in problem.receptacles}
    things = {t.id: t for t in problem.things}
    for thing, receptacle in problem.inside:
        assert things[thing].locations == (receptacles[receptacle].location,)
        if things[thing].type != "DeskLamp":
            assert (receptacles[receptacle].type, things[thing].type) in problem.can_contain
    assert len({thing for thing, _ in problem.inside}) == len(problem.inside)
    assert {place for t in problem.things for place in t.locations} <= set(problem.locations)
    assert problem.start not in {r.location for r in problem.receptacles}


@pytest.mark.parametrize(
    "size, room, receptacles, things",
    [
        ("tiny", "", (6, 8), (4, 6)),
        ("small", "", (9, 12), (8, 12)),
        ("medium", "", (14, 20), (15, 24)),
        ("dataset", "kitchen", (25, 40), (30, 50)),
    ],
)
def test_sizes_are_as_promised(size, room, receptacles, things):
    made = [p for i in range(200) if (p := generate(3, i, size)).scene.startswith(room)]
    counts = [len(p.receptacles) for p in made]
    assert receptacles[0] <= min(counts) < max(counts) <= receptacles[1]
    placed = [len(p.inside) for p in made]
    assert things[0] <= min(placed) < max(placed) <= things[1]


def test_a_problem_is_the_same_in_every_process_and_version():
    made = [
        # Sets print in any order, so without those: they follow from the types.
        (p.id, p.task, p.goal, p.start, p.receptacles, [(t.id, t.locations) for t in p.things])
        for p in (generate(7, i, size) for size in SIZES for i in range(3))
    ]
    assert hashlib.sha256(repr(made).encode()).hexdigest()[:16] == "978f0f012a1f38c5"


def test_a_given_kind_and_scene_are_kept_and_the_scene_is_the_same_house():
    first, second = (generate(seed, 1, "small", "heat", scene=7) for seed in (0, 1))
    assert first.scene == second.scene == "kitchen-7"
    assert first.goal.kind == second.goal.kind == "heat"
    assert first.receptacles == second.receptacles
    assert first.inside != second.inside


@pytest.mark.parametrize("size", SIZES)
def test_scenes_differ_in_furniture_and_every_kind_has_a_goal_in_each(size):
    for room in house().rooms.values():
        plans = [scene(room.name, size, number) for number in range(SCENES)]
        assert len({plan.furniture for plan in plans}) == SCENES
        for plan in plans:
            for kind in room.kinds:
                assert module._goals(plan, size, kind), (plan.name, kind)
            places = [r.location for r in plan.receptacles]
            if size != "dataset":
                assert len(set(places)) == len(places)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_five_thousand_games_are_all_different_and_the_expert_wins_each(size):
    found = set()
    for problem in tasks("train", 5000, 0, size):
        found.add(fingerprint(problem))
        game = Game(Layout(problem))
        assert len(demonstrate(game)) <= 50
        assert game.won, problem.id
    assert len(found) == 5000


@pytest.mark.slow
def test_no_task_comes_twice_although_independent_draws_repeat():
    shares, count = (("look", 1.0),), 3000
    alone = module._SplitSketches("unseen", 0, "tiny", shares)
    for index in range(count):
        alone.drawn.clear()
        alone._draw(index)
    assert len(set(alone.listed)) < count
    made = {fingerprint(p) for p in tasks("unseen", count, 0, "tiny", dict(shares))}
    assert len(made) == count


def test_a_fingerprint_sees_content_and_not_coordinates_or_words():
    problem = generate(0, 0, "tiny", "pick", scene=0)
    again = {fingerprint(generate(0, i, "tiny", "pick", scene=0)) for i in range(300)}
    assert len(again) > 290
    sketch = module._SplitSketches("train", 0, "tiny", (("pick", 1.0),))[0]
    one, two = (module._build(module.Dice(_rng(i)), "x", sketch, "tiny") for i in (0, 1))
    assert one.things != two.things
    assert fingerprint(one) == fingerprint(two) != fingerprint(problem)


def _rng(seed):
    return module.seeding.generator(seed, "test")


@pytest.mark.slow
@pytest.mark.parametrize("size", ["tiny", "medium"])
def test_splits_share_no_task_whatever_their_seeds_and_unseen_no_scene(size):
    made = {(split, seed): tasks(split, 150, seed, size) for split in SPLITS for seed in (0, 1)}
    prints = {key: {fingerprint(p) for p in found} for key, found in made.items()}
    for (split, seed), found in prints.items():
        for (other, its_seed), others in prints.items():
            if split != other:
                assert not found & others, (split, seed, other, its_seed)
    scenes = {split: {p.scene for s in (0, 1) for p in made[split, s]} for split in SPLITS}
    trained = {f"{room}-{number}" for room in house().rooms for number in range(TRAINED)}
    assert scenes["train"] | scenes["seen"] | scenes["public"] <= trained
    assert not scenes["unseen"] & trained


def test_a_task_does_not_depend_on_how_many_are_made_or_in_which_order():
    late = task("seen", 30, 5, "tiny")
    module._split_sketches.cache_clear()
    made = tasks("seen", 40, 5, "tiny")
    assert made[30] == late
    assert made[30].id == "seen/00030"
    assert tasks("seen", 10, 5, "tiny") == made[:10]


def test_the_mix_gives_the_kinds_their_shares():
    made = Counter(p.goal.kind for p in tasks("train", 600, 0, "tiny", {"heat": 3, "look": 1}))
    assert set(made) == {"heat", "look"}
    assert 2 < made["heat"] / made["look"] < 4.5
    even = Counter(p.goal.kind for p in tasks("train", 600, 0, "tiny"))
    assert set(even) == set(KINDS)
    assert min(even.values()) > 60


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: generate(0, 0, "smal"), "size is 'smal'; did you mean 'small'"),
        (lambda: generate(0, 0, kind="heating"), "kind is 'heating'; did you mean 'heat'"),
        (lambda: generate(0, 0, scene=SCENES), f"scene is {SCENES}; there are {SCENES}"),
        (lambda: tasks("valid", 1), "split is 'valid'"),
        (lambda: tasks("train", 1, mix={"picks": 1}), "mix is 'picks'; did you mean 'pick'"),
        (lambda: tasks("train", 1, mix={"pick": 0}), "mix: give the kinds shares"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(UserError, match=words):
        call()


def test_the_tables_put_things_only_where_they_fit():
    for room in house().rooms.values():
        for otype, places in room.things.items():
            for place in places:
                assert otype in house().fits[place], (room.name, otype, place)
