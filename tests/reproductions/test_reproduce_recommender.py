"""The recommender beside its baselines: models that are told the stars, and what is judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="FedRLHF needs the extra classic")

from support.ratings import world
from support.records import write_run

from fedrl.envs.ratings import HIGH
from reproductions.fedrlhf import recommender
from reproductions.fedrlhf.cells import LINEAR, baseline_key, grid_of, tasks
from reproductions.fedrlhf.recommender_claims import recommender_statements
from reproductions.fedrlhf.recommender_page import RecommenderPage
from reproductions.fedrlhf.results import OWN, Results, at, read_results
from reproductions.pages import Page
from reproductions.records import Store
from reproductions.runner import Place
from reproductions.study import FOLDER, Study
from reproductions.verdicts import FAILS, HOLDS, OPEN

SMALL = grid_of("small", Path())


# Models that are told the stars


def test_a_regression_is_where_the_penalized_slope_is_zero():
    rng = np.random.default_rng(0)
    x = np.concatenate([np.ones((60, 1)), rng.normal(size=(60, 3))], 1)
    high = rng.random(60) < 1 / (1 + np.exp(-x @ [0.5, 1.0, -1.0, 0.0]))
    found = recommender.fitted(x, high, decay=2.0)
    chance = 1 / (1 + np.exp(-x @ found))
    penalty = np.array([1e-3, 2.0, 2.0, 2.0])
    np.testing.assert_allclose(x.T @ (chance - high) + penalty * found, 0, atol=1e-8)


def test_a_row_by_ridge_regression_is_numpys():
    rng = np.random.default_rng(1)
    others, stars, other = rng.normal(size=(5, 3)), rng.normal(size=8), rng.integers(0, 5, 8)
    rows = np.zeros((2, 3))
    recommender.solve(rows, [np.arange(8), np.array([], int)], others, other, stars, decay=0.7)
    x = np.concatenate([np.ones((8, 1)), others[other][:, 1:]], 1)
    wide = np.concatenate([x, np.sqrt(0.7) * np.eye(3)])
    told = np.concatenate([stars - others[other][:, 0], np.zeros(3)])
    np.testing.assert_allclose(rows[0], np.linalg.lstsq(wide, told, rcond=None)[0], atol=1e-10)
    assert not rows[1].any()


def test_they_are_told_trained_ratings_alone():
    plain, other = world(clients=5), world(clients=5)
    other.ratings = tuple(
        user._replace(rating=np.where(np.isin(np.arange(len(user.rating)), user.held), 3.0,
                                      user.rating).astype(np.float32))
        for user in other.ratings
    )  # fmt: skip
    for model in (recommender.logistic, lambda w, d: recommender.factors(w, 2, d)):
        one, same = model(plain, 3.0), model(other, 3.0)
        for client, (user, again) in enumerate(zip(plain.ratings, other.ratings, strict=True)):
            np.testing.assert_array_equal(one(client, user), same(client, again))


def test_the_majority_is_the_worlds_own():
    found = world(clients=5)
    judged = recommender.judged(
        found, lambda c, user: np.full(len(user.held), recommender.often(user))
    )
    right = count = 0
    for user in found.ratings:
        often = (user.rating[user.train] >= HIGH).mean() > 0.5
        right += int(((user.rating[user.held] >= HIGH) == often).sum())
        count += len(user.held)
    assert judged.accuracy == right / count


# What is measured, and judged


@pytest.mark.slow
def test_no_clients_own_numbers_are_kept_of_610(tmp_path):
    study = study_of(tmp_path)
    for part in LINEAR:
        for task in tasks(study, [part]):
            assert task.work.args[-1] == ()
    (kept, *_) = {task.work.args[-1] for task in tasks(study, ["movielens"])}
    assert "personal/spearman" in kept


def test_seeds_are_as_many_as_the_rules_say():
    from reproductions.fedrlhf.cells import RULES

    planned = RULES["ratings"]["recommender"]
    for part in ("recommender", "everybody"):
        for cell in SMALL.cells[part]:
            if cell.labels.get("learner") in ("linear", "centralized"):
                assert len(set(cell.seeds)) == planned[cell.labels["clients"]]
    for cell in SMALL.cells["recommender_tuning"]:
        assert set(cell.seeds) == set(range(1000, 1005))
        others = (c for part in SMALL.cells if part not in ("recommender_tuning", "tuned")
                  for c in SMALL.cells[part])  # fmt: skip
        assert not any(set(cell.seeds) & set(other.seeds) for other in others)


def study_of(folder: Path) -> Study:
    return Study("fedrlhf", "small", SMALL, Place(folder / "runs", Store(folder / "records"), 1))


def measured(folder: Path, own: float, central: float, rank: float = 0.36) -> Study:
    """Own policies' accuracies by learner, the majority at 66%, all with a little noise."""
    study, level = study_of(folder), {"linear": own, "centralized": central}
    for part in ("recommender", "everybody"):
        for cell in SMALL.cells[part]:
            for seed in cell.seeds:
                away = 0.001 * np.sin(seed)
                right = level.get(cell.labels.get("learner", ""), 0.67) + away
                metrics = {"personal/correct": 100 * right, "personal/held_out": 100.0,
                           "personal/spearman": rank + away, "eval/majority": 0.66 + 2 * away,
                           "eval/accuracy": 0.6}  # fmt: skip
                curves = {name: {0: x, cell.rounds: x} for name, x in metrics.items()}
                write_run(study.place.store, cell, seed, curves)
    for cell in SMALL.cells["baselines"]:
        for seed in cell.seeds:
            told = {name: {"accuracy": 0.68, "spearman": 0.2} for name in ("logistic", "factors")}
            study.place.store.write(
                *baseline_key(SMALL, cell, seed), {"values": told, "seeds": [seed]}
            )
    return study


def found_of(study: Study) -> Results:
    return read_results(study, {})


def verdicts(study: Study) -> dict[str, str]:
    """But for the network's, whose runs are another part's."""
    found = recommender_statements(found_of(study))
    return {one.claim: one.verdict for one in found if "network" not in one.claim}


@pytest.mark.slow
def test_goals_are_judged_by_the_rules(tmp_path):
    said = verdicts(measured(tmp_path / "a", own=0.71, central=0.712))
    assert set(said.values()) == {HOLDS}
    assert len(said) > 12
    said = verdicts(measured(tmp_path / "b", own=0.66, central=0.69, rank=0.3))
    own = "Linear policy, K = {}: own policies "
    assert said[own.format(10) + "not below the majority class (by 1 point)"] == HOLDS
    assert said[own.format(50) + "above the majority class"] == FAILS
    assert said[own.format(610) + "within 1 point of the same model trained centrally"] == FAILS
    assert said[own.format(610) + "have a Spearman of 0.35"] == FAILS
    said = verdicts(replace(study_of(tmp_path / "c")))
    assert HOLDS not in said.values()
    assert OPEN not in said.values()


@pytest.mark.slow
def test_the_section_shows_every_row(tmp_path):
    study = measured(tmp_path, own=0.71, central=0.712)
    page = Page(FOLDER / "fedrlhf", tmp_path / "pictures")
    found = found_of(study)
    section = RecommenderPage(page, found, SMALL.tables["titles"]).section()
    for clients in (10, 50, 610):
        assert f"| {clients} | linear policy, federated | " in section["rows"]
        assert f"| {clients} | majority class | " in section["rows"]
    assert at(found.learners(610)["linear"], OWN)[0] == pytest.approx(0.71)
    assert "| 50 | all | 20 | 71.0" in section["answers"]
    assert not RecommenderPage(page, found_of(study_of(tmp_path / "none")), {}).section()
