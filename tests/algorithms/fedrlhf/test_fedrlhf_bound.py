"""Theorems 4.1 and 5.2 with numbers: known constants, measured ones, and fits of known rates."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np
import pytest
from support.repository import DOCS

from fedrl.algorithms.fedrlhf.ratings import bound as fedrlhf_bound
from fedrl.algorithms.fedrlhf.ratings.algorithm import FedRLHF, Settings
from fedrl.algorithms.fedrlhf.ratings.bound import BoundRow, Constants, Path, bound, measure
from fedrl.algorithms.fedrlhf.ratings.policy import learn
from fedrl.core import seeding
from fedrl.core.types import UserError
from fedrl.envs.movielens import world as movielens
from fedrl.envs.movielens.world import World
from fedrl.feedback import rating_network as network
from fedrl.feedback.rating_kernels import Rules
from reproductions.fedrlhf import drift
from reproductions.fedrlhf.rates import TradeOff, rates

# Quadratics: J_k(θ) = −½ (θ − c_k)ᵀ diag(a_k) (θ − c_k), all constants known


def quadratics(curve, centre, noise: float, steps: int, rounds: int, repeats: int = 64, copies=1):
    """The theorem's constants and the mean path of `repeats` runs from θ_0 = 0.

    `curve` and `centre` [K, d]; a gradient's noise has length `noise` and any direction. With
    `copies` every client stands for so many, which are exact copies if there is no noise.
    """
    random = np.random.default_rng(0)
    clients, size = curve.shape
    smooth, least = curve.max(), curve.min()
    optimum = (curve * centre).sum(0) / curve.sum(0)
    # A step of at most 1/L takes a client no further from its own centre, but for the noise.
    apart = np.linalg.norm(centre[:, None] - centre[None], axis=2).max()
    reach = max(np.linalg.norm(centre, axis=1).max(), apart + noise / least) + noise / least
    theta = np.zeros((repeats, size))
    mean, gaps, slopes, averaged = np.zeros_like(theta), [], [], []

    def gap(at):
        return (0.5 * curve.mean(0) * (at - optimum) ** 2).sum(-1).mean()

    for number in range(1, rounds + 1):
        gaps.append(gap(theta))
        slopes.append(((curve.mean(0) * (theta - optimum)) ** 2).sum(-1).mean())
        mean = mean + (theta - mean) / number
        averaged.append(gap(mean))
        own = np.repeat(theta[None], clients, 0)
        for _ in range(steps):
            away = random.normal(size=own.shape)
            away *= noise / np.linalg.norm(away, axis=2, keepdims=True)
            gradient = -curve[:, None] * (own - centre[:, None])
            assert np.linalg.norm(gradient, axis=2).max() <= smooth * reach
            own = own + (gradient + away) / (smooth * steps)
        theta = own.mean(0)
    gaps.append(gap(theta))
    constants = Constants(
        smooth, curve.mean(0).min(), smooth * reach, noise, gaps[0], 0.0, clients * copies, steps
    )
    return constants, Path(np.array(gaps), np.array(slopes), np.array(averaged))


def drawn(clients: int, seed: int, size: int = 3):
    random = np.random.default_rng(seed)
    return random.uniform(0.2, 2, (clients, size)), random.normal(size=(clients, size))


@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize("clients", [1, 2, 10])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_the_repaired_bound_is_never_violated(steps, clients, noise):
    for seed in range(3):
        curve, centre = drawn(clients, seed)
        for row in bound(*quadratics(curve, centre, noise, steps, rounds=30)):
            assert row.gap <= row.repaired
            assert row.averaged <= row.repaired  # J is concave here
            assert row.slope <= row.slope_bound
            if steps == 1:
                assert row.gap <= row.paper


@pytest.mark.slow
def test_the_papers_bound_fails_when_many_clients_drift():
    """Two kinds of clients, 5,000 of each: they settle at another place than the optimum."""
    curve, centre = drift.CURVES[:, None], drift.CENTRES[:, None]
    constants, path = quadratics(curve, centre, 0.0, drift.STEPS, drift.ROUNDS, 1, copies=5000)
    last = bound(constants, path)[-1]
    assert path.gaps[-1] == pytest.approx(drift.settled(), rel=1e-9)
    assert path.gaps[-1] == pytest.approx(path.gaps[-1000], rel=1e-6)
    assert last.gap > last.paper
    assert last.gap < last.repaired
    known, closed = drift.run(10_000, drift.ROUNDS)
    np.testing.assert_allclose(closed.gaps, path.gaps, rtol=1e-9)
    np.testing.assert_allclose(closed.averaged, path.averaged, rtol=1e-9)
    np.testing.assert_allclose(closed.slopes, path.slopes, rtol=1e-9, atol=1e-15)
    assert known.gradient <= constants.gradient  # the same, as short as this run allows
    assert known._replace(gradient=0) == pytest.approx(constants._replace(gradient=0))
    one = quadratics(curve, centre, 0.0, 1, 4000, 1, copies=5000)[1]
    assert one.gaps[-1] < 1e-12  # without local steps there is nothing to settle at but the optimum
    assert drift.settled(1) == pytest.approx(0, abs=1e-30)


def test_theorem_4_2_fails_for_the_same_clients():
    """They have all that it asks for: rounds, clients, no feedback, known constants."""
    found = drift.theorem_4_2()
    assert found.gap > 2 * found.epsilon
    assert found.samples.feedback > 0
    constants, path = drift.run(found.samples.clients, found.samples.rounds)
    assert (path.slopes >= 2 * constants.pl * path.gaps[:-1] * (1 - 1e-12)).all()  # μ holds


def test_the_terms_are_those_of_the_theorem():
    constants = Constants(4.0, 0.5, 3.0, 2.0, 1.5, 0.25, clients=8, steps=3)
    path = Path(np.array([1.5, 1.0, 0.8]), np.array([2.0, 1.0]), np.array([1.5, 1.2]))
    first, second = bound(constants, path)
    assert second == BoundRow(
        round=2, gap=1.25, averaged=1.2, now=0.8, slope=1.5,
        slope_bound=pytest.approx(2 * 0.5 * second.repaired),
        transient=4 / (0.5 * 2) * 1.5,
        noise=13 / (2 * 0.5 * 8),
        feedback=4 / 0.5 * 0.25,
        drift=pytest.approx(2 * 5 / (12 * 0.5 * 9) * 13),
    )  # fmt: skip
    assert second.paper == second.transient + second.noise + second.feedback
    assert first.transient == 2 * second.transient
    assert constants.lr == pytest.approx(1 / 12)


# Measured on ratings


def built(**settings) -> FedRLHF:
    found = World(movielens.Settings(users=40, movies=60, ratings=30, least=10), 3, 0)
    small = {
        "method": "policy-gradient", "optimizer": "sgd", "local_steps": 4, "embedding": 4,
        "hidden": (8, 6), "rating_queries": 20, "preference_queries": 20,
    }  # fmt: skip
    return FedRLHF(Settings(**(small | settings)), found, [[c] for c in range(3)])


@pytest.mark.slow
def test_a_measured_run_keeps_its_bounds():
    found = measure(built(), 12, 0)
    constants, rows = found
    assert [row.round for row in rows] == list(range(1, 13))
    for row in rows:
        assert 0 < row.gap <= row.repaired <= row.paper + row.drift
        assert row.slope <= row.slope_bound
    assert rows[-1].now < constants.start  # it learned
    assert 0 < constants.pl < constants.smoothness
    assert (constants.clients, constants.steps) == (3, 4)
    assert 0.05 < constants.feedback <= 1
    assert measure(built(), 12, 0) == found
    assert measure(built(feedback="none"), 1, 0).constants.feedback == 0


@pytest.mark.slow
def test_measured_values_are_those_of_the_policy():
    """J* − J(θ_0) by the policy's probabilities, and σ² by drawing minibatches."""
    algorithm = built(feedback="none", batch=5)
    found = measure(algorithm, 1, 3)
    start = algorithm.init(seeding.derive(3, "init"))
    gaps, noises = [], []
    random = np.random.default_rng(0)
    for client, mine in enumerate(algorithm.client_data):
        high = algorithm.probability_high(start, algorithm.train_examples(mine))
        gaps.append(np.mean(np.abs(mine.appeal) - mine.appeal * (2 * high - 1)))
        gradients = [one_step(algorithm, client, start, random) for _ in range(4000)]
        noises.append(np.var(gradients, 0).sum())
    assert found.constants.start == pytest.approx(np.mean(gaps), rel=1e-4)
    assert found.constants.noise**2 > 0.9 * max(noises)
    objectives = [fedrlhf_bound._objective(algorithm, start, c, 3) for c in range(3)]
    visits = [objective.visit(objective.pack(start)) for objective in objectives]
    np.testing.assert_allclose([visit.noise for visit in visits], noises, rtol=0.1)


def one_step(algorithm: FedRLHF, client: int, theta, random: np.random.Generator) -> np.ndarray:
    """A minibatch's gradient, as the kernel of a client's round takes it."""
    mine, settings = algorithm.client_data[client], algorithm.settings
    sizes = algorithm.sizes._replace(users=len(mine.users), movies=len(mine.movies))
    vector = network.pack(theta, mine.users, mine.movies)
    before = vector.astype(np.float64)
    order = random.integers(0, len(mine.appeal), (1, settings.batch))
    rules = Rules(settings.batch, 1.0, 0.0, True, True, settings.temperature)
    paid = np.stack([-mine.appeal, mine.appeal], 1)
    chances, adam = random.random(order.shape), network.adam_memory(None, vector.size)
    learn(vector, sizes, mine.train, paid, order, chances, rules, *adam)
    return vector - before


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"optimizer": "adam"}, 'about optimizer = "sgd"'),
        ({"method": "q-learning", "optimizer": "adam"}, 'about method = "policy-gradient"'),
        ({"local_steps": 0}, "algorithm.local_steps is 0"),
        ({"feedback": "live", "feedback_folder": "x"}, 'algorithm.feedback is "live"'),
    ],
)
def test_what_the_theorem_is_not_about_is_refused(wrong, said):
    with pytest.raises(UserError, match=said):
        measure(built(**wrong), 1, 0)


@pytest.mark.slow
def test_the_page_is_right():
    """Its code runs, and the settings and metrics that it explains are there."""
    page = (DOCS / "fedrlhf.md").read_text(encoding="utf-8")
    names: dict = {}
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(code, "docs/fedrlhf.md", "exec"), names)
    assert names["last"].gap < names["last"].repaired
    table = re.search(r"## Settings\n(.*?)\n`fedrl run", page, re.DOTALL)[1]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.M)
    named = {word for row in rows for word in re.findall(r"`(\w+)`", row)}
    assert len(named) > 10
    assert named <= {field.name for field in dataclasses.fields(Settings)}


# Theorem 5.2


def test_known_rates_are_found():
    random = np.random.default_rng(0)
    rows = [
        TradeOff(
            seed, lam, 0.01 + 0.3 * lam**2, 0.5 - (0.1 + 0.001 * seed) * lam + shift,
            100 + 40 * lam if lam < 4 else math.nan,
        )
        for seed, shift in enumerate(random.normal(size=5))
        for lam in (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
    ]  # fmt: skip
    found = rates(rows)
    assert found.excess.mean == pytest.approx(2)
    assert found.excess.half == pytest.approx(0, abs=1e-9)
    assert found.exponent.mean < 1.9  # P(0) bends it
    assert found.performance.mean == pytest.approx(-0.102)
    # 2.776 standard errors of 0, …, 4 thousandths
    assert found.performance.half == pytest.approx(2.776 * 0.001 * np.sqrt(2.5 / 5), rel=1e-3)
    assert found.samples.by_seed == pytest.approx(dict.fromkeys(range(5), 40.0))


def test_too_little_gives_no_rate():
    found = rates([TradeOff(0, 0.5, 0.1, 0.3, math.nan), TradeOff(0, 1.0, 0.2, 0.2, 5.0)])
    assert found.exponent.mean == pytest.approx(1)
    assert math.isnan(found.exponent.half)  # one seed
    assert math.isnan(found.excess.mean)  # nothing without feedback
    assert math.isnan(found.samples.mean)  # one place
    assert math.isnan(rates([]).performance.mean)
