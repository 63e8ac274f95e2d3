"""The warm start of a model that writes: it reads the beginnings of PUBLIC texts, and learns to
predict each next token.

Its built-in tokenizers are ordinary ones of the `tokenizers` library, so that the folder loads with
AutoTokenizer anywhere: the words of the texts where these have few (generated reviews), pieces of
words (byte-level BPE) where they have many. Only beginnings are read, as long as a run's texts get:
that is all that the model will be asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from fedrl.llm import builtin
from fedrl.llm.policy import Policy, choose_device, load
from fedrl.llm.rollout import Sample
from fedrl.llm.tokenizer import END, PAD, UNKNOWN

WORD = r"\w+(?:'\w+)?|[^\w\s]"
CHARACTERS = 16
"""Of a text that are tokenized per token that is wanted."""


def words(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Every word of these texts, in small letters, and every mark is a token."""
    split = pre_tokenizers.Split(Regex(WORD), behavior="removed", invert=True)
    lower = normalizers.Lowercase()
    found = {
        word for text in texts for word, _ in split.pre_tokenize_str(lower.normalize_str(text))
    }
    vocabulary = {token: i for i, token in enumerate((PAD, END, UNKNOWN, *sorted(found)))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = lower
    tokenizer.pre_tokenizer = split
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, unk_token=UNKNOWN
    )


def pieces(texts: Iterable[str], size: int) -> PreTrainedTokenizerFast:
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


def reader(settings: Any, texts: Sequence[str], few_words: bool) -> Policy:
    """The model to teach: a new one over these texts' words or pieces, or the one that is named."""
    device = choose_device("auto")
    if settings.model != "builtin":
        return load(settings.model, device)
    tokenizer = words(texts) if few_words else pieces(texts, settings.vocabulary)
    model: Any = builtin.build(tokenizer, settings.width, settings.layers, settings.seed)
    return Policy(model.to(device), tokenizer, device)


def lessons(tokenizer: Any, texts: Sequence[str], window: int) -> list[Sample]:
    """The beginnings of texts as the learner takes them: all after the first token is an answer.

    A text that ends within the window is followed by the end token.
    """
    rows = tokenizer([text[: CHARACTERS * window] for text in texts])["input_ids"]
    found = []
    for i, row in enumerate(rows):
        row = [*row, tokenizer.eos_token_id][:window]
        found.append(Sample(i, 0, row[:1], row[1:], [], ""))
    return found
