"""A model's parts and its weights by plain names, also inside an adapter's wrapper; and which
models the decoder of our own knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from fedrl.core.types import UserError


def check_supported(model: Any) -> None:
    """Refuse what the compact decoder would compute wrongly."""
    config = model.config
    body = getattr(model, "model", None)
    layers = getattr(body, "layers", ())
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    rope = getattr(getattr(body, "rotary_emb", None), "rope_type", "none")
    kind = config.model_type
    if kind not in ("llama", "qwen2"):  # the other questions only make sense for these
        faults = {f"is of the kind {kind}": True}
    else:
        faults = {
            "has attention other than full": kinds != {"full_attention"},
            f"has rotary embeddings of the kind {rope}": rope
            not in ("default", "linear", "llama3", "yarn"),
            f"has the activation {config.hidden_act}": config.hidden_act != "silu",
            "has biases beyond queries, keys and values": any(
                getattr(module, "bias", None) is not None
                for layer in layers
                for module in (layer.self_attn.o_proj, layer.mlp.gate_proj, layer.mlp.down_proj)
            ),
        }
    for fault, true in faults.items():
        if true:
            raise UserError(
                f"algorithm.model {fault}, which the CUDA engine does not know; "
                'set algorithm.rollouts to "plain"'
            )


def parts(model: nn.Module) -> tuple[nn.Module, nn.Linear]:
    """(body, output layer) of any causal model, also inside an adapter's wrapper."""
    known: Any = model
    return known.get_decoder(), known.get_output_embeddings()


def unwrapped(model: Any) -> Any:
    """The causal model inside an adapter's wrapper, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


class Merged(Mapping[str, Tensor]):
    """Weights by the names of the plain model, LoRA's adapters added in as each is read.

    So a model with adapters is never in memory a second time only to be copied.
    """

    def __init__(self, model: nn.Module) -> None:
        base = unwrapped(model)
        self._weights = {
            name.replace(".base_layer.", "."): parameter.detach()
            for name, parameter in base.named_parameters()
            if ".lora_" not in name
        }
        self._adapted = {
            f"{name}.weight": module
            for name, module in base.named_modules()
            if hasattr(module, "get_delta_weight")
        }

    def __getitem__(self, name: str) -> Tensor:
        weight, module = self._weights[name], self._adapted.get(name)
        if module is not None:
            for adapter in module.active_adapters:
                weight = weight + module.get_delta_weight(adapter).detach()
        return weight

    def __contains__(self, name: object) -> bool:
        return name in self._weights  # without computing it, as a Mapping would

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)


def merged(model: nn.Module) -> dict[str, Tensor]:
    """All of `Merged` at once."""
    return dict(Merged(model))
