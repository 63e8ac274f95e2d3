"""The world of movie ratings: its split, its genres, its ids, and what its reward may know."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from support import realdata

from fedrl.algorithms.fedrlhf.ratings.client_data import client_ratings
from fedrl.core.types import UserError
from fedrl.datasets import movielens as reader
from fedrl.datasets.movielens import Movie, Ratings
from fedrl.envs.movielens import world as movielens
from fedrl.envs.movielens.generate import generate
from fedrl.envs.movielens.world import Settings, World

SMALL = Settings(users=30, movies=60, ratings=30, least=5)


def world(clients: int = 4, seed: int = 0, **changes) -> World:
    return World(Settings(**(vars(SMALL) | changes)), clients, seed)


def write(folder: Path, ratings: Ratings) -> Settings:
    """A data set in the published form, as a user's own folder."""
    rows = zip(ratings.user, ratings.movie, ratings.rating, ratings.timestamp)
    lines = ["userId,movieId,rating,timestamp", *(",".join(map(str, row)) for row in rows)]
    (folder / "ratings.csv").write_text("\n".join(lines) + "\n")
    rows = ((m.id, m.title, "|".join(m.genres) or "(no genres listed)") for m in ratings.movies)
    lines = ["movieId,title,genres", *(",".join(map(str, row)) for row in rows)]
    (folder / "movies.csv").write_text("\n".join(lines) + "\n")
    return Settings(source=str(folder), least=2)


@pytest.mark.parametrize("split", ["random", "time"])
def test_nothing_is_both_trained_on_and_held_out(split):
    for shelf in world(split=split).ratings:
        train, held = set(shelf.train.tolist()), set(shelf.held.tolist())
        assert train
        assert held
        assert not train & held
        assert train | held == set(range(len(shelf.movie)))
        assert len(held) == pytest.approx(0.2 * len(shelf.movie), abs=1)


def test_the_latest_ratings_are_held_out_by_time():
    ratings = generate(30, 60, 30, 0)
    when = {(u, m): t for u, m, t in zip(ratings.user, ratings.movie, ratings.timestamp)}
    found = world(split="time")
    for shelf in found.ratings:
        times = np.array([when[shelf.user, found.movies[m].id] for m in shelf.movie])
        assert times[shelf.train].max() < times[shelf.held].min()


def test_split_and_users_are_the_seeds():
    first, again, other = world(seed=1), world(seed=1), world(seed=2)
    assert [s.user for s in first.ratings] == [s.user for s in again.ratings]
    assert all(np.array_equal(a.held, b.held) for a, b in zip(first.ratings, again.ratings))
    assert [s.user for s in first.ratings] != [s.user for s in other.ratings]
    more = world(clients=6, seed=1)
    assert [s.user for s in more.ratings[:4]] == [s.user for s in first.ratings]
    for a, b in zip(first.ratings, more.ratings):
        assert np.array_equal(a.held, b.held)


def test_a_run_that_would_evaluate_on_training_data_is_refused():
    found = world()
    shelf = found.ratings[1]
    leaky = shelf._replace(held=np.append(shelf.held, shelf.train[0]))
    found.ratings = (found.ratings[0], leaky, *found.ratings[2:])
    client_ratings(found, [0], [1.0] * 4)
    with pytest.raises(UserError, match=f"user {shelf.user}'s rating .* both trained on"):
        client_ratings(found, [1], [1.0] * 4)


def test_a_movie_rated_twice_is_found(tmp_path):
    """The same movie on both sides is a leak too, though the rows differ."""
    movies = tuple(Movie(i, f"M{i}", ("Drama",)) for i in (5, 6))
    user, movie = np.array([1, 1, 1, 2, 2, 2]), np.array([6, 5, 5, 6, 5, 5])
    twice = Ratings(user, movie, np.full(6, 4.0), np.arange(6), movies)
    settings = dataclasses.replace(write(tmp_path, twice), split="time", held_out=0.3)
    with pytest.raises(UserError, match="movie 5 is both trained on and held out"):
        client_ratings(World(settings, 2, 0), [0], [1.0, 1.0])


def test_genres_are_those_of_the_same_row(tmp_path):
    """Ids with gaps and out of order: a table by id, or by first appearance, is misaligned."""
    movies = (
        Movie(90, "Ninety", ("War", "Drama")),
        Movie(2, "Two", ("Comedy",)),
        Movie(31, "Thirty-one", ()),
        Movie(7, "Seven", ("Drama",)),
    )
    user = np.repeat([11, 4, 23], 4)
    movie = np.array([31, 7, 2, 90] * 3)
    stars = np.array([3.0, 4.0, 5.0, 0.5] * 3)
    found = World(write(tmp_path, Ratings(user, movie, stars, np.arange(12), movies)), 2, 3)
    for row, one in enumerate(found.movies):
        has = {name for name, x in zip(found.genre_names, found.genres[row]) if x}
        assert has == set(one.genres)
    for shelf in found.ratings:
        given = {found.movies[m].id: s for m, s in zip(shelf.movie, shelf.rating)}
        assert given == {31: 3.0, 7: 4.0, 2: 5.0, 90: 0.5}
    mine = client_ratings(found, [0], [1.0, 1.0])
    for place in range(len(mine.appeal)):
        one = next(m for m in movies if str(m.id) == mine.key(place))
        assert mine.stars[place] == {31: 3.0, 7: 4.0, 2: 5.0, 90: 0.5}[one.id]
        has = {name for name, x in zip(found.genre_names, mine.train.genres[place]) if x}
        assert has == set(one.genres)
        assert mine.text(place).startswith(one.title)


def test_no_rating_enters_the_intrinsic_reward(monkeypatch):
    """Other stars for the same movies, everybody's: R0 is the same. It is not constant either."""
    before = world()
    made = generate(30, 60, 30, 0)
    shuffled = np.random.default_rng(0).permutation(made.rating)
    monkeypatch.setattr(movielens, "generate", lambda *_: made._replace(rating=shuffled))
    after = world()
    for a, b in zip(before.ratings, after.ratings):
        assert not np.array_equal(a.rating, b.rating)
        assert np.array_equal(a.appeal, b.appeal)
        assert a.appeal.std() > 0.05
        assert np.abs(a.appeal).max() <= 1


def test_held_out_movies_are_unknown_to_the_intrinsic_reward(monkeypatch):
    """Which movies a client holds out says nothing about the appeal of those it trains on."""
    found = world()
    made = generate(30, 60, 30, 0)
    shelf = found.ratings[0]
    gone = [found.movies[m].id for m in shelf.movie[shelf.held]]
    kept = ~((made.user == shelf.user) & np.isin(made.movie, gone))
    fewer = Ratings(*(column[kept] for column in made[:4]), made.movies)
    monkeypatch.setattr(movielens, "generate", lambda *_: fewer)
    monkeypatch.setattr(movielens, "split", lambda s, t, *_: (np.arange(len(t)), np.arange(0)))
    alone = world().ratings[0]
    assert np.array_equal(alone.movie, shelf.movie[shelf.train])
    np.testing.assert_allclose(alone.appeal, shelf.appeal[shelf.train], rtol=1e-6)


def test_watching_says_a_little():
    found = World(Settings(), 20, 0)
    agree = [np.corrcoef(s.appeal, s.rating)[0, 1] for s in found.ratings]
    assert 0.05 < np.mean(agree) < 0.6


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"held_out": 1.0}, "world.held_out is 1.0"),
        ({"least": 1}, "world.least is 1"),
        ({"source": "nowhere"}, "world.source is 'nowhere'"),
        ({"least": 500}, "only 0 users have world.least = 500"),
    ],
)
def test_mistakes_name_their_key(wrong, said):
    with pytest.raises(UserError, match=said):
        world(**wrong)


@pytest.mark.slow
@pytest.mark.realdata
def test_the_genuine_ratings():
    genuine = reader.load(realdata.data("movielens"))
    found = World(Settings(source="movielens"), 10, 0)
    assert len(found.movies) == 9742
    assert len(found.genre_names) == 19
    sizes = {int(u): int(c) for u, c in zip(*np.unique(genuine.user, return_counts=True))}
    assert all(len(shelf.movie) == sizes[shelf.user] for shelf in found.ratings)
    row = np.random.default_rng(0).integers(len(found.movies))
    has = {name for name, x in zip(found.genre_names, found.genres[row]) if x}
    assert has == set(genuine.movies[row].genres)
