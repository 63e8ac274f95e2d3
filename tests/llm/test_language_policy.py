"""Where a model comes from and runs: folders, GGUF files, devices, and a line for what is wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="language models need torch (fedrl[llm])")
transformers = pytest.importorskip("transformers", reason="language models need transformers")

from support.tiny_model import tiny

from fedrl.core.types import UserError
from fedrl.engines.worker_pool import NUMBER
from fedrl.llm import policy
from fedrl.llm.builtin_tokenizers import entity_tokenizer
from fedrl.llm.generation.hf import HFSampler
from fedrl.llm.generation.select import sampler_name, select_sampler
from fedrl.llm.policy import WORKER, choose_device, load, look_at_folder, skeleton

pytestmark = pytest.mark.slow

HERE = torch.device("cpu")
IDS = torch.tensor([[5, 6, 7, 8]])


@pytest.fixture
def folder(tmp_path) -> Path:
    tiny(30).save_pretrained(tmp_path)
    entity_tokenizer(["go to fridge 1", "look"]).save_pretrained(tmp_path)
    return tmp_path


# GGUF


def swapped(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a head in GGUF's order: pairs that rotate together lie side by side."""
    split = weight.reshape(heads, 2, len(weight) // heads // 2, *weight.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2).reshape(weight.shape))


def write_gguf(model, path: Path, quantised: bool = False, misnamed: str = "") -> None:
    gguf = pytest.importorskip("gguf", reason="writing a GGUF file needs the package gguf")
    from tokenizers.pre_tokenizers import ByteLevel

    config, file = model.config, gguf.GGUFWriter(path, "llama")
    file.add_context_length(config.max_position_embeddings)
    file.add_embedding_length(config.hidden_size)
    file.add_block_count(config.num_hidden_layers)
    file.add_feed_forward_length(config.intermediate_size)
    file.add_head_count(config.num_attention_heads)
    file.add_head_count_kv(config.num_key_value_heads)
    file.add_layer_norm_rms_eps(config.rms_norm_eps)
    file.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    file.add_rope_freq_base(10000.0)
    file.add_vocab_size(config.vocab_size)
    tokens = ["<pad>", "<end>", *sorted(ByteLevel.alphabet()), "he", "ll"]
    file.add_tokenizer_model("gpt2")
    file.add_token_list(tokens)
    file.add_token_merges(["h e", "l l"])
    file.add_token_types([3, 3, *[1] * (len(tokens) - 2)])
    file.add_bos_token_id(1)
    file.add_eos_token_id(1)
    file.add_pad_token_id(0)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, parameter in model.named_parameters():
        array = parameter.detach().numpy()
        if (part := name.split(".")[-2]) in heads:
            array = swapped(array, heads[part])
        name = names.get_name(name, (".weight",)) + misnamed
        if quantised and array.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0
            file.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
        else:
            file.add_tensor(name, array)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


@pytest.mark.parametrize("quantised", [False, True])
def test_a_gguf_file_becomes_an_ordinary_model(tmp_path, quantised):
    model, path = tiny(260, width=32), tmp_path / "tiny.gguf"
    write_gguf(model, path, quantised)
    found = load(str(path), HERE)
    ours, theirs = (m(IDS).logits.detach() for m in (found.model, model))
    # Eight bits per weight in blocks of 32: near, and not equal.
    assert torch.allclose(ours, theirs, atol=0.3 if quantised else 1e-5)
    assert torch.equal(ours, theirs) != quantised
    assert {p.dtype for p in found.model.parameters()} == {torch.float32}
    assert found.tokenizer.decode(found.tokenizer("hello world")["input_ids"]) == "hello world"
    assert (found.end, found.pad) == ([1], 0)
    shapes = {n: p.shape for n, p in skeleton(str(path)).named_parameters()}
    assert shapes == {n: p.shape for n, p in model.named_parameters()}
    # What transformers refuses for a model loaded from GGUF:
    found.model.save_pretrained(tmp_path / "saved")
    found.tokenizer.save_pretrained(tmp_path / "saved")
    again = load(str(tmp_path / "saved"), HERE)
    assert torch.equal(again.model(IDS).logits, found.model(IDS).logits)
    assert again.tokenizer("hello")["input_ids"] == found.tokenizer("hello")["input_ids"]
    assert "quantization_config" not in json.loads((tmp_path / "saved/config.json").read_text())


def test_a_gguf_file_without_some_weights_is_refused(tmp_path):
    """transformers would fill them in at random."""
    write_gguf(tiny(260, width=32), tmp_path / "x.gguf", misnamed=".old")
    assert "lacks weights" in refused(tmp_path / "x.gguf")


def test_a_gguf_file_without_its_package(tmp_path, monkeypatch):
    def missing(*_, **__):
        raise ImportError("Please install gguf")

    (tmp_path / "x.gguf").write_bytes(b"")
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", missing)
    with pytest.raises(UserError, match="needs the package gguf: pip install gguf"):
        load(str(tmp_path / "x.gguf"), HERE)


# What is wrong with a model


def refused(name: str | Path) -> str:
    with pytest.raises(UserError) as found:
        load(str(name), HERE)
    text = str(found.value)
    assert "\n" not in text
    assert "algorithm.model" in text
    return text


def test_places_that_hold_no_model(folder, tmp_path):
    assert "no folder" in refused(tmp_path / "nowhere")
    assert "no file" in refused(tmp_path / "nowhere.gguf")
    assert "is a file" in refused(folder / "config.json")
    (tmp_path / "broken.gguf").write_bytes(b"no such thing")
    assert "broken.gguf" in refused(tmp_path / "broken.gguf")
    (tmp_path / "empty").mkdir()
    assert "no config.json" in refused(tmp_path / "empty")


@pytest.mark.parametrize(
    "file, content, told",
    [
        ("tokenizer.json", None, "has no tokenizer; copy"),
        ("model.safetensors", None, "no file named model.safetensors"),
        ("model.safetensors", b"garbage" * 9, "header"),
        ("config.json", b"{", "not a valid JSON file"),
        ("config.json", b'{"model_type": "verse"}', "verse"),
    ],
)
def test_a_folder_with_a_part_missing_or_broken(folder, file, content, told):
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    assert told in refused(folder)


@pytest.mark.parametrize(
    "config, told",
    [
        (None, "has no tokenizer_config.json: no end-of-text token is known"),
        (
            b'{"tokenizer_class": "PreTrainedTokenizerFast"}',
            "has a tokenizer without eos_token: no end-of-text token is known",
        ),
    ],
)
def test_a_tokenizer_without_an_end_is_said_by_a_run_and_a_look(folder, config, told):
    (folder / "special_tokens_map.json").unlink(missing_ok=True)
    (folder / "tokenizer_config.json").unlink()
    if config is not None:
        (folder / "tokenizer_config.json").write_bytes(config)
    assert refused(folder) == f"algorithm.model: {folder} {told}"
    with pytest.raises(UserError, match=told):
        look_at_folder(str(folder))


def test_an_id_that_cannot_be_fetched(monkeypatch):
    def unreachable(*_, **__):
        raise OSError("We couldn't connect to 'https://huggingface.co' to load\nthe files.")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", unreachable)
    assert "Hugging Face cannot be reached" in refused("models/tiny")


def test_a_model_that_is_nowhere_is_said_at_once(monkeypatch):
    """Hugging Face's own tries take half a minute; and `fedrl warmstart` is what was forgotten."""
    from huggingface_hub import constants

    from fedrl.llm import policy

    asked = []
    for name in policy.INDIRECT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nobody is there
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", asked.append)
    for name in ("models/household-tiny", "models/of/mine", "gpt-none"):
        said = refused(name)
        assert "no such folder here, and Hugging Face cannot be reached" in said
        assert "`fedrl warmstart`" in said
        assert "for --dry-run a folder with its config.json is enough" in said
    assert not asked


def test_an_id_that_nobody_has(monkeypatch):
    def unknown(*_, **__):
        raise OSError("models/tiny is not a local folder and is not a valid model identifier\n…")

    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", unknown)
    assert "make one with `fedrl warmstart`" in refused("models/tiny")


def test_a_tokenizer_without_a_chat_template(folder):
    from fedrl.envs.text import Turn
    from fedrl.llm.prompts.chat import Chat

    found = load(str(folder), HERE)
    assert found.tokenizer.chat_template is None
    chat = Chat()
    notes = chat.start("look", Turn("you see a fridge 1", 0.0, False, ["look"], {"won": False}))
    (row,) = chat.encode(found.tokenizer, [notes], 500)
    said = HFSampler(found.model, found.end, found.pad).generate([row], 3, 1.0, torch.Generator())
    assert said.tokens[0]


# Devices


def gpus(monkeypatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


def test_each_worker_takes_a_gpu_of_its_own(monkeypatch):
    assert NUMBER == WORKER
    gpus(monkeypatch, 3)
    assert choose_device("auto") == torch.device("cuda")
    found = []
    for number in range(5):
        monkeypatch.setenv(WORKER, str(number))
        found.append(choose_device("auto").index)
        assert choose_device("cuda:2").index == 2  # what is named is taken
    assert found == [0, 1, 2, 0, 1]
    gpus(monkeypatch, 0)
    assert choose_device("auto") == HERE


@pytest.mark.parametrize(
    "count, name, told",
    [
        (0, "cuda", "no GPU"),
        (0, "spread", "no GPU"),
        (2, "cuda:2", "sees 2 GPUs"),
        (2, "toaster", "use auto, cpu, cuda"),
    ],
)
def test_devices_that_are_not_there(monkeypatch, count, name, told):
    gpus(monkeypatch, count)
    with pytest.raises(UserError, match=told):
        choose_device(name)


def test_a_model_is_spread_by_accelerate(folder, monkeypatch):
    """With no GPU, all layers land on the CPU: how it is asked for is what counts."""
    pytest.importorskip("accelerate", reason="spreading a model needs accelerate (fedrl[llm])")
    asked, true = [], transformers.AutoModelForCausalLM.from_pretrained
    monkeypatch.setattr(
        transformers.AutoModelForCausalLM,
        "from_pretrained",
        lambda *words, **more: asked.append(more) or true(*words, **more),
    )
    found = load(str(folder), HERE, spread=True)
    assert asked[0]["device_map"] == "auto"
    assert torch.equal(found.model(IDS).logits, load(str(folder), HERE).model(IDS).logits)
    assert "device_map" not in asked[1]


# Which sampler answers


def other_kind():
    config = transformers.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=30)
    return transformers.AutoModelForCausalLM.from_config(config)


def test_auto_is_the_engine_on_a_gpu_for_models_it_knows():
    assert sampler_name("auto", tiny(), on_gpu=True) == "cuda"
    assert sampler_name("auto", tiny(), on_gpu=False) == "plain"
    assert sampler_name("auto", other_kind(), on_gpu=True) == "plain"
    assert sampler_name("auto", tiny(), on_gpu=True, spread=True) == "plain"
    assert sampler_name("plain", tiny(), on_gpu=True) == "plain"
    assert sampler_name("vllm", tiny(), on_gpu=True) == "vllm"
    for name in ("cuda", "vllm"):
        with pytest.raises(UserError, match="runs on the CPU"):
            sampler_name(name, tiny(), on_gpu=False)
        with pytest.raises(UserError, match='device is "spread"'):
            sampler_name(name, tiny(), on_gpu=True, spread=True)


def test_the_plain_sampler_answers_for_other_kinds_of_models():
    model = other_kind().eval()
    said = HFSampler(model, [], 0).generate([[3, 4], [5]], 4, 1.0, torch.Generator().manual_seed(0))
    for prompt, row, logs in zip([[3, 4], [5]], said.tokens, said.logprobs, strict=True):
        whole = model(torch.tensor([prompt + row])).logits[0].log_softmax(-1).detach()
        expected = [float(whole[len(prompt) - 1 + i, token]) for i, token in enumerate(row)]
        assert logs == pytest.approx(expected, abs=1e-4)


def test_an_engine_asked_for_by_name_says_what_it_does_not_know(monkeypatch):
    found = policy.Policy(other_kind(), entity_tokenizer(["look"]), torch.device("cuda"))
    with pytest.raises(UserError, match=r'kind gpt2.*algorithm.rollouts to "plain"'):
        select_sampler("cuda", found, 28)


def test_vllm_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    found = policy.Policy(tiny(), entity_tokenizer(["look"]), torch.device("cuda"))
    with pytest.raises(UserError, match="not installed here: pip install vllm"):
        select_sampler("vllm", found, 28)
