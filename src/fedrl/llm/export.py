"""A trained policy as an ordinary model folder: adapters merged, a critic's head left behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedrl.llm.bench import equipped
from fedrl.llm.lora import has_adapters
from fedrl.llm.policy import load
from fedrl.types import Tensors


def save(settings: Any, theta: Tensors, out: Path) -> None:
    """The model of `fedagent`'s settings with the weights `theta`, and its tokenizer; on the CPU,
    so that a run can be exported where its GPU is not."""
    policy = load(settings.model, torch.device("cpu"))
    policy = replace(policy, model=equipped(policy.model, settings))
    policy.set_weights(theta)
    model = policy.model.merge_and_unload() if has_adapters(policy.model) else policy.model
    if hasattr(model, "value"):
        del model.value
    model.save_pretrained(out)
    policy.tokenizer.save_pretrained(out)
