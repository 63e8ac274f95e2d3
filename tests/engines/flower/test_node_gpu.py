"""A node whose GPU is full: what the coordinator hears of it, and what its owner does."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from support.agent_runs import recipe
from support.model_shapes import QWEN_1_5B

from fedrl.config.loading import to_toml
from fedrl.core.abilities import GpuBusy, GpuUse
from fedrl.core.types import Spec, UserError
from fedrl.engines.flower import node_recipes
from fedrl.engines.in_process import shareable

WORDS = "GPU 0 has no room for 60.0 GB beside 70.0 GB that 3 other processes have reserved, of 80.0"


class Crowded:
    def take_gpu(self, use: GpuUse) -> None:
        raise GpuBusy(WORDS)


def test_what_else_runs_on_a_nodes_gpu_stays_with_its_owner(capsys):
    with pytest.raises(UserError) as found:
        node_recipes.take_gpu(Crowded())
    assert shareable(found.value)
    assert str(found.value) == "no room on this node's GPU within 300 s"
    assert WORDS in capsys.readouterr().err


@pytest.mark.slow
def test_a_recipe_that_is_only_described_needs_no_gpu(tmp_path, monkeypatch):
    """Nor a model's weights, which are not there."""
    pytest.importorskip("transformers", reason="needs the extra llm")
    from fedrl.algorithms.fedagent.agent_model import AgentModel

    def asked(self: AgentModel, use: GpuUse) -> bool:
        raise AssertionError(use)

    monkeypatch.setattr(AgentModel, "take_gpu", asked)
    monkeypatch.chdir(tmp_path)  # both of which a process of its own changes
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "config.json").write_text(json.dumps(QWEN_1_5B))
    text = to_toml(recipe(tmp_path / "large", agree=["weights:0123456789abcdef"]))
    tensors, metrics = node_recipes.outline(text, str(tmp_path), "", (), frozenset())
    shape = QWEN_1_5B["vocab_size"], QWEN_1_5B["hidden_size"]
    assert tensors["model.embed_tokens.weight"] == Spec(shape, "float32")
    assert "train/success" in metrics
