"""How many runs of a reproduction there are at a time on GPUs: as many as fit by their estimates."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="language models need torch (fedrl[llm])")
pytest.importorskip("transformers", reason="language models need transformers")

from fedrl.llm import gpu_share
from fedrl.llm.memory import CALIBRATION
from reproductions import runner
from reproductions.grid import Cell

pytestmark = pytest.mark.slow
SHAPE = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 576,
    "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.fixture
def cells(tmp_path, monkeypatch):
    """Of a model that is there, on a GPU that is not."""
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    monkeypatch.setattr(runner, "accelerator", lambda: "a GPU")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)

    def of(*changes):
        recipe = {
            "rounds": 2,
            "federation": {"clients": 2},
            "world": {"name": "household", "size": "tiny"},
        }
        base = {"name": "fedagent", "model": str(tmp_path)}
        return [
            Cell("part", f"cell{i}", recipe | {"algorithm": base | change}, (0,))
            for i, change in enumerate(changes)
        ]

    return of


def with_room(monkeypatch, size: float) -> None:
    gpu = gpu_share.Gpu("fake", 10**12, int(size))
    monkeypatch.setattr(gpu_share, "gpu_of", lambda index: gpu)


def test_as_many_as_fit_up_to_a_dozen(cells, monkeypatch):
    small, large = {"lora_rank": 8}, {}
    sizes = [runner.needed_on_a_gpu(cell) for cell in cells(small, large)]
    assert 10 * CALIBRATION.context < sizes[0] < sizes[1]
    with_room(monkeypatch, 5.5 * sizes[0])
    assert runner.processes_for(cells(small)) == 5
    with_room(monkeypatch, 4.5 * sizes[1])
    assert runner.processes_for(cells(small, large)) == 4  # by the largest
    with_room(monkeypatch, 100 * sizes[1])
    assert runner.processes_for(cells(small)) == runner.MOST_ON_A_GPU
    with_room(monkeypatch, 0.5 * sizes[1])
    assert runner.processes_for(cells(large)) == 1
    assert runner.processes_for(cells(large), 2) == 2  # what a grid says itself


def test_of_models_that_are_not_there_yet_it_is_a_few(cells, monkeypatch):
    with_room(monkeypatch, 10**12)
    assert runner.processes_for(cells({"model": "models/later"})) == runner.ON_A_GPU
