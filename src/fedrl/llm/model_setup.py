"""What training adds to a model: adapters, a value head, activation checkpointing, compilation."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from fedrl.core.compile_time import compile_seconds
from fedrl.core.types import UserError
from fedrl.llm import lora
from fedrl.llm.learner.decoder import RECOMPUTED
from fedrl.llm.model_types import LanguageModel
from fedrl.llm.rl.logprobs import COMPILED
from fedrl.llm.rl.ppo import add_value_head
from fedrl.llm.weights import decoder_and_head

Inputs = ParamSpec("Inputs")
Output = TypeVar("Output")


def prepare_model(
    model: LanguageModel, adapters: lora.Adapters, critic: bool, save_memory: bool
) -> LanguageModel:
    """The model with what a method's settings add: adapters, a critic, checkpointing."""
    prepared = lora.with_adapters(model, adapters)
    if critic:
        add_value_head(prepared)
    if save_memory:
        checkpoint_activations(prepared)
    return prepared


def checkpoint_activations(model: nn.Module) -> None:
    """Activation checkpointing: layers are computed again on the way back instead of kept.

    Not by transformers' switch, which does nothing in evaluation mode. Without dropout there is no
    random state to restore.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    if not layers:
        raise UserError(
            f"algorithm.save_memory does not know {type(model).__name__}; leave it false"
        )
    for layer in layers:
        layer.forward = partial(_recomputed, layer.forward)
        object.__setattr__(layer, RECOMPUTED, True)


def _recomputed(
    forward: Callable[Inputs, Output], *args: Inputs.args, **named: Inputs.kwargs
) -> Output:
    if not torch.is_grad_enabled():
        return forward(*args, **named)
    return checkpoint(
        partial(forward, **named), *args, use_reentrant=False, preserve_rng_state=False
    )


def compile_layers(model: LanguageModel) -> None:
    """Fuse the small kernels of the body's layers with torch.compile, for the learner alone.

    One layer is compiled and serves all, with widths and numbers of rows as symbols: the whole body
    takes minutes. The compiled body is a second view of the same weights, kept beside the module
    and not in it: names of weights and the sampler, which calls the module with a cache, stay as
    they are.
    """
    body = decoder_and_head(model)[0]
    layers = dict(body.named_children()).get("layers")
    if not isinstance(layers, nn.ModuleList):
        raise UserError(f"algorithm.compile does not know {type(body).__name__}; leave it false")
    view = copy.copy(body)
    view._modules = dict(body._modules)
    fused: list[Any] = [torch.compile(layer, dynamic=True) for layer in layers]
    compile_seconds()  # from here on its compiling is heard, though the first is within a round
    view.layers = nn.ModuleList(fused)
    object.__setattr__(body, COMPILED, view)
