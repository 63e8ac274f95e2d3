"""LoRA: small matrices beside the model's linear layers are trained instead of the model.

A layer computes W x + (alpha / rank) · B A x (Hu et al. 2021), or with alpha / √rank, so that a
higher rank does not learn more slowly (rank-stabilised, Kalajdzievski 2023). W stays as the model
folder has it, on the server and on every client; A [rank, in] and B [out, rank] of all layers but
the output, or of those that are named, are what is trained, sent and averaged. The average of the
adapters is what all clients go on with: the product of the mean B and the mean A, not the mean of
the clients' products.

The model without its adapters is the model that the run began with, so the KL divergence to it
needs no second copy.

Personal adapters are a second set, which a client keeps for itself: a layer computes
W x + s B A x + s' B' A' x, where B' and A' never leave the client, and what is averaged is the
shared adapters, or W where there are none (then W is trained, and is no longer what the run began
with). B' begins at 0, so a client begins with the shared model; without B' A' the model IS the
shared one. This is partial model personalization with all parts stepped at once (Pillutla et al.
2022, FedSim), and for adapters FedDPA's pair of a global and a local one (Yang et al. 2024). Where
we differ from FedDPA: both learn from the client's own tasks, and they are added up, not weighed by
the instance. FedSA-LoRA (Guo et al. 2025: average A, keep B) sends half as much, but its shared
part alone is no agent that could be evaluated or handed to a newcomer.
"""

from __future__ import annotations

import contextlib
import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard, TypeVar

import torch
from torch import nn

from fedrl.core.types import UserError
from fedrl.llm.model_types import LanguageModel

if TYPE_CHECKING:
    from peft import PeftModel


Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class Adapters:
    """Those that a model gets; none for rank 0."""

    rank: int
    alpha: int
    targets: tuple[str, ...] = ()  # linear layers by the end of their names; none: all, see below
    stabilised: bool = False  # they count alpha / √rank times
    personal: int = 0  # rank of those that a client keeps for itself


SHARED, PERSONAL = "default", "personal"
"""The names of both sets of adapters, which are parts of their tensors' names."""


def is_personal(name: str) -> bool:
    """Whether a tensor of this name stays with its client."""
    return f".{PERSONAL}." in name and ".lora_" in name


def with_adapters(model: LanguageModel, adapters: Adapters) -> LanguageModel:
    """The model with adapters on all linear layers but the output, or on the targets, and only they
    are trained; without shared ones the whole model is. The model itself for ranks of 0."""
    ranks = {SHARED: adapters.rank, PERSONAL: adapters.personal}
    names = [name for name, rank in ranks.items() if rank]
    if not names:
        return model
    from peft import LoraConfig, LoraModel, get_peft_model

    require_layers(model, adapters.targets)
    where = adapters.targets or tuple(linear_layers(model))
    first, *second = (
        LoraConfig(
            r=ranks[name],
            lora_alpha=adapters.alpha,
            target_modules=list(where),
            use_rslora=adapters.stabilised,
            task_type="CAUSAL_LM",
        )
        for name in names
    )
    with torch.random.fork_rng(devices=[]):  # `draw_adapters` decides what they begin with
        adapted = get_peft_model(model, first, adapter_name=names[0])
        for config in second:
            adapted.add_adapter(PERSONAL, config)
    tuner = adapted.base_model
    assert isinstance(tuner, LoraModel)
    tuner.set_adapter(names)
    if not adapters.rank:
        adapted.requires_grad_(True)
    return adapted


def require_layers(model: LanguageModel, targets: tuple[str, ...]) -> None:
    """Every target is the end of some linear layer's name; peft minds only if none is."""
    names = [f".{name}" for name in linear_layers(model)]
    for target in targets:
        if not any(name.endswith(f".{target}") for name in names):
            known = ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in names))
            raise UserError(
                f"algorithm.lora_targets: the model has no linear layer {target!r}; it has {known}"
            )


def linear_layers(model: LanguageModel) -> dict[str, nn.Module]:
    """By name, without the output."""
    from transformers.pytorch_utils import Conv1D  # GPT-2's

    output = model.get_output_embeddings()
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and module is not output
    }


@torch.no_grad()
def draw_adapters(model: nn.Module, seed: int, which: str = SHARED) -> None:
    """New adapters: A uniform within ±1/√in, B zero, so that they change nothing yet."""
    generator = torch.Generator().manual_seed(seed % 2**63)
    for name, parameter in model.named_parameters():
        if f".lora_A.{which}." in name:
            bound = 1 / math.sqrt(parameter.shape[1])
            fresh = torch.rand(parameter.shape, generator=generator)
            parameter.copy_((2 * fresh - 1) * bound)
        elif f".lora_B.{which}." in name:
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
