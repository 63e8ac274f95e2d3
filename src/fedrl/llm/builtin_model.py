"""The built-in small model: a Llama, or a GPT-2, of 0.1 to 0.6M parameters over the world's words.

An entity's first embedding is the sum of its noun's and its number's, so that "drawer 7" is a
drawer before any training has seen it. Weights begin at 1/√width: with transformers' 0.02, which
is meant for widths of thousands, the same warm start ends at half the success.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from fedrl.llm.builtin_tokenizers import ENTITY
from fedrl.llm.policy import Policy, choose_device, load, move

Architecture = Literal["llama", "gpt2"]
BUILTIN = "builtin"
"""A model's name in settings: a small new one."""


class Shape(NamedTuple):
    width: int = 64
    layers: int = 2
    seed: int = 0  # of the first weights
    spread: float = 0.0  # their deviation; 0 is 1/√width
    architecture: Architecture = "llama"


def build_model(tokenizer: PreTrainedTokenizerFast, shape: Shape) -> PreTrainedModel:
    config = llama_config(tokenizer, shape)
    kind: type[PreTrainedModel] = LlamaForCausalLM
    if shape.architecture == "gpt2":
        config, kind = gpt2_config(tokenizer, shape), GPT2LMHeadModel
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(shape.seed)
        model = kind(config)
        _tie_numbers(model, tokenizer)
    return model


def llama_config(tokenizer: PreTrainedTokenizerFast, shape: Shape) -> PreTrainedConfig:
    width, heads = shape.width, max(shape.width // 16, 1)
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=shape.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=512,
        initializer_range=shape.spread or width**-0.5,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )


def gpt2_config(tokenizer: PreTrainedTokenizerFast, shape: Shape) -> PreTrainedConfig:
    """GPT-2's layers: positions are learned, LayerNorm, GELU; no dropout, which warm starts of so
    few steps do not need."""
    width = shape.width
    return GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=512,
        n_embd=width,
        n_layer=shape.layers,
        n_head=max(width // 16, 1),
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        initializer_range=shape.spread or width**-0.5,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )


def model_to_teach(
    name: str, tokenizer: Callable[[], PreTrainedTokenizerFast], shape: Shape
) -> Policy:
    """The model called `name`, or a new built-in one of this shape over this tokenizer."""
    device = choose_device("auto")
    if name != BUILTIN:
        return load(name, device)
    words = tokenizer()
    model = build_model(words, shape)
    move(model, device)
    return Policy(model, words, device)


@torch.no_grad()
def _tie_numbers(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
    table = model.get_input_embeddings().get_parameter("weight")
    width, scale = table.shape[1], float(table.std())
    nouns: dict[str, torch.Tensor] = {}
    numbers: dict[str, torch.Tensor] = {}
    for token, i in sorted(tokenizer.get_vocab().items()):
        if re.fullmatch(ENTITY, token):
            noun, _, number = token.rpartition(" ")
            if noun not in nouns:
                nouns[noun] = scale * torch.randn(width)
            if number not in numbers:
                numbers[number] = scale * torch.randn(width)
            table[i] = nouns[noun] + numbers[number]
