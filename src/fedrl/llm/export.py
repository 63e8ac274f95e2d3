"""A trained policy as an ordinary model folder: adapters merged, a critic's head left behind.

The folder answers anywhere as the policy did in evaluation: its chat template writes the prompts of
the agent's format (`prompts.chat_template`), its generation settings have the evaluation's
temperature, length and ends, and none of the penalties that the first model's may have had. What
the run's first model was shown in its warm start goes along, so that the next run still refuses to
be evaluated on it. LoRA's adapters can also be written alone, as peft reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError

from fedrl.core.atomic_files import is_private
from fedrl.core.types import Tensors, UserError
from fedrl.llm import lora, warmstart_record
from fedrl.llm.model_types import LanguageModel, Tokenizer
from fedrl.llm.policy import Policy, load
from fedrl.llm.prompts.chat_template import keep_template, keep_whole_answers
from fedrl.llm.rl.ppo import add_value_head
from fedrl.llm.text_policy import Answering
from fedrl.llm.weights import base_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def save(
    name: str,
    trained: lora.Adapters,
    theta: Tensors,
    out: Path,
    answering: Answering,
    adapters: bool = False,
) -> None:
    """The model called `name` with the weights `theta`, and its tokenizer; on the CPU, so that a
    run can be exported where its GPU is not. Adapters that were trained on weights of 4 bits are
    merged into the folder's own, unless `adapters` asks for them alone."""
    if adapters and not trained.rank:
        raise UserError("the run trained the whole model: there are no adapters to be written")
    if trained.rank and not any(map(lora.is_personal, theta)):
        trained = replace(trained, personal=0)
    policy = load(name, torch.device("cpu"))
    policy = replace(policy, model=lora.with_adapters(policy.model, trained))
    if any(name.startswith("value.") for name in theta):
        add_value_head(policy.model)
    policy.set_weights(theta)
    model: LanguageModel = policy.model
    if lora.has_adapters(model) and not adapters:
        model = model.merge_and_unload()
    if hasattr(model, "value"):  # adapters had it beside the model
        del model.value
    _answer_alike(policy, base_model(model), answering)
    write_model(model, policy.tokenizer, out, warmstart_record.told_record(name))


def _answer_alike(policy: Policy, model: PreTrainedModel, answering: Answering) -> None:
    """Make model and tokenizer answer elsewhere as in evaluation."""
    from transformers import GenerationConfig

    sampling = answering.temperature > 0
    drawn = {"temperature": answering.temperature, "top_p": 1.0, "top_k": 0} if sampling else {}
    model.generation_config = GenerationConfig(
        do_sample=sampling, max_new_tokens=answering.answer_tokens, eos_token_id=policy.end,
        pad_token_id=policy.pad, bos_token_id=policy.tokenizer.bos_token_id, **drawn,
    )  # fmt: skip
    tokenizer = policy.tokenizer
    if tokenizer.chat_template and not answering.tools:
        keep_whole_answers(tokenizer, policy.end)
    keep_template(tokenizer, answering.template(tokenizer))


def _readable_as_neighbours(out: Path) -> None:
    """Weights come for their owner's eyes only, and nobody else could load the folder."""
    if not is_private(out):
        mode = (out / "tokenizer_config.json").stat().st_mode & 0o777
        for weights in out.glob("*.safetensors"):
            weights.chmod(mode)


def write_model(
    model: LanguageModel, tokenizer: Tokenizer, out: Path, record: Mapping[str, Any] | None = None
) -> None:
    """A model folder, of adapters alone where there are any; a place that takes no more is one
    line."""
    try:
        if lora.has_adapters(model):
            model.save_pretrained(str(out))
        else:
            base_model(model).save_pretrained(out)
        tokenizer.save_pretrained(out)
        _readable_as_neighbours(out)
        if record:
            warmstart_record.write_record(out, record)
    except (OSError, SafetensorError) as error:
        why = str(error).strip().splitlines()[0]
        raise UserError(f"cannot write the model to {out}: {why}; name another place") from error
