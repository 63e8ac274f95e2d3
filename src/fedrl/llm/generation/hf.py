"""Answers of a model to a batch of prompts: the part of a rollout that costs.

Prompts are padded on the right and masks come from lengths, so a tokenizer whose pad is its end is
no trap. Equal prompts (the group's first step) are read once. `version` says which weights answer:
a rollout made with older weights than the learner believes is the classic silent bug.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedrl.llm.weights import parts


class Answers(NamedTuple):
    tokens: list[list[int]]  # with the end token, unless the limit came first
    logprobs: list[list[float]]  # of the distribution that was sampled from


class Sampler:
    """Plain batched decoding with a growing cache; works for any causal model on any device."""

    def __init__(self, model: nn.Module, end: Sequence[int], pad: int) -> None:
        self.model = model
        self.pad = pad
        self.end = torch.tensor(list(end))
        self.device = next(model.parameters()).device
        self.version = 0

    def push(self, weights: dict[str, Tensor] | None, version: int) -> None:
        """New weights, all of them (of tied ones one is enough, and buffers do not change); None
        where the learner trains this very model.
        """
        if weights is not None:
            self._check(weights)
            self.model.load_state_dict(weights, strict=False)
        self.version = version

    def _check(self, weights: dict[str, Tensor]) -> None:
        """Refuse unknown and missing names: part of the model would silently stay old."""
        if unknown := weights.keys() - self.model.state_dict().keys():
            raise ValueError(f"push with {min(unknown)}, which the model does not have")
        named = dict(self.model.named_parameters(remove_duplicate=False))
        given = {id(named[name]) for name in weights if name in named}
        if missing := [name for name, own in named.items() if id(own) not in given]:
            raise ValueError(f"push without {min(missing)}: give it all weights")

    @torch.no_grad()
    def answer(
        self,
        prompts: Sequence[Sequence[int]],
        limit: int,
        temperature: float,
        generator: torch.Generator,
    ) -> Answers:
        """Sample up to `limit` tokens each; temperature 0 takes the most likely."""
        unique = {tuple(prompt): None for prompt in prompts}
        number = {prompt: i for i, prompt in enumerate(unique)}
        rows = torch.tensor([number[tuple(prompt)] for prompt in prompts])
        body, head = parts(self.model)
        hidden, cache, mask, lengths = self._read(body, list(unique))
        cache.batch_select_indices(rows)
        rows, end = rows.to(self.device), self.end.to(self.device)
        hidden, mask, lengths = hidden[rows], mask[rows], lengths[rows]
        tokens, logprobs = [], []
        over = torch.zeros(len(rows), dtype=torch.bool, device=self.device)
        for step in range(limit):
            logits = head(hidden.to(head.weight.dtype)).to(self.device)
            token, logprob = choose(logits, temperature, generator)
            tokens.append(token)
            logprobs.append(logprob)
            over |= torch.isin(token, end)
            if over.all() or step == limit - 1:
                break
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], 1)
            positions = (lengths + step)[:, None]
            out = self._forward(body, token[:, None], mask, positions, cache)
            hidden = out.last_hidden_state[:, -1].to(self.device)
        said = torch.stack(tokens, 1).cpu(), torch.stack(logprobs, 1).cpu()
        return cut(*said, self.end)

    def _read(
        self, body: nn.Module, prompts: list[tuple[int, ...]]
    ) -> tuple[Tensor, Any, Tensor, Tensor]:
        """The hidden state after each prompt, and the cache of what was read."""
        ids, mask, lengths = (part.to(self.device) for part in padded(prompts, self.pad))
        out = self._forward(body, ids, mask)
        states = out.last_hidden_state.to(self.device)
        hidden = states[torch.arange(len(ids), device=self.device), lengths - 1]
        return hidden, out.past_key_values, mask, lengths

    def _forward(
        self,
        body: nn.Module,
        ids: Tensor,
        mask: Tensor,
        positions: Tensor | None = None,
        cache: Any = None,
    ) -> Any:
        """One pass, in the learner's precision: its log-probabilities must be the same."""
        kind = self.device.type
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            return body(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
            )


def padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ids [B, T], mask [B, T] and lengths [B] of rows of different lengths."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), int(lengths.max())), pad)
    mask = torch.arange(ids.shape[1])[None] < lengths[:, None]
    ids[mask] = torch.tensor([token for row in rows for token in row])
    return ids, mask.long(), lengths


def choose(logits: Tensor, temperature: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A token per row and its log-probability at this temperature (of the softmax, if 0)."""
    scaled = logits.float() / (temperature or 1.0)
    logprobs = scaled.log_softmax(-1)
    if temperature == 0:
        token = logprobs.argmax(-1)
    else:
        noise = torch.rand(logprobs.shape, generator=generator, device=logprobs.device)
        token = (logprobs - (-noise.clamp_min(1e-20).log()).log()).argmax(-1)
    return token, logprobs.gather(-1, token[:, None])[:, 0]


def cut(tokens: Tensor, logprobs: Tensor, end: Tensor) -> Answers:
    """Everything up to the first end token, as lists."""
    ended = torch.isin(tokens, end)
    lengths = torch.where(ended.any(1), ended.int().argmax(1) + 1, tokens.shape[1]).tolist()
    pairs = zip(tokens.tolist(), logprobs.tolist(), lengths, strict=True)
    cut = [(row[:length], logs[:length]) for row, logs, length in pairs]
    return Answers([row for row, _ in cut], [logs for _, logs in cut])
