"""The policy gradient against itself in other cuts, and against the sampler."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "fedrl[llm]"')
pytest.importorskip("transformers", reason='needs transformers: pip install "fedrl[llm]"')

from support.learning import close, learned, one_by_one, some_advantages, still
from support.tiny_model import nudged, samples, tiny
from torch import Tensor, nn

from fedrl.core.types import UserError
from fedrl.llm.generation.hf import HFSampler
from fedrl.llm.model_setup import checkpoint_activations, compile_layers
from fedrl.llm.rl import anchored_momentum, ppo
from fedrl.llm.rl.batches import Batching, minibatches, to_rows
from fedrl.llm.rl.logprobs import answer_logprobs, hidden_states
from fedrl.llm.rl.loss import Loss, clipped_loss, k3
from fedrl.llm.rl.policy_gradient import ProximalTerm, update
from fedrl.llm.rollout import Sample

CPU = torch.device("cpu")


# The terms


def test_the_clip_stops_only_what_pays():
    """A = 1: no more pay above 1 + ε. A = −1: none below 1 − ε. Other sides keep their slope."""
    ratio = torch.tensor([1.1, 1.5, 0.5, 0.5, 1.5, 0.9])
    advantage = torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])
    now = ratio.log().requires_grad_()
    nothing = torch.zeros(6)
    each = clipped_loss(now, nothing, None, nothing, advantage, Loss(0.2, 0.0, 0.0))
    assert each.tolist() == pytest.approx([-1.1, -1.2, -0.5, 0.8, 1.5, 0.9])
    each.sum().backward()
    assert now.grad.tolist() == pytest.approx([-1.1, 0.0, -0.5, 0.0, 1.5, 0.9])


def test_k3_is_unbiased_for_the_divergence():
    generator = torch.Generator().manual_seed(0)
    policy, reference = torch.randn(2, 9, generator=generator).log_softmax(-1)
    each = k3(policy, reference)
    divergence = (policy.exp() * (policy - reference)).sum()
    assert bool((each >= 0).all())
    assert float((policy.exp() * each).sum()) == pytest.approx(float(divergence), rel=1e-5)


def test_the_told_divergence_is_to_the_reference():
    model, batch = tiny(), samples(4)
    found, _ = learned(model, batch, [0.0] * 4, Loss(), reference=model)
    assert found["kl"] == pytest.approx(0.0, abs=1e-6)
    found, _ = learned(model, batch, [0.0] * 4, Loss(), reference=nudged(model, 0.1))
    assert found["kl"] > 1e-3


# The average


@pytest.mark.slow
@pytest.mark.parametrize("average", ["token", "sequence"])
@pytest.mark.parametrize("microbatch", [1, 2, 5])
def test_any_cut_gives_the_gradient_of_the_whole(average, microbatch):
    model, batch = tiny(), samples(11)
    weights, advantages = Loss(0.2, 0.1, 0.02, 0.7, average), some_advantages(11)
    reference = nudged(model, 0.1)
    whole, expected = learned(model, batch, advantages, weights, reference=reference)
    cut, found = learned(model, batch, advantages, weights, microbatch, reference=reference)
    close(found, expected)
    assert cut == pytest.approx(whole, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("average", ["token", "sequence"])
def test_what_counts_the_same(average):
    """By token a sample twice as long counts twice; by sequence it is the mean of the samples."""
    model, batch, advantages = tiny(), samples(2, seed=4), [0.7, -1.3]
    lengths = [len(sample.answer) for sample in batch]
    assert lengths[0] != lengths[1]
    weights = Loss(0.2, 0.0, 0.0, average=average)
    alone = [learned(model, [b], [a], weights)[1] for b, a in zip(batch, advantages, strict=True)]
    _, together = learned(model, batch, advantages, weights)
    share = [n / sum(lengths) for n in lengths] if average == "token" else [0.5, 0.5]
    close(together, [share[0] * a + share[1] * b for a, b in zip(*alone, strict=True)])


@given(st.integers(0, 40), st.integers(1, 17), st.integers(0, 5))
@settings(deadline=None)
def test_every_sample_comes_once(count: int, size: int, seed: int):
    found = minibatches(count, Batching(0, size, size, 1.0, torch.Generator().manual_seed(seed)))
    assert sorted(i for part in found for i in part) == list(range(count))
    assert len(found) == math.ceil(count / size)
    sizes = {len(part) for part in found}
    assert max(sizes, default=0) <= size
    assert max(sizes, default=0) - min(sizes, default=0) <= 1  # no small rest


class Recorded(torch.optim.SGD):
    """Does not move, and remembers the gradients."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, 0.0)
        self.seen: list[list[Tensor]] = []

    def step(self, closure: Any = None) -> None:
        groups = [group["params"] for group in self.param_groups]
        self.seen.append([p.grad.clone() for params in groups for p in params])


@pytest.mark.slow
@pytest.mark.parametrize("average", ["token", "sequence"])
@pytest.mark.parametrize("size", [2, 4, 7, 10])
def test_minibatches_of_any_size_add_up_to_the_gradient_of_all(average, size):
    """Before anything moves: every sample then counts the same as in one batch, a critic's too."""
    batch, advantages = samples(11), some_advantages(11)
    model = tiny()
    ppo.add_value_head(model)
    reference, critic = nudged(tiny(), 0.1), ppo.Critic()
    targets = ppo.Targets(np.array(advantages), np.arange(11.0), np.zeros(11))

    def gradients(size: int) -> list[list[Tensor]]:
        recorded = Recorded(ppo.parameter_groups(model, 0.0, critic))
        ppo.update(
            model, recorded, batch, targets, critic, Loss(0.2, 0.1, 0.02, 0.7, average),
            Batching(0, size, 3, math.inf, torch.Generator().manual_seed(0)), reference,
        )  # fmt: skip
        return recorded.seen

    (whole,) = gradients(11)
    found = gradients(size)
    assert len(found) == math.ceil(11 / size)
    close([torch.stack(parts).mean(0) for parts in zip(*found, strict=True)], whole)


@pytest.mark.slow
def test_anchored_minibatches_add_up_too():
    batch, advantages, model = samples(11), some_advantages(11), tiny()
    previous = nudged(model, 0.1)
    u = [torch.full_like(p, 0.1) for p in model.parameters()]

    def directions(size: int) -> list[list[Tensor]]:
        recorded = Recorded(model.parameters())
        anchored_momentum.update(
            model, recorded, batch, advantages,
            anchored_momentum.Anchor(previous, u, 0.3, 1.2, 0.8),
            Batching(0, size, 2, math.inf, torch.Generator().manual_seed(0)),
        )  # fmt: skip
        return recorded.seen

    (whole,) = directions(11)
    found = directions(4)
    assert len(found) == 3
    close([torch.stack(parts).mean(0) for parts in zip(*found, strict=True)], whole)


def test_without_samples_nothing_moves():
    model = tiny()
    before = copy.deepcopy(model.state_dict())
    batching = Batching(0, 8, 8, 1.0, torch.Generator())
    found = update(model, still(model, 1.0), [], [], Loss(), batching)
    assert set(found.values()) == {0.0}
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


# Around the gradient


def test_clipping_keeps_the_direction():
    model, batch, advantages = tiny(), samples(6), some_advantages(6)
    free, plain = learned(model, batch, advantages, Loss(kl=0.0))
    told, short = learned(model, batch, advantages, Loss(kl=0.0), max_grad_norm=0.01)
    assert told["gradient_norm"] == pytest.approx(free["gradient_norm"])
    close(short, [0.01 / free["gradient_norm"] * g for g in plain], 1e-4)


def test_prox_pulls_towards_the_anchor():
    model, batch, advantages = tiny(), samples(6), some_advantages(6)
    anchors = [p.detach().clone() for p in nudged(model, 0.2).parameters()]
    _, plain = learned(model, batch, advantages, Loss(kl=0.0))
    _, pulled = learned(model, batch, advantages, Loss(kl=0.0), proximal=ProximalTerm(0.3, anchors))
    gaps = [p.detach() - a for p, a in zip(model.parameters(), anchors, strict=True)]
    close(pulled, [g + 0.3 * gap for g, gap in zip(plain, gaps, strict=True)])


@pytest.mark.slow
def test_saving_memory_computes_twice_and_gives_the_same():
    model, batch, advantages = tiny(), samples(6), some_advantages(6)
    times = []
    model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: times.append(1))
    _, plain = learned(model, batch, advantages, Loss(kl=0.0))
    assert len(times) == 1
    checkpoint_activations(model)
    _, again = learned(model, batch, advantages, Loss(kl=0.0))
    assert len(times) == 3
    close(again, plain)


@pytest.mark.slow
def test_adapters_learn_inside_their_wrapper():
    peft = pytest.importorskip("peft", reason="LoRA needs peft")
    model, batch, advantages = tiny(), samples(5), some_advantages(5)
    plain, _ = answer_logprobs(model, to_rows(batch, 0, CPU), 1.0)
    wrapped = peft.get_peft_model(
        model, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    )
    same, _ = answer_logprobs(wrapped, to_rows(batch, 0, CPU), 1.0)
    torch.testing.assert_close(same, plain)  # fresh adapters add nothing
    learned(wrapped, batch, advantages, Loss(kl=0.0))
    moving = {name for name, p in wrapped.named_parameters() if p.grad is not None}
    assert moving
    assert all("lora_" in name for name in moving)


# HFSampler and learner


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_sampler_and_learner_agree(temperature):
    """Also where pad is the end token and prompts contain it: masks come from lengths."""
    model, end = tiny(), 1
    sampler = HFSampler(model, [end], end)
    prompts = [[1, 5, 3], [2], [1], [4, 1, 6, 1, 1], [7, 8, 9, 2, 3, 4, 1], [2]] * 4
    generator = torch.Generator().manual_seed(3)
    answers = sampler.generate(prompts, 6, temperature, generator)
    played = [
        Sample(0, 0, p, a, x, "")
        for p, a, x in zip(prompts, answers.tokens, answers.logprobs, strict=True)
    ]
    assert {len(a) for a in answers.tokens} >= {1, 6}, "some end at once, some at the limit"
    assert any(a[-1] == end for a in answers.tokens)
    said = torch.tensor([x for sample in played for x in sample.logprobs])
    for pad in (0, end, 5):
        found, _ = answer_logprobs(model, to_rows(played, pad, CPU), temperature)
        torch.testing.assert_close(found, said, rtol=0, atol=1e-4)
    alone = torch.cat([one_by_one(model, sample, temperature) for sample in played])
    torch.testing.assert_close(alone, said, rtol=0, atol=1e-4)


def test_on_a_cpu_everything_is_single_precision():
    assert hidden_states(tiny(), to_rows(samples(2), 0, CPU)).dtype == torch.float32


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_body_is_bfloat16_and_the_weights_are_not():
    model, batch, advantages = tiny(width=64), samples(16), some_advantages(16)
    exact, _ = answer_logprobs(model, to_rows(batch, 0, CPU), 1.0)
    _, expected = learned(model, batch, advantages, Loss(kl=0.0))
    card = torch.device("cuda")
    moved = tiny(width=64).to(card)
    there, inside = to_rows(batch, 0, card), []
    watched = moved.model.layers[0].mlp.down_proj
    watched.register_forward_hook(lambda module, given, out: inside.append(out.dtype))
    found, _ = answer_logprobs(moved, there, 1.0)
    assert inside == [torch.bfloat16]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.cpu(), exact, rtol=0, atol=0.2)
    _, gradient = learned(moved, batch, advantages, Loss(kl=0.0))
    assert {g.dtype for g in gradient} == {torch.float32}
    flat = [torch.cat([g.cpu().flatten() for g in gs]) for gs in (gradient, expected)]
    assert float(nn.functional.cosine_similarity(*flat, dim=0)) > 0.98


@pytest.mark.slow
@pytest.mark.parametrize("sparing", [False, True])
def test_the_compiled_learner_learns_the_same_and_leaves_the_model_as_it_was(monkeypatch, sparing):
    # Tracing and autograd as with any backend, without minutes of a C++ compiler.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    batch, advantages = samples(9), some_advantages(9)
    _, expected = learned(tiny(), batch, advantages, Loss(kl=0.0), microbatch=4)
    model = tiny()
    names, plain = list(model.state_dict()), HFSampler(tiny(), [1], 1).generate
    if sparing:
        checkpoint_activations(model)
    compile_layers(model)
    _, gradient = learned(model, batch, advantages, Loss(kl=0.0), microbatch=4)
    close(gradient, expected, 1e-5)
    assert list(model.state_dict()) == names
    prompts = [s.prompt for s in batch]
    again = [
        generate(prompts, 4, 1.0, torch.Generator().manual_seed(0)).tokens
        for generate in (HFSampler(model, [1], 1).generate, plain)
    ]
    assert again[0] == again[1]


def test_compiling_a_body_without_layers_is_refused_in_one_line():
    class Odd(nn.Module):
        def get_decoder(self):
            return nn.Linear(1, 1)

        def get_output_embeddings(self):
            return nn.Linear(1, 1)

    with pytest.raises(UserError, match=r"algorithm\.compile does not know Linear"):
        compile_layers(Odd())
