"""The CUDA sampler's copy of a model's weights, and which models it computes.

Projections that read the same input lie one below the other, so that one matrix product serves
them all. Works for causal models of the Llama kind (SmolLM2, Llama 3, Qwen2.5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from fedrl.core.types import UserError
from fedrl.llm.memory import Shape, shape_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

KINDS = ("llama", "qwen2")
ROPES = ("default", "linear", "llama3", "yarn")


class Layer(NamedTuple):
    before: Tensor  # weight of the norm before attention
    qkv: Tensor  # [(heads + 2 kv) · size, width]
    bias: Tensor | None  # Qwen2 has one on queries, keys and values
    out: Tensor
    after: Tensor  # weight of the norm before the MLP
    up: Tensor  # gate and up projections, one below the other
    down: Tensor


class PackedWeights:
    """See the module's docstring: the model's sizes, and room that `push` fills."""

    def __init__(self, base: PreTrainedModel, dtype: torch.dtype) -> None:
        check_supported(base)
        self.dtype, self.device = dtype, next(base.parameters()).device
        body, config = base.model, base.config
        attention, rotary = body.layers[0].self_attn, body.rotary_emb
        self.size: int = attention.head_dim
        self.scale: float = attention.scaling
        self.heads: int = config.num_attention_heads
        self.kv: int = config.num_key_value_heads
        self.eps: float = config.rms_norm_eps
        self.shape: Shape = shape_of(config)
        self.frequencies: Tensor = rotary.inv_freq.detach().float().to(self.device)
        self.rope_scale = float(rotary.attention_scaling)
        self.targets: dict[str, Tensor] = {}
        self.embed = self._room("model.embed_tokens", body.embed_tokens)
        self.final = self._room("model.norm", body.norm)
        tied = base.lm_head.weight is body.embed_tokens.weight
        self.head = self.embed if tied else self._room("lm_head", base.lm_head)
        self.layers = [
            self._layer(f"model.layers.{i}", layer) for i, layer in enumerate(body.layers)
        ]

    def rope(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine of every position's angles [N, size / 2]."""
        angles = positions[:, None].float() * self.frequencies
        return angles.cos() * self.rope_scale, angles.sin() * self.rope_scale

    def _layer(self, at: str, layer: nn.Module) -> Layer:
        modules = dict(layer.named_modules())

        def room(*names: str, kind: str = "weight") -> Tensor:
            return self._stacked({f"{at}.{name}": modules[name] for name in names}, kind)

        qkv = [f"self_attn.{x}_proj" for x in "qkv"]
        return Layer(
            before=room("input_layernorm"),
            qkv=room(*qkv),
            bias=None if modules[qkv[0]].bias is None else room(*qkv, kind="bias"),
            out=room("self_attn.o_proj"),
            after=room("post_attention_layernorm"),
            up=room("mlp.gate_proj", "mlp.up_proj"),
            down=room("mlp.down_proj"),
        )

    def _room(self, name: str, module: nn.Module) -> Tensor:
        return self._stacked({name: module}, "weight")

    def _stacked(self, modules: Mapping[str, nn.Module], kind: str) -> Tensor:
        """Room for several weights in one tensor, and where `push` puts each."""
        parts = [module.get_parameter(kind) for module in modules.values()]
        shape = (sum(len(part) for part in parts), *parts[0].shape[1:])
        whole = torch.empty(shape, dtype=self.dtype, device=self.device)
        pieces = whole.split([len(part) for part in parts])
        self.targets |= {f"{n}.{kind}": piece for n, piece in zip(modules, pieces, strict=True)}
        return whole

    @torch.no_grad()
    def push(self, weights: Mapping[str, Tensor] | None) -> None:
        """Copy new weights, named as in the model's state_dict."""
        missing = self.targets.keys() - (weights or {}).keys()
        if weights is None or missing:
            first = min(missing)
            raise ValueError(f"push without {first}: this engine keeps a copy, give it all weights")
        for name, target in self.targets.items():
            target.copy_(weights[name])


def is_supported(model: PreTrainedModel) -> bool:
    return next(_faults(model), None) is None


def check_supported(model: PreTrainedModel) -> None:
    """Refuse what the decoder would compute wrongly."""
    for fault in _faults(model):
        raise UserError(
            f"algorithm.model {fault}, which the CUDA engine does not know; "
            'set algorithm.rollouts to "plain"'
        )


def _faults(model: PreTrainedModel) -> Iterator[str]:
    config = model.config
    if config.model_type not in KINDS:
        yield f"is of the kind {config.model_type}"
        return  # the other questions only make sense for these
    if set(getattr(config, "layer_types", None) or ["full_attention"]) != {"full_attention"}:
        yield "has attention other than full"
    rope = model.model.rotary_emb.rope_type
    if rope not in ROPES:
        yield f"has rotary embeddings of the kind {rope}"
    if config.hidden_act != "silu":
        yield f"has the activation {config.hidden_act}"
    if any(
        module.bias is not None
        for layer in model.model.layers
        for module in (layer.self_attn.o_proj, layer.mlp.gate_proj, layer.mlp.down_proj)
    ):
        yield "has biases beyond queries, keys and values"
