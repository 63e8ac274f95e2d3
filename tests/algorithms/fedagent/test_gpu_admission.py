"""A run takes its place on a GPU before it loads anything: by its estimate, on a machine that only
says that it has one."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="FedAgent needs the extra llm")
pytest.importorskip("transformers", reason="FedAgent needs the extra llm")
pytest.importorskip("peft", reason="LoRA needs peft (fedrl[llm])")

from support.agent_runs import recipe
from support.model_shapes import QWEN_1_5B

from fedrl.algorithms.fedagent import agent_model, gpu_admission
from fedrl.algorithms.fedagent.evaluations import Evaluation, episodes_of
from fedrl.algorithms.fedagent.gpu_admission import admit, needed_by_gpu
from fedrl.algorithms.fedagent.memory_estimate import estimate_memory
from fedrl.cli import call
from fedrl.config.build import build_algorithm, build_worker
from fedrl.core.abilities import WAITING, GpuBusy, GpuUse
from fedrl.core.types import UserError
from fedrl.llm import gpu_file, gpu_share
from fedrl.llm.memory import CALIBRATION
from fedrl.report import episodes
from fedrl.runs import open_engine, preflight
from fedrl.runs.error_log import ErrorLog

pytestmark = pytest.mark.slow
GB = 10**9


SMALL = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 576,
    "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.fixture
def large(tmp_path):
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "config.json").write_text(json.dumps(QWEN_1_5B))
    return tmp_path / "large"


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    """`gpu(40)` is one with 40 GB, of which nothing is used."""

    def of(total: int, count: int = 1) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
        monkeypatch.setattr(
            gpu_share, "gpu_of", lambda index: gpu_share.Gpu(f"g{index}", total * GB, total * GB)
        )

    monkeypatch.setattr(gpu_file, "PARENT", tmp_path)
    monkeypatch.setattr(gpu_share, "POLL_SECONDS", 0.02)
    return of


def test_fedrl_run_refuses_what_does_not_fit_and_leaves_no_folder(
    large, gpu, tmp_path, monkeypatch, capsys
):
    """Of 68 GB, on 40: its prompts of one token would have fitted."""
    gpu(40)
    monkeypatch.chdir(tmp_path)
    flags = ["--algorithm.model", str(large), "--out", str(tmp_path / "runs")]
    flags += ["--world.source", "generated", "--algorithm.device", "cuda"]
    assert call(["run", "fedagent/household", *flags]) == 2
    said = capsys.readouterr().err
    assert "algorithm.model needs 67.9 GB" in said
    assert "algorithm.pass_tokens = 4096 (" in said
    assert "the GPU has 40.0 GB for it: algorithm.lora_rank = 32 (" in said
    assert not (tmp_path / "runs").exists()


def settings_of(large, **change):
    return replace(recipe(large).algorithm, device="auto", tasks=8, group=8, **change)


def nothing(use):
    """No evaluations."""
    return []


def test_what_does_not_fit_is_tried_where_that_is_asked_for(large, gpu, monkeypatch):
    gpu(10)
    with pytest.raises(UserError, match="to train so"):
        admit(settings_of(large), nothing, GpuUse(learns=True))
    monkeypatch.setenv("FEDRL_GPU_SHARE", "off")
    assert admit(settings_of(large), nothing, GpuUse(learns=True)) is None


def test_nothing_is_reserved_on_a_cpu(large, gpu):
    gpu(1)
    assert admit(replace(settings_of(large), device="cpu"), nothing, GpuUse(True)) is None


def test_the_driver_and_its_workers_are_counted_together(large, gpu):
    settings = settings_of(large)
    found = estimate_memory(replace(settings, device="cuda"), 0)
    one, context = found.memory.least, CALIBRATION.context
    assert found.playing < one / 2  # no gradients, moments or passes of the learner
    gpu(100)
    shared = needed_by_gpu(settings, found, found, GpuUse(workers=3), 0)
    assert [each.least for each in shared[0]] == [found.playing + context] + 3 * [one + context]
    gpu(100, count=2)  # worker 0 and 2 beside the driver, worker 1 elsewhere
    spread = needed_by_gpu(settings, found, found, GpuUse(workers=3), 0)
    assert [len(spread[0]), len(spread[1])] == [3, 1]
    gpu(int((2 * one + found.playing) / GB))  # and nothing for what CUDA itself takes
    with pytest.raises(UserError, match=r"for 2 workers and the driver's own model beside"):
        admit(settings, nothing, GpuUse(workers=2))


def test_workers_of_a_driver_that_reserved_for_them_do_not_wait(large, gpu, monkeypatch):
    gpu(100)
    config = recipe(large, algorithm={"device": "auto", "lora_rank": 8}, engine="workers")
    kept = admit(config.algorithm, nothing, GpuUse(workers=2))
    assert kept.names
    asked = []
    monkeypatch.setattr(gpu_admission, "admit", lambda *words: asked.append(words))
    for make, times in ((build_worker, 0), (build_algorithm, 1)):
        make(config).take_gpu(GpuUse())
        assert len(asked) == times
    kept.release()


def test_the_workers_of_a_run_are_told_so(large, monkeypatch):
    begun = []
    monkeypatch.setattr(open_engine, "WorkerPool", lambda *words: begun.append(words))
    open_engine.open_engine(recipe(large, engine="workers"), None, None, None, ErrorLog(None, None))
    assert begun[0][0].func is build_worker


def test_a_report_hardly_waits_and_does_without_episodes(monkeypatch):
    asked = []

    class Crowded:
        def take_gpu(self, use):
            asked.append(use)
            raise GpuBusy("GPU 0 has no room")

    monkeypatch.setattr(episodes, "load_agent", lambda path: (Crowded(), None))
    with pytest.raises(UserError):  # which the page then says in the episodes' place
        episodes.play(None, "round-1", None)
    assert asked == [GpuUse(patience=10.0)]


def test_other_children_of_such_a_driver_do(large, gpu, monkeypatch):
    """Those of a sweep that the same process starts later, say."""
    gpu(100)
    before = dict(os.environ)
    admit(settings_of(large, lora_rank=8), nothing, GpuUse(workers=2)).release()
    assert dict(os.environ) == before
    monkeypatch.setattr(os, "getppid", os.getpid)  # as in a child
    kept = admit(settings_of(large, lora_rank=8), nothing, GpuUse(learns=True))
    assert kept.names
    kept.release()


def test_a_place_is_given_back_with_its_algorithm(large, gpu):
    gpu(100)
    config = recipe(large, algorithm={"device": "auto", "lora_rank": 8})
    algorithm = build_algorithm(config)
    preflight.take_gpu(config, algorithm)
    preflight.take_gpu(config, algorithm)  # it has one
    with gpu_file.opened("g0") as state:
        (entry,) = state.entries
    needs = estimate_memory(replace(config.algorithm, device="cuda"), 12).memory.total
    assert entry.bytes == needs + CALIBRATION.context
    del algorithm
    with gpu_file.opened("g0") as state:
        assert state.entries == []


def test_a_run_on_workers_says_how_many_there_will_be(large, gpu):
    """No more than clients of a round; the driver learns nothing."""
    asked = []

    class Told:
        def take_gpu(self, use):
            asked.append(use)

    more = {"federation": {"clients": 5, "cohort": 2}}
    preflight.take_gpu(recipe(large, engine="workers", workers=4, **more), Told())
    preflight.take_gpu(recipe(large, engine="workers", workers=1, **more), Told())
    preflight.take_gpu(recipe(large), Told())
    assert asked == [GpuUse(workers=2), GpuUse(workers=1), GpuUse(learns=True)]


def held(monkeypatch, total: int, used: int) -> None:
    """By strangers, or by this process itself."""
    gpu = gpu_share.Gpu("g0", total * GB, (total - used) * GB)
    monkeypatch.setattr(gpu_share, "gpu_of", lambda index: gpu)


def test_graphs_that_have_no_room_refuse_nothing(tmp_path, gpu, monkeypatch):
    """Of a card whose total they would fit into, and of which strangers hold some."""
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    settings = settings_of(tmp_path, prompt_tokens=2048, answer_tokens=512, rollouts="plain")
    needs = estimate_memory(replace(settings, device="cuda"), 0).memory
    least, most = (n + CALIBRATION.context for n in (needs.least, needs.total))
    assert most > least + 3 * GB
    gpu(1)
    total = most // GB + 2
    held(monkeypatch, total, total - least // GB - 1)
    kept = admit(settings, nothing, GpuUse(learns=True))
    with gpu_file.opened("g0") as state:
        assert [entry.bytes for entry in state.entries] == [least]
    kept.release()


def test_a_process_with_cudas_context_does_not_need_another(large, gpu, monkeypatch):
    """What it holds is used, and so others' by looks."""
    settings = settings_of(large, lora_rank=8)
    gpu(1)
    needs = estimate_memory(replace(settings, device="cuda"), 0).memory.least
    there = gpu_share.Gpu("g0", needs + CALIBRATION.context, needs)
    monkeypatch.setattr(gpu_share, "gpu_of", lambda index: there)
    with pytest.raises(UserError, match="to train so"):
        admit(settings, nothing, GpuUse(learns=True))
    monkeypatch.setattr(gpu_share, "has_context", lambda index: True)
    admit(settings, nothing, GpuUse(learns=True)).release()


def refused(settings, evaluations, use) -> str:
    with pytest.raises(UserError) as found:
        admit(settings, lambda _: evaluations, use)
    return str(found.value)


def test_who_only_plays_is_told_what_playing_saves(large, gpu):
    """Not what a learner would save, and nothing that learners alone have."""
    gpu(4)
    settings = settings_of(large, kl=0.1)
    said = refused(settings, [], GpuUse())
    assert "to play so" in said
    played = replace(settings, device="cuda")
    for key, change in (("lora_rank = 32", {"lora_rank": 32}), ("kl = 0", {"kl": 0.0})):
        less = estimate_memory(played, 0).playing
        less -= estimate_memory(replace(played, **change), 0).playing
        assert f"algorithm.{key} ({less / 1e9:.1f} GB less)" in said
    for key in ("save_memory", "microbatch"):
        assert key not in said
    learns = refused(settings, [], GpuUse(learns=True))
    assert learns.partition("lora_rank = 32 (")[2] != said.partition("lora_rank = 32 (")[2]


def test_a_driver_and_its_workers_are_told_what_all_of_them_save(large, gpu):
    gpu(60)
    settings = replace(settings_of(large), device="cuda")
    saved = [estimate_memory(replace(settings, **change), 0) for change in ({}, {"lora_rank": 32})]
    each = saved[0].memory.least - saved[1].memory.least
    all_of_them = saved[0].playing - saved[1].playing + 2 * each
    said = refused(settings, [], GpuUse(workers=2))
    assert f"lora_rank = 32 ({all_of_them / 1e9:.1f} GB less)" in said


@pytest.mark.parametrize("key", ["eval_tasks", "eval_own", "eval_trained"])
def test_the_setting_is_named_that_the_largest_evaluation_comes_from(large, gpu, key):
    """20 tasks are fewer than a rollout's 64 episodes; 600 of another kind are more."""
    gpu(10)
    evaluations = [
        Evaluation(name, each, 600 if name == key else 20)
        for name, each in (("eval_tasks", 1), ("eval_own", 30), ("eval_trained", 2))
    ]
    value = {"eval_tasks": 64, "eval_own": 2, "eval_trained": 32}[key]
    said = refused(settings_of(large, rollouts="plain"), evaluations, GpuUse())
    assert f"algorithm.{key} = {value} (" in said
    assert said.count("algorithm.eval_") == 1


def test_who_waits_says_so_to_whoever_asks_for_it_and_then_gives_up(large, gpu, caplog):
    """With a fix, for this machine's people; a node keeps the numbers to itself."""
    gpu(100)
    with gpu_file.opened("g0") as state:
        ours = gpu_file.Entry("key", os.getppid(), gpu_file.born(os.getppid()), 99 * GB)
        state.entries.append(ours)
        state.others = 0
    with caplog.at_level("WARNING"), pytest.raises(GpuBusy, match="start it later, or set FEDRL"):
        admit(settings_of(large), nothing, GpuUse(learns=True, patience=0.1))
    (record,) = caplog.records
    assert record.name == WAITING
    assert "waiting (FEDRL_GPU_SHARE=off does not)" in record.message


def test_whoever_looks_at_an_agent_does_not_wait_for_ever(large, monkeypatch):
    asked = []
    algorithm = build_algorithm(recipe(large))
    monkeypatch.setattr(gpu_admission, "admit", lambda *words: asked.append(words[-1]))
    with pytest.raises(Exception, match=r"."):  # a folder without weights
        algorithm.init(0)
    assert asked == [GpuUse(patience=agent_model.PATIENCE)]


def test_what_a_process_plays_is_counted_by_what_it_does(model):
    """A worker and a node play what their clients do, the driver what the server does."""
    change = {"eval_tasks": 9, "eval_own": 2, "eval_trained": 20}
    algorithm = build_algorithm(recipe(model, algorithm=change))
    driver, client = GpuUse(), GpuUse(learns=True, evaluates=False)
    assert algorithm.evaluations(client) == [Evaluation("eval_trained", 2, 40)]
    worlds = len(algorithm.client_env_ids)
    assert algorithm.evaluations(driver) == [
        Evaluation("eval_tasks", 1, 9), Evaluation("eval_own", worlds, 2 * worlds),
    ]  # fmt: skip
    both = algorithm.evaluations(GpuUse(learns=True))
    assert episodes_of(both) == 40
    assert episodes_of(both, {"eval_trained": 3}) == max(9, 2 * worlds)
