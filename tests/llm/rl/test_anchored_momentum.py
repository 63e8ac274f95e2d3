"""The anchored direction: its limits, its expectation by enumeration, its cuts."""

from __future__ import annotations

import copy
import itertools
import math

import pytest

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "fedrl[llm]"')
pytest.importorskip("transformers", reason='needs transformers: pip install "fedrl[llm]"')

from support.tiny_model import nudged, samples, tiny
from torch import Tensor, nn

from fedrl.llm.rl.anchored_momentum import (
    Anchor,
    anchored_direction,
    sequence_logprobs,
    set_gradients,
    trained,
    update,
)
from fedrl.llm.rl.batches import Batching, Rows, to_rows
from fedrl.llm.rollout import Sample

CPU = torch.device("cpu")
COUNT = 7
ADVANTAGES = torch.sin(3.0 * torch.arange(COUNT) + 1)


def direction(model, previous, batch, advantages, u, beta, *more: float) -> list[Tensor]:
    """d, uphill, per trained parameter; −d is left in `.grad`."""
    found, _ = anchored_direction(model, Anchor(previous, u, beta, *more), batch, advantages)
    set_gradients(model, found)
    return found


def a_batch() -> Rows:
    return to_rows(samples(COUNT), 0, CPU)


def nothing(model: nn.Module) -> list[Tensor]:
    return [torch.zeros_like(p) for p in trained(model)]


def something(model: nn.Module) -> list[Tensor]:
    generator = torch.Generator().manual_seed(9)
    return [torch.randn(p.shape, generator=generator) for p in trained(model)]


def plain(model: nn.Module) -> list[Tensor]:
    """∇ of the loss −mean A·log π, by the ordinary way."""
    other = copy.deepcopy(model)
    other.zero_grad()
    (-(ADVANTAGES * sequence_logprobs(other, a_batch(), 1.0)).mean()).backward()
    return gradients(other)


def gradients(model: nn.Module) -> list[Tensor]:
    return [p.grad for p in trained(model)]


def close(found: list[Tensor], expected: list[Tensor], tolerance: float = 1e-5) -> None:
    assert max(float(e.abs().max()) for e in expected) > 1e-2
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(f, e, rtol=tolerance, atol=tolerance)


def test_an_answers_probability_is_the_product_over_its_own_tokens():
    model, batch = tiny(), samples(COUNT)
    for sample, found in zip(batch, sequence_logprobs(model, a_batch(), 1.0).tolist(), strict=True):
        whole = torch.tensor([[*sample.prompt, *sample.answer]])
        logs = model(input_ids=whole).logits[0].log_softmax(-1).detach()
        at = range(len(sample.prompt) - 1, whole.shape[1] - 1)
        assert found == pytest.approx(sum(float(logs[i, whole[0, i + 1]]) for i in at), abs=1e-4)


def test_beta_one_is_the_plain_gradient_to_the_bit():
    model = tiny()
    u = [math.inf * torch.ones_like(p) for p in trained(model)]  # which must not be looked at
    found = direction(model, nudged(model, 9.0), a_batch(), ADVANTAGES, u, beta=1.0)
    for g, d, expected in zip(gradients(model), found, plain(model), strict=True):
        assert torch.equal(g, expected)
        assert torch.equal(d, -expected)


@pytest.mark.parametrize("beta", [0.0, 0.2, 0.7])
def test_the_same_model_and_no_momentum_leave_beta_g(beta):
    model = tiny()
    direction(model, copy.deepcopy(model), a_batch(), ADVANTAGES, nothing(model), beta)
    expected = [beta * g for g in plain(model)]
    for found, e in zip(gradients(model), expected, strict=True):
        torch.testing.assert_close(found, e, rtol=1e-5, atol=1e-6)


def test_momentum_enters_with_one_minus_beta():
    model = tiny()
    previous, u = nudged(model, 0.1), something(model)
    with_u = direction(model, previous, a_batch(), ADVANTAGES, u, 0.3)
    without = direction(model, previous, a_batch(), ADVANTAGES, nothing(model), 0.3)
    close([a - b for a, b in zip(with_u, without, strict=True)], [0.7 * x for x in u])


# All answers of two tokens over three words: 9 of them, so expectations are sums.

WORDS, PROMPT = 3, [2, 0]
ALL = [Sample(0, 0, PROMPT, list(a), [], "") for a in itertools.product(range(WORDS), repeat=2)]
VALUE = torch.tensor([0.3, -1.0, 2.0, 0.5, 1.5, -0.7, 0.0, 1.0, -2.0])


def value_gradient(model: nn.Module) -> list[Tensor]:
    """∇J of J(θ) = Σ_a π_θ(a) R(a), through the model's own forward, answer by answer."""
    total = torch.zeros(())
    for sample, reward in zip(ALL, VALUE, strict=True):
        whole = torch.tensor([[*PROMPT, *sample.answer]])
        probability = model(input_ids=whole).logits[0].softmax(-1)
        first, second = sample.answer
        total = total + probability[1, first] * probability[2, second] * reward
    return list(torch.autograd.grad(total, trained(model)))


def expected_direction(model, previous, u, beta, cap=math.inf) -> list[Tensor]:
    """E over answers of the model: the batch's mean is uniform, so each is weighed by 9·π_θ."""
    batch = to_rows(ALL, 0, CPU)
    probability = sequence_logprobs(model, batch, 1.0).detach().exp()
    assert float(probability.sum()) == pytest.approx(1.0, abs=1e-5)
    return direction(model, previous, batch, len(ALL) * probability * VALUE, u, beta, cap)


def test_the_weighted_gradient_is_unbiased_for_the_previous_model():
    """E[g(θ)] − E[w g(θ_prev)] = ∇J(θ) − ∇J(θ_prev), two models that truly differ."""
    model = tiny(WORDS)
    previous = nudged(model, 0.3)
    here, there = value_gradient(model), value_gradient(previous)
    found = expected_direction(model, previous, nothing(model), beta=0.0)
    close([h - f for h, f in zip(here, found, strict=True)], there)
    assert any(float((h - t).abs().max()) > 0.05 for h, t in zip(here, there, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.0, 0.2, 0.9])
def test_true_momentum_gives_the_true_gradient(beta):
    """With u = ∇J(θ_prev) the direction's expectation is ∇J(θ), whatever β."""
    model = tiny(WORDS)
    previous = nudged(model, 0.3)
    found = expected_direction(model, previous, value_gradient(previous), beta)
    close(found, value_gradient(model))


@pytest.mark.slow
def test_the_cap_bounds_the_weight():
    """Against a loop over answers with min(w, cap); the cap must bite for some and not for all."""
    model = tiny(WORDS)
    previous, cap = nudged(model, 0.3), 1.1
    batch = to_rows(ALL, 0, CPU)
    here, there = (sequence_logprobs(m, batch, 1.0).detach() for m in (model, previous))
    weight = (there - here).exp()
    assert 0 < int((weight > cap).sum()) < len(ALL)
    expected = value_gradient(model)
    for i, sample in enumerate(ALL):
        one = sequence_logprobs(previous, to_rows([sample], 0, CPU), 1.0)
        part = torch.autograd.grad(one.sum(), trained(previous))
        scale = float(here[i].exp() * VALUE[i]) * min(float(weight[i]), cap)
        expected = [e - scale * g for e, g in zip(expected, part, strict=True)]
    close(expected_direction(model, previous, nothing(model), 0.0, cap), expected)


# A pass over samples


@pytest.mark.slow
@pytest.mark.parametrize("microbatch", [1, 3, 100])
def test_a_pass_steps_along_the_direction_in_any_cut(microbatch):
    model = tiny()
    previous, u = nudged(model, 0.1), something(model)
    before = [p.detach().clone() for p in trained(model)]
    expected = direction(model, previous, a_batch(), ADVANTAGES, u, 0.3, 1.2, 0.8)
    optimizer = torch.optim.SGD(trained(model), 0.5)
    told, mean = update(
        model, optimizer, samples(COUNT), ADVANTAGES.tolist(), Anchor(previous, u, 0.3, 1.2, 0.8),
        Batching(0, COUNT, microbatch, math.inf, torch.Generator().manual_seed(0)),
    )  # fmt: skip
    close(mean, expected)
    moved = [(p.detach() - b) / 0.5 for p, b in zip(trained(model), before, strict=True)]
    close(moved, expected, 1e-4)
    assert 0 < told["weight_clipped"] < 1
    assert told["gradient_norm"] == pytest.approx(
        math.sqrt(sum(float((d**2).sum()) for d in expected)), rel=1e-4
    )


@pytest.mark.slow
def test_several_minibatches_give_the_mean_of_their_steps():
    """With plain SGD the mean direction is Δ/(ηK): the two ways to u are one."""
    model = tiny()
    previous, u, rate = nudged(model, 0.1), something(model), 0.01
    before = [p.detach().clone() for p in trained(model)]
    _, mean = update(
        model, torch.optim.SGD(trained(model), rate), samples(COUNT), ADVANTAGES.tolist(),
        Anchor(previous, u, 0.5, 2.0, 1.0),
        Batching(0, 3, 2, 1.0, torch.Generator().manual_seed(0)),
    )  # fmt: skip
    steps = 3
    change = [
        (p.detach() - b) / (rate * steps) for p, b in zip(trained(model), before, strict=True)
    ]
    close(mean, change, 1e-3)
