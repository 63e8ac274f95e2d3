"""A GGUF file as an ordinary model: its quantised weights are unpacked into single precision.

transformers refuses to save what it has loaded from GGUF, and newer versions leave the weights
packed; both are settled by copying the unpacked weights into a fresh model of the same shape.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from fedrl.core.types import UserError
from fedrl.llm.model_types import ModelConfig, Tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def is_gguf(name: str) -> bool:
    return name.lower().endswith(".gguf")


def read_config(path: Path) -> ModelConfig:
    """The configuration that the file's header describes."""
    with _needing_gguf(path):
        config = AutoConfig.from_pretrained(str(path.parent), gguf_file=path.name)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    return config


def load(path: Path) -> tuple[PreTrainedModel, Tokenizer]:
    """Model and tokenizer of the file."""
    unpack: dict[str, Any] = {"dtype": torch.float32, "output_loading_info": True}
    if hasattr(transformers, "GgufConfig"):  # before it existed, weights were always unpacked
        unpack["quantization_config"] = transformers.GgufConfig(dequantize=True)
    folder, file = str(path.parent), path.name
    with _needing_gguf(path):
        found: Any = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, **unpack)
        loaded, info = found
        if info["missing_keys"]:  # it would go on with random ones
            first = min(info["missing_keys"])
            raise UserError(f"algorithm.model is {str(path)!r}, which lacks weights: {first}")
        model = AutoModelForCausalLM.from_config(read_config(path), dtype=torch.float32)
        model.load_state_dict(loaded.state_dict())
        model.generation_config = loaded.generation_config
        return model, AutoTokenizer.from_pretrained(folder, gguf_file=file)


@contextlib.contextmanager
def _needing_gguf(path: Path) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise UserError(
            f"algorithm.model is {str(path)!r}, and reading a GGUF file needs the package gguf: "
            "pip install gguf"
        ) from error
