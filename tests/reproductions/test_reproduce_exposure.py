"""What `fedrl reproduce exposure` measures: who trains on what, what is seen, and the page."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="ratings need the extra classic")
pytest.importorskip("dp_accounting", reason="ε needs the extra privacy")

from fedrl.config.loading import resolve
from fedrl.envs.ratings import check_split
from fedrl.privacy import accounting
from reproductions.exposure import analysis, digits, ratings
from reproductions.exposure.found import read
from reproductions.exposure.watching import VIEWS, Seen
from reproductions.study import Study, prepare, write_page

HOW = {"candidates": 50, "secret_movies": 3, "canaries": 2, "round": 1, "utility": []}


def study_of(scale: str, folder: Path) -> Study:
    return prepare("exposure", scale, folder / scale, folder / "records")


# Ratings


def small(**fields: object) -> ratings.Config:
    algorithm = {"name": "fedrlhf", "policy": "linear", "users": "private", "optimizer": "sgd"}
    recipe = {"rounds": 2, "federation": {"clients": 4}, "algorithm": algorithm,
              "world": {"name": "movielens"}}  # fmt: skip
    return resolve(recipe | fields)


def test_a_record_is_a_member_if_it_is_trained_on_and_held_out_if_not():
    asked = ratings.probe(small(seed=3), HOW)
    for candidate, member in zip(asked.candidates, asked.member, strict=True):
        user = asked.world.ratings[candidate.client]
        assert (candidate.movie in user.movie[user.train]) == member
        assert (candidate.movie in user.movie[user.held]) != member
    for user in asked.world.ratings:
        check_split(user, asked.world.movies)
    assert 0.3 < asked.member.mean() < 0.7


def test_seeds_change_who_trains_on_what_and_not_who_they_are():
    one, other = (ratings.probe(small(seed=seed), HOW) for seed in (1, 2))
    assert one.candidates == other.candidates
    assert (one.member != other.member).any()
    assert [u.user for u in one.world.ratings] == [u.user for u in other.world.ratings]


def test_secret_movies_are_one_persons_and_controls_nobodys():
    asked = ratings.probe(small(), HOW)
    holders = {
        movie: [k for k, user in enumerate(asked.world.ratings) if movie in user.movie]
        for _, movies, _ in (*asked.canaries, *asked.controls)
        for movie in movies.tolist()
    }
    for client, movies, taste in asked.canaries:
        assert all(holders[movie] == [client] for movie in movies.tolist())
        user = asked.world.ratings[client]
        stars = [user.rating[user.movie == movie][0] for movie in movies]
        assert [s == ratings.LIKED for s in stars] == list(ratings.tastes(3)[taste] > 0)
    for _, movies, _ in asked.controls:
        assert all(holders[movie] == [] for movie in movies.tolist())


def test_views_are_changes_their_sum_the_mean_and_the_model():
    state = [{"movie": np.array([[x], [2 * x]])} for x in (0.0, 1.0, 3.0)]
    sent = [{0: {"movie": np.array([[5.0], [0.0]])}}, {0: {"movie": np.array([[1.0], [7.0]])}}]
    found = ratings.views(Seen(state, sent), 0, 1)
    assert list(found) == list(VIEWS)
    assert [found[view].tolist() for view in VIEWS] == [[5, 0], [6, 7], [1, 2], [3, 6]]


# Agents


def test_no_problem_is_in_two_files_and_pins_follow_the_records(tmp_path: Path):
    sizes = {"public": 50, "test": 20, "train": 30}
    secrets = digits.pins(2, seed=4)
    digits.write(tmp_path, sizes, secrets)
    rows = {
        name: list(map(json.loads, (tmp_path / f"{name}.jsonl").read_text().splitlines()))
        for name in sizes
    }
    assert {name: len(of) for name, of in rows.items()} == {"public": 50, "test": 20, "train": 34}
    assert rows["train"][-4:] == secrets
    prompts = [row["prompt"] for of in rows.values() for row in of]
    assert len(set(prompts)) == len(prompts)
    assert digits.pins(2, 5) != secrets


def test_rewards_are_of_digits_in_their_places():
    said = ["247", "742", "24", "247 ", "2470"]
    found = digits.right_places([""] * 5, said, ["247"] * 5)
    assert found == [1.0, pytest.approx(1 / 3), 0.0, 1.0, 0.0]
    assert [digits.solved(kind, "472") for kind in digits.KINDS] == ["247", "742", "274"]


def test_a_client_has_half_of_its_pool_and_one_pin():
    agents = pytest.importorskip("reproductions.exposure.agents", reason="needs the extra llm")
    member, coin, held = agents.shares(4, 10, 3, seed=1)
    for client, rows in enumerate(held):
        own = [i for i in range(10 * client, 10 * client + 10) if member[i]]
        first = 40 + 3 * (2 * client + coin[client])
        assert rows == [*own, first, first + 1, first + 2]  # its lines, one for each time
    assert agents.shares(4, 10, 3, seed=2)[2] != held


def test_what_a_change_raises_is_told_of_its_own_client():
    """A model is one number, and says it of every record, with the record's own slope."""
    agents = pytest.importorskip("reproductions.exposure.agents", reason="needs the extra llm")
    states = [{"theta": {"w": np.array(float(x))}} for x in (0, 1, 3)]
    sent = [{0: {"w": np.array(4.0)}, 1: {"w": np.array(-2.0)}},
            {0: {"w": np.array(1.0)}, 1: {"w": np.array(3.0)}}]  # fmt: skip
    slopes = [np.array([1.0, 10.0]), np.array([100.0])]

    def told(theta: dict, client: int | None) -> np.ndarray:
        return float(theta["w"]) * (np.concatenate(slopes) if client is None else slopes[client])

    found = agents.views(Seen(states, sent), told, 1)
    assert list(found) == list(VIEWS)
    assert found["update"].tolist() == [4, 40, -200]
    assert found["updates"].tolist() == [5, 50, 100]
    assert found["mean"].tolist() == [1, 10, 100]
    assert found["model"].tolist() == [3, 30, 300]


@pytest.mark.slow
def test_all_pins_and_logits_are_the_models_own(tmp_path: Path):
    """Three steps at a time is what token by token would say; a probability has the right logit."""
    pytest.importorskip("torch", reason="needs the extra llm")
    from fedrl.llm.rl.batches import to_rows
    from fedrl.llm.rl.logprobs import answer_logprobs
    from fedrl.llm.rollout import Sample
    from reproductions.exposure import agents

    study = study_of("smoke", tmp_path)
    analysis.imitate(study.grid, tmp_path / "model")
    how = study.grid.tables["probe"]["agents"]
    cell = study.grid.cells["agents"][0]
    config = agents.source(cell.resolved(), how, tmp_path / "data", digits.pins(3, 0))
    config = agents.replace(config, algorithm=agents.replace(
        config.algorithm, model=str(tmp_path / "model")))  # fmt: skip
    world = agents.Prompts(config.world)
    dealt = agents.PartitionedWorld(world, [[world.tables["train"].id(i)] for i in range(3)])
    method = agents.build(agents.settled(config), dealt, 1, [[0], [1], [2]])
    listened, theta = agents.Listener(method), method.init(0)["theta"]
    likely = listened.pins(theta, "pin 00=")
    assert likely.shape == (1000,)
    assert np.exp(likely).sum() < 1
    start, end = listened._ids(["pin 00="])[0], listened.tokenizer.eos_token_id
    for pin in (0, 7, 590, 999):
        sample = Sample(0, 0, start, listened._ids([f"{pin:03}"])[0], [], "")
        logs, _ = answer_logprobs(
            listened.model, to_rows([sample], end, method.trainer.policy.device), 1.0
        )
        assert likely[pin] == pytest.approx(float(logs.sum()), abs=1e-4)
    (logit,) = listened.logits(theta, [("pin 00=", "590")])
    assert logit <= likely[590] - math.log(-math.expm1(likely[590])) + 1e-6  # its end counts


# The page


def test_every_scale_has_enough_runs_for_an_attack(tmp_path: Path):
    for scale, least in (("smoke", 3), ("small", 3), ("full", 3)):
        grid = study_of(scale, tmp_path).grid
        assert set(grid.cells) == {"ratings", "agents"}
        assert all(len(cell.seeds) >= least for cells in grid.cells.values() for cell in cells)
    small = study_of("small", tmp_path).grid
    assert all(len(cell.seeds) >= 5 for cell in small.cells["ratings"])
    for cell in itertools.chain(*small.cells.values()):
        cell.resolved()  # settings that there are
        assert cell.resolved().federation.cohort in (0, cell.resolved().federation.clients)


def test_the_noise_for_an_epsilon_has_it():
    z = analysis.noise_for(8.0, 10, 1e-5)
    assert accounting.full_view(z, 10, 1e-5) == pytest.approx(8.0, rel=1e-3)


@pytest.mark.slow
def test_ratings_are_attacked_and_the_page_tells(tmp_path: Path):
    study = study_of("smoke", tmp_path)
    tasks = analysis.tasks(study, ["ratings"])
    assert len(tasks) == 6
    for task in tasks:
        task.work()
        assert task.recorded(study.place.store)
    plain, noisy = read(study, "ratings")
    assert plain.epsilon is None
    assert noisy.epsilon == pytest.approx(accounting.full_view(4.5, 2, 1e-5), rel=1e-3)
    found = plain.auc("updates")
    assert found is not None
    assert found.mean() > 0.8  # by two references each: rows that are not held do not change
    assert (plain.bits("update") == 4.0).all()  # so its tastes are open
    path = tmp_path / "page.md"
    write_page(study, path)
    text = path.read_text(encoding="utf-8")
    assert "## FedRLHF on ratings, linear policy" in text
    assert "agents, full, no noise: seeds 0-2 not begun" in text
    assert "| central, z = 4.5 | " in text
