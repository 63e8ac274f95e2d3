"""The memory estimate: exact where it says so, near where it says so, and without any weights."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="language models need torch (fedrl[llm])")
transformers = pytest.importorskip("transformers", reason="language models need transformers")
pytest.importorskip("peft", reason="LoRA needs peft (fedrl[llm])")

from support.agent_runs import recipe
from support.model_shapes import QWEN_1_5B

from fedrl.algorithms.fedagent import memory_advice, memory_estimate
from fedrl.algorithms.fedagent.evaluations import Evaluation
from fedrl.algorithms.fedagent.local_trainer import trained_model
from fedrl.algorithms.fedagent.settings import Settings
from fedrl.core.number_format import data_size
from fedrl.core.types import UserError
from fedrl.llm import memory
from fedrl.llm.generation.cuda import CudaSampler
from fedrl.llm.generation.hf import HFSampler
from fedrl.llm.policy import skeleton
from fedrl.llm.rl.batches import Batching, to_packed, to_rows
from fedrl.llm.rl.logprobs import hidden_states
from fedrl.llm.rl.loss import Loss
from fedrl.llm.rl.policy_gradient import update
from fedrl.llm.rollout import Sample
from fedrl.runs import train as runs

pytestmark = pytest.mark.slow
SHAPE = {
    "vocab_size": 300, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip
QWEN_7B = {
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584,
    "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False,
}  # fmt: skip
KINDS = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE, tie_word_embeddings=True),
    "qwen2": lambda: transformers.Qwen2Config(**SHAPE, tie_word_embeddings=False),
}
BASE = Settings(
    device="cpu", tasks=3, group=2, minibatch=5, microbatch=4, prompt_tokens=20, answer_tokens=7
)
HERE = torch.device("cpu")
PLAYED = [Evaluation("eval_tasks", 1, 134)]


@pytest.fixture(params=KINDS)
def folder(request, tmp_path):
    KINDS[request.param]().save_pretrained(tmp_path)
    return tmp_path


def built(folder, settings):
    """The model itself, of which the plan knows only the configuration."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.from_pretrained(folder)
    return trained_model(transformers.AutoModelForCausalLM.from_config(config), settings)


def stepped(model, settings):
    """AdamW's state after a step on random samples."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    weights = Loss(kl=0.0)
    found = [Sample(i, 0, [3] * 5, [4 + i], [-1.0], "") for i in range(2)]
    batching = Batching(0, 2, 2, 1.0, torch.Generator())
    update(model, optimizer, found, [1.0, -1.0], weights, batching)
    return [t for state in optimizer.state.values() for t in state.values() if t.dim()]


@pytest.mark.parametrize("change", [{}, {"lora_rank": 4}, {"estimator": "ppo"}])
def test_weights_gradients_and_optimizer_are_exact(folder, change):
    settings = replace(BASE, model=str(folder), **change)
    found, model = memory_estimate.estimate_memory(settings, 0), built(folder, settings)
    trained = {n: tuple(p.shape) for n, p in model.named_parameters() if p.requires_grad}
    assert found.trained == trained
    assert found.memory.weights == sum(p.nbytes for p in model.parameters())
    moments = stepped(model, settings)
    if "estimator" not in change:  # this step trains no critic
        assert found.memory.optimizer == sum(t.nbytes for t in moments)
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        assert found.memory.gradients == sum(g.nbytes for g in grads)


def test_the_plain_samplers_cache_is_exact(folder):
    model, kept = built(folder, BASE), []
    body = model.get_decoder()
    body.register_forward_hook(lambda *words: kept.append(words[-1].past_key_values))
    prompts = [[5 + i] * 20 for i in range(6)]
    HFSampler(model.eval(), [], 0).generate(prompts, 7, 1.0, torch.Generator())
    tensors = [t for layer in kept[-1].layers for t in (layer.keys, layer.values)]
    shape = memory_estimate.shape_of(model.config)
    # The last token of an answer is never read.
    assert memory_estimate.cache_bytes(shape, 6, 20 + 7 - 1, 4) == sum(t.nbytes for t in tensors)
    assert memory_estimate.cache(BASE, shape, 6, "plain", 4) == memory_estimate.cache_bytes(
        shape, 6, 27, 4
    )


@pytest.mark.parametrize("rows", [3, 6, 70])
def test_the_engines_copy_and_cache_are_exact(folder, rows):
    model = built(folder, BASE)
    engine = CudaSampler(model, (), 0, dtype=torch.bfloat16, seeded=True)
    engine.generate([[5 + i] * 20 for i in range(rows)], 7, 1.0, torch.Generator())
    found = memory_estimate.cache(BASE, memory_estimate.shape_of(model.config), rows, "cuda", 2)
    assert found == engine.room.store.nbytes + engine.room.noise.nbytes
    settings = replace(BASE, model=str(folder), device="cuda", lora_rank=4)
    assert memory_estimate.estimate_memory(settings, rows).memory.sampler == sum(
        piece.nbytes for piece in engine.weights.targets.values()
    )


LAYERS = {"lora_rank": 2, "lora_targets": ("q_proj", "v_proj")}


@pytest.mark.parametrize("change", [{}, {"lora_rank": 2}, LAYERS, {"save_memory": True}])
def test_activations_are_near_what_is_kept_for_the_way_back(folder, change):
    settings = replace(BASE, model=str(folder), prompt_tokens=60, answer_tokens=20, **change)
    model = built(folder, settings)
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    seen: dict[int, tuple[int, torch.Tensor]] = {}

    def pack(tensor):
        place = tensor.untyped_storage().data_ptr()
        if place not in parameters:
            seen[place] = (tensor.untyped_storage().nbytes(), tensor)
        return tensor

    batch = to_rows([Sample(0, 0, [2] * 60, [3] * 20, [], "")] * 4, 0, HERE)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        hidden_states(model, batch)
    shape, norms = memory_estimate.shape_of(model.config), "lora_rank" not in change
    expected = memory.padded_bytes(shape, 4, settings.save_memory, norms, settings.lora_targets)
    if settings.save_memory:  # the one layer in full comes on the way back
        expected -= memory.padded_bytes(shape._replace(layers=1), 4, False, norms) - 4 * 2 * 64
    measured = sum(size for size, _ in seen.values()) / (4 * 80)
    assert measured == pytest.approx(expected, rel=0.07)


@pytest.mark.parametrize("change", [{}, {"lora_rank": 2}, {"save_memory": True}])
def test_what_the_packed_learner_keeps_is_counted(folder, change):
    """To the byte, but for the log-sum-exp, which a CPU computes again."""
    settings = replace(BASE, model=str(folder), **change)
    model, seen = built(folder, settings), {}
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def pack(tensor):
        place = tensor.untyped_storage().data_ptr()
        if place not in parameters and tensor.is_floating_point():
            seen[place] = (tensor.untyped_storage().nbytes(), tensor)
        return tensor

    batch = to_packed([Sample(0, 0, [2 + i] * 60, [3] * 20, [], "") for i in range(4)], HERE)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        hidden_states(model, batch)
    shape = memory.shape_of(model.config)
    expected = memory.packed_bytes(shape, 4, settings.save_memory) - 4 * 64
    if settings.save_memory:  # the one layer in full comes on the way back
        expected -= memory.packed_bytes(shape._replace(layers=1), 4, False) - 4 * 2 * 64
    else:
        expected -= 4 * shape.heads * shape.layers
    assert sum(size for size, _ in seen.values()) == len(batch.ids) * expected


@pytest.fixture
def large(tmp_path):
    """The paper's size and its recipe's lengths, on a GPU."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN_1_5B))
    return Settings(model=str(tmp_path), device="cuda", format="chat", tasks=8, microbatch=8)


def test_the_papers_size_with_adapters_is_not_told_to_need_a_large_gpu(large):
    found = memory_estimate.estimate_memory(replace(large, lora_rank=32), 134)
    assert found.rows == 64  # an evaluation streams through training's rows
    assert 17e9 < found.memory.total < 30e9
    shorter = replace(large, lora_rank=32, prompt_tokens=600, answer_tokens=128)
    assert memory_estimate.estimate_memory(shorter, 134).memory.total < 22e9


def test_a_pass_is_cut_by_tokens_not_by_samples(large):
    def activations(**change):
        return memory_estimate.estimate_memory(replace(large, **change), 0).memory.activations

    assert activations(microbatch=64) == activations(microbatch=8) == activations(microbatch=2)
    assert activations(microbatch=1) < activations(microbatch=8)
    assert activations(save_memory=True) < 0.6 * activations()
    assert memory.pass_tokens(500_000_000) == 9_000
    assert memory.pass_tokens(7_000_000_000) == memory.PASS_TOKENS[0]
    assert memory.pass_tokens(1_000_000) == memory.PASS_TOKENS[1]


def test_larger_passes_are_said_and_counted(large):
    """By a token what is kept, and the height of a layer's way back."""
    small, big = (
        memory_estimate.estimate_memory(replace(large, microbatch=64, pass_tokens=tokens), 0).memory
        for tokens in (4096, 16_384)
    )
    shape = memory.shape_of(skeleton(large.model).config)
    for found, tokens in ((small, 4096), (big, 16_384)):
        height = memory.backward_height(shape, 2, True, tokens, tokens)
        assert found.activations == tokens * memory.packed_bytes(shape, 2, False) + height
    assert big._replace(activations=0) == small._replace(activations=0)
    usual = memory_estimate.estimate_memory(replace(large, microbatch=64), 0).memory
    assert usual == small


def test_padded_passes_are_cut_where_that_is_said(large):
    def activations(**change):
        settings = replace(large, four_bit=True, lora_rank=8, **change)
        return memory_estimate.estimate_memory(settings, 0).memory.activations

    longest = large.prompt_tokens + large.answer_tokens
    assert activations(microbatch=64, pass_tokens=longest) < 0.2 * activations(microbatch=64)
    assert activations(microbatch=1, pass_tokens=7) == activations(microbatch=1)


def test_what_saves_memory_names_smaller_passes(large):
    helps = dict(memory_advice.remedies(replace(large, microbatch=64, pass_tokens=16_384), [], 9))
    assert helps["algorithm.pass_tokens = 4096"] > 15e9
    line = memory_advice.advice(replace(large, microbatch=64, pass_tokens=16_384), 0, "learning")
    assert "algorithm.pass_tokens = 4096" in line
    assert "algorithm.pass_tokens = 4096" not in dict(memory_advice.remedies(large, [], 9))


def test_a_refusal_says_what_helps_most(large):
    helps = memory_advice.remedies(large, [], 4)
    words = memory_advice.refusal(large, helps, 48 * 10**9, 40 * 10**9, "to train so")
    assert len(words.splitlines()) == 1
    assert "algorithm.model needs 48." in words
    assert "the GPU has 40.0 GB for it: algorithm.lora_rank = 32" in words
    assert "algorithm.kl = 0 (6.2 GB less)" in words


MEASURED = [  # GB at the height of a step, on an H200; passes of at most this many tokens
    ("135m", {}, 64, 128, 16, 33_333, 6.72),
    ("135m", {}, 512, 400, 24, 33_333, 20.13),
    ("135m", {}, 64, 2048, 512, 33_333, 20.35),
    ("135m", {"save_memory": True}, 512, 1024, 64, 33_333, 20.10),
    ("135m", {"lora_rank": 32}, 64, 3584, 512, 22_222, 17.08),
    ("1.5b", {}, 64, 600, 128, 4096, 38.09),
    ("1.5b", {"lora_rank": 32}, 64, 600, 128, 4096, 18.61),
    ("1.5b", {"lora_rank": 32, "save_memory": True}, 64, 2048, 512, 4096, 16.74),
    ("7b", {"lora_rank": 32}, 64, 600, 128, 4096, 64.76),
]
SMOLLM2 = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 576,
    "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.mark.parametrize(("name", "change", "rows", "prompt", "answer", "tokens", "gb"), MEASURED)
def test_the_estimate_is_within_a_tenth_of_what_was_measured(
    tmp_path, monkeypatch, name, change, rows, prompt, answer, tokens, gb
):
    """Peaks of docs/benchmarks.md among them, which are of first steps, before which there are no
    moments of AdamW's; the first of these was measured over whole ones."""
    shape = {"135m": SMOLLM2, "1.5b": QWEN_1_5B, "7b": QWEN_7B}[name]
    (tmp_path / "config.json").write_text(json.dumps(shape))
    monkeypatch.setattr(memory, "pass_tokens", lambda parameters: min(tokens, 32_768))
    settings = Settings(
        model=str(tmp_path), device="cuda", kl=0.0, tasks=rows // 2, group=2,
        prompt_tokens=prompt, answer_tokens=answer, **change,
    )  # fmt: skip
    found = memory_estimate.estimate_memory(settings, 0).memory.least / 1e9
    assert found == pytest.approx(gb, rel=0.1)


@pytest.mark.parametrize(
    ("rows", "prompt", "answer", "gb"), [(64, 128, 16, 11.39), (512, 400, 24, 33.57),
                                         (64, 2048, 512, 34.80)],
)  # fmt: skip
def test_captured_layers_are_counted(tmp_path, monkeypatch, rows, prompt, answer, gb):
    """What PyTorch held at most on an H200, of a model whose layers become CUDA graphs."""
    (tmp_path / "config.json").write_text(json.dumps(SMOLLM2))
    monkeypatch.setattr(memory, "pass_tokens", lambda parameters: 32_768)
    settings = Settings(
        model=str(tmp_path), device="cuda", kl=0.0, tasks=rows // 2, group=2,
        prompt_tokens=prompt, answer_tokens=answer,
    )  # fmt: skip
    found = memory_estimate.estimate_memory(settings, 0).memory
    assert found.total / 1e9 == pytest.approx(gb, rel=0.1)
    assert found.least == found.total - found.graphs
    for change in ({"lora_rank": 4}, {"personal_rank": 4}, {"save_memory": True}):
        other = memory_estimate.estimate_memory(replace(settings, **change), 0).memory
        assert other.graphs == 0


def test_large_models_are_not_captured(large):
    assert memory_estimate.estimate_memory(large, 0).memory.graphs == 0


def test_what_helps_is_told_by_what_it_saves(large):
    helps = dict(memory_advice.remedies(large, PLAYED, 9))
    assert "algorithm.group = 4" in helps
    longer = replace(large, lora_rank=32, answer_tokens=2048)
    assert "algorithm.answer_tokens = 1024" in dict(memory_advice.remedies(longer, PLAYED, 9))
    now = memory_estimate.estimate_memory(large, 134).memory.total
    for words, change in {
        "algorithm.kl = 0": {"kl": 0.0},
        "algorithm.save_memory = true": {"save_memory": True},
        "algorithm.tasks = 4": {"tasks": 4},
    }.items():
        less = memory_estimate.estimate_memory(replace(large, **change), 134).memory.total
        assert helps[words] == now - less
    assert list(helps.values()) == sorted(helps.values(), reverse=True)
    assert not any("eval_tasks" in words for words in helps)
    plain = dict(memory_advice.remedies(replace(large, rollouts="plain"), PLAYED, 9))
    assert "algorithm.eval_tasks = 64" in plain


def test_every_choice_moves_the_part_that_it_should(folder):
    def parts(**change):
        return memory_estimate.estimate_memory(replace(BASE, model=str(folder), **change), 0).memory

    base = parts(kl=0.0)
    assert base.copies == base.sampler == 0
    assert parts(kl=0.1).copies == base.weights
    assert parts(kl=0.1, lora_rank=4).copies == 0
    assert parts(kl=0.0, prox=0.1).copies == base.gradients
    assert parts(kl=0.0, entropy=0.0, beta=0.5).copies == 7 * base.gradients
    assert parts(save_memory=True).activations < 0.7 * base.activations
    assert 0.4 < parts(microbatch=2).activations / base.activations < 0.6
    assert parts(microbatch=99).activations == parts(microbatch=5).activations  # one minibatch
    gpu = parts(device="cuda", kl=0.0)
    assert gpu.sampler == base.weights // 2
    assert parts(device="spread", kl=0.0).sampler == 0  # the plain sampler shares the weights
    wide = memory_estimate.estimate_memory(replace(BASE, model=str(folder)), 60)
    assert wide.rows == 60
    assert wide.memory.cache == 10 * base.cache


def test_a_7b_model_is_planned_from_its_configuration_alone(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(QWEN_7B))
    change = {"model": str(tmp_path), "format": "chat", "device": "cuda", "lora_rank": 16}
    lines = runs.plan(recipe(tmp_path, algorithm=change))
    text = "\n".join(lines)
    adapters = 28 * 16 * (
        2 * (3584 + 3584) + 2 * (3584 + 512) + 2 * (3584 + 18944) + (18944 + 3584)
    )  # fmt: skip
    assert f"a client sends {adapters:,} numbers: 392 tensors" in text
    assert f"2 clients, {data_size(8 * adapters)} up, {data_size(8 * adapters)} down" in text
    assert f"{7_615_616_512 + adapters:,} parameters, {adapters:,} of them trained" in text
    assert f"weights {4 * (7_615_616_512 + adapters) / 1e9:.1f} GB" in text
    assert "sampler 15.2 GB" in text


def test_anchored_momentum_counts_what_it_sends(folder):
    change = {"model": str(folder), "beta": 0.5, "kl": 0.0, "entropy": 0.0}
    once = sum(p.nbytes for p in built(folder, BASE).parameters())
    assert (
        f"{data_size(2 * 2 * once)} up, {data_size(2 * 3 * once)} down"
        in runs.plan(recipe(folder, algorithm=change))[1]
    )


def test_what_cannot_be_planned_is_said(tmp_path):
    with pytest.raises(UserError, match="model is empty"):
        runs.plan(recipe(tmp_path, algorithm={"model": ""}))
    with pytest.raises(UserError, match="no folder"):
        runs.plan(recipe(tmp_path, algorithm={"model": "./nowhere"}))


def test_a_machine_without_a_gpu_tells_a_gpus_memory_too(folder, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    settings = replace(BASE, model=str(folder), device="auto")

    def told(settings):
        needs = memory_estimate.estimate_memory(settings, 0)
        return "\n".join(memory_advice.estimate_lines(needs, settings))

    gpu = memory_estimate.estimate_memory(replace(settings, device="cuda"), 0).memory
    assert f"on a GPU at most {memory_advice.in_bytes(gpu.total)}" in told(settings)
    assert memory_advice.fitting(gpu.least) in told(settings)
    assert memory_advice.fitting(gpu.least) in told(replace(settings, device="cuda"))
    here = memory_advice.in_bytes(memory_advice.device_memory("cpu"))
    assert f"on cpu (which has {here})" in told(settings)
    monkeypatch.setattr(memory_advice, "device_memory", lambda device: 10**6)
    assert "on cpu (which has 1.0 MB: it does not fit)" in told(settings)
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for asked in ("cpu", "cuda"):
        assert "on a GPU at most" not in told(replace(settings, device=asked))
    assert "which has" not in told(replace(settings, device="cuda"))  # it is not here


def test_what_vllm_takes_is_not_counted_and_said(folder, monkeypatch):
    monkeypatch.setattr(memory_advice, "find_spec", lambda _: None)
    settings = replace(BASE, model=str(folder), device="cuda", rollouts="vllm")
    needs = memory_estimate.estimate_memory(settings, 0)
    assert needs.memory.sampler == needs.memory.cache == 0
    text = "\n".join(memory_advice.estimate_lines(needs, settings))
    assert "vllm takes 30% of the GPU's memory beside that, and is not installed here" in text


def test_a_plan_says_what_of_the_model_it_could_not_look_at(folder, tmp_path):
    plan = runs.plan(recipe(tmp_path, algorithm={"model": str(folder)}))
    assert plan[-1] == "not in a folder here, so not looked at: the model's tokenizer and weights"


def test_usual_cards_are_named_with_what_cuda_takes_itself():
    said = "fits 8 GB: no, 16 GB: no, 24 GB: {}, 48 GB: yes, 80 GB: yes"
    said += " (without graphs and with CUDA's own 0.9 GB: 24.0 GB)"
    full = 24 * 10**9 - memory_estimate.CALIBRATION.context
    assert memory_advice.fitting(full) == said.format("yes")
    assert memory_advice.fitting(full + 1) == said.format("no")
