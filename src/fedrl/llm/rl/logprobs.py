"""Log-probabilities of answers under a model, as the learner computes them.

Only the answers' positions go through the output layer, because its width (the vocabulary) is most
of a small model's arithmetic. On a GPU the model's body computes in bfloat16 while the weights stay
in float32. The output layer computes in float32 everywhere: a bfloat16 logit of 10 is off by up to
0.03, which the ratio of new to old probability would take for a change of the policy.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedrl.llm.model_types import LanguageModel
from fedrl.llm.rl.batches import Rows
from fedrl.llm.weights import decoder_and_head

COMPILED = "_compiled_for_learning"
"""Where a model's body keeps the compiled view of itself (`model_setup.compile_layers`)."""


def hidden_states(model: LanguageModel, batch: Rows) -> Tensor:
    """The last hidden state at every position [B · T, d]."""
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
    model: LanguageModel, hidden: Tensor, batch: Rows, temperature: float
) -> tuple[Tensor, Tensor]:
    """Log-probability of every answer token [A], and the entropy at its position [A]."""
    logs = log_distributions(model, hidden, batch, temperature)
    entropy = -(logs.exp() * logs).sum(-1)
    return logs.gather(-1, batch.target[:, None])[:, 0], entropy


def answer_logprobs(model: LanguageModel, batch: Rows, temperature: float) -> tuple[Tensor, Tensor]:
    """`token_logprobs` of the model's own hidden states."""
    return token_logprobs(model, hidden_states(model, batch), batch, temperature)
