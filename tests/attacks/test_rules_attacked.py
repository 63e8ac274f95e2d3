"""Rules against liars: how many updates they need, whom they serve, and what a weight can buy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.liars import LIES, NAMES, SIZE, in_order, lies, stream, vector
from support.rounds import Memory, play
from support.toy import Toy

from fedrl.aggregation import mean as aggregate
from fedrl.aggregation import robust, rules
from fedrl.aggregation.settings import Settings as Aggregate
from fedrl.clients.faults import Faulty
from fedrl.clients.faults import Settings as Faults
from fedrl.clients.local_noise import Private
from fedrl.config.build import build_algorithm, build_clients
from fedrl.config.loading import resolve, to_toml
from fedrl.core import tree
from fedrl.core.types import Job, TooFew, UserError
from fedrl.federation.round_loop import QuorumLost
from fedrl.privacy import Settings as Privacy
from fedrl.runs.train import start, train

MEDIANS = ("median", "norm-bound")
TABLE = {"algorithm": {"name": "pavg", "local_steps": 2}, "world": {"name": "random_mdp"}}
RATINGS = {
    "algorithm": {"name": "fedrlhf", "local_epochs": 1, "feedback": "none"},
    "world": {"name": "movielens", "users": 40, "movies": 80, "ratings": 30, "least": 10},
    "federation": {"clients": 5},
}


def words(flags: str) -> list[str]:
    return flags.split()


# How many updates a rule needs


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--aggregate.name median --federation.clients 2", "median.* needs 3 clients per round"),
        ("--aggregate.name median --federation.clients 1", "needs 3 clients per round"),
        ("--aggregate.name median --federation.cohort 2", "there are 2: raise federation.clients"),
        ("--aggregate.name median --federation.kind independent", "each is alone"),
        ("--aggregate.name median --federation.kind centralized", "each is alone"),
        (
            "--aggregate.name median --async_buffer.size 2",
            "needs 3 updates, and async_buffer.size is 2",
        ),
        ("--aggregate.name trimmed --federation.clients 2", "needs 3 clients"),
        ("--aggregate.name trimmed --federation.clients 4", "aggregate.trim is 0.2.* nobody"),
        ("--aggregate.name trimmed --aggregate.trim 0", "raise it to 1/5 or more"),
        (
            "--aggregate.name trimmed --aggregate.trim 0.1 --async_buffer.size 5",
            "leaves out nobody",
        ),
        ("--aggregate.name trimmed --federation.kind local", "each is alone"),
        ("--aggregate.name norm-bound --federation.clients 2", "or set aggregate.bound"),
        ("--aggregate.name norm-bound --federation.kind independent", "each is alone"),
    ],
)
def test_a_rule_without_enough_clients_is_refused_before_the_run(flags, expected):
    with pytest.raises(UserError, match=expected) as found:
        resolve(TABLE, words(flags))
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    "flags",
    [
        "--aggregate.name median --federation.clients 3",
        "--aggregate.name median --async_buffer.size 3",
        "--aggregate.name trimmed --federation.clients 4 --aggregate.trim 0.25",
        "--aggregate.name trimmed",
        "--aggregate.name norm-bound --federation.clients 3",
        "--aggregate.name norm-bound --aggregate.bound 1 --federation.clients 1",
        "--aggregate.name norm-bound --aggregate.bound 1 --federation.kind independent",
    ],
)
def test_a_rule_with_just_enough_is_not(flags):
    assert resolve(TABLE, words(flags)).aggregate.name


@pytest.mark.parametrize("name", MEDIANS)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_median_of_fewer_than_three_is_no_result(name, count):
    with pytest.raises(TooFew, match=f"{name}.* needs 3 updates, and {count} were usable"):
        rules.get(name)(stream(np.ones((count, SIZE))))


def test_one_of_two_could_have_put_the_median_anywhere():
    """Why: the rule's own formula over two updates follows either of them without end."""
    honest, lie = np.zeros(SIZE), np.full(SIZE, 1e12)
    assert np.all(np.median([honest, lie], axis=0) == 5e11)


@pytest.mark.parametrize(("name", "least"), [("median", 3), ("norm-bound", 3), ("trimmed", 5)])
def test_a_round_in_which_too_few_answer_is_one_below_the_quorum(name, least):
    """Six are asked. What is left of them is not given to the mean or to a smaller trim instead."""
    rule = rules.build(rules.chosen(Aggregate(name, trim=0.34)), 6)
    gone = tuple(range(6 - least + 1))
    store = Memory()
    faulty = Faulty(Toy(), Faults(clients=gone, kind="raise"))
    with pytest.raises(QuorumLost, match=f"{name}.* needs {least} updates, and {least - 1} were"):
        play(faulty, store=store, mean=rule, retries=1, quorum=0.0)
    assert store.last.states[0]["steps"] == 0
    enough = Faulty(Toy(), Faults(clients=gone[1:], kind="raise"))
    assert play(enough, rounds=2, mean=rule, quorum=0.0).last.states[0]["steps"] == 2


@settings(max_examples=60, deadline=None)
@given(st.data(), LIES, st.integers(0, 10**6))
def test_a_minority_that_always_answers_moves_no_number_beyond_the_honest(data, kind, seed):
    """Honest clients may fail, liars never do: the trimmed mean counts those that were asked."""
    rng = np.random.default_rng(seed)
    asked = data.draw(st.integers(5, 20))
    liars = data.draw(st.integers(1, (asked - 1) // 2))
    share = liars / asked
    honest = rng.standard_normal((data.draw(st.integers(liars + 1, asked - liars)), SIZE)) + 5
    everybody = np.vstack([honest, lies(kind, honest, liars, rng)])
    everybody = everybody[rng.permutation(len(everybody))]
    low, high = in_order(honest).min(axis=0), in_order(honest).max(axis=0)
    for rule in (Aggregate("median"), Aggregate("trimmed", trim=share)):
        found = vector(rules.build(rules.chosen(rule), asked)(stream(everybody)))
        assert np.all((found >= low - 1e-9) & (found <= high + 1e-9)), rule.name


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 15), st.data(), LIES, st.integers(0, 10**6))
def test_a_minority_makes_a_mean_no_longer_than_the_longest_honest(count, data, kind, seed):
    """Without a bound of its own: the median of the norms is one between honest norms."""
    rng = np.random.default_rng(seed)
    liars = data.draw(st.integers(0, (count - 1) // 2))
    honest = rng.standard_normal((count - liars, SIZE)) + 1
    everybody = np.vstack([honest, lies(kind, honest, liars, rng)])
    found = vector(rules.get("norm-bound")(stream(everybody)))
    assert np.linalg.norm(found) <= np.linalg.norm(honest, axis=1).max() * (1 + 1e-9)


def test_rounding_does_not_let_a_liar_stay():
    """0.29 · 100 is a little less than 29 in floating point."""
    assert int(0.29 * 100) == 28
    values = np.zeros((100, SIZE))
    values[:29] = 1e9
    rule = rules.build(rules.chosen(Aggregate("trimmed", trim=0.29)), 100)
    assert not vector(rule(stream(values))).any()
    assert robust.left_out(0.29, 100) == 29


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(NAMES),
    st.integers(1, 12),
    st.floats(0, 0.49),
    st.one_of(st.floats(0, 1), st.integers(0, 6)),
    st.integers(0, 8),
    st.sampled_from([0.0, 0.5]),
    st.integers(0, 12),
)
def test_settings_that_are_let_through_always_have_a_result(
    name, clients, trim, byzantine, keep, bound, size
):
    """Refused before the run, or a rule for all that were asked, and for one too few `TooFew`."""
    table = {
        "name": name,
        "trim": trim,
        "byzantine": float(byzantine),
        "keep": keep,
        "bound": bound,
    }
    data = TABLE | {"aggregate": table, "federation": {"clients": clients}}
    try:
        config = resolve(data | {"async_buffer": {"size": min(size, clients)}})
    except UserError as error:
        assert "\n" not in str(error)  # noqa: PT017 - any refusal will do, in one line
        return
    asked, rule = config.combined, rules.build(config.rule, config.combined)
    updates = stream(np.random.default_rng(0).standard_normal((asked, SIZE)))
    assert np.isfinite(vector(rule(updates))).all()
    least = config.rule.least(asked)
    rule(updates[:least])
    if least > 1:
        with pytest.raises(TooFew):
            rule(updates[: least - 1])


# Whom a rule can serve


@pytest.mark.parametrize("name", ["median", "trimmed", "bulyan"])
@pytest.mark.parametrize("rows", ["all", "holders"])
def test_rules_by_number_are_refused_where_rows_have_single_holders(name, rows):
    pytest.importorskip("numba", reason="ratings need the extra classic")
    flags = ["--aggregate.name", name, "--federation.clients", "15"]
    flags += ["--algorithm.rows", rows] if rows == "holders" else []
    match = "hold a row of movie or user" if rows == "all" else "counts of holders"
    with pytest.raises(UserError, match=match):
        build_algorithm(resolve(RATINGS, flags))


@pytest.mark.slow
def test_a_median_of_ratings_would_teach_no_user_anything():
    """Why: whatever all clients learned of their own users, the middle of each row is 0."""
    pytest.importorskip("numba", reason="ratings need the extra classic")
    algorithm = build_algorithm(resolve(RATINGS))
    start = algorithm.init(0)
    results = algorithm.local_many([Job(c, start, None, c) for c in range(5)])
    assert all(result.update["user"][c].any() for c, result in enumerate(results))
    middle = robust.median([(result.update, 1.0) for result in results])
    assert not middle["user"].any()
    assert algorithm.held_apart == {"user", "movie"}


def test_rules_by_distance_and_length_still_serve_ratings():
    pytest.importorskip("numba", reason="ratings need the extra classic")
    for name in ("krum", "multi-krum", "norm-bound", "mean", "weighted"):
        build_algorithm(resolve(RATINGS, ("--aggregate.name", name)))


# What a weight can buy


class Weighing(Toy):
    """Client 0 claims any weight; the others say 1 + their number, at most 6."""

    heaviest = 6.0

    def __init__(self, claim: float) -> None:
        super().__init__()
        self.claim = claim

    def local(self, job):
        result = super().local(job)
        return replace(result, weight=self.claim) if job.client == 0 else result


def weighed(claim: float):
    algorithm = Weighing(claim)
    rule = rules.build(rules.chosen(Aggregate("weighted")), 6, algorithm)
    return play(algorithm, mean=rule).last.states[0]


@pytest.mark.parametrize("claim", [6.1, 1e9, 2.0**40])
def test_a_claim_beyond_the_heaviest_counts_as_the_heaviest(claim):
    most, honest = weighed(6.0), weighed(1.0)
    for (_, found), (_, expected) in zip(tree.leaves(weighed(claim)), tree.leaves(most)):
        np.testing.assert_array_equal(found, expected)
    assert not np.array_equal(most["theta"]["a"], honest["theta"]["a"])


@pytest.mark.parametrize("claim", [2.0**41, 1e300, 1.7e308])
def test_a_claim_that_nobody_could_make_is_refused(claim):
    """As if the client had failed: the others' mean, whatever is claimed."""
    one, other = weighed(claim), weighed(2 * claim if claim < 1e308 else claim)
    np.testing.assert_array_equal(one["theta"]["a"], other["theta"]["a"])
    assert not np.array_equal(one["theta"]["a"], weighed(6.0)["theta"]["a"])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1, 10), min_size=2, max_size=9), st.floats(1, 1.7e308))
def test_a_liar_moves_a_weighted_mean_by_the_heaviests_share(honest, claim):
    updates = [({"x": np.zeros(2)}, weight) for weight in honest]
    found = aggregate.weighted([*updates, ({"x": np.ones(2)}, claim)], heaviest=10.0)["x"]
    assert np.all(found <= 10 / (10 + sum(honest)) + 1e-12)


def test_weights_are_refused_where_all_are_the_same():
    with pytest.raises(UserError, match=r'all clients of pavg weigh the same: set .*"mean"'):
        build_algorithm(resolve(TABLE, ("--aggregate.name", "weighted")))


def test_a_client_of_ratings_that_claims_everything(tmp_path):
    """In a whole run: it counts as much as the one with the most ratings, not for all of them."""
    pytest.importorskip("numba", reason="ratings need the extra classic")
    flags = ("--aggregate.name", "weighted", "--rounds", "1", "--out", str(tmp_path))

    def trained(claim: float) -> np.ndarray:
        config = resolve(RATINGS, flags)
        algorithm = build_clients(config)
        honest = algorithm.local_many
        algorithm.local_many = lambda jobs: [
            replace(r, weight=claim) if r.client == 0 else r for r in honest(jobs)
        ]
        run = start(config)
        return train(config, run, algorithm).states[0]["layers"]

    most = max(len(shelf.train) for shelf in build_algorithm(resolve(RATINGS)).world.ratings)
    np.testing.assert_array_equal(trained(2.0**40), trained(float(most)))


# A weight is a secret, and goes round a bound on updates


@pytest.mark.parametrize(
    "private",
    [
        "--privacy.noise 1",
        "--privacy.noise 1 --privacy.where local",
        "--privacy.secure true",
        "--privacy.secure true --privacy.noise 1",
        "--privacy.noise 1 --privacy.reports true",
        "--privacy.noise 1 --async_buffer.size 3",
        "--privacy.secure true --async_buffer.size 3",
    ],
)
def test_weights_and_noise_or_secure_sums_exclude_each_other(private):
    pytest.importorskip("dp_accounting", reason="ε needs the extra privacy")
    flags = words(f"--privacy.clip 1 --aggregate.name weighted {private}")
    with pytest.raises(UserError, match=r"through the bound|asked together"):
        resolve(RATINGS, flags)


@pytest.mark.parametrize("own", ["--privacy.noise 1", "--privacy.secure true"])
def test_a_node_with_noise_of_its_own_takes_no_recipe_with_weights(own, tmp_path: Path):
    pytest.importorskip("flwr", reason="needs the extra flower")
    from fedrl.engines.flower import node_recipes

    recipe = to_toml(resolve(RATINGS, ("--aggregate.name", "weighted")))
    node_recipes.plan(recipe, tmp_path, "", ())
    with pytest.raises(UserError, match="through the bound"):
        node_recipes.plan(recipe, tmp_path, "", tuple(words(f"--privacy.clip 1 {own}")))


@pytest.mark.parametrize("where", ["central", "local"])
def test_a_noisy_client_tells_no_weight_whatever_the_server_does_with_it(where):
    job = Job(3, Toy().broadcast(Toy().init(0), 1), None, 0)
    private = Private(Toy(), Privacy(clip=1.0, noise=1.0, where=where))
    assert private.local(job).weight == 1.0
    assert Toy().local(job).weight == 4.0
