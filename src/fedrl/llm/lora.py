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
from typing import TYPE_CHECKING, TypeGuard, TypeVar

import torch
from torch import nn

from fedrl.llm.model_types import LanguageModel

if TYPE_CHECKING:
    from peft import PeftModel


Module = TypeVar("Module", bound=nn.Module)


def with_adapters(model: LanguageModel, rank: int, alpha: int) -> LanguageModel:
    """The model with adapters on all linear layers but the output, and only they are trained; the
    model itself for rank 0."""
    if not rank:
        return model
    from peft import LoraConfig, get_peft_model

    where = LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear", task_type="CAUSAL_LM")
    with torch.random.fork_rng(devices=[]):  # `draw_adapters` decides what they begin with
        return get_peft_model(model, where)


@torch.no_grad()
def draw_adapters(model: nn.Module, seed: int) -> None:
    """New adapters: A uniform within ±1/√in, B zero, so that they change nothing yet."""
    generator = torch.Generator().manual_seed(seed % 2**63)
    for name, parameter in model.named_parameters():
        if ".lora_A." in name:
            bound = 1 / math.sqrt(parameter.shape[1])
            fresh = torch.rand(parameter.shape, generator=generator)
            parameter.copy_((2 * fresh - 1) * bound)
        elif ".lora_B." in name:
            parameter.zero_()


def has_adapters(model: nn.Module) -> TypeGuard[PeftModel]:
    """Asked without importing peft, which a run without adapters need not have."""
    return hasattr(model, "disable_adapter")


def without_adapters(model: nn.Module) -> contextlib.AbstractContextManager[None]:
    """Within it the model answers as if it had no adapters."""
    return model.disable_adapter() if has_adapters(model) else contextlib.nullcontext()


def copy_trained(model: Module) -> Module:
    """A copy to hold other weights: what is not trained is shared, not copied."""
    shared = {id(p): p for p in model.parameters() if not p.requires_grad}
    return copy.deepcopy(model, shared)
