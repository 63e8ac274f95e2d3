"""The plain sampler: a model of transformers completes a batch of prompts, on any device.

Prompts are padded on the right and masks come from lengths, so a tokenizer whose pad is its end is
no trap. Equal prompts (the group's first step) are read once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from fedrl.llm.generation.sampler import (
    Completions,
    Generators,
    Prompts,
    cut_at_end,
    fill_uniform,
    pad_right,
)
from fedrl.llm.model_types import LanguageModel
from fedrl.llm.weights import decoder_and_head

if TYPE_CHECKING:
    from transformers import Cache


class HFSampler:
    """Plain batched decoding with a growing cache; works for any causal model on any device."""

    copies_weights = False

    def __init__(self, model: LanguageModel, end: Sequence[int], pad: int) -> None:
        self.model = model
        self.pad = pad
        self.end = torch.tensor(list(end))
        self.device = next(model.parameters()).device
        self.version = 0

    def push(self, weights: Mapping[str, Tensor] | None, version: int) -> None:
        """The learner trains this very model: only the version is new."""
        assert weights is None, "the plain sampler reads the learner's own model"
        self.version = version

    @torch.no_grad()
    def generate(
        self, prompts: Prompts, limit: int, temperature: float, generator: Generators
    ) -> Completions:
        unique = {tuple(prompt): None for prompt in prompts}
        number = {prompt: i for i, prompt in enumerate(unique)}
        rows = torch.tensor([number[tuple(prompt)] for prompt in prompts])
        body, head = decoder_and_head(self.model)
        hidden, cache, mask, lengths = self._prefill(body, list(unique))
        cache.batch_select_indices(rows)
        rows, end = rows.to(self.device), self.end.to(self.device)
        hidden, mask, lengths = hidden[rows], mask[rows], lengths[rows]
        tokens, logprobs = [], []
        over = torch.zeros(len(rows), dtype=torch.bool, device=self.device)
        for step in range(limit):
            logits = head(hidden.to(head.weight.dtype)).to(self.device)
            token, logprob = sample_token(logits, temperature, generator)
            tokens.append(token)
            logprobs.append(logprob)
            over |= torch.isin(token, end)
            if over.all() or step == limit - 1:
                break
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], 1)
            positions = (lengths + step)[:, None]
            states, cache = self._forward(body, token[:, None], mask, positions, cache)
            hidden = states[:, -1]
        said = torch.stack(tokens, 1).cpu(), torch.stack(logprobs, 1).cpu()
        return cut_at_end(*said, self.end)

    def _prefill(
        self, body: nn.Module, prompts: list[tuple[int, ...]]
    ) -> tuple[Tensor, Cache, Tensor, Tensor]:
        """The hidden state after each prompt, and the cache of what was read."""
        ids, mask, lengths = (part.to(self.device) for part in pad_right(prompts, self.pad))
        states, cache = self._forward(body, ids, mask)
        hidden = states[torch.arange(len(ids), device=self.device), lengths - 1]
        return hidden, cache, mask, lengths

    def _forward(
        self,
        body: nn.Module,
        ids: Tensor,
        mask: Tensor,
        positions: Tensor | None = None,
        cache: Cache | None = None,
    ) -> tuple[Tensor, Cache]:
        """Hidden states [B, T, d] and the cache, in the learner's precision: log-probabilities must
        be the same."""
        kind = self.device.type
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            out = body(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
            )
        return out.last_hidden_state.to(self.device), out.past_key_values


def sample_token(
    logits: Tensor, temperature: float, generator: Generators
) -> tuple[Tensor, Tensor]:
    """A token per row and its log-probability at this temperature (of the softmax, if 0)."""
    scaled = logits.float() / (temperature or 1.0)
    logprobs = scaled.log_softmax(-1)
    if temperature == 0:
        token = logprobs.argmax(-1)
    else:
        noise = fill_uniform(torch.empty_like(logprobs), generator)
        token = (logprobs - (-noise.clamp_min(1e-20).log()).log()).argmax(-1)
    return token, logprobs.gather(-1, token[:, None])[:, 0]
