"""Partitions: every promise of every strategy, against brute force where there is one."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import os
import random
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.dealt_tasks import Task, made, pool

from fedrl.config.help import comments
from fedrl.core.types import UserError
from fedrl.partition import Settings, draw_labels, partition, strategies

STRATEGIES = ["uniform", "preference", "coverage", "hardness", "scenes"]


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(
    count=st.integers(30, 120),
    clients=st.integers(1, 12),
    size=st.integers(1, 30),
    xi=st.sampled_from([0.05, 1.0, 30.0]),
    omega=st.sampled_from([0.0, 0.5, 900.0]),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=25, deadline=None)
def test_every_client_holds_distinct_tasks_of_the_pool(
    strategy, count, clients, size, xi, omega, seed
):
    tasks = pool(count)
    if strategy == "scenes":
        size = min(size, count // 12)
    rows = made(strategy, tasks, clients, seed, size=size, xi=xi, omega=omega)
    assert len(rows) == clients
    assert sum(map(len, rows)) == clients * size
    for row in rows:
        assert row == sorted(set(row))
        assert set(row) <= {task.id for task in tasks}
        assert strategy == "coverage" or len(row) == size


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_order_of_the_tasks_does_not_matter_but_the_seed_does(strategy):
    tasks = pool(90)
    shuffled = random.Random(3).sample(tasks, len(tasks))
    rows = made(strategy, tasks, 6, size=9)
    assert rows == made(strategy, shuffled, 6, size=9)
    assert rows != made(strategy, tasks, 6, size=9, seed=1)


def fingerprint() -> str:
    rows = [made(strategy, pool(90), 6, size=9) for strategy in STRATEGIES]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


@pytest.mark.slow
def test_another_process_with_other_hashes_makes_the_same_partitions():
    """And the same as when this was written: a change would move every result behind it."""
    told = [
        subprocess.run(
            [sys.executable, "-c", "import test_partition; print(test_partition.fingerprint())"],
            env={
                **os.environ,
                "PYTHONHASHSEED": str(number),
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for number in (1, 2)
    ]
    assert told == [fingerprint()] * 2
    assert told[0].startswith("21f91cece1231178")


@pytest.mark.parametrize("strategy", ["uniform", "preference"])
def test_a_client_does_not_depend_on_how_many_there_are(strategy):
    tasks = pool(90)
    assert made(strategy, tasks, 3, size=20) == made(strategy, tasks, 8, size=20)[:3]


def test_uniform_clients_hold_every_task_equally_often():
    rows = made("uniform", pool(20), 4000, size=5)
    held = np.array(list(Counter(itertools.chain.from_iterable(rows)).values()))
    assert len(held) == 20
    # Binomial(4000, 1/4): 27 standard deviation.
    assert np.abs(held - 1000).max() < 5 * math.sqrt(4000 * 3 / 16)


# Preference.


def limit(room: np.ndarray, anchor: str) -> np.ndarray:
    p = room / room.sum()
    odds = p / (1 - p) if anchor == "logit" else p
    return odds / odds.sum()


@pytest.mark.parametrize("anchor", ["logit", "log"])
def test_without_noise_the_clients_follow_the_anchor(anchor):
    tasks = pool(4000)
    rows = made("preference", tasks, 2000, size=50, omega=0.0, anchor=anchor)
    room = np.array(list(Counter(task.category for task in tasks).values()))
    counts = Counter(name[:5] for row in rows for name in row)
    found = np.array([counts[f"kind{c}"] for c in range(4)]) / (2000 * 50)
    np.testing.assert_allclose(found, limit(room, anchor), atol=5 * math.sqrt(0.25 / 100_000))
    if anchor == "log":
        np.testing.assert_allclose(limit(room, anchor), room / len(tasks))


def test_equal_categories_are_drawn_equally_by_either_anchor():
    room = np.array([30, 30, 30])
    for kind in ("logit", "log"):
        assert np.ptp(strategies.anchors(room, kind)) == 0


@pytest.mark.parametrize("anchor", ["logit", "log"])
def test_one_category_is_all_there_is(anchor):
    rows = made("preference", pool(40, categories=1), 3, size=40, anchor=anchor)
    assert all(len(row) == 40 for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("omega", [0.3, 1.2])
def test_the_noise_on_the_log_shares_has_deviation_omega(omega):
    """Two categories without bounds in sight: logit(q_1) − logit(q_0) ~ N(ℓ_1 − ℓ_0, 2ω²)."""
    tasks = [Task(f"{c}{i:05d}", c) for c in "ab" for i in range(20_000)]
    rows = made("preference", tasks, 400, size=10_000, omega=omega)
    share = np.array([sum(name[0] == "b" for name in row) for row in rows]) / 10_000
    gap = np.log(share / (1 - share))
    assert abs(gap.mean()) < 5 * omega * math.sqrt(2 / 400)
    assert gap.std() == pytest.approx(omega * math.sqrt(2), rel=0.15)


def one_by_one(q: np.ndarray, room: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """The oracle: draw categories one after another, ignoring one that is used up."""
    counts = np.zeros(len(q), dtype=int)
    while counts.sum() < size:
        category = rng.choice(len(q), p=q)
        if counts[category] < room[category]:
            counts[category] += 1
    return counts


@pytest.mark.slow
def test_what_a_category_cannot_hold_goes_to_the_others_by_q():
    q, room, size = np.array([0.6, 0.25, 0.1, 0.05]), np.array([3, 4, 9, 9]), 10
    rng = np.random.default_rng(0)
    ours, brute = (
        np.array([draw() for _ in range(4000)])
        for draw in (
            lambda: strategies.category_counts(np.log(q), room, size, rng),
            lambda: one_by_one(q, room, size, rng),
        )
    )
    assert (ours.sum(1) == size).all()
    assert (ours <= room).all()
    error = np.sqrt((ours.var(0) + brute.var(0)) / 4000)
    assert (np.abs(ours.mean(0) - brute.mean(0)) < 4.5 * error + 1e-12).all()
    # The whole law, not the mean alone: total variation of the two samples.
    table = [Counter(map(tuple, counts.tolist())) for counts in (ours, brute)]
    apart = sum(abs(table[0][key] - table[1][key]) for key in table[0] | table[1]) / 8000
    assert apart < 0.06


@given(
    room=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    scale=st.sampled_from([0.0, 1.0, 1e4]),
    part=st.floats(0, 1),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=60, deadline=None)
def test_counts_fit_the_categories_whatever_the_noise(room, scale, part, seed):
    rng = np.random.default_rng(seed)
    size = max(1, round(part * sum(room)))
    logits = scale * rng.standard_normal(len(room))
    counts = strategies.category_counts(logits, np.array(room), size, rng)
    assert counts.sum() == size
    assert (counts >= 0).all()
    assert (counts <= room).all()


# Hardness and scenes.


@given(
    rate=st.floats(0, 1),
    size=st.integers(1, 60),
    xi=st.sampled_from([0.1, 1.0, 256.0]),
    seed=st.integers(0, 999),
)
@settings(max_examples=60, deadline=None)
def test_hardness_spreads_successes_evenly_over_tasks_and_fills_every_client(rate, size, xi, seed):
    """Whatever the labels: none, all, or fewer failures than a client has places."""
    tasks = pool(60)
    labels = draw_labels(tasks, rate, seed)
    rows = partition(tasks, 7, Settings(strategy="hardness", size=size, xi=xi), seed, labels)
    won = sum(labels.values())
    assert all(len(row) == size for row in rows)
    held = Counter(name for row in rows for name in row if labels[name])
    assert sum(held.values()) == round(7 * size * won / 60)
    times = {held[name] for name, label in labels.items() if label}
    assert not times or max(times) - min(times) <= 1


def test_hardness_keeps_the_bounds_on_successes():
    tasks = pool(200)
    labels = draw_labels(tasks, 0.5, 0)
    options = Settings(strategy="hardness", size=30, xi=0.5, fewest=10, most=22, overlap=3.0)
    rows = partition(tasks, 20, options, 0, labels)
    wins = [sum(labels[name] for name in row) for row in rows]
    assert sum(wins) == 3 * sum(labels.values())
    assert 10 <= min(wins) <= 12
    assert max(wins) == 22


def test_clients_of_disjoint_scenes_share_none_and_use_all():
    tasks = pool(240)
    scene = {task.id: task.scene for task in tasks}
    rows = made("scenes", tasks, 5, size=40)
    rooms = [{scene[name] for name in row} for row in rows]
    assert sum(map(len, rooms)) == len(set().union(*rooms)) == 12
    assert rows != made("scenes", tasks, 5, size=40, seed=5)


@pytest.mark.parametrize("divergence", [0.0, 0.25, 0.5, 1.0])
def test_so_many_tasks_of_a_client_play_in_scenes_of_its_own(divergence):
    tasks = pool(240)
    scene = {task.id: task.scene for task in tasks}
    rooms = strategies.own_scenes(strategies._groups([t.scene for t in tasks]), 5, 0)
    ids = np.array([task.id for task in sorted(tasks, key=lambda task: task.id)])
    rows = made("scenes", tasks, 5, size=20, divergence=divergence)
    for row, room in zip(rows, rooms):
        own = {scene[name] for name in ids[room]}
        inside = sum(scene[name] in own for name in row)
        assert len(row) == len(set(row)) == 20
        assert inside >= round(divergence * 20)
        assert divergence == 1 or inside < 20
    assert divergence < 1 or rows == made("scenes", tasks, 5, size=20)


def test_a_client_with_few_tasks_in_its_scenes_has_fewer_or_gets_others():
    tasks = pool(100)  # 12 scenes of 8 or 9 tasks
    scene = {task.id: task.scene for task in tasks}
    fewer = made("scenes", tasks, 12, size=20, fallback="fewer")
    assert sorted({len(row) for row in fewer}) == [8, 9]
    assert all(len({scene[name] for name in row}) == 1 for row in fewer)
    shared = made("scenes", tasks, 12, size=20, fallback="shared")
    for some, more in zip(fewer, shared):
        assert len(more) == 20
        assert set(some) <= set(more)
    half = made("scenes", tasks, 12, size=20, divergence=0.5, fallback="fewer")
    assert {len(row) for row in half} == {18, 19}


# What cannot be.


@pytest.mark.parametrize(
    ("strategy", "clients", "options", "words"),
    [
        ("uniform", 3, {"size": 101}, ["size = 101", "only 100", "lower size"]),
        ("preference", 3, {"size": 101}, ["size = 101", "only 100", "lower size"]),
        (
            "coverage",
            3,
            {"size": 101},
            ["size = 101 makes 303 tasks", "3 clients", "at most 100 each they hold 300"],
        ),
        (
            "coverage",
            9,
            {"overlap": 0.5, "fewest": 6, "most": 9},
            ["overlap = 0.5 makes 50 tasks", "at least 6 each they hold 54", "or lower fewest"],
        ),
        (
            "coverage",
            9,
            {"overlap": 2.0, "most": 20},
            ["overlap = 2.0 makes 200 tasks", "at most 20 each they hold 180", "or raise most"],
        ),
        ("coverage", 9, {"size": 20, "most": 101}, ["most = 101", "only 100 tasks"]),
        ("coverage", 9, {"size": 5, "fewest": 6}, ["size = 5 makes 45 tasks", "they hold 54"]),
        ("hardness", 9, {"size": 90, "most": 60}, ["most = 60", "of 100 tasks succeed"]),
        (
            "hardness",
            9,
            {"size": 20, "overlap": 5.0},
            ["overlap = 5.0", "successful tasks", "at most 20 each they hold 180: lower overlap"],
        ),
        ("scenes", 13, {"size": 1}, ["clients = 13", "only 12 scenes", "at most clients = 12"]),
        ("scenes", 12, {"size": 20}, ["size = 20", "hold only 8 tasks", "at most size = 8"]),
        ("scenes", 12, {"size": 18, "divergence": 0.5}, ["size = 18", "hold only 8 tasks"]),
        ("uniform", 0, {}, ["clients is 0; it must be at least 1"]),
        (
            "uniform",
            3,
            {"size": 101},
            ["at most size = 100; with size = 33, 3 clients"],
        ),
    ],
)
def test_an_infeasible_setting_names_itself_and_the_bound(strategy, clients, options, words):
    with pytest.raises(UserError) as caught:
        made(strategy, pool(100), clients, **options)
    said = str(caught.value)
    for word in words:
        assert word in said
    # The same words serve a recipe's `partition.size` and a command's `--size`.
    assert not re.search(r"partition\.|federation\.|--|\n", said)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"strategy": "zz"}, "strategy is 'zz'; choose from uniform, preference, coverage"),
        ({"strategy": "scene"}, "strategy is 'scene'; did you mean 'scenes'?"),
        ({"divergence": 1.1}, "divergence is 1.1; it is a share from 0 to 1"),
        ({"fallback": "few"}, "fallback is 'few'; did you mean 'fewer'"),
        ({"anchor": "logt"}, "anchor is 'logt'; did you mean 'logit'?"),
        ({"size": 0}, "size is 0; "),
        ({"omega": -0.1}, "omega is -0.1; "),
        ({"omega": math.nan}, "omega is nan; "),
        ({"xi": 0.0}, "xi is 0.0; "),
        ({"xi": math.inf}, "xi is inf; "),
        ({"overlap": -1.0}, "overlap is -1.0; "),
        ({"fewest": 5, "most": 4}, "fewest = 5 is above most = 4"),
        ({"strategy": "hardness", "size": 10, "most": 11}, "most = 11 .* size = 10"),
    ],
)
def test_an_impossible_setting_is_refused_before_any_task_is_seen(options, told):
    with pytest.raises(UserError, match=told.replace("?", r"\?")):
        Settings(**options)


def test_a_negative_seed_is_refused():
    for draw in (
        lambda: made("uniform", pool(20), 2, -1, size=4),
        lambda: draw_labels(pool(20), 0.5, -1),
    ):
        with pytest.raises(UserError, match="seed is -1; it must not be negative"):
            draw()


def test_tasks_without_scenes_ask_for_another_strategy():
    """Even where the clients or the size would not fit either: those are not what to mend."""
    tasks = [Task(f"{i}", "x") for i in range(20)]
    for clients, size in ((1, 4), (5, 4), (2, 99)):
        with pytest.raises(UserError, match=r"no scenes \(the shop has none\): choose another"):
            made("scenes", tasks, clients, size=size)


# Which knobs are read.

OTHER = {
    "size": 8,
    "omega": 3.0,
    "anchor": "log",
    "xi": 0.4,
    "overlap": 1.5,
    "fewest": 8,
    "most": 11,
}
"""A value of each knob that moves every partition whose strategy reads it."""


@pytest.mark.parametrize("knob", OTHER)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_knob_is_called_unread_if_and_only_if_it_moves_nothing(strategy, knob):
    tasks = pool(90)
    # Loose sizes and few kinds of task: a change in any knob shows.
    base = {"strategy": strategy, "size": 20 if strategy == "hardness" else 9, "xi": 1.0}
    labels = draw_labels(tasks, 0.5, 7)
    with_it = Settings(**{**base, knob: OTHER[knob]})
    same = partition(tasks, 6, with_it, 0, labels) == partition(
        tasks, 6, Settings(**base), 0, labels
    )
    told = with_it.unread([knob, "strategy", "labels"])
    assert told == ([f"{knob} is not read by strategy {strategy}"] if same else [])


def test_the_size_is_not_read_where_overlap_says_how_many_tasks_there_are():
    options = {"strategy": "coverage", "overlap": 1.5}
    tasks = pool(90)
    one, other = Settings(**options, size=9), Settings(**options, size=20)
    assert partition(tasks, 6, one, 0) == partition(tasks, 6, other, 0)
    assert one.unread(["size", "overlap"]) == [
        "size is not read by strategy coverage when overlap is set"
    ]
    assert Settings(strategy="coverage", size=9).unread(["size"]) == []


def test_hardness_without_labels_says_what_they_are():
    with pytest.raises(UserError) as caught:
        partition(pool(20), 2, Settings(strategy="hardness", size=4), 0)
    for words in ('{"task id": true or false}', "fedrl.partition.write_labels", "--success-rate P"):
        assert words in str(caught.value)
    with pytest.raises(UserError, match="19 of 20"):
        partition(pool(20), 2, Settings(strategy="hardness", size=4), 0, {pool(20)[0].id: True})


def test_two_tasks_of_one_name_are_refused():
    with pytest.raises(UserError, match="two tasks are called 'a'"):
        partition([Task("a", "x"), Task("a", "y")], 1, Settings(size=1), 0)


def test_every_setting_says_what_it_means():
    meaning = comments(Settings)
    assert all(meaning[field.name] for field in dataclasses.fields(Settings))
