"""Organisations that bring ratings of their own users, whose rows of the network stay with them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from support import own_ratings
from support.flower_places import Canary
from support.flower_runs import records, same_numbers, train
from support.own_data import MEMBERS, Nodes, on_nodes
from support.own_ratings import organisations, recipe, rows_of
from support.ratings import built, world

from fedrl.aggregation import mean as aggregate
from fedrl.algorithms.fedrlhf.ratings import user_rows
from fedrl.analysis.joining import joining, of_run
from fedrl.config.build import build_algorithm
from fedrl.core import tree
from fedrl.core.types import Job, UserError
from fedrl.envs.movielens import world as movielens
from fedrl.envs.movielens.own import Watched
from fedrl.runs import train as runs
from fedrl.runs.evaluate import evaluate
from fedrl.runs.run_dir import RunDir, read_checkpoint

FLOWER = ("--engine", "flower", "--connection", "test")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("organisations")
    organisations(folder)
    return folder


def test_a_client_trains_on_all_ratings_of_all_its_users(place: Path, tmp_path: Path):
    algorithm = build_algorithm(recipe(place, tmp_path))
    for client, member in enumerate(MEMBERS):
        rows, mine = rows_of(member), algorithm.client_data[client]
        assert len(mine.people) == own_ratings.USERS[member] == len(np.unique(rows.user))
        held = sum(len(person.ratings.held) for person in mine.people)
        assert len(mine.appeal) + held == len(rows.user)
        assert len(mine.appeal) == sum(max(round(0.8 * n), 1) for n in counts(rows.user))
        result = algorithm.local(Job(client, algorithm.init(0), None, 1))
        assert result.metrics["env/steps"] == 2 * len(mine.appeal)  # local_epochs passes
        assert result.weight == len(mine.appeal)
    every = build_algorithm(recipe(place, tmp_path, world={"held_out": 0.0}))
    for client, member in enumerate(MEMBERS):
        assert len(every.client_data[client].appeal) == len(rows_of(member).user)
        told = every.local(Job(client, every.init(0), None, 1)).metrics
        assert told["personal/held_out"] == 0
        assert "personal/accuracy" not in told
    pooled = build_algorithm(recipe(place, tmp_path, federation={"kind": "centralized"}))
    assert len(pooled.client_data[0].people) == 9
    assert len(pooled.client_data[0].appeal) == sum(len(d.appeal) for d in algorithm.client_data)


def counts(users: np.ndarray) -> list[int]:
    return np.unique(users, return_counts=True)[1].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("held_out", ["public", "clients"])
def test_nodes_give_the_numbers_of_the_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_out: str
):
    canary = organisations(tmp_path)
    more = {"partition": {"held_out": held_out}}
    here = train(recipe(tmp_path, tmp_path / "here", **more))
    apart = ("--engine", "workers", "--workers", "1")
    same_numbers(here, train(recipe(tmp_path, tmp_path / "workers", *apart, **more)))
    alone = tmp_path / "driver" / "data"  # the driver has nothing of the clients'
    rated = held_out == "public"
    own_ratings.write(alone / "public" / "movielens", rows_of("public"), ratings=rated)
    data = tmp_path / "data"
    nodes = Nodes(tmp_path / "nodes", [data / member for member in MEMBERS])
    more = {"partition": {"held_out": held_out, "folder": str(alone)}}
    there = on_nodes(recipe(tmp_path, tmp_path / "there", *FLOWER, **more), nodes, monkeypatch)
    same_numbers(here, there)
    last = json.loads((there / "metrics.jsonl").read_text().splitlines()[-1])
    assert ("held/accuracy" in last) == (held_out == "clients") != ("eval/accuracy" in last)
    places = [there, tmp_path / "nodes" / "node-0", tmp_path / "nodes" / "node-1", alone]
    search(canary, nodes, [*places, here])
    # Rows of users are on their own nodes alone.
    state = read_checkpoint(RunDir(there).checkpoints()[0])[0].states[0]
    assert set(state) == {"movie", "layers"}
    assert list((tmp_path / "nodes" / "node-2" / "states").rglob("*.safetensors"))


@pytest.mark.slow
def test_secure_sums_of_nodes_give_the_numbers_of_the_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("cryptography", reason="secure aggregation needs the extra privacy")
    organisations(tmp_path)
    more = {"aggregate": {"name": "mean"}, "privacy": {"secure": True, "clip": 5.0}}
    here = train(recipe(tmp_path, tmp_path / "here", **more))
    alone = tmp_path / "driver" / "data"
    own_ratings.write(alone / "public" / "movielens", rows_of("public"))
    nodes = Nodes(tmp_path / "nodes", [tmp_path / "data" / member for member in MEMBERS])
    more |= {"partition": {"folder": str(alone)}}
    config = recipe(tmp_path, tmp_path / "there", *FLOWER, **more)
    same_numbers(here, on_nodes(config, nodes, monkeypatch))


def search(canary: Canary, nodes: Nodes, places: list[Path]) -> None:
    """What only one organisation knows is nowhere else."""
    assert not any(canary.found_in(text.encode()) for text in nodes.crossed)
    for place in places:
        for path in place.rglob("*"):
            assert not (path.is_file() and canary.found_in(path.read_bytes())), path


def test_rows_of_users_are_kept_from_round_to_round_and_never_sent(place: Path, tmp_path: Path):
    algorithm = build_algorithm(recipe(place, tmp_path))
    start = algorithm.init(0)
    assert set(algorithm.declare(start)) == {"movie", "layers", "held/movie"}
    first = algorithm.local(Job(0, start, None, 1))
    assert set(tree.flatten(first.update)) == {"movie", "layers", "held/movie"}
    rows = first.state["personal"]["user"]
    assert rows.shape == (5, 4)
    job = algorithm.with_users(Job(0, start, first.state, 2))
    np.testing.assert_array_equal(job.broadcast["user"], rows)
    drawn = algorithm.with_users(Job(0, start, None, 1)).broadcast["user"]
    assert np.abs(rows - drawn).max() > 1e-4
    again = algorithm.with_users(Job(0, start, None, 1)).broadcast["user"]
    np.testing.assert_array_equal(drawn, again)  # by the seed
    second = algorithm.local(Job(0, start, first.state, 2))
    forgot = algorithm.local(Job(0, start, first.state | {"personal": {"user": drawn}}, 2))
    assert np.abs(second.update["layers"] - forgot.update["layers"]).max() > 1e-6


def test_for_one_client_private_rows_are_those_of_the_shared_network(
    monkeypatch: pytest.MonkeyPatch,
):
    """Where nobody else is, it does not matter who keeps a row: up to rounding, over two rounds."""
    shared = built(client_env_ids=[[2]], feedback="none")
    private = built(client_env_ids=[[2]], feedback="none", users="private")
    start = one = shared.init(0)
    other = {name: one[name] for name in ("movie", "layers")}
    first = SimpleNamespace(init_rows=lambda *_: start["user"][[2]])
    monkeypatch.setattr(user_rows, "network", first)
    kept: list = [None, None]
    for number in (1, 2):
        done = [
            algorithm.local(Job(0, state, mine, 10 + number))
            for algorithm, state, mine in ((shared, one, kept[0]), (private, other, kept[1]))
        ]
        kept = [result.state for result in done]
        means = [aggregate.mean([(result.update, result.weight)]) for result in done]
        one, other = shared.step(one, means[0], number), private.step(other, means[1], number)
    for name in ("movie", "layers"):
        np.testing.assert_allclose(one[name], other[name], atol=1e-6)
    np.testing.assert_allclose(one["user"][2], kept[1]["personal"]["user"][0], atol=1e-6)


def test_to_a_network_without_ones_row_ones_row_is_zero(place: Path, tmp_path: Path):
    algorithm = build_algorithm(recipe(place, tmp_path))
    state = algorithm.init(3)
    told = algorithm.evaluate([state], [[0, 1, 2]], 0, 0)
    everybody, right, count = algorithm.own.plain.users, 0, 0
    assert sum(len(user.rating) for user in everybody) == len(rows_of("public").user)
    zero = {**state, "user": np.zeros((99, 4), np.float32)}
    for row, user in enumerate(everybody):
        examples = user_rows_examples(row, user, algorithm.own.plain.genres)
        high = algorithm.probability_high(zero, examples)
        right, count = right + int(((high > 0.5) == (user.rating >= 4)).sum()), count + len(high)
    assert told["eval/accuracy"] == right / count
    stars = rows_of("public").rating >= 4
    assert told["eval/majority"] == max(stars.mean(), 1 - stars.mean())


def user_rows_examples(row: int, user, genres):
    from fedrl.feedback.rating_kernels import Examples

    return Examples(np.full(len(user.movie), row), user.movie, genres[user.movie])


@pytest.mark.parametrize("users", [1, 2, 7])
def test_popularity_is_what_the_clients_other_users_watched(users: int):
    """Against the dealt world's own count over everybody but that user."""
    random = np.random.default_rng(users)
    genres = (random.random((12, 3)) < 0.5).astype(np.float32)
    seen = [random.choice(12, random.integers(1, 12), replace=False) for _ in range(users)]
    watched = Watched(np.concatenate(seen), genres)
    every = np.arange(12)
    for user, own in enumerate(seen):
        others = [one for k, one in enumerate(seen) if k != user]
        rest = np.concatenate(others) if others else np.zeros(0, np.int64)
        expected = movielens._Watching(rest, genres).appeal(every, own)
        np.testing.assert_allclose(watched.appeal(every, own), expected, atol=1e-6)


def test_a_resumed_run_has_the_numbers_of_one_that_was_not_stopped(place: Path, tmp_path: Path):
    whole = train(recipe(place, tmp_path / "a"))
    path = train(recipe(place, tmp_path / "b", rounds=1))
    config, run = runs.resume(path, ["--rounds", "2"])
    runs.train(config, run, build_algorithm(config))
    same_numbers(whole, path)
    found = evaluate(path, 5, 0).by_client
    assert found.shape == (3,)
    assert np.isnan(found[1])  # South holds nothing out
    assert np.isfinite(found[[0, 2]]).all()
    assert evaluate(path, 5, 0).mean == found[[0, 2]].mean()
    nothing = train(recipe(place, tmp_path / "c", rounds=1, world={"held_out": 0.0}))
    with pytest.raises(UserError, match=r"no client of .* holds anything out to be evaluated on"):
        evaluate(nothing, 5, 0)


def test_a_client_judges_what_it_was_sent_with_its_own_rows(place: Path, tmp_path: Path):
    algorithm = build_algorithm(recipe(place, tmp_path, partition={"held_out": "clients"}))
    state, kept = algorithm.init(0), algorithm.local(Job(2, algorithm.init(0), None, 1)).state
    job = Job(2, state, kept, 5)
    told = algorithm.local(job).metrics
    judged = algorithm.judge(job)
    assert len(judged) == told["held/ratings"]
    assert judged.mean() == pytest.approx(told["held/accuracy"])


@pytest.mark.parametrize("kind", ["centralized", "independent", "local"])
def test_baselines_are_other_federations_of_the_same_folders(
    place: Path, tmp_path: Path, kind: str
):
    path = train(recipe(place, tmp_path, federation={"kind": kind, "client": 2}, rounds=1))
    last = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
    assert {r["client"] for r in records(path)} == {
        "centralized": {0}, "independent": {0, 1, 2}, "local": {2}
    }[kind]  # fmt: skip
    assert 0 <= last["eval/accuracy"] <= 1


def test_what_joining_brings_is_for_who_holds_something_out(place: Path, tmp_path: Path):
    path = train(recipe(place, tmp_path / "out", rounds=1, algorithm={"lam": [0.5, 1.0, 1.5]}))
    found = joining(of_run(path, 2), tmp_path / "west", evaluations=1, progress=False)
    rows = rows_of("west")
    held = sum(n - max(round(0.8 * n), 1) for n in counts(rows.user))
    assert len(found.federated) == len(found.alone) == held
    with pytest.raises(UserError, match="client 1 holds nothing out to be judged on"):
        joining(of_run(path, 1), tmp_path / "south", evaluations=1, progress=False)


# What a person does wrong


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (lambda f: (f / "ratings.csv").unlink(), "has no ratings.csv or ratings.csv.gz"),
        (lambda f: (f / "movies.csv").unlink(), "has no movies.csv or movies.csv.gz"),
        (
            lambda f: change(f / "ratings.csv", "rating,", ""),
            "its first line is not 'userId,movieId,rating,timestamp'",
        ),
        (lambda f: change(f / "ratings.csv", None, ""), "it holds no ratings"),
        (lambda f: append(f / "ratings.csv", "1,99999,4.0,1"), "movie 99999 is rated but not in"),
        (lambda f: append(f / "ratings.csv", "1,2,9.5,1"), "a rating is 9.5; stars are from 0.5"),
        (lambda f: append(f / "ratings.csv", "mallory,2,4.0,1"), "could not convert string"),
        (lambda f: append(f / "movies.csv", "2,twice,Drama"), "movie 2 is in movies.csv twice"),
    ],
)
def test_mistakes_name_the_client_and_reach_no_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil, line: str
):
    organisations(tmp_path)
    spoil(tmp_path / "data" / "west" / "movielens")
    config = recipe(tmp_path, tmp_path / "out")
    algorithm = build_algorithm(config)
    with pytest.raises(UserError, match=line) as found:
        runs.start(config, algorithm)
    assert str(found.value).startswith("client 2 (west): ")
    assert "\n" not in str(found.value)
    # On nodes the owner is told all of it, the coordinator that there is something.
    alone = tmp_path / "driver" / "data"
    own_ratings.write(alone / "public" / "movielens", rows_of("public"))
    nodes = Nodes(tmp_path / "nodes", [tmp_path / "data" / member for member in MEMBERS])
    more = {"partition": {"folder": str(alone)}, "rounds": 1}
    path = on_nodes(recipe(tmp_path, tmp_path / "there", *FLOWER, **more), nodes, monkeypatch)
    assert any(line.split("'")[0].split(" (")[0] in said for said in nodes.logs[2])
    failed = {r["client"]: r["reason"] for r in records(path) if r["status"] == "failed"}
    assert set(failed) == {2}
    assert "the node's own log says why" in failed[2]
    assert not any(word in failed[2] for word in ("movielens", "99999", "mallory", "csv"))


def change(path: Path, old: str | None, new: str) -> None:
    text = path.read_text()
    path.write_text(text.splitlines()[0] + "\n" if old is None else text.replace(old, new, 1))


def append(path: Path, line: str) -> None:
    path.write_text(path.read_text() + line + "\n")


def test_another_list_of_movies_is_named_before_round_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    organisations(tmp_path)
    change(tmp_path / "data" / "west" / "movielens" / "movies.csv", "Drama", "Comedy")
    config = recipe(tmp_path, tmp_path / "out")
    with pytest.raises(UserError, match=r"client 2 \(west\): its catalogue is not the run's"):
        runs.start(config, build_algorithm(config))


def test_lines_of_movies_may_come_in_any_order(place: Path, tmp_path: Path):
    organisations(tmp_path)
    file = tmp_path / "data" / "west" / "movielens" / "movies.csv"
    head, *lines = file.read_text().splitlines()
    file.write_text("\n".join([head, *reversed(lines)]) + "\n")
    one = build_algorithm(recipe(place, tmp_path))
    other = build_algorithm(recipe(tmp_path, tmp_path))
    assert one.agreement(2) == other.agreement(2) == one.agreement()
    a, b = (x.local(Job(2, one.init(0), None, 1)).update for x in (one, other))
    np.testing.assert_array_equal(a["movie"], b["movie"])


def test_users_who_are_private_need_private_rows(place: Path, tmp_path: Path):
    with pytest.raises(UserError, match=r'set algorithm\.users = "private"'):
        build_algorithm(recipe(place, tmp_path, algorithm={"users": "shared"}))
    with pytest.raises(UserError, match=r"held_out is 0\.0; it is a share above 0 here"):
        world(held_out=0.0)


def test_answers_of_users_are_files_of_their_own(place: Path, tmp_path: Path):
    """A client's number and the user's id name them, where a client has several users."""
    file = str(tmp_path / "answers-{client}.jsonl")
    logged = {"feedback": "logged", "feedback_file": file}
    algorithm = build_algorithm(recipe(place, tmp_path, algorithm=logged))
    assert [p.name for p in algorithm.client_data[0].people] == [f"0-{k}" for k in range(1, 6)]
    assert [p.name for p in algorithm.client_data[1].people] == ["1"]
    (tmp_path / "answers-1.jsonl").write_text("")
    assert algorithm.local(Job(1, algorithm.init(0), None, 1)).metrics["env/answers"] == 0
    with pytest.raises(UserError, match=r"cannot read the answers in .*answers-0-1\.jsonl"):
        algorithm.local(Job(0, algorithm.init(0), None, 1))
