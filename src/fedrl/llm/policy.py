"""A language model as a policy: load it, and exchange its weights as named arrays.

`load` takes an ordinary model folder (one that `fedrl warmstart` or `fedrl export` wrote, too), a
GGUF file or a Hugging Face id; `skeleton` its shapes alone.
Only what is trained travels: all parameters, or the adapters alone with LoRA. Tied parameters are
one tensor and are sent once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import torch
from torch import nn

from fedrl.core.registry import missing_extra
from fedrl.core.types import WORKER, UserError
from fedrl.llm.lora import is_personal
from fedrl.llm.model_types import LanguageModel, ModelConfig, Tokenizer
from fedrl.llm.out_of_memory import is_out_of_memory

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Policy:
    model: LanguageModel
    tokenizer: Tokenizer
    device: torch.device
    name: str = ""  # of the folder, file or id that it was loaded from
    spread: bool = False  # over all GPUs, `device` first

    @property
    def pad(self) -> int:
        """Any token: masks come from lengths."""
        pad = self.tokenizer.pad_token_id
        return int(self.tokenizer.eos_token_id if pad is None else pad)

    @property
    def end(self) -> list[int]:
        """Tokens that end an answer: the tokenizer's and those of the generation settings."""
        ends = {self.tokenizer.eos_token_id}
        more = getattr(self.model.generation_config, "eos_token_id", None)
        ends |= set(more) if isinstance(more, list) else {more}
        return sorted(token for token in ends if token is not None)

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
        """Of all that is trained; without a client's own adapters the model is the shared one."""
        for name, parameter in self.trained().items():
            if is_personal(name) and name not in weights:
                parameter.zero_()
            else:
                parameter.copy_(torch.from_numpy(np.ascontiguousarray(weights[name])))


TOKENIZER = re.compile(r"(tokenizer|vocab|spiece|sentencepiece)\.|tekken|.*\.tiktoken$")
"""Names of files that hold a vocabulary."""
WEIGHTS = re.compile(r".*\.(safetensors|bin)(\.index\.json)?$")
"""Names of files that hold weights."""

INDIRECT = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HF_HUB_OFFLINE")
"""Environment variables with which a connection of our own would say nothing about the hub."""
HUB_SECONDS = 5.0
DRY_RUN = "for --dry-run a folder with its config.json is enough"

SPREAD = "spread"
"""The device of a model that is too large for one GPU: its layers over all of them."""


def choose_device(name: str) -> torch.device:
    """ "auto" is a GPU where there is one: the worker's own, if this is a worker process."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        worker = os.environ.get(WORKER)
        if gpus and worker is not None:
            return torch.device("cuda", int(worker) % gpus)
        return torch.device("cuda" if gpus else "cpu")
    if name == SPREAD or name.startswith("cuda"):
        if not gpus:
            raise UserError(
                f'algorithm.device is {name!r}, but PyTorch sees no GPU here; use "auto"'
            )
        if name == SPREAD:
            return torch.device("cuda", 0)
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(
            f"algorithm.device is {name!r}; use auto, cpu, cuda, cuda:1 or {SPREAD}"
        ) from error
    if device.type == "cuda" and (device.index or 0) >= gpus:
        raise UserError(
            f"algorithm.device is {name!r}, but PyTorch sees {gpus} GPUs here, numbered from 0"
        )
    return device


def load(name: str, device: torch.device, spread: bool = False, four_bit: bool = False) -> Policy:
    """The model of a folder, a GGUF file or a Hugging Face id, in single precision.

    `spread` puts its layers on all GPUs, `device` first; `four_bit` keeps the weights of its linear
    layers, which are then not to be trained, in 4 bits.
    """
    more: dict[str, Any] = {"device_map": "auto"} if spread else {}
    with loading(name):
        config = read_config(name)
        if four_bit:
            more = {"device_map": {"": str(device)}} | more | quantisation(name, device)
        model, tokenizer = _load_pretrained(name, config, spread, more)
    require_end(name, tokenizer)
    if device.type == "cuda":
        torch.cuda.set_device(device.index or 0)  # kernels of ours run on the current one
    if not more:  # else each weight was put where it belongs
        move(model, device)
    return Policy(model.eval(), tokenizer, device, name, spread)


def quantisation(name: str, device: torch.device) -> dict[str, Any]:
    """How transformers is asked for QLoRA's weights (Dettmers et al. 2023): NF4, its scales in
    8 bits; products are computed as the learner computes."""
    from importlib.util import find_spec

    from transformers import BitsAndBytesConfig

    from fedrl.llm import gguf

    if find_spec("bitsandbytes") is None:
        raise UserError(
            "algorithm.four_bit needs the package bitsandbytes, which is not installed here: "
            "pip install bitsandbytes, or leave four_bit false"
        )
    if gguf.is_gguf(name):
        raise UserError(
            f"algorithm.four_bit needs a model folder: make one of {name} with "
            "`fedrl warmstart --model`"
        )
    how = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16 if device.type == "cuda" else torch.float32,
    )
    return {"quantization_config": how}


def move(model: nn.Module, device: torch.device) -> None:
    """In place, as PyTorch moves modules."""
    model.to(device)


def skeleton(name: str) -> PreTrainedModel:
    """The model without its weights: names and shapes of its parameters, and no memory."""
    from transformers import AutoModelForCausalLM

    with loading(name):
        config = read_config(name)
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def read_config(name: str) -> ModelConfig:
    """The model's configuration; a place that holds no model is refused."""
    from transformers import AutoConfig
    from transformers.utils import logging as messages

    from fedrl.llm import gguf

    messages.disable_progress_bar()
    # Its warnings are about every try to reach the network; the last one's error says it all.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    place = Path(name)
    if gguf.is_gguf(name):
        if not place.is_file():
            raise UserError(f"algorithm.model: there is no file {name}")
        return gguf.read_config(place)
    if place.is_file():
        raise UserError(f"algorithm.model: {name} is a file; name a model folder or a .gguf file")
    if not place.is_dir() and (place.is_absolute() or name.startswith(".")):
        raise UserError(
            f"algorithm.model: there is no folder {name}; `fedrl warmstart` makes one ({DRY_RUN})"
        )
    if place.is_dir() and not (place / "config.json").is_file():
        raise UserError(f"algorithm.model: {name} is no model folder (it has no config.json)")
    require_hub(name)
    return AutoConfig.from_pretrained(name)


def require_hub(name: str, key: str = "algorithm.model") -> None:
    """Say at once that a model is neither here nor to be had: the hub's own tries take long."""
    from huggingface_hub import constants, try_to_load_from_cache

    if Path(name).is_dir() or any(os.environ.get(proxy) for proxy in INDIRECT):
        return
    here = name.count("/") <= 1 and isinstance(try_to_load_from_cache(name, "config.json"), str)
    address = urlsplit(constants.ENDPOINT)
    try:
        if not here:
            place = (
                address.hostname or "",
                address.port or (443 if address.scheme == "https" else 80),
            )
            socket.create_connection(place, HUB_SECONDS).close()
    except OSError as error:
        raise UserError(unreachable(name, key)) from error


def unreachable(name: str, key: str) -> str:
    sizes = f" ({DRY_RUN})" if key == "algorithm.model" else ""
    return (
        f"{key} is {name!r}: no such folder here, and Hugging Face cannot be reached; make one "
        f"with `fedrl warmstart`, or name the folder of a model that is on this machine{sizes}"
    )


def look_at_folder(name: str) -> tuple[Tokenizer | None, list[str]]:
    """Its tokenizer, where a model's folder is here, and what of the model a run still needs."""
    from transformers import AutoTokenizer

    from fedrl.llm import gguf

    if gguf.is_gguf(name):  # one file has all
        return None, []
    if not Path(name).is_dir():
        return None, ["tokenizer", "weights"]
    absent = [] if holds(name, WEIGHTS) else ["weights"]
    if not holds(name, TOKENIZER):
        return None, ["tokenizer", *absent]
    with loading(name):
        tokenizer = AutoTokenizer.from_pretrained(name)
    require_end(name, tokenizer)
    return tokenizer, absent


def require_end(name: str, tokenizer: Tokenizer) -> None:
    """Whether a token is known that ends an answer, or fills what stands beside it."""
    if tokenizer.eos_token_id is not None or tokenizer.pad_token_id is not None:
        return
    config = "tokenizer_config.json"
    lacks = Path(name).is_dir() and not (Path(name) / config).is_file()
    why = f"has no {config}" if lacks else "has a tokenizer without eos_token"
    raise UserError(f"algorithm.model: {name} {why}: no end-of-text token is known")


def _load_pretrained(
    name: str, config: ModelConfig, spread: bool, more: dict[str, Any]
) -> tuple[PreTrainedModel, Tokenizer]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from fedrl.llm import gguf

    if gguf.is_gguf(name):
        if spread:
            raise UserError(
                f"algorithm.device is {SPREAD!r}, which needs a model folder: make one of {name} "
                "with `fedrl warmstart --model`"
            )
        return gguf.load(Path(name))
    if Path(name).is_dir() and not holds(name, TOKENIZER):
        # transformers would make up an empty one for some kinds of model
        raise UserError(
            f"algorithm.model: {name} has no tokenizer; copy the model's tokenizer.json and "
            "tokenizer_config.json there"
        )
    model = AutoModelForCausalLM.from_pretrained(name, config=config, dtype=torch.float32, **more)
    return model, AutoTokenizer.from_pretrained(name)


def holds(name: str, files: re.Pattern[str]) -> bool:
    """Whether a folder has one of these files."""
    return any(files.match(path.name) for path in Path(name).iterdir())


@contextlib.contextmanager
def loading(name: str, key: str = "algorithm.model") -> Iterator[None]:
    """Within it, whatever is wrong with a model is one line with its name and its setting."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
        if is_out_of_memory(error):
            raise
        if isinstance(error, ModuleNotFoundError) and error.name:
            raise missing_extra(error, f"{key} = {name!r}", "llm") from error
        first = str(error).strip().splitlines()[0]
        if "couldn't connect" in first or "offline mode" in first:
            raise UserError(unreachable(name, key)) from error
        if "not a local folder" in first:
            raise UserError(
                f"{key} is {name!r}: no such folder here, and no model of Hugging Face; make one "
                f"with `fedrl warmstart`{f' ({DRY_RUN})' if key == 'algorithm.model' else ''}"
            ) from error
        raise UserError(f"{key} is {name!r}, which cannot be loaded: {first}") from error
