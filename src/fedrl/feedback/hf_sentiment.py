"""Sentiment by a Hugging Face classifier: in the place of the model that a client fits itself.

Any sequence classifier with a label for "positive" will do, a folder or an id. It is the same for
all clients and learns nothing from them; what it is shown stays where it runs.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from fedrl.core.types import UserError
from fedrl.llm.policy import TOKENIZER, choose_device, loading, require_hub

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

BATCH = 64
LONGEST = 512
"""Tokens that a text is cut to, where the model says nothing of its own."""

_POSITIVE = re.compile(r"(?:very[ _-]*)?pos(?:itive)?", re.IGNORECASE)
_UNNAMED = ["LABEL_0", "LABEL_1"]


@dataclass(frozen=True)
class HFSentiment:
    """A `TextRewardModel` that was trained elsewhere."""

    model: PreTrainedModel  # a sequence classifier
    tokenizer: PreTrainedTokenizerBase
    columns: tuple[int, ...]  # of the labels that are positive

    @torch.no_grad()
    def score(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """P(positive) of each text [n]: the probabilities of all positive labels together."""
        scores = np.zeros(len(texts))
        # Neighbours in length are padded least.
        order = np.argsort([len(text) for text in texts], kind="stable")
        for start in range(0, len(texts), BATCH):
            places = order[start : start + BATCH]
            scores[places] = self._batch([texts[i] for i in places])
        return scores

    def _batch(self, texts: list[str]) -> np.ndarray:
        inputs = self.tokenizer(
            texts, padding=True, truncation=True, max_length=_longest(self.model.config),
            return_tensors="pt",
        )  # fmt: skip
        inputs = inputs.to(self.model.device)
        logits = self.model(inputs["input_ids"], inputs["attention_mask"]).logits.double()
        return torch.softmax(logits, -1)[:, list(self.columns)].sum(-1).cpu().numpy()


def load(name: str, device: str = "auto", key: str = "algorithm.sentiment") -> HFSentiment:
    """The classifier of a folder or a Hugging Face id; `key` is the setting that named it."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    place = choose_device(device)
    with loading(name, key):
        config = _config(name, key)
        labels = {int(i): label for i, label in (config.id2label or {}).items()}
        columns = _positive_columns(name, key, labels)
        model = AutoModelForSequenceClassification.from_pretrained(
            name, config=config, dtype=torch.float32
        )
        tokenizer = AutoTokenizer.from_pretrained(name)
    if tokenizer.pad_token_id is None:  # batches are padded, and the model has to know with what
        tokenizer.pad_token = tokenizer.eos_token
    model.config.pad_token_id = tokenizer.pad_token_id
    return HFSentiment(model.to(place).eval(), tokenizer, columns)


def _config(name: str, key: str) -> PretrainedConfig:
    from transformers import AutoConfig
    from transformers.utils import logging as messages

    messages.disable_progress_bar()
    # Its warnings are about every try to reach the network; the last one's error says it all.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    place = Path(name)
    if place.is_file():
        raise UserError(f"{key}: {name} is a file; name a model folder")
    if not place.is_dir() and (place.is_absolute() or name.startswith(".")):
        raise UserError(f"{key}: there is no folder {name}")
    if place.is_dir():
        files = [path.name for path in place.iterdir()]
        if "config.json" not in files:
            raise UserError(f"{key}: {name} is no model folder (it has no config.json)")
        if not any(TOKENIZER.match(file) for file in files):
            raise UserError(
                f"{key}: {name} has no tokenizer; copy the model's tokenizer.json and "
                "tokenizer_config.json there"
            )
    require_hub(name, key)
    config = AutoConfig.from_pretrained(name)
    if not any(kind.endswith("ForSequenceClassification") for kind in config.architectures or ()):
        raise UserError(
            f"{key}: {name} is no text classifier but {', '.join(config.architectures or ['?'])}; "
            'use "builtin", or a model that was trained to tell positive from negative'
        )
    return config


def _positive_columns(name: str, key: str, labels: Mapping[int, str]) -> tuple[int, ...]:
    if list(labels.values()) == _UNNAMED:  # 1 is positive wherever there are two and no names
        return (1,)
    columns = tuple(i for i, label in labels.items() if _POSITIVE.fullmatch(label.strip()))
    if not columns or len(columns) == len(labels):
        raise UserError(
            f"{key}: {name} has the labels {', '.join(labels.values())}; one of them has to be "
            '"positive", set id2label in its config.json'
        )
    return columns


def _longest(config: PretrainedConfig) -> int:
    return min(getattr(config, "max_position_embeddings", None) or LONGEST, LONGEST)
