"""How vLLM is called: a stand-in module answers with a model of ours and checks what it is told."""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import pytest

torch = pytest.importorskip("torch", reason="language models need torch (fedrl[llm])")
pytest.importorskip("transformers", reason="language models need transformers")

from support.tiny_model import nudged, tiny

from fedrl.core.types import UserError
from fedrl.llm import lora
from fedrl.llm.generation.hf import HFSampler
from fedrl.llm.out_of_memory import OutOfMemory, explain_out_of_memory
from fedrl.llm.policy import Policy
from fedrl.llm.rl import ppo
from fedrl.llm.rl.batches import to_rows
from fedrl.llm.rl.logprobs import answer_logprobs
from fedrl.llm.rollout import Sample
from fedrl.llm.weights import MergedWeights

pytestmark = pytest.mark.slow

PROMPTS = [[3, 4, 5], [6, 7], [3, 4, 5], [8, 9, 10, 11, 2]]
GPU = torch.device("cuda")


class Params:
    """vLLM's SamplingParams, as far as it is used; an unknown key is an error."""

    def __init__(self, *, temperature, max_tokens, logprobs, seed, stop_token_ids, detokenize):
        assert logprobs == 0
        assert detokenize is False
        self.temperature, self.max_tokens, self.seed = temperature, max_tokens, seed
        self.stop_token_ids = stop_token_ids


class Model:
    """vLLM's own copy of the model: it takes weights by the names of transformers."""

    def __init__(self) -> None:
        self.inner = tiny(seed=9)  # the folder's weights, which no push has replaced yet

    def load_weights(self, pairs) -> None:
        known = dict(self.inner.named_parameters())
        with torch.no_grad():
            for name, weight in pairs:
                known[name].copy_(weight)


class LLM:
    made: ClassVar[list[LLM]] = []

    def __init__(self, **how) -> None:
        assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
        self.how, self.model, self.resets, self.asked = how, Model(), 0, []
        LLM.made.append(self)

    def apply_model(self, function):
        return [function(self.model)]

    def reset_prefix_cache(self) -> None:
        self.resets += 1

    def generate(self, prompts, params, *, use_tqdm):
        assert not use_tqdm
        self.asked += params
        return [
            self._one(p["prompt_token_ids"], how) for p, how in zip(prompts, params, strict=True)
        ]

    def _one(self, prompt, how):
        said = HFSampler(self.model.inner, how.stop_token_ids, 0).generate(
            [prompt], how.max_tokens, how.temperature, torch.Generator().manual_seed(how.seed)
        )
        rows = [
            {token: SimpleNamespace(logprob=log)}
            for token, log in zip(said.tokens[0], said.logprobs[0], strict=True)
        ]
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=said.tokens[0], logprobs=rows)])


@pytest.fixture
def vllm(monkeypatch):
    module = ModuleType("vllm")
    module.LLM, module.SamplingParams = LLM, Params
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    LLM.made.clear()
    from fedrl.llm.generation.vllm import VllmSampler

    return VllmSampler


def policy_of(model, device=GPU, name="folder") -> Policy:
    return Policy(model, SimpleNamespace(pad_token_id=0, eos_token_id=1), device, name)


def test_the_engine_is_made_for_exact_log_probabilities(vllm):
    vllm(policy_of(tiny()), 40)
    how = LLM.made[0].how
    assert (how["model"], how["max_model_len"]) == ("folder", 40)
    assert how["logprobs_mode"] == "processed_logprobs"
    assert how["generation_config"] == "vllm"
    assert how["gpu_memory_utilization"] < 0.5


def test_answers_are_the_learners(vllm):
    """Log-probabilities at the sampling temperature, of the weights that were pushed last."""
    model = lora.with_adapters(tiny(), lora.Adapters(4, 8))
    lora.draw_adapters(model, 0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_B." in name:
                parameter.fill_(0.1)
    ppo.add_value_head(model)  # its head is not vLLM's business
    sampler = vllm(policy_of(model.eval()), 40)
    sampler.push(MergedWeights(model), 5)
    assert (sampler.version, LLM.made[0].resets) == (5, 1)
    said = sampler.generate(PROMPTS, 6, 0.7, torch.Generator().manual_seed(1))
    found = [Sample(i, 0, PROMPTS[i], said.tokens[i], said.logprobs[i], "") for i in range(4)]
    with torch.no_grad():
        logs, _ = answer_logprobs(model, to_rows(found, 0, torch.device("cpu")), 0.7)
    assert [x for s in found for x in s.logprobs] == pytest.approx(logs.tolist(), abs=1e-4)


def test_new_weights_answer_anew(vllm):
    sampler, models = vllm(policy_of(tiny()), 40), (tiny(), nudged(tiny(), 0.3))
    ppo.add_value_head(models[0])
    said = []
    for version, model in enumerate(models):
        sampler.push(MergedWeights(model), version)
        said.append(sampler.generate(PROMPTS, 6, 0.0, torch.Generator()))
        plain = HFSampler(model, [1], 0).generate(PROMPTS, 6, 0.0, torch.Generator())
        assert said[-1].tokens == plain.tokens
    assert said[0].logprobs != said[1].logprobs
    with pytest.raises(ValueError, match="keeps a copy"):
        sampler.push(None, 3)


def test_the_generator_decides_and_every_answer_has_its_own_seed(vllm):
    sampler = vllm(policy_of(tiny()), 40)
    generator = torch.Generator().manual_seed(7)
    first, second = (sampler.generate(PROMPTS, 6, 1.0, generator) for _ in range(2))
    again = sampler.generate(PROMPTS, 6, 1.0, torch.Generator().manual_seed(7))
    assert again == first
    assert second != first
    asked = LLM.made[0].asked[:4]
    assert len({params.seed for params in asked}) == 4
    assert all(params.stop_token_ids == [1] and params.max_tokens == 6 for params in asked)


def test_what_vllm_cannot_do_is_said(vllm):
    with pytest.raises(UserError, match="first GPU"):
        vllm(policy_of(tiny(), torch.device("cuda", 1)), 40)
    with pytest.raises(UserError, match="needs a model folder"):
        vllm(policy_of(tiny(), name="model.gguf"), 40)


@pytest.mark.parametrize(
    "words",
    [
        "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when …",
        "Free memory on device (3.1/139.8 GiB) on startup is less than desired GPU memory "
        "utilization (0.3, 41.9 GiB). Decrease GPU memory utilization …",
    ],
)
def test_a_gpu_without_room_for_vllm_is_one_line(vllm, monkeypatch, words):
    def full(self, **how):
        raise ValueError(words)

    monkeypatch.setattr(LLM, "__init__", full)
    with pytest.raises(OutOfMemory) as found, explain_out_of_memory(doing="loading"):
        vllm(policy_of(tiny()), 40)
    assert str(found.value) == (
        "vLLM finds no room for its weights and cache in 30% of the GPU's memory; lower "
        'algorithm.prompt_tokens or algorithm.answer_tokens, use rollouts = "auto" or a smaller '
        "model"
    )
