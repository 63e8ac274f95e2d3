"""A GGUF file as an ordinary model: its quantised weights are unpacked into single precision.

transformers refuses to save what it has loaded from GGUF, and newer versions leave the weights
packed; both are settled by copying the unpacked weights into a fresh model of the same shape.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from fedrl.core.types import UserError


def is_gguf(name: str) -> bool:
    return name.lower().endswith(".gguf")


def shape(path: Path) -> Any:
    """The configuration that the file's header describes."""
    config = _read(AutoConfig, path)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    return config


def read(path: Path) -> tuple[Any, Any]:
    """(model, tokenizer) of the file."""
    unpack: dict[str, Any] = {}
    if hasattr(transformers, "GgufConfig"):  # before it existed, weights were always unpacked
        unpack["quantization_config"] = transformers.GgufConfig(dequantize=True)
    loaded, told = _read(
        AutoModelForCausalLM, path, dtype=torch.float32, output_loading_info=True, **unpack
    )
    if told["missing_keys"]:  # it would go on with random ones
        raise UserError(
            f"algorithm.model is {str(path)!r}, which lacks weights: {min(told['missing_keys'])}"
        )
    model = AutoModelForCausalLM.from_config(shape(path), dtype=torch.float32)
    model.load_state_dict(loaded.state_dict())
    model.generation_config = loaded.generation_config
    return model, _read(AutoTokenizer, path)


def _read(kind: Any, path: Path, **more: Any) -> Any:
    try:
        return kind.from_pretrained(str(path.parent), gguf_file=path.name, **more)
    except ImportError as error:
        raise UserError(
            f"algorithm.model is {str(path)!r}, and reading a GGUF file needs the package gguf: "
            "pip install gguf"
        ) from error
