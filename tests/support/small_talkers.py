"""Language models of a few thousand weights over a handful of words: for runs in any text world."""

from __future__ import annotations

from pathlib import Path

import torch

from fedrl.llm.builtin_model import Shape, build_model
from fedrl.llm.builtin_tokenizers import word_tokenizer
from fedrl.llm.export import write_model


def talker(folder: Path, text: str, template: str = "", lively: bool = False) -> Path:
    """A model that says these words, and the numbers 1 to 7, at random.

    A lively one does not repeat what it has just read, and its most likely answers differ.
    """
    tokenizer = word_tokenizer([text, "1 2 3 4 5 6 7"])
    tokenizer.chat_template = template or None
    model = build_model(tokenizer, Shape(16, 1))
    if lively:
        output = torch.randn(model.lm_head.weight.shape, generator=torch.Generator().manual_seed(0))
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(output)
    write_model(model, tokenizer, folder)
    return folder
