"""LoRA: small matrices beside the model's linear layers are trained instead of the model.

A layer computes W x + (alpha / rank) · B A x. W stays as the model folder has it, on the server and
on every client; A [rank, in] and B [out, rank] of all layers but the output are what is trained,
sent and averaged. The average of the adapters is what all clients go on with: the product of the
mean B and the mean A, not the mean of the clients' products.

The model without its adapters is the model that the run began with, so the KL divergence to it
needs no second copy.
"""

from __future__ import annotations

import contextlib
import copy
import math
from typing import Any

import torch
from torch import nn


def adapt(model: Any, rank: int, alpha: int) -> nn.Module:
    """The model with adapters on all linear layers but the output; only they are trained."""
    from peft import LoraConfig, get_peft_model

    where = LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear", task_type="CAUSAL_LM")
    with torch.random.fork_rng(devices=[]):  # `draw` decides what they begin with
        return get_peft_model(model, where)


@torch.no_grad()
def draw(model: nn.Module, seed: int) -> None:
    """New adapters: A uniform within ±1/√in, B zero, so that they change nothing yet."""
    generator = torch.Generator().manual_seed(seed % 2**63)
    for name, parameter in model.named_parameters():
        if ".lora_A." in name:
            bound = 1 / math.sqrt(parameter.shape[1])
            fresh = torch.rand(parameter.shape, generator=generator)
            parameter.copy_((2 * fresh - 1) * bound)
        elif ".lora_B." in name:
            parameter.zero_()


def has_adapters(model: nn.Module) -> bool:
    return hasattr(model, "disable_adapter")


def bare(model: nn.Module) -> contextlib.AbstractContextManager[Any]:
    """Within it the model answers as if it had no adapters."""
    known: Any = model
    return known.disable_adapter() if has_adapters(model) else contextlib.nullcontext()


def twin(model: nn.Module) -> nn.Module:
    """A copy to hold other weights: what is not trained is shared, not copied."""
    shared = {id(p): p for p in model.parameters() if not p.requires_grad}
    return copy.deepcopy(model, shared)
