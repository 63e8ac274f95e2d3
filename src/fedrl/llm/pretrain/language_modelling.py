"""The warm start of a model that writes: it reads the beginnings of PUBLIC texts, and learns to
predict each next token.

Its built-in tokenizer has the words of the texts where these have few (generated reviews), pieces
of words (byte-level BPE) where they have many. Only beginnings are read, as long as a run's texts
get: that is all that the model will be asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedrl.llm.model_types import Tokenizer
from fedrl.llm.rollout import Sample

CHARACTERS = 16
"""Of a text that are tokenized per token that is wanted."""


def text_samples(tokenizer: Tokenizer, texts: Sequence[str], window: int) -> list[Sample]:
    """The beginnings of texts as the learner takes them: all after the first token is an answer.

    A text that ends within the window is followed by the end token.
    """
    rows = tokenizer([text[: CHARACTERS * window] for text in texts])["input_ids"]
    samples = []
    for i, row in enumerate(rows):
        row = [*row, tokenizer.eos_token_id][:window]
        samples.append(Sample(i, 0, row[:1], row[1:], [], ""))
    return samples
