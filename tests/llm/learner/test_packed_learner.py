"""The packed learner is the padded one: log-probabilities, gradients, adapters, recomputation."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "fedrl[llm]"')
transformers = pytest.importorskip("transformers", reason="needs transformers")

from support.learning import close, learned, some_advantages, still
from support.tiny_model import nudged, samples, tiny

from fedrl.llm import lora
from fedrl.llm.learner import decoder, plain_ops, vocabulary
from fedrl.llm.learner.decoder import packs
from fedrl.llm.model_setup import checkpoint_activations
from fedrl.llm.rl import anchored_momentum, logprobs, ppo
from fedrl.llm.rl.batches import Batching, microbatches, to_packed, to_rows
from fedrl.llm.rl.logprobs import answer_logprobs, hidden_states, learner_rows
from fedrl.llm.rl.loss import Loss
from fedrl.llm.varlen_attention import attend, sequences

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
SHAPE = {
    "vocab_size": 12, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "initializer_range": 0.3, "bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip
MODELS = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE, tie_word_embeddings=True),
    "untied": lambda: transformers.LlamaConfig(**SHAPE, tie_word_embeddings=False),
    "wide heads": lambda: transformers.LlamaConfig(**SHAPE, head_dim=16),
    "qwen2": lambda: transformers.Qwen2Config(**SHAPE, tie_word_embeddings=True),
}


def model_of(name: str):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(len(name))
        model = transformers.AutoModelForCausalLM.from_config(MODELS[name]()).eval()
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                if "bias" in key or "norm" in key:  # zeros and ones hide mistakes
                    parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.fixture
def packed(monkeypatch):
    """Let any model learn from packed rows, whatever its device."""
    return lambda: monkeypatch.setattr(logprobs, "packs", lambda model: True)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probabilities_and_entropies_are_the_padded_ones(name, temperature):
    model, batch = model_of(name), samples(9)
    expected = answer_logprobs(model, to_rows(batch, 5, CPU), temperature)
    found = answer_logprobs(model, to_packed(batch, CPU), temperature)
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(f, e, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("again", [False, True])
def test_the_gradient_is_the_padded_one(packed, name, again):
    model, batch, advantages = model_of(name), samples(11), some_advantages(11)
    terms, reference = Loss(0.2, 0.1, 0.02, 0.7), copy.deepcopy(model)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.mul_(1.05)
    told, expected = learned(model, batch, advantages, terms, reference=reference)
    if again:
        checkpoint_activations(model)
    packed()
    found_told, found = learned(model, batch, advantages, terms, 4, reference=reference)
    close(found, expected, 2e-5)
    assert found_told == pytest.approx(told, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(
    "adapters",
    [
        lora.Adapters(4, 8),
        lora.Adapters(4, 8, ("q_proj", "down_proj"), True),
        lora.Adapters(0, 8, personal=3),
        lora.Adapters(3, 6, personal=2),
    ],
)
def test_adapters_learn_the_same(packed, adapters):
    """Also beside a model that is trained as a whole; the reference answers without them."""
    pytest.importorskip("peft", reason="LoRA needs peft")
    model = lora.with_adapters(model_of("qwen2"), adapters)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(3)
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.2)
    batch, advantages, terms = samples(7), some_advantages(7), Loss(0.2, 0.1, 0.02)
    told, expected = learned(model, batch, advantages, terms, reference=model)
    names = [name for name, p in model.named_parameters() if p.grad is not None]
    assert told["kl"] > 1e-3
    packed()
    model.zero_grad(set_to_none=True)
    found_told, found = learned(model, batch, advantages, terms, reference=model)
    assert [name for name, p in model.named_parameters() if p.grad is not None] == names
    close(found, expected, 2e-5)
    assert found_told == pytest.approx(told, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_what_rows_begin_with_alike_is_computed_once(packed, name):
    """A group's prompt, and even two rows that are the same, learn as if each stood alone."""
    model, batch, advantages = model_of(name), samples(12), some_advantages(12)
    for i, sample in enumerate(batch):
        sample.prompt = [7, 3, 9, 4, 2][: 3 + i % 3] + ([] if i % 2 else sample.prompt)
    batch[5].prompt, batch[5].answer = batch[3].prompt, batch[3].answer
    batch[5].logprobs = [-0.5] * len(batch[3].answer)
    terms = Loss(0.2, 0.0, 0.02, 0.7)
    told, expected = learned(model, batch, advantages, terms)
    rows = to_packed(batch, CPU)
    assert len(rows.ids) < 0.75 * sum(len(s.prompt) + len(s.answer) for s in batch)
    packed()
    found_told, found = learned(model, batch, advantages, terms)
    close(found, expected, 2e-5)
    assert found_told == pytest.approx(told, rel=1e-4, abs=1e-5)


def test_the_critic_and_the_anchor_read_packed_rows_too(packed):
    model, batch, advantages = tiny(), samples(8), some_advantages(8)
    ppo.add_value_head(model)
    with torch.no_grad():
        model.value.weight.add_(1.0)
    values = ppo.sample_values(model, batch, 0, 3)
    anchor = anchored_momentum.Anchor(
        nudged(tiny(), 0.1), [torch.full_like(p, 0.1) for p in tiny().parameters()], 0.3
    )
    batching = Batching(0, 8, 3, 1e9, torch.Generator().manual_seed(0))

    def direction():
        plain = tiny()
        return anchored_momentum.update(plain, still(plain), batch, advantages, anchor, batching)

    before = direction()
    packed()
    assert ppo.sample_values(model, batch, 0, 3) == pytest.approx(values, rel=1e-4, abs=1e-5)
    batching.generator.manual_seed(0)
    after = direction()
    close(after[1], before[1], 2e-5)
    assert after[0] == pytest.approx(before[0], rel=1e-4)


def test_logits_in_parts_are_the_whole(monkeypatch):
    model, batch = model_of("untied"), to_packed(samples(9), CPU)

    def gradients():
        model.zero_grad(set_to_none=True)
        told, entropy = answer_logprobs(model, batch, 0.7)
        (told * torch.arange(len(told)) + 0.3 * entropy.square()).sum().backward()
        return [p.grad.clone() for p in model.parameters()]

    whole = gradients()
    monkeypatch.setattr(vocabulary, "CHUNK", 3 * 12 + 1)
    close(gradients(), whole, 1e-5)


@given(
    lengths=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=5),
    heads=st.sampled_from([(4, 2), (3, 3), (4, 1)]),
)
@settings(max_examples=20, deadline=None)
def test_the_last_queries_of_a_sequence_attend_to_all_before_them(lengths, heads):
    """As if all had been asked and the first answers thrown away."""
    generator = torch.Generator().manual_seed(0)
    asked, read = [a for a, _ in lengths], [a + b for a, b in lengths]
    total = sum(read)
    q, k, v = (torch.randn(total, n, 8, generator=generator) for n in (heads[0], *[heads[1]] * 2))
    whole = attend(q, k, v, sequences(read, CPU), sequences(read, CPU), 0.3).out
    ends = torch.tensor(read).cumsum(0).tolist()
    last = torch.cat([torch.arange(e - a, e) for e, a in zip(ends, asked, strict=True)])
    found = attend(q[last], k, v, sequences(asked, CPU), sequences(read, CPU), 0.3).out
    torch.testing.assert_close(found, whole[last], rtol=1e-5, atol=1e-6)


@given(st.lists(st.integers(1, 12), max_size=30), st.integers(1, 9), st.integers(1, 40))
@settings(deadline=None)
def test_passes_are_bounded_in_samples_and_tokens(lengths, size, tokens):
    batch = samples(len(lengths))
    for sample, length in zip(batch, lengths, strict=True):
        sample.prompt, sample.answer = [2] * length, [3]
    parts = list(microbatches(range(len(batch)), batch, size, tokens))
    assert sorted(i for part in parts for i in part) == list(range(len(batch)))
    for part in parts:
        assert len(part) <= size
        assert len(part) == 1 or sum(lengths[i] + 1 for i in part) <= tokens
    assert list(microbatches(range(len(batch)), batch, size)) == [
        sorted(range(len(batch)), key=lambda i: lengths[i])[start : start + size]
        for start in range(0, len(batch), size)
    ]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("again", [False, True])
def test_on_a_gpu_the_gradient_is_near_the_exact_one(name, again):
    """And no farther from it than the padded learner's, which rounds as often."""
    model, batch, advantages = model_of(name), samples(24), some_advantages(24)
    _, exact = learned(model, batch, advantages, Loss(kl=0.0))
    card = model_of(name).to("cuda")
    if again:
        checkpoint_activations(card)
    assert packs(card)
    _, ours = learned(card, batch, advantages, Loss(kl=0.0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logprobs, "packs", lambda model: False)
        _, padded = learned(card, batch, advantages, Loss(kl=0.0))

    def error(gradient):
        flat = [torch.cat([g.cpu().flatten() for g in gs]) for gs in (gradient, exact)]
        return float((flat[0] - flat[1]).norm() / flat[1].norm())

    assert error(ours) < max(1.5 * error(padded), 0.02)


def test_a_cpu_learns_from_padded_rows():
    assert not packs(tiny())
    assert learner_rows(tiny(), samples(2), 0, CPU).ids.ndim == 2


def test_nothing_is_kept_of_a_pass_without_gradients():
    model, batch = tiny(), to_packed(samples(3), CPU)
    with torch.no_grad():
        assert not hidden_states(model, batch).requires_grad


def test_what_a_layer_keeps_is_what_it_says():
    """x, q k v, attention's result, the middle and the MLP's inner values, each once."""
    model, batch = model_of("llama"), to_packed(samples(6), CPU)
    kept: dict[int, int] = {}
    parameters = {p.data_ptr() for p in model.parameters()}

    def pack(tensor):
        if tensor.data_ptr() not in parameters and tensor.is_floating_point():
            kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        decoder.packed_states(model, batch)
    width, inner, heads, kv, size = 48, 80, 6, 2, 8
    layer = 2 * width + (heads + 2 * kv) * size + heads * size + 2 * inner
    assert sum(kept.values()) == len(batch.ids) * (3 * layer + width)


def test_plain_ways_back_are_autograds():
    """The oracle's own oracle."""
    torch.manual_seed(0)
    double = torch.float64
    logits = torch.randn(4, 9, dtype=double, requires_grad=True)
    target, grads = torch.tensor([1, 0, 8, 3]), tuple(torch.randn(2, 4, dtype=double))
    told, entropy, lse = plain_ops.choose(logits, target, 0.7)
    (expected,) = torch.autograd.grad((told, entropy), logits, grads)
    found = plain_ops.choose_backward(logits, target, 0.7, lse, entropy, grads, double)
    torch.testing.assert_close(found, expected)
    logs = (logits / 0.7).log_softmax(-1)
    torch.testing.assert_close(entropy, -(logs.exp() * logs).sum(-1))
