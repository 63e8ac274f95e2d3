"""Language models of a few thousand weights over a handful of words: for runs in any text world."""

from __future__ import annotations

from pathlib import Path

from fedrl.llm.builtin_model import Shape, build_model
from fedrl.llm.builtin_tokenizers import word_tokenizer
from fedrl.llm.export import write_model


def talker(folder: Path, text: str, template: str = "") -> Path:
    """A model that says these words, and the numbers 1 to 7, at random."""
    tokenizer = word_tokenizer([text, "1 2 3 4 5 6 7"])
    tokenizer.chat_template = template or None
    write_model(build_model(tokenizer, Shape(16, 1)), tokenizer, folder)
    return folder
