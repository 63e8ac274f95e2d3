"""Which sampler completes the prompts of a rollout: `algorithm.rollouts`."""

from __future__ import annotations

from fedrl.core.types import UserError
from fedrl.llm.generation.hf import HFSampler
from fedrl.llm.generation.packed_weights import is_supported
from fedrl.llm.generation.sampler import Sampler
from fedrl.llm.model_types import LanguageModel
from fedrl.llm.policy import SPREAD, Policy
from fedrl.llm.weights import base_model


def select_sampler(rollouts: str, policy: Policy, length: int) -> Sampler:
    """The sampler of a policy; `length` is the longest prompt with its completion, in tokens."""
    name = sampler_name(rollouts, policy.model, policy.device.type == "cuda", policy.spread)
    if name == "cuda":
        from fedrl.llm.generation.cuda import CudaSampler

        return CudaSampler(policy.model, policy.end, policy.pad)
    if name == "vllm":
        from fedrl.llm.generation.vllm import VllmSampler

        return VllmSampler(policy, length)
    return HFSampler(policy.model, policy.end, policy.pad)


def sampler_name(rollouts: str, model: LanguageModel, on_gpu: bool, spread: bool = False) -> str:
    """plain, cuda or vllm; `auto` is our CUDA decoder on a GPU for the models that it knows."""
    if rollouts == "auto":
        known = on_gpu and not spread and is_supported(base_model(model))
        return "cuda" if known else "plain"
    if rollouts != "plain" and spread:
        raise UserError(
            f'algorithm.rollouts is "{rollouts}", which runs on one GPU, but algorithm.device is '
            f'"{SPREAD}"; use "auto"'
        )
    if rollouts != "plain" and not on_gpu:
        raise UserError(
            f'algorithm.rollouts is "{rollouts}", but the model runs on the CPU; use "auto"'
        )
    return rollouts
