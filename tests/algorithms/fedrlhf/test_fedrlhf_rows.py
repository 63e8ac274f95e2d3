"""Rows of embeddings over their holders: the mathematics, and what may be done with the counts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ratings import built, world

from fedrl.aggregation import mean as aggregate
from fedrl.algorithms.fedrlhf.ratings.algorithm import PARTS, ROWS
from fedrl.algorithms.fedrlhf.ratings.bound import measure
from fedrl.algorithms.fedrlhf.ratings.client_data import mean_over_holders, row_marks
from fedrl.clients.local_noise import Private
from fedrl.config.build import build_algorithm
from fedrl.config.loading import find_recipe, read_recipe, resolve
from fedrl.core import tree
from fedrl.core.types import Job, UserError
from fedrl.core.update_refusal import refusal
from fedrl.privacy import Settings as Privacy
from fedrl.privacy.mechanism import Exchange, Mechanism
from fedrl.runs import train as runs
from fedrl.runs.run_dir import RunDir, read_checkpoint


def learned(algorithm, clients=None, seed=0):
    """The broadcast, and what clients send after one round."""
    start = algorithm.init(seed)
    who = range(len(algorithm.client_env_ids)) if clients is None else clients
    return start, [algorithm.local(Job(c, start, None, 10 + c)) for c in who]


def stepped(algorithm, start, results, rule=aggregate.weighted):
    """The change of every part that the server makes of it."""
    after = algorithm.step(start, rule([(r.update, r.weight) for r in results]), 1)
    return {name: after[name].astype(np.float64) - start[name] for name in PARTS}


def apart(clients=3):
    """A world whose clients have no movie in common."""
    found = world(clients=clients, movies=400)
    shelves, free = [], iter(np.random.default_rng(0).permutation(400))
    for shelf in found.ratings:
        own = np.array([next(free) for _ in shelf.movie], np.int64)
        shelves.append(shelf._replace(movie=own))
    found.ratings = tuple(shelves)
    return found


@pytest.mark.parametrize("rule", [aggregate.mean, aggregate.weighted])
def test_a_row_with_one_holder_moves_as_far_as_that_one_moved_it(rule):
    """The dense layers, which all hold, are the mean as ever; nobody's rows stay to the bit."""
    algorithm = built(apart(), rows="holders")
    start, results = learned(algorithm)
    change = stepped(algorithm, start, results, rule)
    touched = np.zeros(len(start["movie"]), bool)
    for mine, result in zip(algorithm.client_data, results, strict=True):
        for name, rows in (("user", mine.users), ("movie", mine.movies)):
            assert np.abs(result.update[name][rows]).max() > 1e-4
            np.testing.assert_allclose(change[name][rows], result.update[name][rows], atol=2e-8)
        touched[mine.movies] = True
    assert 0 < touched.sum() < len(touched)
    assert not change["movie"][~touched].any()
    all_of_them = stepped(built(apart()), start, results, rule)
    np.testing.assert_array_equal(change["layers"], all_of_them["layers"])


def test_the_papers_mean_gives_such_a_row_its_holders_share():
    algorithm = built(apart())
    start, results = learned(algorithm)
    change, total = stepped(algorithm, start, results), sum(r.weight for r in results)
    for mine, result in zip(algorithm.client_data, results, strict=True):
        expected = result.update["user"][mine.users] * result.weight / total
        np.testing.assert_allclose(change["user"][mine.users], expected, atol=2e-8)


def test_a_row_with_several_holders_moves_by_their_weighted_mean():
    algorithm = built(rows="holders")
    start, results = learned(algorithm)
    change = stepped(algorithm, start, results)
    shared = 0
    for movie in range(len(start["movie"])):
        holders = [c for c, mine in enumerate(algorithm.client_data) if movie in mine.movies]
        shared += len(holders) > 1
        if holders:
            weights = [results[c].weight for c in holders]
            rows = [results[c].update["movie"][movie].astype(np.float64) for c in holders]
            expected = np.average(rows, axis=0, weights=weights)
            np.testing.assert_allclose(change["movie"][movie], expected, atol=2e-8)
    assert shared > 10


def test_who_does_not_hold_a_row_has_no_say_in_it():
    """The same round with and without the last client: only its own rows know the difference."""
    algorithm = built(rows="holders")
    start, results = learned(algorithm)
    more, fewer = stepped(algorithm, start, results), stepped(algorithm, start, results[:-1])
    for name, own in (("user", [3]), ("movie", algorithm.client_data[3].movies)):
        others = np.setdiff1d(np.arange(len(start[name])), own)
        np.testing.assert_allclose(more[name][others], fewer[name][others], atol=2e-8)
        assert not np.allclose(more[name][own], fewer[name][own], atol=1e-5)
    paper = built()
    alone = [stepped(paper, start, some)["user"][0] for some in (results, results[:-1])]
    assert not np.allclose(*alone, atol=1e-5)


@pytest.mark.parametrize("client_env_ids", [[[0, 1]] * 3, [[2]]])
def test_where_everybody_holds_everything_both_forms_are_one(client_env_ids):
    """To the bit, also with other weights; and for a client that is alone."""
    start, results = learned(built(client_env_ids=client_env_ids, rows="holders"))
    results = [dataclasses.replace(r, weight=3.0 + i) for i, r in enumerate(results)]
    one = stepped(built(client_env_ids=client_env_ids, rows="holders"), start, results)
    other = stepped(built(client_env_ids=client_env_ids), start, results)
    for name in PARTS:
        np.testing.assert_array_equal(one[name], other[name])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 10**6))
def test_means_of_marks_and_changes_give_the_mean_over_holders(clients, rows, seed):
    """In exact arithmetic an identity; here for any holders, weights and changes."""
    rng = np.random.default_rng(seed)
    held = rng.random((clients, rows)) < 0.4
    weights = rng.integers(1, 200, clients).astype(float)
    change = rng.normal(size=(clients, rows, 3)).astype(np.float32) * held[:, :, None]
    sent = [
        ({"x": x, "held": row_marks(np.flatnonzero(h), rows)}, w)
        for x, h, w in zip(change, held, weights, strict=True)
    ]
    mean = aggregate.weighted(sent)
    found = mean_over_holders(mean["x"], mean["held"], 1 / (clients * 200))
    for row in range(rows):
        own = held[:, row]
        expected = (
            np.average(change[own, row], axis=0, weights=weights[own]) if own.any() else np.zeros(3)
        )
        np.testing.assert_allclose(found[row], expected, atol=1e-5)


def test_a_lighter_mark_moves_a_row_no_farther_than_the_lightest_holder_could():
    """Who marks a row that it changes by next to nothing, or by less than nothing, is bounded."""
    least = 1 / 40
    for mark in (1e-30, 0.0, -5.0):
        found = mean_over_holders(np.full((1, 2), 0.5), np.array([mark]), least)
        np.testing.assert_allclose(found, 0.5 / least)


# What may be done with the counts


def test_the_counts_are_declared_and_tell_what_the_changes_tell():
    algorithm = built(rows="holders")
    start, results = learned(algorithm)
    specs = algorithm.declare(start)
    assert {name for name in specs if name.startswith("held/")} == algorithm.counts
    for mine, result in zip(algorithm.client_data, results, strict=True):
        assert refusal(result, specs, algorithm.reports) is None
        assert np.flatnonzero(result.update["held"]["user"]).tolist() == mine.users.tolist()
        assert np.flatnonzero(result.update["held"]["movie"]).tolist() == mine.movies.tolist()
        changed = np.flatnonzero(result.update["movie"].any(axis=1))
        assert set(changed.tolist()) <= set(mine.movies.tolist())
    plain = built()
    assert not plain.counts
    assert plain.declare(start).keys() == set(PARTS)
    assert "held" not in learned(plain)[1][0].update


@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
def test_counts_travel_exactly(precision):
    pytest.importorskip("flwr", reason="needs the extra flower")
    from fedrl.core import serialization

    sent = learned(built(rows="holders"))[1][0].update
    got = serialization.unpack(serialization.pack(sent, precision))
    for name in ROWS:
        np.testing.assert_array_equal(got["held"][name], sent["held"][name])


def test_counts_do_not_travel_in_eight_bits():
    recipe = read_recipe(find_recipe("fedrlhf/movielens_paper"))
    small = ("--flower.precision", "int8", "--aggregate.name", "mean")
    build_algorithm(resolve(recipe, small))
    with pytest.raises(UserError, match="would spoil the counts"):
        build_algorithm(resolve(recipe, (*small, "--algorithm.rows", "holders")))


def through(settings: Privacy, algorithm, start, results):
    """A round's mean as `[privacy]` makes it of what protected clients send."""
    guarded = Private(algorithm, settings)
    mechanism = Mechanism(settings, guarded, 0, 4, 4, lambda _: range(4))
    sent = [guarded.sent(Job(r.client, start, None, 0), r) for r in results]
    rule = mechanism.aggregator(aggregate.mean, start, Exchange(1, 0, len(sent)))
    return algorithm.step(start, rule([(r.update, r.weight) for r in sent]), 1)


def test_secure_sums_give_the_same_rows():
    """Counts are added up like everything else; a mark lies far above the grid."""
    pytest.importorskip("cryptography", reason="secure aggregation needs the extra privacy")
    algorithm = built(rows="holders")
    start, results = learned(algorithm)
    plain = stepped(algorithm, start, results, aggregate.mean)
    after = through(Privacy(clip=5.0, secure=True), algorithm, start, results)
    for name in PARTS:
        np.testing.assert_allclose(after[name] - start[name], plain[name], atol=2e-6)


def test_marks_take_next_to_nothing_of_a_bound_on_the_update():
    algorithm = built(rows="holders")
    start, results = learned(algorithm)
    for result in results:
        flat = tree.flatten(result.update)
        counts = np.concatenate([flat[name] for name in sorted(algorithm.counts)])
        changes = np.concatenate([np.ravel(flat[name]) for name in PARTS])
        assert np.linalg.norm(counts) < 0.02 * np.linalg.norm(changes)
    half = 0.5 * min(np.linalg.norm(np.ravel(r.update["layers"])) for r in results)
    after = through(Privacy(clip=half), algorithm, start, results)
    assert np.linalg.norm(after["layers"] - start["layers"]) <= half


RECIPE = {
    "algorithm": {"name": "fedrlhf", "local_epochs": 1, "feedback": "none", "rows": "holders"},
    "world": {"name": "movielens", "users": 40, "movies": 80, "ratings": 30, "least": 10},
    "federation": {"clients": 5},
    "aggregate": {"name": "weighted"},
    "rounds": 2,
}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--aggregate.name krum", 'aggregate.name = "krum" would spoil'),
        ("--aggregate.name norm-bound", "would spoil the counts of holders"),
        ("--aggregate.name mean --privacy.clip 1 --privacy.noise 1", "privacy.noise would spoil"),
        (
            "--aggregate.name mean --privacy.clip 1 --privacy.noise 1 --privacy.where local",
            "privacy.noise would spoil",
        ),
        ("--async_buffer.size 3", 'async_buffer.size would spoil .* set algorithm.rows = "all"'),
    ],
)
def test_what_would_spoil_the_counts_is_refused(flags, words):
    pytest.importorskip("dp_accounting", reason="ε needs the extra privacy")
    with pytest.raises(UserError, match=words) as found:
        build_algorithm(resolve(RECIPE, flags.split()))
    assert "\n" not in str(found.value)
    build_algorithm(resolve(RECIPE, (*flags.split(), "--algorithm.rows", "all")))


def test_the_theorem_is_about_the_papers_mean():
    exact = {"method": "policy-gradient", "optimizer": "sgd", "local_steps": 2}
    with pytest.raises(UserError, match=r"algorithm\.rows"):
        measure(built(rows="holders", **exact), rounds=1, seed=0)


def test_a_run_goes_through_and_resumes_to_the_same_numbers(tmp_path):
    def trained(out, *flags):
        config = resolve(RECIPE, ("--out", str(tmp_path / out), *flags))
        run = runs.start(config)
        runs.train(config, run, build_algorithm(config))
        return run.path

    whole, half = trained("a"), trained("b", "--rounds", "1")
    config, run = runs.resume(half, ["--rounds", "2"])
    runs.train(config, run, build_algorithm(config))
    one, other = (read_checkpoint(RunDir(p).checkpoints()[0])[0].states[0] for p in (whole, half))
    paper = read_checkpoint(RunDir(trained("c", "--algorithm.rows", "all")).checkpoints()[0])[
        0
    ].states[0]
    for name in PARTS:
        np.testing.assert_array_equal(one[name], other[name])
    for name in ROWS:
        assert not np.allclose(one[name], paper[name], atol=1e-5)
