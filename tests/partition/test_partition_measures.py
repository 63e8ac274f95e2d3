"""Measures of partitions, and that every knob moves its own characteristic and no other."""

from __future__ import annotations

import itertools
import json
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support import realdata
from support.labelled_tasks import LABELS, TASKS, Task

from fedrl.core.types import UserError
from fedrl.partition import (
    Measures,
    Settings,
    draw_labels,
    load_labels,
    measure,
    partition,
    read_labels,
    write_labels,
)
from fedrl.partition.measures import mean_deviation


def test_measures_by_hand():
    tasks = [Task(name, category) for name, category in ("ax", "bx", "cy", "dy")]
    labels = {"a": True, "b": True, "c": False, "d": False}
    found = measure([["a", "b"], ["a", "c", "d"]], tasks, labels)
    # Shares of x: 1 and 1/3, the pool's 1/2.
    assert found.category_divergence == pytest.approx((1 / 2 + 1 / 6) / 2)
    assert (found.size_mean, found.size_std, found.size_min, found.size_max) == (2.5, 0.5, 2, 3)
    assert found.success_mean == pytest.approx(2 / 3)
    assert found.success_variance == pytest.approx((1 / 3) ** 2 * 2)
    assert found.success_pool == 0.5
    assert found.coverage == 1
    assert found.clients_per_task == pytest.approx(5 / 4)
    assert found.overlap == pytest.approx(2 / 5)  # a, seen from either of its two holders


@given(seed=st.integers(0, 999), clients=st.integers(2, 6), wide=st.booleans())
@settings(max_examples=30, deadline=None)
def test_distances_and_overlap_are_those_of_their_definitions(seed, clients, wide):
    """Clients of unlike sizes; many scenes (sorted cells) as well as few (counted ones)."""
    rng = np.random.default_rng(seed)
    tasks = [Task(f"{i}", "c", f"s{i % (40 if wide else 2)}") for i in range(60)]
    rows = [
        [tasks[i].id for i in rng.choice(60, rng.integers(1, 12), replace=False)]
        for _ in range(clients)
    ]
    found = measure(rows, tasks)
    scenes = sorted({task.scene for task in tasks})
    scene = {task.id: task.scene for task in tasks}

    def shares(names):
        return np.array([sum(scene[n] == s for n in names) for s in scenes]) / len(names)

    whole = shares([task.id for task in tasks])
    apart = [np.abs(shares(row) - whole).sum() / 2 for row in rows]
    assert found.scene_divergence == pytest.approx(np.mean(apart))
    shared = sum(len(set(a) & set(b)) for a, b in itertools.permutations(rows, 2))
    assert found.overlap == pytest.approx(shared / ((clients - 1) * sum(map(len, rows))))
    assert found.category_divergence == found.category_chance == 0
    assert found.success_std is None


@given(st.integers(1, 40), st.integers(0, 40), st.integers(0, 40))
@settings(max_examples=150, deadline=None)
def test_the_deviation_by_chance_is_exact(total, marked, drawn):
    marked, drawn = min(marked, total), min(drawn, total)
    law = stats.hypergeom(total, marked, drawn)
    values = np.arange(total + 1)
    expected = (np.abs(values - drawn * marked / total) * law.pmf(values)).sum()
    found = mean_deviation(np.array([drawn]), np.array([marked]), total)
    assert found[0] == pytest.approx(expected, abs=1e-9)


def test_chance_is_what_uniform_clients_show():
    found = measure(partition(TASKS, 600, Settings(size=30), 0), TASKS, LABELS)
    assert found.category_divergence == pytest.approx(found.category_chance, rel=0.03)
    assert found.scene_divergence == pytest.approx(found.scene_chance, rel=0.03)
    assert found.success_std == pytest.approx(found.success_chance, rel=0.1)


def characteristics(seed: int, **options) -> dict[str, float]:
    """The three of the paper, less what chance makes of clients of these sizes."""
    rows = partition(TASKS, 100, Settings(size=60, **options), seed, LABELS)
    found = measure(rows, TASKS, LABELS)
    return {
        "preference": found.category_divergence - found.category_chance,
        "coverage": found.size_variance,
        "hardness": found.success_variance - found.success_chance**2,
    }


KNOBS = {
    "preference": ("omega", (0.1, 0.3, 0.5, 0.9)),
    "coverage": ("xi", (256.0, 64.0, 16.0, 4.0, 1.0)),
    "hardness": ("xi", (256.0, 64.0, 16.0, 4.0, 1.0)),
}
SEEDS = range(4)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", KNOBS)
def test_a_knob_moves_its_own_characteristic_and_leaves_the_others(strategy):
    """The others stay within what the uniform partition shows over seeds, at every position.

    Labels that have nothing to do with categories, as here, are what makes the three separable.
    """
    knob, values = KNOBS[strategy]
    noise = [characteristics(seed) for seed in range(12)]
    own = []
    for value in values:
        found = [characteristics(s, strategy=strategy, **{knob: value}) for s in SEEDS]
        own.append(np.mean([one[strategy] for one in found]))
        for other in KNOBS.keys() - {strategy}:
            usual = np.array([one[other] for one in noise])
            here = np.array([one[other] for one in found])
            assert abs(here.mean() - usual.mean()) <= 4 * usual.std(), (other, value)
    assert (np.diff(own) > 0).all(), own
    assert own[-1] > 10 * abs(np.mean([one[strategy] for one in noise]))


# Labels.


def test_labels_come_back_as_they_were_written(tmp_path: Path):
    path = tmp_path / "deep" / "labels.json"
    write_labels(path, LABELS)
    assert read_labels(path) == LABELS
    write_labels(str(path), {"a": True})
    assert read_labels(str(path)) == {"a": True}
    write_labels(path, LABELS)
    assert load_labels(Settings(labels=str(path))) == LABELS
    assert load_labels(Settings()) is None
    assert len(path.read_text().splitlines()) == len(LABELS) + 2  # a line each, for a diff


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not a JSON file"),
        ("[1]", '{"task id": true or false}'),
        ('{"a": 1}', "the label of 'a' is 1; it must be true or false"),
        (None, "fedrl.partition.write_labels"),
    ],
)
def test_a_bad_label_file_is_named(tmp_path: Path, text, words):
    path = tmp_path / "labels.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_labels(path)
    assert "labels.json" in str(caught.value)
    assert words in str(caught.value)


def test_drawn_labels_have_the_rate_and_know_no_order():
    assert draw_labels(TASKS[::-1], 0.4, 1) == LABELS
    assert np.mean(list(LABELS.values())) == pytest.approx(0.4, abs=0.06)
    assert draw_labels(TASKS, 0.4, 2) != LABELS
    with pytest.raises(UserError, match=r"1\.2"):
        draw_labels(TASKS, 1.2, 0)


@pytest.mark.slow
@pytest.mark.realdata
def test_the_papers_settings_on_the_genuine_household_games():
    """100 clients of 100 games: mild and strong, as in Figures 7, 8, 11, 12, 15 and 16."""
    with lzma.open(realdata.data("alfworld") / "train.jsonl.xz", "rt") as file:
        games = [json.loads(line) for line in file]
    tasks = [Task(game["id"], game["task_type"], game["floor_plan"]) for game in games]
    labels = draw_labels(tasks, 0.4, 0)

    def found(**options) -> Measures:
        return measure(partition(tasks, 100, Settings(**options), 0, labels), tasks, labels)

    mild, strong = (found(strategy="preference", omega=omega) for omega in (0.1, 0.9))
    assert strong.category_divergence > 2 * mild.category_divergence
    mild, strong = (found(strategy="coverage", xi=xi) for xi in (256.0, 1.0))
    assert strong.size_std > 10 * mild.size_std
    assert strong.coverage == mild.coverage == 1
    mild, strong = (found(strategy="hardness", xi=xi) for xi in (256.0, 1.0))
    assert strong.success_std > 10 * mild.success_std
    assert strong.size_std == mild.size_std == 0
