"""Which sampler answers in rollouts: `algorithm.rollouts`."""

from __future__ import annotations

from typing import Any

from torch import nn

from fedrl.core.types import UserError
from fedrl.llm.generation.hf import Sampler
from fedrl.llm.policy import SPREAD, Policy
from fedrl.llm.weights import check_supported, unwrapped


def choose(settings: Any, policy: Policy) -> Any:
    """The sampler of a policy."""
    name = resolve(settings, policy.model, policy.device.type == "cuda")
    if name == "cuda":
        from fedrl.llm.generation.cuda import Engine

        return Engine(policy.model, policy.end, policy.pad)
    if name == "vllm":
        from fedrl.llm.generation.vllm import Vllm

        return Vllm(settings.model, policy, settings.prompt_tokens + settings.answer_tokens)
    return Sampler(policy.model, policy.end, policy.pad)


def resolve(settings: Any, model: nn.Module, on_gpu: bool) -> str:
    """plain, cuda or vllm; `auto` is our CUDA engine on a GPU for the models that it knows."""
    name = str(settings.rollouts)
    if name in ("cuda", "vllm") and settings.device == SPREAD:
        raise UserError(
            f'algorithm.rollouts is "{name}", which runs on one GPU, but algorithm.device is '
            f'"{SPREAD}"; use "auto"'
        )
    if name in ("cuda", "vllm") and not on_gpu:
        raise UserError(
            f'algorithm.rollouts is "{name}", but the model runs on the CPU; use "auto"'
        )
    if name != "auto":
        return name
    return "cuda" if on_gpu and settings.device != SPREAD and known(model) else "plain"


def known(model: nn.Module) -> bool:
    """Whether the CUDA engine computes this model."""
    try:
        check_supported(unwrapped(model))
    except UserError:
        return False
    return True
