"""A trained policy as an ordinary model folder: adapters merged, a critic's head left behind.

What the run's first model was shown in its warm start goes along, so that the next run still
refuses to be evaluated on it.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from fedrl.core.types import Tensors, UserError
from fedrl.llm import lora
from fedrl.llm.policy import load
from fedrl.llm.rl import ppo


def save(settings: Any, theta: Tensors, out: Path) -> None:
    """The model that these settings begin with, its weights now `theta`, and its tokenizer; on the
    CPU, so that a run can be exported where its GPU is not."""
    policy = load(settings.model, torch.device("cpu"))
    if settings.lora_rank:
        adapted = lora.adapt(policy.model, settings.lora_rank, settings.lora_alpha)
        policy = replace(policy, model=adapted)
    if any(name.startswith("value.") for name in theta):
        ppo.attach(policy.model)
    policy.set_weights(theta)
    model = policy.model.merge_and_unload() if settings.lora_rank else policy.model
    if hasattr(model, "value"):
        del model.value
    record = Path(settings.model) / "warmstart.json"
    write(model, policy.tokenizer, out, record if record.is_file() else None)


def write(model: Any, tokenizer: Any, out: Path, record: Path | None = None) -> None:
    """A model folder; a place that takes no more is one line."""
    try:
        model.save_pretrained(out)
        tokenizer.save_pretrained(out)
        if record is not None:
            shutil.copyfile(record, out / record.name)
    except (OSError, SafetensorError) as error:
        why = str(error).strip().splitlines()[0]
        raise UserError(f"cannot write the model to {out}: {why}; name another place") from error
