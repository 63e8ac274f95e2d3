"""A trained policy as an ordinary model folder: adapters merged, a critic's head left behind.

What the run's first model was shown in its warm start goes along, so that the next run still
refuses to be evaluated on it.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError

from fedrl.core.types import Tensors, UserError
from fedrl.llm import lora, warmstart_record
from fedrl.llm.model_types import LanguageModel, Tokenizer
from fedrl.llm.policy import load
from fedrl.llm.rl.ppo import add_value_head
from fedrl.llm.weights import base_model


def save(name: str, lora_rank: int, lora_alpha: int, theta: Tensors, out: Path) -> None:
    """The model called `name` with the weights `theta`, and its tokenizer; on the CPU, so that a
    run can be exported where its GPU is not."""
    policy = load(name, torch.device("cpu"))
    policy = replace(policy, model=lora.with_adapters(policy.model, lora_rank, lora_alpha))
    if any(name.startswith("value.") for name in theta):
        add_value_head(policy.model)
    policy.set_weights(theta)
    model = policy.model.merge_and_unload() if lora.has_adapters(policy.model) else policy.model
    if hasattr(model, "value"):  # adapters had it beside the model
        del model.value
    record = Path(name) / warmstart_record.FILE
    write_model(model, policy.tokenizer, out, record if record.is_file() else None)


def write_model(
    model: LanguageModel, tokenizer: Tokenizer, out: Path, record: Path | None = None
) -> None:
    """A model folder; a place that takes no more is one line."""
    try:
        base_model(model).save_pretrained(out)
        tokenizer.save_pretrained(out)
        if record is not None:
            shutil.copyfile(record, out / record.name)
    except (OSError, SafetensorError) as error:
        why = str(error).strip().splitlines()[0]
        raise UserError(f"cannot write the model to {out}: {why}; name another place") from error
