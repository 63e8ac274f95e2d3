"""Types of what transformers and peft give us, for annotations alone: both load slowly, and code
that only names a type need not wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    LanguageModel = PreTrainedModel | PeftModel
    Tokenizer = PreTrainedTokenizerBase
    ModelConfig = PreTrainedConfig
else:
    LanguageModel = object
    """A causal language model, plain or with LoRA's adapters around it."""
    Tokenizer = object
    ModelConfig = object
