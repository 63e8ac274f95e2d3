"""Which words of a product's name are nouns: the reward compares names by them.

The original asks spaCy's `en_core_web_sm`. A tagger is any function from a text to its nouns in
lower case, in order, with repetitions; three come with the shop:

- `plain` (the default, no model): runs of letters, digits and underscores, of which those count
  that consist of at least two letters and are not function words. In names of products nearly every
  other word is a noun or part of a name;
- `spacy_tagger()`: the original's;
- `lookup`: a table of names, for replaying recordings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache

from fedrl.core.types import UserError
from fedrl.envs.webshop.word_lists import word_list

Tagger = Callable[[str], Sequence[str]]

WORD = re.compile(r"\w+")


@cache
def _function_words() -> frozenset[str]:
    return frozenset(word_list("function_words"))


def plain(text: str) -> list[str]:
    left_out = _function_words()
    return [
        word
        for word in WORD.findall(text.lower())
        if len(word) > 1 and word.isalpha() and word not in left_out
    ]


@lru_cache
def spacy_tagger(model: str = "en_core_web_sm") -> Tagger:
    """Nouns and proper nouns as spaCy tags them."""
    try:
        import spacy
    except ModuleNotFoundError as error:
        raise UserError(
            'world.tagger is "spacy", which needs that package: pip install spacy, '
            'or set world.tagger = "plain"'
        ) from error
    try:
        pipeline = spacy.load(model, exclude=["parser", "ner", "lemmatizer"])
    except OSError as error:
        raise UserError(
            f'world.tagger is "spacy", which needs the model {model}: python -m spacy download '
            f'{model}, or set world.tagger = "plain"'
        ) from error

    def tag(text: str) -> list[str]:
        return [token.text.lower() for token in pipeline(text) if token.pos_ in ("NOUN", "PROPN")]

    return tag


def lookup(table: Mapping[str, Sequence[str]], otherwise: Tagger = plain) -> Tagger:
    """The nouns of the names that the table knows."""

    def tag(text: str) -> Sequence[str]:
        known = table.get(text)
        return otherwise(text) if known is None else known

    return tag
