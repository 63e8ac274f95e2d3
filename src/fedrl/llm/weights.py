"""A model's parts and its weights by plain names, also inside an adapter's wrapper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from torch import Tensor, nn

from fedrl.llm.lora import has_adapters
from fedrl.llm.model_types import LanguageModel

if TYPE_CHECKING:
    from peft.tuners.lora import Linear
    from transformers import PreTrainedModel


def decoder_and_head(model: LanguageModel) -> tuple[nn.Module, nn.Linear]:
    """(body, output layer) of any causal model, also inside an adapter's wrapper."""
    return model.get_decoder(), model.get_output_embeddings()


def base_model(model: LanguageModel) -> PreTrainedModel:
    """The causal model inside an adapter's wrapper, or the model itself."""
    from transformers import PreTrainedModel

    inner = model.get_base_model() if has_adapters(model) else model
    assert isinstance(inner, PreTrainedModel)
    return inner


class MergedWeights(Mapping[str, Tensor]):
    """Weights by the names of the plain model, LoRA's adapters added in as each is read.

    So a model with adapters is never in memory a second time only to be copied.
    """

    def __init__(self, model: LanguageModel) -> None:
        base = base_model(model)
        self._weights = {
            name.replace(".base_layer.", "."): parameter.detach()
            for name, parameter in base.named_parameters()
            if ".lora_" not in name
        }
        self._adapted: dict[str, Linear] = {
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
