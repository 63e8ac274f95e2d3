"""Rows filled up to a bucket learn as they are: what CUDA graphs replay, run launch by launch."""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "fedrl[llm]"')
transformers = pytest.importorskip("transformers", reason="needs transformers")

from support.learning import close, learned, some_advantages
from support.tiny_model import samples, tiny

from fedrl.llm import memory
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


def test_an_embedding_learns_below_frozen_layers(small):
    model, rows = tiny(), to_packed(samples(6), CPU)
    model.get_decoder().layers.requires_grad_(False)
    table = model.get_input_embeddings().weight

    def gradient():
        return torch.autograd.grad(packed_states(model, rows)[:, 3].exp().sum(), table)[0]

    expected, graphs = gradient(), with_graphs(model)
    for _ in range(3):
        torch.testing.assert_close(gradient(), expected)
    assert not graphs.passes, "what learns nothing has no way back that could be captured"


def test_a_models_graphs_go_with_it(small):
    """At once: whoever waits for their memory does not wait for the garbage collector."""
    model, batch = tiny(), samples(6)
    graphs = with_graphs(model)
    for _ in range(2):
        learned(model, batch, some_advantages(6), Loss(kl=0.0))
    gone = [weakref.ref(graphs), *map(weakref.ref, graphs.passes.values())]
    assert len(gone) == 2
    gc.disable()
    try:
        del graphed._GRAPHED[model.get_decoder()], graphs
        assert [one() for one in gone] == [None, None]
    finally:
        gc.enable()


LONG, SHORT = 40, 6
"""Rows that fill buckets of different sizes."""


def passes_of(model, graphs, *counts):
    """Two passes of so many rows each; the tokens of the buckets that are kept."""
    for count in counts:
        for _ in range(2):
            packed_states(model, to_packed(samples(count), CPU)).sum().backward()
    return sorted(bucket.tokens for bucket in graphs.passes)


def test_all_buckets_share_the_buffers_of_the_largest(small):
    """Which `pass_bytes` counts, in the last norm's place."""
    model = tiny()
    graphs = with_graphs(model)
    short, long = passes_of(model, graphs, LONG, SHORT)
    rooms = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes()
             for each in graphs.passes.values() for one in (each.x, each.y)}  # fmt: skip
    shape = memory.shape_of(model.config)
    layers = memory.packed_bytes(shape._replace(layers=0), 4, False)
    assert sum(rooms.values()) == long * layers
    assert short < long


def test_a_larger_bucket_begins_anew(small):
    """What was captured before is of smaller buffers; it is seen again, and captured again."""
    model = tiny()
    graphs = with_graphs(model)
    assert len(passes_of(model, graphs, SHORT)) == 1
    assert len(passes_of(model, graphs, LONG)) == 1
    assert len(passes_of(model, graphs, SHORT)) == 2


@pytest.fixture
def capturing(small, monkeypatch):
    """Graphs that would be captured on a GPU; what is asked for it is in the list."""
    asked = []
    monkeypatch.setattr(graphed.Pass, "capture", lambda one: asked.append(one.bucket.tokens))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    model = tiny()
    body = model.get_decoder()
    graphs = graphed.keep_graphed(body, new_graphs(model, plans(body, model.config)))
    return model, graphs, asked


def test_every_larger_bucket_asks_for_room(capturing, monkeypatch):
    """Not the first alone: what is free is enough for that one."""
    model, graphs, asked = capturing
    sizes = [graphed.bucket_of(to_packed(samples(n), CPU)).tokens for n in (SHORT, LONG)]
    small, large = (graphed.pass_bytes(graphs.shape, size, 4) for size in sizes)
    monkeypatch.setattr(graphed, "free_bytes", lambda device: int(2.2 * small) + 1)
    assert passes_of(model, graphs, SHORT, LONG) == sizes[:1]
    monkeypatch.setattr(graphed, "free_bytes", lambda device: int(2.2 * large) + 1)
    pool = graphs.pool
    assert passes_of(model, graphs, LONG) == sizes[1:]
    assert graphs.pool is not pool, "one whose graphs are gone is PyTorch's to free"
    assert set(asked) == set(sizes)


def test_no_memory_to_capture_means_launch_by_launch(capturing, monkeypatch, caplog):
    model, graphs, asked = capturing
    batch, advantages = samples(9), some_advantages(9)

    def full(one):
        asked.append(one.bucket.tokens)
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(graphed.Pass, "capture", full)
    expected = learned(tiny(), batch, advantages, Loss(kl=0.0))[1]
    for _ in range(4):
        model.zero_grad(set_to_none=True)
        close(learned(model, batch, advantages, Loss(kl=0.0))[1], expected, 2e-5)
    assert len(asked) == 1, "it is not tried again"
    assert not graphs.passes
    assert not graphs.gradients
    assert graphs.buffers.numel() == 0
    assert "no memory for CUDA graphs" in caplog.text


def test_memory_is_not_given_away_while_another_stream_writes_to_it(small, monkeypatch):
    class Stream:
        waits: ClassVar[list[Stream]] = []

        def wait_stream(self, other):
            self.waits.append(other)

    def full(one):
        raise torch.OutOfMemoryError("CUDA out of memory")

    aside, here = Stream(), Stream()
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: aside)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: here)
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    monkeypatch.setattr(graphed.Pass, "_go", full)
    one = with_graphs(tiny())._new(graphed.bucket_of(to_packed(samples(4), CPU)))
    with pytest.raises(torch.OutOfMemoryError):
        one.capture()
    assert Stream.waits == [here, aside]


def test_what_else_goes_wrong_while_capturing_is_said(capturing, monkeypatch):
    def wrong(one):
        raise RuntimeError("operation not permitted when stream is capturing")

    model, graphs, _ = capturing
    monkeypatch.setattr(graphed.Pass, "capture", wrong)
    with pytest.raises(RuntimeError, match="not permitted"):
        passes_of(model, graphs, SHORT)


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
