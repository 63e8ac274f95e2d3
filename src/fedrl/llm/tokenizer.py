"""The built-in tokenizer: the world's own words, entities ("fridge 1") and phrases as tokens.

It is an ordinary fast tokenizer of the `tokenizers` library (a word-level vocabulary behind a
regular expression), so a model folder that holds it loads with AutoTokenizer anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD, END, UNKNOWN = "<pad>", "<end>", "<unknown>"
SPECIAL = (PAD, END, UNKNOWN)

PHRASES = (
    "go to", "arrive at", "pick up", "in/on", "is closed", "is open in it see", "see nothing",
    "nothing happens", "look at", "put in", "turn on", "not carrying anything", "examine with",
)  # fmt: skip
"""Words that always come together are one token."""

ENTITY = r"[a-z]+ \d+\b"


def pattern(phrases: Iterable[str] = PHRASES) -> str:
    words = "|".join(re.escape(p).replace(r"\ ", " ") for p in sorted(phrases, key=len)[::-1])
    return rf"(?:{words})\b|{ENTITY}|\S+"


def split(text: str) -> list[str]:
    """The tokens of a text, as the tokenizer will see them."""
    return re.findall(pattern(), text.lower())


def build(texts: Iterable[str], numbers: int = 9) -> PreTrainedTokenizerFast:
    """A tokenizer over the words of these texts, and every noun of an entity with 1 to `numbers`.

    The second part is for things that the texts do not show but the world may: a drawer 7.
    """
    found = {token for text in texts for token in split(text)}
    nouns = {token.rpartition(" ")[0] for token in found if re.fullmatch(ENTITY, token)}
    found |= {f"{noun} {n}" for noun in nouns for n in range(1, numbers + 1)}
    vocabulary = {token: i for i, token in enumerate((*SPECIAL, *sorted(found)))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        Regex(pattern()), behavior="removed", invert=True
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, unk_token=UNKNOWN
    )
