"""Policies in NumPy against the kernels that were trained, and their tensors."""

from __future__ import annotations

import numpy as np
import pytest

from fedrl.algorithms.policy_gradient.policies import categorical_mlp, gaussian_mlp
from fedrl.algorithms.qhd import encoders as rff
from fedrl.algorithms.qhd import td_kernels
from fedrl.algorithms.qhd.dqn import network as dqn
from fedrl.algorithms.qhd.dqn.policy import network_policy
from fedrl.core.policies import (
    ActionBox,
    FourierPolicy,
    NetworkPolicy,
    Scaling,
    TablePolicy,
    TensorPolicy,
    of_parameters,
    restored,
)
from fedrl.core.types import UserError

STATES = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)


class Given:
    """A generator whose numbers are known."""

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers = numbers

    def random(self, count: int) -> np.ndarray:
        assert count == len(self.numbers)
        return self.numbers

    def standard_normal(self, shape: tuple[int, ...]) -> np.ndarray:
        assert shape == self.numbers.shape
        return self.numbers


def wide(theta: dict, seed: int = 1) -> dict:
    """Parameters as large as learned ones: the first are almost uniform."""
    random = np.random.default_rng(seed)
    return {name: random.normal(size=leaf.shape).astype(np.float32) for name, leaf in theta.items()}


@pytest.mark.slow
def test_a_softmax_draws_as_the_kernels_do():
    kernel = categorical_mlp(4, 3)
    theta = wide(kernel.init(0))
    uniform = np.random.default_rng(2).random(len(STATES)).astype(np.float32)
    drawn = of_parameters(theta).act(STATES, Given(uniform))
    rows = {name: np.broadcast_to(x, (len(STATES), *x.shape)) for name, x in theta.items()}
    assert np.array_equal(drawn, kernel.sample_rows(rows, STATES, uniform))
    traced = np.asarray(kernel.sample(theta_columns(theta), STATES.T, uniform))
    assert (drawn != traced).sum() <= 1  # a draw at the edge of an action, rounded otherwise
    assert len(set(drawn)) == 3


def theta_columns(theta: dict) -> dict:
    return {name: leaf[..., None] for name, leaf in theta.items()}


def test_a_gaussian_draws_as_the_kernels_do_and_keeps_within_its_bounds():
    kernel = gaussian_mlp(4, 2)
    theta = wide(kernel.init(0))
    normal = np.random.default_rng(2).standard_normal((len(STATES), 2)).astype(np.float32)
    rows = {name: np.broadcast_to(x, (len(STATES), *x.shape)) for name, x in theta.items()}
    said = kernel.sample_rows(rows, STATES, normal)
    np.testing.assert_allclose(of_parameters(theta).act(STATES, Given(normal)), said, atol=1e-4)
    middle, reach, high = np.array([1.0, 0.0]), np.array([2.0, 1.0]), np.array([2.0, np.inf])
    bounded = of_parameters(theta, None, ActionBox(middle, reach, -high, high))
    expected = np.clip(middle + reach * said, -high, high)
    found = bounded.act(STATES, Given(normal))
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert found.dtype == np.float32
    assert bounded.act(STATES[0]).shape == (2,)


@pytest.mark.parametrize("complex", [False, True])
def test_fourier_features_have_the_kernels_values(complex):
    encoder = rff.draw(4, 300, 0.7, 5, complex)
    scaling = Scaling(np.array([0.0, 0.5, 0.0, 0.0]), np.array([1.0, 2.0, 1.0, 3.0]))
    random = np.random.default_rng(3)
    readout = random.normal(size=(300, 3)) + (1j * random.normal(size=(300, 3)) if complex else 0)
    rows = rff.pack(encoder, readout)
    omega, phase, scale = rff.lanes(encoder)
    policy = FourierPolicy(omega, phase, rows, scale, scaling)
    exact = rff.values(encoder, readout, scaling(STATES.astype(np.float64)))
    np.testing.assert_allclose(policy.outputs(STATES), exact, atol=1e-4)
    blocks, q = td_kernels.blocks(rff.lanes(encoder)), np.empty(3)
    seen = scaling(STATES).astype(np.float32)
    for i in range(20):
        td_kernels.act(blocks, rows, seen, i, np.empty(td_kernels.BLOCK, np.float32), q)
        np.testing.assert_allclose(policy.outputs(STATES[i : i + 1])[0], q, atol=1e-4)


def test_a_dqn_has_the_kernels_values():
    shape = (4, 16, 8, 3)
    weights = dqn.draw_weights(shape, 3)
    scaling = Scaling(np.zeros(4), np.array([2.0, 3.0, 0.2, 3.0]))
    x = scaling(STATES).astype(np.float32)
    q = np.empty((len(x), 3), np.float32)
    h1, h2 = np.empty((len(x), 16), np.float32), np.empty((len(x), 8), np.float32)
    dqn.values(weights, shape, x, h1, h2, q)
    policy = network_policy(weights, shape, scaling)
    np.testing.assert_allclose(policy.outputs(STATES), q, atol=1e-5)
    assert policy.sizes == list(shape)
    assert policy.act(STATES[3], np.random.default_rng(0)) == q[3].argmax()  # nothing is drawn


def test_a_table_draws_by_its_probabilities():
    p = np.array([[0.25, 0.5, 0.25], [0.0, 1.0, 0.0]])
    drawn = Given(np.array([0.2, 0.3, 0.7, 0.8, 0.1]))
    at = np.array([0, 0, 0, 0, 1])
    for policy in (
        TablePolicy(p, "probabilities"),
        TablePolicy(np.log(np.maximum(p, 1e-300)), "logits"),
    ):
        assert policy.act(at, drawn).tolist() == [0, 1, 1, 2, 1]
        assert policy.act(0) == policy.greedy(1) == 1
    with pytest.raises(UserError, match="a state's number, 0 to 1"):
        policy.act(0.5)


POLICIES: list[TensorPolicy] = [
    of_parameters(wide(categorical_mlp(4, 3).init(0))),
    of_parameters(
        wide(gaussian_mlp(4, 2).init(0)),
        Scaling(np.ones(4), np.full(4, 2.0)),
        ActionBox(*(np.full(2, x) for x in (0.0, 1.0, -1.0, 1.0))),
    ),
    network_policy(dqn.draw_weights((4, 6, 5, 2), 1), (4, 6, 5, 2), Scaling(*np.ones((2, 4)))),
    FourierPolicy(*rff.lanes(rff.draw(4, 50, 1.0, 1))[:2], np.ones((2, 50), np.float32), 0.1),
    TablePolicy(np.eye(4), "values"),
]


def observations(policy: TensorPolicy) -> np.ndarray:
    return np.arange(4) if isinstance(policy, TablePolicy) else STATES


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: f"{type(p).__name__}-{p.output}")
def test_a_policy_is_its_tensors_and_its_description(policy: TensorPolicy):
    again = restored(policy.description(), policy.tensors())
    assert type(again) is type(policy)
    seen = observations(policy)
    assert np.array_equal(again.act(seen), policy.act(seen))
    draws = [p.act(seen, np.random.default_rng(4)) for p in (policy, again)]
    assert np.array_equal(*draws)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: f"{type(p).__name__}-{p.output}")
def test_a_batch_is_one_after_the_other(policy: TensorPolicy):
    seen = observations(policy)[:10]
    one_by_one = [policy.act(one) for one in seen]
    np.testing.assert_allclose(policy.act(seen), one_by_one, rtol=1e-5, atol=1e-6)
    if not isinstance(policy, TablePolicy):
        with pytest.raises(UserError, match="an observation has 4 numbers, not 3"):
            policy.act(np.zeros(3))
        with pytest.raises(UserError, match="a batch one more"):
            policy.act(np.zeros((2, 2, 4)))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: f"{type(p).__name__}-{p.output}")
def test_onnx_computes_the_same(policy: TensorPolicy):
    pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    from fedrl.runs.onnx_model import model

    seen = observations(policy)
    given = seen if isinstance(policy, TablePolicy) else seen.astype(np.float32)
    action, outputs = ReferenceEvaluator(model(policy)).run(None, {"observation": given})
    np.testing.assert_allclose(outputs, policy.outputs(seen), atol=1e-4)
    if policy.output == "mean":
        np.testing.assert_allclose(action, policy.act(seen), atol=1e-4)
    else:
        assert np.array_equal(action, outputs.argmax(1))


def test_a_policy_is_shown_in_a_line():
    """Not with its thousands of weights."""
    assert repr(POLICIES[0]) == f"<fedrl NetworkPolicy of {POLICIES[0].output}>"
    assert all(len(repr(policy)) < 50 for policy in POLICIES)


def test_a_network_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="no policy is of the kind 'tree'"):
        restored({"kind": "tree", "output": "values"}, {})
    assert isinstance(POLICIES[0], NetworkPolicy)
