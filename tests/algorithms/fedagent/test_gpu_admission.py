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

from fedrl.algorithms.fedagent import gpu_admission
from fedrl.algorithms.fedagent.gpu_admission import admit, needed_by_gpu
from fedrl.algorithms.fedagent.memory_estimate import estimate_memory
from fedrl.cli import call
from fedrl.config.build import build_algorithm
from fedrl.core.abilities import GpuUse
from fedrl.core.types import UserError
from fedrl.llm import gpu_share
from fedrl.llm.memory import CALIBRATION
from fedrl.runs import preflight

pytestmark = pytest.mark.slow
GB = 10**9


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

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(gpu_share, "POLL_SECONDS", 0.02)
    monkeypatch.delenv(gpu_admission.DRIVER, raising=False)
    yield of
    os.environ.pop(gpu_admission.DRIVER, None)


def test_fedrl_run_refuses_what_does_not_fit_and_leaves_no_folder(
    large, gpu, tmp_path, monkeypatch, capsys
):
    """Of 48 GB, on 40: its prompts of one token would have fitted."""
    gpu(40)
    monkeypatch.chdir(tmp_path)
    flags = ["--algorithm.model", str(large), "--out", str(tmp_path / "runs")]
    flags += ["--world.source", "generated", "--algorithm.device", "cuda"]
    assert call(["run", "fedagent/household", *flags]) == 2
    said = capsys.readouterr().err
    assert "algorithm.model needs 48." in said
    assert "the GPU has 40.0 GB for it: algorithm.lora_rank = 32 (" in said
    assert not (tmp_path / "runs").exists()


def settings_of(large, **change):
    return replace(recipe(large).algorithm, device="auto", tasks=8, group=8, **change)


def test_what_does_not_fit_is_tried_where_that_is_asked_for(large, gpu, monkeypatch):
    gpu(10)
    with pytest.raises(UserError, match="to train so"):
        admit(settings_of(large), lambda: 0, GpuUse(learns=True))
    monkeypatch.setenv("FEDRL_GPU_SHARE", "off")
    assert admit(settings_of(large), lambda: 0, GpuUse(learns=True)) is None


def test_nothing_is_reserved_on_a_cpu(large, gpu):
    gpu(1)
    assert admit(replace(settings_of(large), device="cpu"), lambda: 0, GpuUse(True)) is None


def test_the_driver_and_its_workers_are_counted_together(large, gpu):
    settings = settings_of(large)
    found = estimate_memory(replace(settings, device="cuda"), 0)
    one, context = found.memory.least, CALIBRATION.context
    assert found.playing < one / 2  # no gradients, moments or passes of the learner
    gpu(100)
    shared = needed_by_gpu(settings, found, GpuUse(workers=3), 0)
    assert [each.least for each in shared[0]] == [found.playing + context] + 3 * [one + context]
    gpu(100, count=2)  # worker 0 and 2 beside the driver, worker 1 elsewhere
    spread = needed_by_gpu(settings, found, GpuUse(workers=3), 0)
    assert [len(spread[0]), len(spread[1])] == [3, 1]
    gpu(int((2 * one + found.playing) / GB))  # and nothing for what CUDA itself takes
    with pytest.raises(UserError, match=r"for 2 workers and the driver's own model beside"):
        admit(settings, lambda: 0, GpuUse(workers=2))


def test_workers_of_a_driver_that_reserved_for_them_do_not_wait(large, gpu, monkeypatch):
    gpu(100)
    kept = admit(settings_of(large, lora_rank=8), lambda: 0, GpuUse(workers=2))
    assert kept.names
    assert os.environ[gpu_admission.DRIVER] == str(os.getpid())
    monkeypatch.setattr(os, "getppid", os.getpid)  # as in a child
    assert admit(settings_of(large, lora_rank=8), lambda: 0, GpuUse(learns=True)) is None
    kept.release()


def test_a_place_is_given_back_with_its_algorithm(large, gpu):
    gpu(100)
    config = recipe(large, algorithm={"device": "auto", "lora_rank": 8})
    algorithm = build_algorithm(config)
    preflight.take_gpu(config, algorithm)
    preflight.take_gpu(config, algorithm)  # it has one
    with gpu_share._opened("g0") as state:
        (entry,) = state.entries
    needs = estimate_memory(replace(config.algorithm, device="cuda"), 12).memory.total
    assert entry.bytes == needs + CALIBRATION.context
    del algorithm
    with gpu_share._opened("g0") as state:
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
