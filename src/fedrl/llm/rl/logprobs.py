"""Log-probabilities of answers under a model, as the learner computes them.

Only the answers' positions go through the output layer, because its width (the vocabulary) is most
of a small model's arithmetic. On a GPU the model's body computes in bfloat16 while the weights stay
in float32. Logits are float32 everywhere: a bfloat16 logit of 10 is off by up to 0.03, which the
ratio of new to old probability would take for a change of the policy.

Models of the Llama kind on a GPU learn from packed rows (`learner.decoder`), all others from padded
ones; `learner_rows` says which.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from fedrl.llm.learner.decoder import packed_states, packed_statistics, packs
from fedrl.llm.model_types import LanguageModel
from fedrl.llm.rl.batches import (
    Batching,
    PackedRows,
    Rows,
    microbatches,
    to_packed,
    to_rows,
)
from fedrl.llm.rollout import Sample
from fedrl.llm.weights import decoder_and_head

COMPILED = "_compiled_for_learning"
"""Where a model's body keeps the compiled view of itself (`model_setup.compile_layers`)."""


def learner_rows(
    model: LanguageModel, samples: Sequence[Sample], pad: int, device: torch.device
) -> Rows | PackedRows:
    """As this model reads them: packed where our own learner knows it, padded elsewhere."""
    return to_packed(samples, device) if packs(model) else to_rows(samples, pad, device)


def hidden_states(model: LanguageModel, batch: Rows | PackedRows) -> Tensor:
    """The last hidden state at every position [B · T, d], or of every packed token [N, d]."""
    if isinstance(batch, PackedRows):
        return packed_states(model, batch)
    kind = batch.ids.device.type
    with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
        body = decoder_and_head(model)[0]
        body = vars(body).get(COMPILED, body)
        out = body(input_ids=batch.ids, attention_mask=batch.mask, use_cache=False)
    # A model that is spread over GPUs ends on another one than it began on.
    return out.last_hidden_state.flatten(0, 1).to(batch.ids.device)


def log_distributions(
    model: LanguageModel, hidden: Tensor, batch: Rows, temperature: float
) -> Tensor:
    """log π(· | all before it) at every answer token [A, vocabulary]."""
    head = decoder_and_head(model)[1]
    logits = head(hidden[batch.at].to(head.weight.dtype)).to(hidden.device).float()
    return (logits / temperature).log_softmax(-1)


def token_logprobs(
    model: LanguageModel, hidden: Tensor, batch: Rows | PackedRows, temperature: float
) -> tuple[Tensor, Tensor]:
    """Log-probability of every answer token [A], and the entropy at its position [A]."""
    if isinstance(batch, PackedRows):
        return packed_statistics(model, hidden[batch.at], batch.target, temperature)
    logs = log_distributions(model, hidden, batch, temperature)
    entropy = -(logs.exp() * logs).sum(-1)
    return logs.gather(-1, batch.target[:, None])[:, 0], entropy


def answer_logprobs(
    model: LanguageModel, batch: Rows | PackedRows, temperature: float
) -> tuple[Tensor, Tensor]:
    """`token_logprobs` of the model's own hidden states."""
    return token_logprobs(model, hidden_states(model, batch), batch, temperature)


@torch.no_grad()
def learner_logprobs(
    model: LanguageModel, samples: Sequence[Sample], batching: Batching, temperature: float
) -> list[list[float]]:
    """Of every sample's answer, token by token, as the learner computes them now."""
    model.eval()
    device = next(model.parameters()).device
    found: list[list[float]] = [[] for _ in samples]
    parts = microbatches(range(len(samples)), samples, batching.microbatch, batching.pass_tokens)
    for part in parts:
        chosen = [samples[i] for i in part]
        rows = learner_rows(model, chosen, batching.pad, device)
        flat = answer_logprobs(model, rows, temperature)[0].tolist()
        ends = itertools.accumulate(len(sample.answer) for sample in chosen)
        for i, sample, end in zip(part, chosen, ends, strict=True):
            found[i] = flat[end - len(sample.answer) : end]
    return found
