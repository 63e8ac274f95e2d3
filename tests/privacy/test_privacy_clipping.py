"""Clipping and noise: a projection, on both sides of the wire, and noise of the right size."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from support.toy import BatchedToy, Toy
from support.values import Values

from fedrl import privacy
from fedrl.clients.local_noise import Private
from fedrl.core import tree
from fedrl.core.types import Job, Spec, UserError
from fedrl.privacy import clipping, noise

BOUND = 2.0


def start(algorithm):
    return algorithm.broadcast(algorithm.init(0), 1)


def form(algorithm=None):
    algorithm = algorithm or Toy()
    return clipping.layout(algorithm, start(algorithm))


def an_update(scale, seed=0):
    random = np.random.default_rng(seed)
    part = scale * random.standard_normal(7)
    return {"a": part[:3], "b": part[3:].reshape(2, 2).astype(np.float32)}


def distance(update, layout):
    return float(np.linalg.norm(layout.vector(update)))


finite = st.floats(-1e6, 1e6)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(finite, min_size=1, max_size=12), st.lists(finite, min_size=12, max_size=12))
def test_shorten_is_the_projection_onto_the_ball(numbers, others):
    x = np.array(numbers)
    short = clipping.shorten(x, BOUND)
    assert clipping.length(short) <= BOUND * (1 + 1e-12)
    np.testing.assert_allclose(clipping.shorten(short, BOUND), short, rtol=1e-12)
    # A projection onto a convex set: no point of it is nearer, and none lies beyond a right angle.
    inside = np.array(others[: len(x)])
    inside *= BOUND / max(BOUND, float(np.linalg.norm(inside)))
    tolerance = 1e-9 * (1 + float(np.abs(x).max()))
    assert np.linalg.norm(x - short) <= np.linalg.norm(x - inside) + tolerance
    assert (x - short) @ (inside - short) <= tolerance * 10


def test_lengths_do_not_overflow():
    assert clipping.length(np.array([3e200, 4e200])) == pytest.approx(5e200)
    assert clipping.length(np.zeros(0)) == 0
    assert np.isnan(clipping.length(np.array([np.nan, 1.0])))


def test_the_bound_is_on_all_tensors_together_and_direction_and_dtypes_stay():
    long, layout = an_update(10.0), form()
    short = clipping.clip(long, BOUND, layout)
    assert distance(short, layout) == pytest.approx(BOUND, rel=1e-6)
    assert {n: a.dtype for n, a in short.items()} == {n: a.dtype for n, a in long.items()}
    scale = BOUND / distance(long, layout)
    for name in long:
        np.testing.assert_allclose(short[name], scale * long[name], rtol=1e-6)


def test_a_short_update_leaves_as_it_is():
    update = an_update(0.1)
    assert clipping.clip(update, BOUND, form()) is update


def test_values_are_bounded_in_their_difference_from_the_broadcast():
    algorithm = Values()
    sent = start(algorithm)
    sent["theta"]["a"] = sent["theta"]["a"] + 1000.0  # far away, but nobody's secret
    layout = clipping.layout(algorithm, sent)
    update = algorithm.local(Job(5, sent, None, 1)).update
    short = clipping.clip(update, BOUND, layout)
    change = np.concatenate([(short["theta"][k] - sent["theta"][k]).ravel() for k in ("a", "b")])
    assert np.linalg.norm(change) == pytest.approx(BOUND, rel=1e-5)
    assert short["theta"]["a"].mean() > 990


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_an_update_is_its_vector(seed):
    for algorithm in (Toy(), Values()):
        layout = form(algorithm)
        update = algorithm.local(Job(1, start(algorithm), None, seed)).update
        again = tree.flatten(layout.update(layout.vector(update)))
        for name, leaf in tree.leaves(update):
            np.testing.assert_allclose(again[name], leaf, rtol=1e-6, atol=1e-7)
            assert again[name].dtype == leaf.dtype


def test_numbers_that_are_not_real_are_refused():
    class Counting(Toy):
        def declare(self, broadcast):
            return {"a": Spec((3,), "int64")}

    with pytest.raises(UserError, match="bounds real numbers, and a is int64"):
        form(Counting())


def test_values_without_a_broadcast_are_refused():
    class Elsewhere(Toy):
        sends_parameters = True

    with pytest.raises(UserError, match="not in its broadcast"):
        form(Elsewhere())


# A client


def jobs(algorithm, count=4):
    return [Job(c, start(algorithm), None, 10 + c) for c in range(count)]


@pytest.mark.parametrize("kind", [Toy, BatchedToy, Values])
def test_a_client_never_sends_more_than_the_bound(kind):
    algorithm = Private(kind(), privacy.Settings(clip=0.01))
    layout = clipping.layout(algorithm, start(algorithm))
    for job in jobs(algorithm):
        sent = algorithm.local(job)
        assert distance(sent.update, layout) == pytest.approx(0.01, rel=1e-4)
        assert sent.metrics == kind().local(job).metrics
        assert sent.weight == kind().local(job).weight


def test_batched_clients_send_what_single_ones_do():
    settings = privacy.Settings(clip=0.01, noise=1.0, where="local", seeded=True)
    one, many = Private(Toy(), settings), Private(BatchedToy(), settings)
    assert not hasattr(one, "local_many")
    for job, got in zip(jobs(one), many.local_many(jobs(one))):
        alone = one.local(job)
        np.testing.assert_array_equal(alone.update["a"], got.update["a"])
        assert alone.metrics == got.metrics


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"clip": 1.0}, True),
        ({"clip": 1.0, "noise": 1.0}, False),
        ({"clip": 1.0, "secure": True}, False),
        ({"clip": 1.0, "noise": 1.0, "reports": True}, True),
    ],
)
def test_metrics_and_weights_stay_with_the_client(fields, told):
    algorithm = Private(Toy(), privacy.Settings(**fields))
    result = algorithm.local(jobs(algorithm)[2])
    assert bool(result.metrics) == told == bool(algorithm.reports)
    assert (result.weight == 3.0) == ("noise" not in fields and "secure" not in fields)
    assert result.state is not None  # its own disk


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_left_for_the_server_to_refuse(bad):
    update = an_update(1.0)
    update["a"][1] = bad
    assert clipping.clip(update, BOUND, form()) is update


# Noise


@pytest.mark.parametrize("seeded", [True, False])
def test_noise_is_standard_normal(seeded):
    draw = noise.source(seeded, 5, "test")
    x = draw(40001)
    assert x.shape == (40001,)
    assert scipy.stats.kstest(x, "norm").pvalue > 1e-6
    # Chi-square of the sum of squares: the variance to a few per cent.
    assert abs(float(x @ x) - len(x)) < 6 * np.sqrt(2 * len(x))
    assert abs(float(x[:20000] @ x[20000:40000])) < 6 * np.sqrt(20000)


def test_noise_of_the_system_cannot_be_repeated_and_that_of_the_seed_can():
    def draws(seeded, seed, round=0):
        return noise.source(seeded, seed, "test", round)(50)

    assert not np.array_equal(draws(False, 1), draws(False, 1))
    np.testing.assert_array_equal(draws(True, 1), draws(True, 1))
    assert not np.array_equal(draws(True, 1), draws(True, 2))
    assert not np.array_equal(draws(True, 1), draws(True, 1, round=3))


def test_noise_on_the_sum_is_divided_by_those_that_were_asked():
    """Variance (zC / M)² of the mean, and half the answers give half the sum."""
    asked, deviation, size = 8, 3.0, 20000
    ones = [np.ones(size)] * 4
    found = noise.noisy_mean(ones, size, asked, deviation, noise.from_system)
    assert found.mean() == pytest.approx(0.5, abs=6 * deviation / asked / np.sqrt(size))
    assert found.std() == pytest.approx(deviation / asked, rel=0.04)


def test_local_noise_has_its_size_and_is_every_clients_own():
    algorithm = Private(
        Toy(size=20000), privacy.Settings(clip=0.5, noise=2.0, where="local", seeded=True)
    )
    a, b = (algorithm.local(job).update["a"] for job in jobs(algorithm, 2))
    assert a.std() == pytest.approx(1.0, rel=0.04)
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.05
