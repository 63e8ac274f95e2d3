"""Types of what transformers and peft give us; imported for type checks alone, since both load
slowly."""

from __future__ import annotations

from peft import PeftModel
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

LanguageModel = PreTrainedModel | PeftModel
"""A causal language model, plain or with LoRA's adapters around it."""
Tokenizer = PreTrainedTokenizerBase
ModelConfig = PreTrainedConfig
