"""What makes two machines' models the same model: digests of shape, vocabulary and base weights."""

from __future__ import annotations

import json
from collections.abc import Iterator

import torch
from torch import nn

from fedrl.core.agreement import digest
from fedrl.llm.model_types import Tokenizer
from fedrl.llm.policy import Policy

PLACE = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "quantization_config")
"""What a configuration says of where and how a model was loaded, not of what it is."""


def model_agreement(policy: Policy, base: nn.Module | None) -> dict[str, str]:
    """`base` has weights that count and never travel: a reference, or what adapters stand on."""
    shape = {k: v for k, v in policy.model.config.to_dict().items() if k not in PLACE}
    template = str(getattr(policy.tokenizer, "chat_template", None))
    found = {
        "model": digest([json.dumps(shape, sort_keys=True, default=str)]),
        "tokenizer": digest([_written(policy.tokenizer), template]),
    }
    if base is None:
        return found
    weights = _frozen(base, travelling=base is policy.model)
    return found | {"weights": digest(weights)}


def _written(tokenizer: Tokenizer) -> str:
    """All that decides how texts become tokens: vocabulary, merges, what comes before and after.

    How long texts may be and how they are filled up is set anew with every call.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return json.dumps(sorted(tokenizer.get_vocab().items()))
    parts = json.loads(backend.to_str())
    return json.dumps({k: v for k, v in parts.items() if k not in ("truncation", "padding")})


def _frozen(model: nn.Module, travelling: bool) -> Iterator[bytes]:
    """Of all but adapters and value heads; where what is trained travels, of what is not."""
    for name, parameter in sorted(model.named_parameters()):
        head = ".lora_" in name or name.startswith("value.")
        if not head and not (travelling and parameter.requires_grad):
            yield name.encode()
            yield parameter.detach().to("cpu", torch.float32).contiguous().numpy().tobytes()
