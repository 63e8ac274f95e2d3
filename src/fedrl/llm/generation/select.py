"""Which sampler completes the prompts of a rollout: `algorithm.rollouts`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fedrl.core.types import UserError
from fedrl.llm.generation.hf import HFSampler
from fedrl.llm.generation.packed_weights import is_supported
from fedrl.llm.generation.sampler import Sampler
from fedrl.llm.policy import SPREAD, Policy
from fedrl.llm.weights import base_model

if TYPE_CHECKING:
    from fedrl.llm.model_types import LanguageModel


class SamplerSettings(Protocol):
    """What is read of a method's settings."""

    @property
    def model(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def rollouts(self) -> str: ...


def select_sampler(settings: SamplerSettings, policy: Policy, length: int) -> Sampler:
    """The sampler of a policy; `length` is the longest prompt with its completion, in tokens."""
    name = sampler_name(settings, policy.model, policy.device.type == "cuda")
    if name == "cuda":
        from fedrl.llm.generation.cuda import CudaSampler

        return CudaSampler(policy.model, policy.end, policy.pad)
    if name == "vllm":
        from fedrl.llm.generation.vllm import VllmSampler

        return VllmSampler(settings.model, policy, length)
    return HFSampler(policy.model, policy.end, policy.pad)


def sampler_name(settings: SamplerSettings, model: LanguageModel, on_gpu: bool) -> str:
    """plain, cuda or vllm; `auto` is our CUDA decoder on a GPU for the models that it knows."""
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
    alone = on_gpu and settings.device != SPREAD
    return "cuda" if alone and is_supported(base_model(model)) else "plain"
