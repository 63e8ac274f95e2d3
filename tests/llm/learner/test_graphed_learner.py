"""Rows filled up to a bucket learn as they are: what CUDA graphs replay, run launch by launch."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "fedrl[llm]"')
transformers = pytest.importorskip("transformers", reason="needs transformers")

from support.learning import close, learned, some_advantages
from support.tiny_model import samples, tiny

from fedrl.llm.learner import decoder, graphed
from fedrl.llm.learner.decoder import new_graphs, packed_states, plans
from fedrl.llm.rl import logprobs
from fedrl.llm.rl.batches import to_packed
from fedrl.llm.rl.logprobs import answer_logprobs
from fedrl.llm.rl.loss import Loss
from fedrl.llm.varlen_attention import Sequences

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")


@pytest.fixture
def small(monkeypatch):
    """Buckets of a test's size, and packed rows on a CPU."""
    monkeypatch.setattr(graphed, "STEP", 64)
    monkeypatch.setattr(graphed, "LONGEST", 32)
    monkeypatch.setattr(logprobs, "packs", lambda model: True)


def with_graphs(model):
    body = model.get_decoder()
    return graphed.keep_graphed(body, new_graphs(model, plans(body, model.config), captures=False))


def shared(count: int, seed: int = 0):
    """Samples whose prompts begin alike."""
    batch = samples(count, seed=seed)
    for i, sample in enumerate(batch):
        sample.prompt = [7, 3, 9, 4, 2][: 2 + i % 4] + ([] if i % 2 else sample.prompt)
    return batch


@pytest.mark.parametrize("draw", [samples, shared])
def test_the_gradient_is_the_one_without_buckets(small, draw):
    model, batch, advantages = tiny(), draw(11), some_advantages(11)
    assert (to_packed(batch, CPU).where is None) == (draw is samples) or draw is samples
    told, expected = learned(model, batch, advantages, Loss(0.2, 0.0, 0.02, 0.7))
    graphs = with_graphs(model)
    for time in range(3):  # launch by launch, then twice from the bucket
        model.zero_grad(set_to_none=True)
        found_told, found = learned(model, batch, advantages, Loss(0.2, 0.0, 0.02, 0.7))
        close(found, expected, 2e-5)
        assert found_told == pytest.approx(told, rel=1e-4, abs=1e-5)
        assert len(graphs.passes) == (time > 0)


def test_other_rows_in_a_bucket_leave_nothing_behind(small):
    """Longer rows first: what they wrote behind the shorter ones must not be learned from."""
    model, terms = tiny(), Loss(0.2, 0.0, 0.02)
    batches = [
        draw(count, seed=seed) for seed in (1, 2) for count, draw in ((12, shared), (9, shared))
    ]
    expected = [learned(model, batch, some_advantages(len(batch)), terms)[1] for batch in batches]
    graphs = with_graphs(model)
    for _ in range(2):
        for batch, gradient in zip(batches, expected, strict=True):
            model.zero_grad(set_to_none=True)
            close(learned(model, batch, some_advantages(len(batch)), terms)[1], gradient, 2e-5)
    assert 0 < len(graphs.passes) < len(batches)


def test_microbatches_add_up(small):
    model, batch, advantages = tiny(), samples(14), some_advantages(14)
    terms = Loss(0.2, 0.0, 0.02)
    expected = learned(model, batch, advantages, terms)[1]
    with_graphs(model)
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        close(learned(model, batch, advantages, terms, 4)[1], expected, 2e-5)


def test_a_pass_that_is_not_over_is_not_written_over(small):
    """Two passes whose ways back come in the wrong order, and one that nobody asks back."""
    model, a, b = tiny(), to_packed(samples(6), CPU), to_packed(samples(6, seed=3), CPU)
    expected = [torch.autograd.grad(packed_states(model, rows)[:, 3].exp().sum(),
                                    list(model.get_decoder().layers.parameters()))
                for rows in (a, b)]  # fmt: skip
    graphs = with_graphs(model)
    for rows in (a, a, b, b):
        packed_states(model, rows).sum().backward()
    first, second = (packed_states(model, rows)[:, 3].exp().sum() for rows in (a, b))
    parameters = list(model.get_decoder().layers.parameters())
    found = [torch.autograd.grad(loss, parameters) for loss in (second, first)]
    packed_states(model, b).sum().backward()
    for gradient, wanted in zip(found, reversed(expected), strict=True):
        close(list(gradient), list(wanted), 2e-5)
    packed_states(model, a)
    assert graphs.lease is not None
    assert graphs.lease() is None, "it is nobody's any more"


def test_without_gradients_nothing_is_held(small):
    model, rows = tiny(), to_packed(samples(5), CPU)
    expected = answer_logprobs(model, rows, 1.0)[0].detach()
    graphs = with_graphs(model)
    for _ in range(3):
        with torch.no_grad():
            torch.testing.assert_close(answer_logprobs(model, rows, 1.0)[0], expected)
    assert graphs.passes
    assert graphs.lease is None


def test_frozen_weights_and_moved_ones(small):
    """A frozen layer gets no gradient; weights at other addresses are captured anew."""
    model, batch, advantages = tiny(), samples(7), some_advantages(7)
    model.get_decoder().layers[0].requires_grad_(False)
    expected = learned(model, batch, advantages, Loss(kl=0.0))[1]
    graphs = with_graphs(model)
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        close(learned(model, batch, advantages, Loss(kl=0.0))[1], expected, 2e-5)
    assert graphed.graphed_layers(model.get_decoder()) is graphs
    model.get_decoder().layers[0].requires_grad_(True)
    assert graphed.graphed_layers(model.get_decoder()) is None


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30_000), st.integers(0, 30_000), st.integers(1, 300), st.integers(1, 600))
def test_padding_fits_its_rows(tokens, more, count, longest):
    """Every row of padding has a token that asks, as many to attend to, and is not too long."""
    longest = min(longest, tokens)
    rows = to_packed(samples(1), CPU)._replace(
        ids=torch.zeros(tokens), where=torch.zeros(tokens + more),
        asked=Sequences(torch.zeros(count + 1), longest),
        read=Sequences(torch.zeros(count + 1), longest),
    )  # fmt: skip
    bucket = graphed.bucket_of(rows)
    spare = bucket.rows - count
    asked, read = bucket.tokens - tokens, bucket.read - tokens - more
    ends = [torch.tensor([0, *graphed.padding(size, spare)]).diff() for size in (asked, read)]
    assert int(ends[0].min()) >= 1
    assert bool((ends[0] <= ends[1]).all())
    assert int(ends[0].max()) <= bucket.asked
    assert int(ends[1].max()) <= bucket.attended
    assert sum(map(int, ends[0])) == asked


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("draw", [samples, shared])
def test_on_a_gpu_the_graphs_are_the_launches(draw, monkeypatch):
    monkeypatch.setattr(graphed, "STEP", 128)
    batch, advantages = draw(40), some_advantages(40)
    plain, card = tiny(width=64).to("cuda"), tiny(width=64).to("cuda")
    monkeypatch.setattr(decoder, "GRAPHS", False)
    expected = learned(plain, batch, advantages, Loss(kl=0.0), 16)[1]
    monkeypatch.setattr(decoder, "GRAPHS", True)
    for _ in range(3):
        card.zero_grad(set_to_none=True)
        found = learned(card, batch, advantages, Loss(kl=0.0), 16)[1]
        whole = [torch.cat([g.flatten() for g in gs]) for gs in (found, expected)]
        assert float((whole[0] - whole[1]).norm() / whole[1].norm()) < 2e-2
    graphs = graphed.graphed_layers(card.get_decoder())
    assert graphs is not None
    assert graphs.passes
    assert all(one.there is not None for one in graphs.passes.values())
