"""Tokenizers of the built-in models: an agent's over its world's own words or over bytes, and a
writer's over words or pieces of words.

They are ordinary fast tokenizers of the `tokenizers` library, so a model folder that holds one
loads with AutoTokenizer anywhere. An agent's takes entities ("fridge 1") and phrases as tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PAD, END, UNKNOWN = "<pad>", "<end>", "<unknown>"

PHRASES = (
    "go to", "arrive at", "pick up", "in/on", "is closed", "is open in it see", "see nothing",
    "nothing happens", "look at", "put in", "turn on", "not carrying anything", "examine with",
)  # fmt: skip
"""Words that always come together are one token."""

ENTITY = r"[a-z]+ \d+\b"
WORD = r"\w+(?:'\w+)?|[^\w\s]"


def entity_pattern() -> str:
    words = "|".join(re.escape(p).replace(r"\ ", " ") for p in sorted(PHRASES, key=len)[::-1])
    return rf"(?:{words})\b|{ENTITY}|\S+"


def entity_tokenizer(texts: Iterable[str], numbers: int = 9) -> PreTrainedTokenizerFast:
    """A tokenizer over the words of these texts, and every noun of an entity with 1 to `numbers`.

    The second part is for things that the texts do not show but the world may: a drawer 7.
    """
    pattern = entity_pattern()
    tokens = {token for text in texts for token in re.findall(pattern, text.lower())}
    nouns = {token.rpartition(" ")[0] for token in tokens if re.fullmatch(ENTITY, token)}
    tokens |= {f"{noun} {n}" for noun in nouns for n in range(1, numbers + 1)}
    return _word_level(tokens, pattern)


def word_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Every word of these texts, in small letters, and every mark is a token."""
    split, lower = _split(WORD), normalizers.Lowercase()
    tokens = {
        word for text in texts for word, _ in split.pre_tokenize_str(lower.normalize_str(text))
    }
    return _word_level(tokens, WORD)


def _word_level(tokens: Iterable[str], pattern: str) -> PreTrainedTokenizerFast:
    vocabulary = {token: i for i, token in enumerate((PAD, END, UNKNOWN, *sorted(tokens)))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = _split(pattern)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, unk_token=UNKNOWN
    )


def _split(pattern: str) -> pre_tokenizers.Split:
    return pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Every byte is a token: a digit is one, and any text comes back as it was."""
    return bpe_tokenizer((), 2 + len(pre_tokenizers.ByteLevel.alphabet()))


def bpe_tokenizer(texts: Iterable[str], size: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE of `size` tokens: nothing is unknown to it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[PAD, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END)
