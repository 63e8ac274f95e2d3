"""Which models the decoder of our own knows, and their weights by plain names."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from fedrl.types import UserError


def check_supported(model: Any) -> None:
    """Refuse what the compact decoder would compute wrongly."""
    config = model.config
    layers = getattr(model.model, "layers", ())
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    rope = getattr(getattr(model.model, "rotary_emb", None), "rope_type", "none")
    faults = {
        f"is of the kind {config.model_type}": config.model_type not in ("llama", "qwen2"),
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
                "use the plain sampler"
            )


def unwrapped(model: Any) -> Any:
    """The causal model inside an adapter's wrapper, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def merged(model: nn.Module) -> dict[str, Tensor]:
    """Weights by the names of the plain model; LoRA's adapters are added in."""
    base = unwrapped(model)
    found = {
        name.replace(".base_layer.", "."): parameter.detach()
        for name, parameter in base.named_parameters()
        if ".lora_" not in name
    }
    for name, module in base.named_modules():
        if hasattr(module, "get_delta_weight"):
            for adapter in module.active_adapters:
                delta = module.get_delta_weight(adapter).detach()
                found[f"{name}.weight"] = found[f"{name}.weight"] + delta
    return found
