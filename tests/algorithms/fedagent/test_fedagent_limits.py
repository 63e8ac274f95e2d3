"""FedAgent where something is too small or missing: a line that says what to change, and a run that
can go on."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="FedAgent needs the extra llm")
pytest.importorskip("transformers", reason="FedAgent needs the extra llm")

from support.agent_runs import last, recipe, train

from fedrl.algorithms.fedagent.algorithm import FedAgent
from fedrl.algorithms.fedagent.memory_advice import advice
from fedrl.cli import call
from fedrl.config.build import build_algorithm
from fedrl.core.types import UserError
from fedrl.llm import policy as policies
from fedrl.llm.generation.hf import HFSampler
from fedrl.llm.out_of_memory import ADVICE as ADVICES
from fedrl.llm.out_of_memory import NoRoom, OutOfMemory, explain_out_of_memory
from fedrl.llm.rl import policy_gradient
from fedrl.runs import agents
from fedrl.runs import train as runs

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("easier_game")]

ADVICE = "out of GPU memory: resume it with algorithm.pass_tokens = 4096 ("


QWEN_1_5B = {
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 1536,
    "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
    "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
}  # fmt: skip


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
    assert str(found.value).startswith(
        "out of GPU memory in an evaluation: algorithm.eval_tasks = 6 ("
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
        "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: "
        "you tried to allocate 4096 bytes. Error code 12 (Cannot allocate memory)",
    ],
)
@pytest.mark.parametrize("doing", ADVICES)
def test_any_kind_of_full_memory_is_one_line_that_names_the_right_setting(words, doing):
    kind = torch.AcceleratorError if hasattr(torch, "AcceleratorError") else RuntimeError
    net = torch.nn.Linear(1, 1)
    net.weight.grad = torch.ones(1, 1)
    with pytest.raises(OutOfMemory) as found, explain_out_of_memory(net, doing):
        raise made(kind, words) if words.startswith("CUDA error: out") else RuntimeError(words)
    expected = ADVICES[doing]
    if "CPU" in words:
        expected = expected.replace("out of GPU memory", "out of memory")
    assert str(found.value) == expected
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


def test_pythons_own_memory_error_is_one_line_too():
    with (
        pytest.raises(OutOfMemory, match=r"^out of memory in a rollout: "),
        explain_out_of_memory(doing="playing"),
    ):
        raise MemoryError("Unable to allocate 9 GiB for an array")


def settings_of(model, **change):
    return replace(recipe(model).algorithm, **change)


def test_advice_names_what_would_still_help(tmp_path):
    """Nothing that is set already, and nothing that would save nothing."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN_1_5B))
    large = settings_of(tmp_path, device="cuda", kl=0.1)
    said = advice(large, 0, "learning")
    for key in ("save_memory = true", "microbatch = 1", "lora_rank = 32", "kl = 0"):
        assert f"algorithm.{key} (" in said
    assert said.index("save_memory") < said.index("a new run") < said.index("lora_rank")
    assert len(said.splitlines()) == 1
    less = replace(large, save_memory=True, lora_rank=4, microbatch=1)
    said = advice(less, 0, "learning")
    for key in ("save_memory", "microbatch", "lora_rank", "kl"):
        assert key not in said


def test_a_gpus_passes_are_cut_by_tokens_so_that_a_smaller_microbatch_may_not_help(model):
    """Of 8 rows a pass takes one as it is: 4 and 2 would take as much."""
    long = settings_of(model, device="cuda", prompt_tokens=40_000, microbatch=8)
    assert "microbatch" not in advice(long, 0, "learning")


def test_an_evaluation_is_told_of_the_setting_that_its_size_comes_from(model):
    plain = settings_of(model)
    assert "algorithm.eval_tasks = 6 (" in advice(plain, 60, "evaluating")
    own = advice(replace(plain, eval_own=5), 60, "evaluating_own")  # in 12 worlds
    assert "algorithm.eval_own = 1 (" in own
    assert "eval_tasks" not in own
    assert "algorithm.eval_own = 0 (" in advice(replace(plain, eval_own=1), 60, "evaluating_own")
    trained = advice(replace(plain, eval_trained=30), 60, "evaluating_trained")
    assert "algorithm.eval_trained = 3 (" in trained
    assert "eval_tasks" not in trained
    streams = settings_of(model, device="cuda", tasks=64, group=8)
    said = advice(streams, 600, "evaluating")
    assert "algorithm.tasks = 32 (" in said
    assert "algorithm.group = 4 (" in said
    assert "eval_tasks" not in said


@pytest.mark.parametrize(("how", "key"), [("own", "eval_own"), ("parts", "FEDRL_AT_ONCE")])
def test_who_plays_is_told_what_it_plays_by(model, monkeypatch, how, key):
    algorithm = build_algorithm(recipe(model))
    theta = algorithm.init(0)["theta"]
    tasks = list(algorithm.world.tasks("train"))[:20]
    monkeypatch.setattr(HFSampler, "generate", full)
    play = {
        "own": lambda: algorithm.trainer.play(
            theta, [task.id for task in tasks], 0, doing="evaluating_own"
        ),
        "parts": lambda: algorithm.play_tasks(theta, tasks, 0),
    }[how]
    with pytest.raises(OutOfMemory, match=key) as found:
        play()
    assert "eval_tasks" not in str(found.value)


def test_tasks_are_played_in_parts_of_a_size_that_may_be_said(model, monkeypatch, tmp_path):
    path, sizes = train(recipe(model, rounds=1), tmp_path), []
    true = FedAgent.play_tasks

    def counted(self, theta, tasks, seed):
        sizes.append(len(tasks))
        return true(self, theta, tasks, seed)

    monkeypatch.setattr(FedAgent, "play_tasks", counted)
    monkeypatch.setenv("FEDRL_AT_ONCE", "5")
    agents.evaluate_split(path, "unseen", 0)
    assert sizes == [5, 5, 2]
    monkeypatch.setenv("FEDRL_AT_ONCE", "none")
    with pytest.raises(UserError, match="FEDRL_AT_ONCE is 'none'"):
        agents.evaluate_split(path, "unseen", 0)


def test_the_size_of_these_parts_changes_no_episode(model, monkeypatch, tmp_path):
    """With sampling: every task has random numbers of its own."""
    path, said = train(recipe(model, rounds=1), tmp_path), {}
    true = FedAgent.play_tasks

    def noted(self, theta, tasks, seed):
        found = true(self, theta, tasks, seed)
        for task, steps in zip(tasks, found.transcripts, strict=True):
            said.setdefault(task.id, []).append([answer for _, answer, _ in steps])
        return found

    monkeypatch.setattr(FedAgent, "play_tasks", noted)
    for size in ("256", "5", "1"):
        monkeypatch.setenv("FEDRL_AT_ONCE", size)
        agents.evaluate_split(path, "unseen", 0)
    assert len(said) == 12
    for one in said.values():
        assert one[0] == one[1] == one[2]
    assert len({str(one[0]) for one in said.values()}) > 6  # and each its own
    agents.evaluate_split(path, "unseen", 1)
    assert any(one[3] != one[0] for one in said.values())


def test_a_policy_in_use_is_not_told_of_evaluations(model, monkeypatch):
    algorithm = build_algorithm(recipe(model))
    policy = algorithm.policy(algorithm.init(0))
    monkeypatch.setattr(HFSampler, "generate", full)
    with pytest.raises(OutOfMemory, match="ask it fewer prompts at a time"):
        policy.act("look around")


def test_a_warm_start_that_runs_out_of_memory_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.Tensor, "backward", full)
    small = ["--steps", "2", "--batch", "2", "--tasks", "4", "--world.size", "tiny"]
    out = tmp_path / "model"
    assert call(["warmstart", "household", "--out", str(out), *small]) == 2
    said = capsys.readouterr().err
    assert "out of GPU memory in the warm start: lower --batch or --prompt_tokens" in said
    assert "Traceback" not in said
    assert not out.exists()
    reads = ["--steps", "2", "--batch", "2", "--world.source", "generated", "--world.public", "40"]
    assert call(["warmstart", "imdb", "--out", str(out), *reads]) == 2
    assert "lower --batch or --window" in capsys.readouterr().err
