"""The GPU engine answers as the plain sampler does: same tokens for the same random numbers."""

from __future__ import annotations

import itertools
import os
import sys

import pytest

torch = pytest.importorskip("torch", reason="language models need torch (fedrl[llm])")
transformers = pytest.importorskip("transformers", reason="language models need transformers")

from hypothesis import given, settings
from hypothesis import strategies as st

from fedrl.core.types import UserError
from fedrl.llm.generation import cuda, reading, torch_ops
from fedrl.llm.generation.cuda import CudaSampler
from fedrl.llm.generation.decode_buffers import bucket_rows, new_buffers
from fedrl.llm.generation.hf import HFSampler
from fedrl.llm.generation.reading import passes
from fedrl.llm.generation.sampler import Answer, Request
from fedrl.llm.weights import MergedWeights

pytestmark = pytest.mark.slow  # of PyTorch on a CPU, beside what needs a GPU

VOCABULARY = 61
SHAPE = {
    "vocab_size": VOCABULARY, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "initializer_range": 0.3, "bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 32.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
}  # fmt: skip
MODELS = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE, tie_word_embeddings=True),
    "untied": lambda: transformers.LlamaConfig(**SHAPE, tie_word_embeddings=False),
    "one head each": lambda: transformers.LlamaConfig(**SHAPE | {"num_key_value_heads": 6}),
    "wide heads": lambda: transformers.LlamaConfig(**SHAPE, head_dim=16),
    "llama3 rope": lambda: transformers.LlamaConfig(**SHAPE, rope_parameters=LLAMA3),
    "qwen2": lambda: transformers.Qwen2Config(**SHAPE, tie_word_embeddings=True),
}


def model_of(name: str):
    torch.manual_seed(len(name))
    model = transformers.AutoModelForCausalLM.from_config(MODELS[name]()).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "bias" in key or "norm" in key:  # they start as zeros and ones, which hides mistakes
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return model_of(request.param)


def prompts_of(lengths, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(VOCABULARY, (n,), generator=generator).tolist() for n in lengths]


def both(model, prompts, limit=9, temperature=1.0, end=(1,), pad=0, calls=1, **options):
    """Answers of the plain sampler and of the engine, from generators in the same state."""
    said = []
    for sampler in (HFSampler(model, end, pad), CudaSampler(model, end, pad, **options)):
        generator = torch.Generator().manual_seed(5)
        said.append(
            [sampler.generate(prompts, limit, temperature, generator) for _ in range(calls)]
        )
    return said


def same(plain, ours) -> None:
    for a, b in zip(plain, ours, strict=True):
        assert b.tokens == a.tokens
        for x, y in zip(a.logprobs, b.logprobs, strict=True):
            assert y == pytest.approx(x, abs=2e-4)


@pytest.mark.parametrize("temperature", [0.0, 0.4, 1.0])
def test_answers_as_the_plain_sampler(model, temperature):
    same(*both(model, prompts_of([7, 3, 12, 1, 7]), temperature=temperature))


def test_equal_prompts_are_read_once_and_answered_apart(model):
    a, b, c = prompts_of([5, 9, 5])
    plain, ours = both(model, [a, b, a, c, b, a, a])
    same(plain, ours)
    assert len({tuple(ours[0].tokens[i]) for i in (0, 2, 5, 6)}) > 1


def test_calls_leave_the_generator_in_the_same_state():
    """So the second answers agree too; the first ended before the limit."""
    end = range(0, VOCABULARY, 2)
    plain, ours = both(model_of("llama"), prompts_of([4, 6, 2]), limit=40, end=end, calls=3)
    assert max(len(row) for row in ours[0].tokens) < 40
    same(plain, ours)


def test_some_end_early_and_others_go_on():
    model, prompts = model_of("qwen2"), prompts_of([8, 8, 3, 5, 5, 4])
    plain, ours = both(model, prompts, limit=12, end=(3, 7, 11, 19, 23, 31))
    same(plain, ours)
    lengths = {len(row) for row in ours[0].tokens}
    assert min(lengths) < 12
    assert max(lengths) == 12
    for row in ours[0].tokens:
        assert not set(row[:-1]) & {3, 7, 11, 19, 23, 31}


def test_pad_may_be_the_end():
    """Also inside a prompt, where it is an ordinary token."""
    prompts = [[1, 5, 1, 9], [1, 1], [8, 2, 1]]
    same(*both(model_of("llama"), prompts, end=(1,), pad=1))


def test_no_end_at_all():
    _, (ours,) = both(model_of("llama"), prompts_of([3, 4]), limit=6, end=())
    assert [len(row) for row in ours.tokens] == [6, 6]


def test_past_a_multiple_of_the_cache_length():
    """Attention reads a bucket of 128, then of 256, the right part of each."""
    same(*both(model_of("llama3 rope"), prompts_of([120, 5, 126]), limit=12, end=()))


def test_rooms_of_one_engine_do_not_disturb_each_other():
    model, end = model_of("llama"), (1,)
    engine = CudaSampler(model, end, 0)
    for i, lengths in enumerate([[4] * 3, [150, 2], list(range(1, 10)), [4] * 3, [150, 2]]):
        prompts = prompts_of(lengths, i)
        same(
            [HFSampler(model, end, 0).generate(prompts, 5, 1.0, torch.Generator().manual_seed(i))],
            [engine.generate(prompts, 5, 1.0, torch.Generator().manual_seed(i))],
        )


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=9),
    twice=st.lists(st.integers(0, 8), max_size=4),
    limit=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_any_batch(lengths, twice, limit, seed):
    prompts = prompts_of(lengths, seed)
    prompts += [prompts[i % len(prompts)] for i in twice]
    same(*both(model_of("qwen2"), prompts, limit=limit, end=(1, 2, 3, 4, 5)))


class Replayed:
    """Stands for captured steps where nothing can be captured."""

    def __init__(self, engine, desk, filled, steps=1):
        self.replay = lambda: [engine._step(desk, filled) for _ in range(steps)]


@pytest.mark.parametrize("end", [(), (1, 2, 3), range(0, VOCABULARY, 2)])
def test_looking_for_the_end_only_now_and_then(monkeypatch, end):
    """As with graphs: rows decode past their end until the next look, and nobody hears of it."""
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(CudaSampler, "_capture", lambda *a, **b: Replayed(*a, **b))
    prompts = prompts_of([120, 5, 126, 5, 9])
    plain, ours = both(model_of("qwen2"), prompts, limit=20, end=end, graphs=True)
    same(plain, ours)


SHARED = [[5, 6, 7], [5, 6, 7, 8], [5, 6, 9], [5, 6, 7], [5], [4, 6, 7], [5, 6, 7, 8, 8, 8]]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_prompts_begin_with_alike_is_read_once(model, temperature):
    same(*both(model, SHARED, temperature=temperature))
    told = reading.readings(SHARED, range(len(SHARED)), torch.device("cpu"))
    assert sum(len(part.ids) for part in told) == 10  # nodes of their tree


def seeded(model, end=(1,), graphs=False):
    return CudaSampler(model, end, 0, graphs=graphs, seeded=True)


def streamed(engine, prompts, seeds, limit, temperature, more=()):
    """Answers by their keys; `more` prompts are asked for one by one as others end."""
    found, rest = {}, list(enumerate(more, len(prompts)))

    def answered(answers):
        found.update({a.key: a for a in answers})
        return [Request(key, p, seeds[key]) for key, p in (rest.pop(0) for _ in answers if rest)]

    first = [Request(i, p, seeds[i]) for i, p in enumerate(prompts)]
    engine.stream(first, limit, temperature, answered)
    assert sorted(found) == list(range(len(prompts) + len(more)))
    return [found[key] for key in sorted(found)]


@pytest.mark.slow
@pytest.mark.parametrize("graphs", [False, True])
def test_an_answer_depends_on_its_prompt_and_seed_alone(monkeypatch, graphs):
    """Whoever stands beside it, whenever it began, also after the room had to grow."""
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(CudaSampler, "_capture", lambda *a, **b: Replayed(*a, **b))
    model, end = model_of("qwen2"), (1, 2, 3, 4)
    prompts = prompts_of([4, 9, 3, 3, 12]) + prompts_of([5, 40, 2, 150, 7, 7, 30], 3)
    seeds = [1000 + 7 * i for i in range(len(prompts))]
    together = streamed(seeded(model, end, graphs), prompts[:5], seeds, 21, 1.0, prompts[5:])
    assert len({len(answer.tokens) for answer in together}) > 3
    for i, prompt in enumerate(prompts):
        (alone,) = streamed(seeded(model, end), [prompt], seeds[i:], 21, 1.0)
        assert together[i].tokens == alone.tokens
        assert together[i].logprobs == pytest.approx(alone.logprobs, abs=2e-4)
        assert not set(alone.tokens[:-1]) & set(end)
        assert len(alone.tokens) == 21 or alone.tokens[-1] in end


def test_a_greedy_stream_says_what_the_plain_sampler_says(model):
    prompts = prompts_of([4, 9, 3, 3, 12, 5, 30, 2, 7])
    plain = HFSampler(model, (1, 2, 3), 0).generate(prompts, 9, 0.0, torch.Generator())
    found = streamed(seeded(model, (1, 2, 3)), prompts[:4], [0] * 9, 9, 0.0, prompts[4:])
    assert [answer.tokens for answer in found] == plain.tokens
    for answer, logprobs in zip(found, plain.logprobs, strict=True):
        assert answer.logprobs == pytest.approx(logprobs, abs=2e-4)


def test_a_stream_of_single_tokens():
    found = streamed(seeded(model_of("llama"), ()), prompts_of([3, 4]), [1] * 5, 1, 1.0, [[5]] * 3)
    assert [len(answer.tokens) for answer in found] == [1] * 5
    assert isinstance(found[0], Answer)


def test_steps_are_captured_once_per_bucket_and_anew_when_the_room_grows(monkeypatch):
    captured = []

    def capture(engine, desk, filled):
        captured.append((*desk.shape, filled))
        return Replayed(engine, desk, filled)

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(CudaSampler, "_capture", capture)
    engine = CudaSampler(model_of("llama"), (), 0, graphs=True)

    def captures(*lengths: int) -> list[tuple[int, ...]]:
        captured.clear()
        engine.generate(prompts_of(lengths), 12, 1.0, torch.Generator())
        return list(captured)

    assert captures(*[250] * 8) == [(8, 384, 256), (8, 384, 384)]
    assert captures(*[100] * 7) == [(8, 128, 128)]
    assert captures(*[90] * 5) == []
    assert captures(*[120] * 3) == [(4, 256, 128), (4, 256, 256)]
    assert captures(*[250] * 6) == []
    assert captures(*[100] * 30) == [(32, 128, 128)]
    assert captures(*[90] * 5) == [(8, 128, 128)]


def test_kernels_without_triton_are_a_user_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "fedrl.llm.generation.decode_kernels", None)
    with pytest.raises(UserError, match="triton"):
        CudaSampler(model_of("llama"), (1,), 0, fused=True)


def test_reading_in_several_passes(monkeypatch):
    monkeypatch.setattr(cuda, "read_tokens", lambda shape: 16)
    same(*both(model_of("llama"), prompts_of([7, 3, 12, 1, 7, 20])))


@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=30), most=st.integers(1, 200))
def test_passes_hold_every_prompt_once_and_no_more_than_allowed(lengths, most):
    prompts = [(0,) * n for n in lengths]
    parts = list(passes(prompts, most))
    assert [p for part in parts for p in part] == prompts
    assert all(len(part) == 1 or sum(map(len, part)) <= most for part in parts)
    assert all(sum(map(len, a)) + len(b[0]) > most for a, b in itertools.pairwise(parts))


@given(st.integers(1, 2000))
def test_buckets_hold_the_rows_and_are_few(rows):
    assert rows <= bucket_rows(rows) < max(2 * rows, rows + 64)
    assert bucket_rows(bucket_rows(rows)) == bucket_rows(rows)


def test_push_changes_what_answers():
    model, other = model_of("qwen2"), model_of("qwen2")
    prompts = prompts_of([5, 6])
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    engine = CudaSampler(model, (1,), 0)
    before = engine.generate(prompts, 6, 0.0, torch.Generator())
    engine.push(MergedWeights(other), 3)
    assert engine.version == 3
    after = engine.generate(prompts, 6, 0.0, torch.Generator())
    same([HFSampler(other, (1,), 0).generate(prompts, 6, 0.0, torch.Generator())], [after])
    assert before.logprobs != after.logprobs


def test_the_engine_keeps_its_weights_until_the_next_push():
    model, prompts = model_of("llama"), prompts_of([5])
    engine = CudaSampler(model, (1,), 0)
    before = engine.generate(prompts, 6, 0.0, torch.Generator())
    with torch.no_grad():
        model.lm_head.weight.mul_(-1)
    assert engine.generate(prompts, 6, 0.0, torch.Generator()) == before


def test_push_needs_all_weights():
    model = model_of("llama")
    engine, weights = CudaSampler(model, (1,), 0), dict(MergedWeights(model_of("llama")))
    with pytest.raises(ValueError, match="keeps a copy"):
        engine.push(None, 1)
    del weights["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(ValueError, match=r"layers\.1\.mlp\.up_proj"):
        engine.push(weights, 1)
    assert engine.version == 0


def test_adapters_are_merged():
    peft = pytest.importorskip("peft", reason="LoRA needs peft (fedrl[llm])")
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear")
    adapted = peft.get_peft_model(model_of("qwen2"), config).eval()
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.2)
    prompts, base = prompts_of([5, 9, 4]), adapted.get_base_model()
    plain = HFSampler(base, (1,), 0).generate(prompts, 8, 1.0, torch.Generator().manual_seed(1))
    ours = CudaSampler(adapted, (1,), 0).generate(prompts, 8, 1.0, torch.Generator().manual_seed(1))
    same([plain], [ours])
    with adapted.disable_adapter():
        bare = HFSampler(base, (1,), 0).generate(prompts, 8, 1.0, torch.Generator().manual_seed(1))
    assert bare.tokens != ours.tokens


def test_logprobs_are_those_of_the_learner():
    from fedrl.llm.rl.batches import to_rows
    from fedrl.llm.rl.logprobs import answer_logprobs
    from fedrl.llm.rollout import Sample

    model, prompts = model_of("qwen2"), prompts_of([5, 9, 4])
    engine = CudaSampler(model, (1,), 0)
    said = engine.generate(prompts, 8, 0.7, torch.Generator().manual_seed(1))
    samples = [
        Sample(i, 0, p, t, x, "")
        for i, (p, t, x) in enumerate(zip(prompts, said.tokens, said.logprobs, strict=True))
    ]
    with torch.no_grad():
        learned, *_ = answer_logprobs(model, to_rows(samples, 0, torch.device("cpu")), 0.7)
    assert [x for s in samples for x in s.logprobs] == pytest.approx(learned.tolist(), abs=2e-4)


def test_a_cache_that_cannot_fit_is_refused_with_what_would():
    engine = CudaSampler(model_of("llama"), (1,), 0, memory=800_000)
    engine.generate(prompts_of([5] * 4), 4, 1.0, torch.Generator())
    with pytest.raises(
        UserError, match=r"32 episodes of 128 tokens.*about \d+ fit.*algorithm\."
    ) as e:
        engine.generate(prompts_of([5] * 32), 4, 1.0, torch.Generator())
    fit = int(str(e.value).split("about ")[1].split()[0])
    assert 4 <= fit < 32
    engine.generate(prompts_of([5] * 4), 4, 1.0, torch.Generator())  # it is still usable


def test_half_precision_is_near():
    prompts = prompts_of([7, 30, 12])
    (plain,), (ours,) = both(model_of("llama"), prompts, 1, 0.0, dtype=torch.bfloat16)
    for x, y in zip(plain.logprobs, ours.logprobs, strict=True):
        assert y == pytest.approx(x, abs=0.3)


@pytest.mark.parametrize(
    "config, fault",
    [
        (lambda: transformers.LlamaConfig(**SHAPE, hidden_act="gelu"), "activation gelu"),
        (lambda: transformers.LlamaConfig(**SHAPE, mlp_bias=True), "biases"),
        (lambda: transformers.LlamaConfig(**SHAPE, attention_bias=True), "biases"),
        (lambda: transformers.Qwen3Config(**SHAPE), "kind qwen3"),
        (
            lambda: transformers.Qwen2Config(
                **SHAPE, use_sliding_window=True, sliding_window=8, max_window_layers=1
            ),
            "other than full",
        ),
        (
            lambda: transformers.LlamaConfig(
                **SHAPE, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
            ),
            "kind dynamic",
        ),
    ],
)
def test_other_models_are_refused(config, fault):
    model = transformers.AutoModelForCausalLM.from_config(config())
    with pytest.raises(UserError, match=fault):
        CudaSampler(model, (1,), 0)


# The kernels. Triton's interpreter runs them without a GPU: TRITON_INTERPRET=1

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
needs_triton = pytest.mark.skipif(
    DEVICE == "cpu" and not INTERPRETED, reason="kernels need a GPU, or TRITON_INTERPRET=1"
)


@pytest.fixture(scope="module")
def decode():
    pytest.importorskip("triton", reason="the kernels need triton")
    from fedrl.llm.generation import decode_kernels as decode

    return decode


@pytest.fixture(scope="module")
def kernels(decode):
    from fedrl.llm.generation import attention_kernels

    return attention_kernels


def close(ours, plain, dtype) -> None:
    bound = {torch.float32: 2e-5, torch.bfloat16: 2e-2}[dtype]
    torch.testing.assert_close(ours, plain, atol=bound, rtol=bound)


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows, heads, kv, size", [(5, 6, 2, 16), (3, 9, 3, 64), (2, 4, 4, 24)])
class TestKernels:
    @pytest.fixture(autouse=True)
    def seeded(self):
        torch.manual_seed(3)

    def test_rms_norm(self, decode, dtype, rows, heads, kv, size):
        x = torch.randn(rows, heads * size, device=DEVICE).to(dtype)
        weight = torch.randn(heads * size, device=DEVICE).to(dtype)
        close(decode.rms_norm(x, weight, 1e-5), torch_ops.rms_norm(x, weight, 1e-5), dtype)

    def test_swiglu(self, decode, dtype, rows, heads, kv, size):
        x = torch.randn(rows, 2 * heads * size + 6, device=DEVICE).to(dtype)
        close(decode.swiglu(x), torch_ops.swiglu(x), dtype)

    @pytest.mark.parametrize("per_row", [1, 7])
    def test_rope(self, kernels, dtype, rows, heads, kv, size, per_row):
        qkv = torch.randn(rows * per_row, (heads + 2 * kv) * size, device=DEVICE).to(dtype)
        angles = torch.randn(rows * per_row, size // 2, device=DEVICE)
        positions = torch.arange(per_row, device=DEVICE).repeat(rows) + 4
        found = []
        for ops in (torch_ops, kernels):
            whole = torch.zeros(2, rows + 1, kv, 20, size, dtype=dtype, device=DEVICE)
            keys, values = whole[0, 1:], whole[1, 1:]
            queries = ops.rope(qkv, angles.cos(), angles.sin(), positions, keys, values)
            found.append((queries.reshape(rows * per_row, -1), whole))
        for plain, ours in zip(*found, strict=True):
            close(ours, plain, dtype)

    def test_put(self, kernels, dtype, rows, heads, kv, size):
        """Tokens that several rows need, in any order, and nothing beside them."""
        qkv = torch.randn(4, (heads + 2 * kv) * size, device=DEVICE).to(dtype)
        fresh = torch.tensor([2, 0, 1, 2, 3, 0], device=DEVICE)
        row = torch.tensor([0, 0, 1, 1, 1, 0], device=DEVICE)
        place = torch.tensor([0, 1, 0, 5, 9, 3], device=DEVICE)
        found = []
        for ops in (torch_ops, kernels):
            whole = torch.zeros(2, rows + 1, kv, 20, size, dtype=dtype, device=DEVICE)
            ops.put(qkv, fresh, row, place, whole[0, 1:], whole[1, 1:])
            found.append(whole)
        assert torch.equal(*found)
        assert int(found[0].abs().sum(-1).gt(0).sum()) == 2 * kv * len(fresh)

    def test_attention(self, kernels, dtype, rows, heads, kv, size):
        if INTERPRETED and dtype is torch.bfloat16:
            pytest.skip("Triton's interpreter has no matrix product in bfloat16")
        lengths = torch.tensor([1, 150, 64, 65, 7][:rows], device=DEVICE)
        queries = torch.randn(rows, heads, size, device=DEVICE).to(dtype)
        keys, values = torch.randn(2, rows, kv, 150, size, device=DEVICE).to(dtype)
        plain = torch_ops.attention(queries, keys, values, lengths, size**-0.5)
        close(kernels.attention(queries, keys, values, lengths, size**-0.5), plain, dtype)

    def test_turned_attention(self, kernels, dtype, rows, heads, kv, size):
        """Rows in which nothing was read before, and rows that are over, too."""
        if INTERPRETED and dtype is torch.bfloat16:
            pytest.skip("Triton's interpreter has no matrix product in bfloat16")
        position = torch.tensor([0, 149, 63, 64, 7][:rows], device=DEVICE)
        lengths = position + 1
        lengths[2 % rows] = 1
        qkv = torch.randn(rows, (heads + 2 * kv) * size, device=DEVICE).to(dtype)
        angles = torch.randn(rows, size // 2, device=DEVICE)
        cache = torch.randn(2, rows, kv, 160, size, device=DEVICE).to(dtype)
        found = []
        for ops in (torch_ops, kernels):
            keys, values = cache.clone()
            mixed = ops.turned_attention(
                qkv, angles.cos(), angles.sin(), position, keys, values, lengths, 160, size**-0.5
            )
            found.append((mixed[lengths > 1], mixed[0], keys, values))
        for plain, ours in zip(*found, strict=True):
            close(ours, plain, dtype)

    @pytest.mark.parametrize("sampling", [0.0, 1.0])
    def test_sample(self, decode, dtype, rows, heads, kv, size, sampling):
        logits = 3 * torch.randn(rows, 5000, device=DEVICE)
        noise = torch.rand(rows, 5000, device=DEVICE)
        knobs = [torch.tensor([x], device=DEVICE) for x in (0.7, sampling)]
        plain, ours = torch_ops.sample(logits, noise, *knobs), decode.sample(logits, noise, *knobs)
        assert ours[0].tolist() == plain[0].tolist()
        close(ours[1], plain[1], torch.float32)


@needs_triton
@pytest.mark.parametrize("end", [(), (3,), (2, 3, 5)])
def test_saying(decode, end):
    """Every row once: over, ended by its token, ended by its limit, going on."""
    torch.manual_seed(0)
    rows, told = 150, []
    token = torch.randint(7, (rows,), device=DEVICE)
    logprob, over = torch.randn(rows, device=DEVICE), torch.rand(rows, device=DEVICE) < 0.3
    count, limit = (torch.randint(low, high, (rows,)).to(DEVICE) for low, high in ((1, 5), (4, 9)))
    for ops in (torch_ops, decode):
        nothing = torch.zeros(0, device=DEVICE)
        desk = new_buffers(rows, 12, 0, nothing, [], torch.device(DEVICE))
        desk.over.copy_(over), desk.count.copy_(count), desk.limit.copy_(limit)
        ops.say(desk, token, logprob, torch.tensor(end, dtype=torch.long, device=DEVICE))
        told.append((*desk.moved, desk.said, desk.logprobs))
    for plain, ours in zip(*told, strict=True):
        assert torch.equal(ours, plain)


@needs_triton
@pytest.mark.parametrize("name", ["llama", "qwen2", "wide heads"])
def test_the_kernels_answer_as_the_plain_sampler(decode, name):
    model, prompts = model_of(name).to(DEVICE), prompts_of([7, 3, 12, 7])
    prompts.append(prompts[0])
    generators = [torch.Generator(DEVICE).manual_seed(5) for _ in range(2)]
    plain = CudaSampler(model, (1,), 0, torch.float32, fused=False, graphs=False)
    fused = CudaSampler(model, (1,), 0, torch.float32, fused=True, graphs=False)
    same(
        [plain.generate(prompts, 5, 1.0, generators[0])],
        [fused.generate(prompts, 5, 1.0, generators[1])],
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_captured_steps_answer_as_the_plain_sampler_on_cpu(name, fused):
    """Greedily, because the two devices draw different random numbers."""
    model, prompts = model_of(name), prompts_of([7, 3, 12, 1, 7, 126])
    prompts.append(prompts[2])
    end = (1, 2, 3)
    plain = HFSampler(model, end, 0).generate(prompts, 12, 0.0, torch.Generator())
    engine = CudaSampler(model.to("cuda"), end, 0, torch.float32, fused=fused)
    for _ in range(3):  # the first captures, the others replay
        ours = engine.generate(prompts, 12, 0.0, torch.Generator("cuda"))
        same([plain], [ours])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_captured_sampling_is_the_uncaptured():
    """Also after the room has grown and what was captured is gone."""
    model = model_of("qwen2").to("cuda")
    said = []
    for graphs in (False, True):
        engine = CudaSampler(model, (), 0, torch.float32, graphs=graphs, seeded=True)
        generator = torch.Generator("cuda").manual_seed(1)
        said.append(
            [
                engine.generate(prompts_of(lengths), 9, 0.8, generator)
                for lengths in ([7, 3, 12], [7, 3, 12], [5] * 20 + [150], [7, 3, 12], [5] * 70)
            ]
        )
    same(*said)
