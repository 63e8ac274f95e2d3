"""A language model as a policy: load it, and exchange its weights as named arrays.

`load` takes a Hugging Face id or an ordinary model folder (one that `fedrl warmstart` wrote, too).
Only what is trained travels: all parameters, or the adapters alone with LoRA. Tied parameters are
one tensor and are sent once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fedrl.types import UserError


@dataclass(frozen=True)
class Policy:
    model: Any  # a causal language model of transformers
    tokenizer: Any
    device: torch.device

    @property
    def pad(self) -> int:
        """Any token: masks come from lengths."""
        pad = self.tokenizer.pad_token_id
        return int(self.tokenizer.eos_token_id if pad is None else pad)

    @property
    def end(self) -> list[int]:
        """Tokens that end an answer: the tokenizer's and those of the generation settings."""
        found = {self.tokenizer.eos_token_id}
        more = getattr(self.model.generation_config, "eos_token_id", None)
        found |= set(more) if isinstance(more, list) else {more}
        return sorted(token for token in found if token is not None)

    def trained(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def weights(self) -> dict[str, np.ndarray]:
        """Copies of what is trained, in single precision."""
        return {
            name: p.detach().to("cpu", torch.float32, copy=True).numpy()
            for name, p in self.trained().items()
        }

    @torch.no_grad()
    def set_weights(self, weights: dict[str, np.ndarray]) -> None:
        for name, parameter in self.trained().items():
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(weights[name])))


def choose_device(name: str) -> torch.device:
    """ "auto" is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"algorithm.device is {name!r}, but PyTorch sees no GPU here; use auto")
    return torch.device(name)


def load(name: str, device: torch.device) -> Policy:
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    place = Path(name)
    if not place.is_dir() and (place.is_absolute() or name.startswith(".")):
        raise UserError(f"algorithm.model: there is no folder {name}")
    if place.is_dir() and not (place / "config.json").is_file():
        raise UserError(f"algorithm.model: {name} is no model folder (it has no config.json)")
    try:
        model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise UserError(f"algorithm.model is {name!r}, which cannot be loaded: {first}") from error
    return Policy(model.to(device).eval(), tokenizer, device)  # type: ignore[arg-type]
