"""FedAgent where something is too small or missing: a line that says what to change, and a run that
can go on."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="FedAgent needs the extra llm")
pytest.importorskip("transformers", reason="FedAgent needs the extra llm")

from support.agent_runs import last, recipe, train

from fedrl.config.build import build_algorithm
from fedrl.core.types import UserError
from fedrl.llm import policy as policies
from fedrl.llm.generation.hf import HFSampler
from fedrl.llm.out_of_memory import ADVICE as ADVICES
from fedrl.llm.out_of_memory import NoRoom, OutOfMemory, explain_out_of_memory
from fedrl.llm.rl import policy_gradient
from fedrl.runs import train as runs

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("easier_game")]

ADVICE = (
    "out of GPU memory: lower algorithm.microbatch, set algorithm.save_memory, or train adapters "
    "with algorithm.lora_rank"
)


def full(*_, **__):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has …")


def test_a_client_that_runs_out_of_memory_says_what_to_change(model, tmp_path, monkeypatch):
    """It costs that client's update; the other's counts, and the run goes on."""
    true, calls = policy_gradient.update, []

    def sometimes(net, *words, **more):
        calls.append(1)
        if len(calls) % 2:
            for parameter in net.parameters():
                parameter.grad = torch.ones_like(parameter)  # half a step's
            full()
        assert all(parameter.grad is None for parameter in net.parameters())
        return true(net, *words, **more)

    monkeypatch.setattr(policy_gradient, "update", sometimes)
    path = train(recipe(model, rounds=1), tmp_path)
    records = [json.loads(line) for line in (path / "clients.jsonl").read_text().splitlines()]
    assert [record["status"] for record in records] == ["failed", "ok"]
    assert ADVICE in records[0]["reason"]


def test_an_evaluation_that_runs_out_of_memory_leaves_a_run_that_goes_on(
    model, tmp_path, monkeypatch
):
    """With settings that need less, to the numbers of a run that had memory enough."""
    whole = train(recipe(model, rounds=2), tmp_path / "a")
    true, trained = HFSampler.generate, []

    def in_evaluation(self, prompts, limit, temperature, generator):
        if temperature == 1.0:
            trained.append(1)
        elif trained:  # the evaluation of round 0 went well
            full()
        return true(self, prompts, limit, temperature, generator)

    monkeypatch.setattr(HFSampler, "generate", in_evaluation)
    with pytest.raises(UserError, match="out of GPU memory") as found:
        train(recipe(model, rounds=2), tmp_path / "b")
    assert str(found.value) == (
        "out of GPU memory in an evaluation: lower algorithm.eval_tasks, algorithm.answer_tokens "
        "or algorithm.prompt_tokens"
    )
    monkeypatch.setattr(HFSampler, "generate", true)
    (half,) = (tmp_path / "b" / "test").iterdir()
    assert last(half).round == 0
    flags = ["--algorithm.save_memory", "true", "--algorithm.device", "auto"]
    config, directory = runs.resume(half, [*flags, "--algorithm.rollouts", "plain"])
    assert config.algorithm.save_memory
    runs.train(config, directory, build_algorithm(config))
    for name, value in last(whole).states[0]["theta"].items():
        np.testing.assert_allclose(last(half).states[0]["theta"][name], value, atol=1e-6)


def test_microbatches_may_change_and_what_is_learned_may_not(model, tmp_path):
    path = train(recipe(model, rounds=1), tmp_path)
    config, _ = runs.resume(path, ["--algorithm.microbatch", "2"])
    assert config.algorithm.microbatch == 2
    for key, value in (("lr", "0.1"), ("lora_rank", "4"), ("minibatch", "2")):
        with pytest.raises(UserError, match="keeps what its numbers depend on"):
            runs.resume(path, [f"--algorithm.{key}", value])


def test_a_model_that_does_not_fit_at_all(model, monkeypatch):
    monkeypatch.setattr(torch.nn.Module, "to", full)
    with pytest.raises(UserError, match="out of GPU memory"):
        build_algorithm(recipe(model)).init(0)


def test_a_package_that_is_missing_names_the_extra(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(UserError, match=r'needs the package peft: pip install "fedrl\[llm\]"'):
        build_algorithm(recipe(model, algorithm={"lora_rank": 2})).init(0)


def test_a_spread_model_trains_with_the_plain_sampler(model, tmp_path, monkeypatch):
    """On a machine that only says it has GPUs: all layers land on the CPU."""
    pytest.importorskip("accelerate", reason="spreading a model needs accelerate (fedrl[llm])")
    whole = train(recipe(model, rounds=1), tmp_path / "a")
    monkeypatch.setattr(
        "fedrl.algorithms.fedagent.local_trainer.choose_device",
        lambda name: torch.device("cpu") if name == "spread" else policies.choose_device(name),
    )
    path = train(recipe(model, rounds=1, algorithm={"device": "spread"}), tmp_path / "b")
    for name, value in last(whole).states[0]["theta"].items():
        assert np.array_equal(value, last(path).states[0]["theta"][name]), name


@pytest.mark.parametrize(
    "words",
    [
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported …",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ],
)
@pytest.mark.parametrize("doing", ADVICES)
def test_any_kind_of_full_memory_is_one_line_that_names_the_right_setting(words, doing):
    kind = torch.AcceleratorError if hasattr(torch, "AcceleratorError") else RuntimeError
    net = torch.nn.Linear(1, 1)
    net.weight.grad = torch.ones(1, 1)
    with pytest.raises(OutOfMemory) as found, explain_out_of_memory(net, doing):
        raise RuntimeError(words) if "CUBLAS" in words else made(kind, words)
    assert str(found.value) == ADVICES[doing]
    assert len(str(found.value).splitlines()) == 1
    assert net.weight.grad is None


def made(kind, words):
    try:
        return kind(words)
    except TypeError:  # needs CUDA's number beside its words
        return kind(words, 2)


def test_other_errors_stay_as_they_are():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), explain_out_of_memory():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


def test_a_cache_without_room_names_what_the_phase_can_change():
    with pytest.raises(OutOfMemory) as found, explain_out_of_memory(doing="evaluating"):
        raise NoRoom("the cache takes 9 GB and 2 GB are free", "lower algorithm.tasks")
    assert str(found.value) == (
        "the cache takes 9 GB and 2 GB are free; lower algorithm.eval_tasks, "
        "algorithm.answer_tokens or algorithm.prompt_tokens"
    )
