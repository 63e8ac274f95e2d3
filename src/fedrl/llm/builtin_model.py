"""The built-in small model: a Llama of 0.1 to 0.6M parameters over the world's own words.

An entity's first embedding is the sum of its noun's and its number's, so that "drawer 7" is a
drawer before any training has seen it. Weights begin at 1/√width: with transformers' 0.02, which
is meant for widths of thousands, the same warm start ends at half the success.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from fedrl.llm.builtin_tokenizers import ENTITY
from fedrl.llm.policy import Policy, choose_device, load, move

BUILTIN = "builtin"
"""A model's name in settings: a small new one."""


class Shape(NamedTuple):
    width: int = 64
    layers: int = 2
    seed: int = 0  # of the first weights
    spread: float = 0.0  # their deviation; 0 is 1/√width


def build_model(tokenizer: PreTrainedTokenizerFast, shape: Shape) -> LlamaForCausalLM:
    width, heads = shape.width, max(shape.width // 16, 1)
    config = LlamaConfig(
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
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(shape.seed)
        model = LlamaForCausalLM(config)
        _tie_numbers(model, tokenizer)
    return model


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
def _tie_numbers(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    table: torch.Tensor = model.get_parameter("model.embed_tokens.weight")
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
