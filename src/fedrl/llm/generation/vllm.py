"""Answers by vLLM, where it is installed: the sampler's interface (`algorithm.rollouts = "vllm"`).

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
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedrl.core.types import UserError
from fedrl.llm.generation.hf import Answers
from fedrl.llm.gguf import is_gguf
from fedrl.llm.policy import Policy

SHARE = 0.3
"""Of the GPU's memory, for vLLM's weights and cache; the rest is the learner's."""


class Vllm:
    """See the module's docstring. `length` is the longest prompt with its answer, in tokens."""

    def __init__(self, name: str, policy: Policy, length: int) -> None:
        if is_gguf(name):
            raise UserError(
                'algorithm.rollouts is "vllm", which needs a model folder: make one of '
                f"{name} with `fedrl warmstart --model`"
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
        self._params: Any = vllm.SamplingParams
        self.end = list(policy.end)
        self.llm: Any = vllm.LLM(
            model=name,
            dtype="bfloat16",
            max_model_len=length,
            gpu_memory_utilization=SHARE,
            logprobs_mode="processed_logprobs",
            generation_config="vllm",  # not the folder's top_p and penalties
            seed=0,
        )
        self.version = 0

    def push(self, weights: Mapping[str, Tensor] | None, version: int) -> None:
        """Hand over new weights, named as in the model's state_dict."""
        if weights is None:
            raise ValueError("push without weights: vLLM keeps a copy, give it all of them")
        named: Mapping[str, Tensor] = weights

        def take(model: Any) -> None:
            # A critic's head is the learner's alone.
            model.load_weights((k, named[k]) for k in named if not k.startswith("value."))

        self.llm.apply_model(take)
        self.llm.reset_prefix_cache()
        self.version = version

    def answer(
        self,
        prompts: Sequence[Sequence[int]],
        limit: int,
        temperature: float,
        generator: torch.Generator,
    ) -> Answers:
        """Sample up to `limit` tokens each; temperature 0 takes the most likely."""
        seeds = torch.randint(
            2**31, (len(prompts),), generator=generator, device=generator.device
        ).tolist()
        how = [
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
        asked = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        said = [out.outputs[0] for out in self.llm.generate(asked, how, use_tqdm=False)]
        tokens = [list(one.token_ids) for one in said]
        logprobs = [
            [
                float(at[token].logprob)
                for token, at in zip(one.token_ids, one.logprobs, strict=True)
            ]
            for one in said
        ]
        return Answers(tokens, logprobs)
