"""Completions by vLLM, where it is installed (`algorithm.rollouts = "vllm"`).

vLLM's engine runs in this process on the first GPU that it sees, beside the learner, and takes
`SHARE` of its memory. Every answer has a seed of its own, drawn from the caller's generator, so the
same generator gives the same answers. Log-probabilities are of the distribution that was sampled
from, at its temperature. After new weights the cache of prompts is emptied: what it holds was
computed with the old ones.

Tested against a stand-in that checks how vLLM is called, never against vLLM itself; written for its
`LLM` class of version 0.11 and later.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Protocol

from torch import Tensor

from fedrl.core.types import UserError
from fedrl.llm.generation.sampler import Completions, Generators, Prompts, draw_seeds
from fedrl.llm.gguf import is_gguf
from fedrl.llm.out_of_memory import NoRoom, is_out_of_memory
from fedrl.llm.policy import Policy

SHARE = 0.3
"""Of the GPU's memory, for vLLM's weights and cache; the rest is the learner's."""


class LoadsWeights(Protocol):
    """A model inside vLLM."""

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> object: ...


class VllmSampler:
    """See the module's docstring. `length` is the longest prompt with its answer, in tokens."""

    copies_weights = True

    def __init__(self, policy: Policy, length: int) -> None:
        if is_gguf(policy.name):
            raise UserError(
                'algorithm.rollouts is "vllm", which needs a model folder: make one of '
                f"{policy.name} with `fedrl warmstart --model`"
            )
        if policy.device.index not in (None, 0):
            raise UserError(
                f'algorithm.rollouts is "vllm", which runs on the first GPU, not on '
                f'{policy.device}; use "auto"'
            )
        # In this process, so that new weights are handed over and not sent. Read at its import.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        try:
            import vllm
        except ImportError as error:
            raise UserError(
                'algorithm.rollouts is "vllm", which is not installed here: pip install vllm, or '
                'use "auto"'
            ) from error
        self._params = vllm.SamplingParams
        self.end = list(policy.end)
        try:
            self.llm = vllm.LLM(
                model=policy.name,
                dtype="bfloat16",
                max_model_len=length,
                gpu_memory_utilization=SHARE,
                logprobs_mode="processed_logprobs",
                generation_config="vllm",  # not the folder's top_p and penalties
                seed=0,
            )
        except (RuntimeError, ValueError) as error:
            if not is_out_of_memory(error):
                raise
            raise NoRoom(
                f"vLLM finds no room for its weights and cache in {SHARE:.0%} of the GPU's memory",
                'lower algorithm.prompt_tokens or algorithm.answer_tokens, use rollouts = "auto" '
                "or a smaller model",
                only=True,
            ) from error
        self.version = 0

    def push(self, weights: Mapping[str, Tensor] | None, version: int) -> None:
        """Hand over new weights, named as in the model's state_dict."""
        if weights is None:
            raise ValueError("push without weights: vLLM keeps a copy, give it all of them")
        named: Mapping[str, Tensor] = weights

        def load(model: LoadsWeights) -> None:
            # A critic's head is the learner's alone.
            model.load_weights((k, named[k]) for k in named if not k.startswith("value."))

        self.llm.apply_model(load)
        self.llm.reset_prefix_cache()
        self.version = version

    def generate(
        self, prompts: Prompts, limit: int, temperature: float, generator: Generators
    ) -> Completions:
        seeds = draw_seeds(len(prompts), 2**31, generator)
        parameters = [
            self._params(
                temperature=temperature,
                max_tokens=limit,
                logprobs=0,  # of the sampled token alone
                seed=seed,
                stop_token_ids=self.end,
                detokenize=False,
            )
            for seed in seeds
        ]
        requests = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        outputs = [
            out.outputs[0] for out in self.llm.generate(requests, parameters, use_tqdm=False)
        ]
        tokens = [list(output.token_ids) for output in outputs]
        logprobs = [
            [
                float(at[token].logprob)
                for token, at in zip(output.token_ids, output.logprobs, strict=True)
            ]
            for output in outputs
        ]
        return Completions(tokens, logprobs)
