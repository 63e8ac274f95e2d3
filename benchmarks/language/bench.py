"""What all parts share: the model, the prompts, and both ways to do each thing."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import harness
import torch
from torch import nn

from fedrl.core.types import UserError
from fedrl.llm.generation.cuda import CudaSampler
from fedrl.llm.generation.sampler import Completions, pad_right
from fedrl.llm.memory import pass_tokens
from fedrl.llm.out_of_memory import is_out_of_memory
from fedrl.llm.rl.batches import Batching
from fedrl.llm.rl.loss import Loss
from fedrl.llm.rl.policy_gradient import update
from fedrl.llm.rollout import Sample
from language.models import SMOLLM2, built, household, parameters
from language.timing import DEVICE, DTYPE, GPU


@dataclass(frozen=True)
class Sizes:
    prompt: int = 400
    new: int = 24
    batches: tuple[int, ...] = (64, 512)
    steps: int = 10  # of an episode
    minibatch: int = 64
    repeats: int = 3


FULL = Sizes()
SHORT = Sizes(batches=(64,), steps=2, repeats=1)
TINY = Sizes(prompt=24, new=4, batches=(4, 8), steps=2, minibatch=4, repeats=1)


class Bench:
    """The model, the prompts, and both ways to do each thing."""

    def __init__(self, asked: Any) -> None:
        self.sizes = (SHORT if asked.quick else FULL) if GPU else TINY
        self.results, self.failed = harness.Results(), False
        self.asked, self.compile, self.quick = asked, asked.compile, asked.quick

    # Opened when a part asks for them: `recipe` brings a model of its own.

    @cached_property
    def _opened(self) -> tuple[Any, Any]:
        tokenizer: Any = None
        if self.asked.model:
            from fedrl.llm.policy import load

            policy = load(self.asked.model, DEVICE)
            model, tokenizer = policy.model, policy.tokenizer
        else:
            model = built(SMOLLM2, torch.float32)
        model.generation_config.eos_token_id = None
        print(
            f"{model.config.model_type} of {parameters(model) / 1e6:.1f}M parameters, "
            f"{DTYPE} for rollouts",
            flush=True,
        )
        return model, tokenizer

    @property
    def model(self) -> Any:
        return self._opened[0]

    @property
    def tokenizer(self) -> Any:
        return self._opened[1]

    @cached_property
    def prompts(self) -> list[list[int]]:
        every = self.sizes.batches[0] * self.sizes.steps  # of an epoch, no two alike
        found = self._prompts(max(every, *self.sizes.batches))
        mean = statistics.mean(map(len, found))
        print(f"prompts of {mean:.0f} tokens, answers of {self.sizes.new}\n", flush=True)
        return found

    def _prompts(self, count: int) -> list[list[int]]:
        if self.tokenizer is None:
            rng, top = random.Random(0), self.model.config.vocab_size
            return [[rng.randrange(3, top) for _ in range(self.sizes.prompt)] for _ in range(count)]
        return household(self.tokenizer, count, self.sizes.prompt)

    # Both ways

    def plain_answer(self, model: Any, count: int) -> torch.Tensor:
        """`generate` on prompts padded on the left."""
        prompts = self.prompts[:count]
        ids, mask, _ = pad_right([prompt[::-1] for prompt in prompts], 0)
        return model.generate(
            input_ids=ids.flip(1).to(DEVICE),
            attention_mask=mask.flip(1).to(DEVICE),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            max_new_tokens=self.sizes.new,
            pad_token_id=0,
        )[:, ids.shape[1] :]

    def answer(self, engine: CudaSampler, count: int, limit: int = 0) -> Completions:
        generator = torch.Generator(DEVICE).manual_seed(1)
        return engine.generate(self.prompts[:count], limit or self.sizes.new, 1.0, generator)

    def samples(self, count: int) -> list[Sample]:
        """Step samples with random answers: their content costs nothing."""
        rng, new = random.Random(1), self.sizes.new
        top, logprob = self.model.config.vocab_size, [-10.0] * new
        prompts = [self.prompts[i % len(self.prompts)] for i in range(count)]
        return [
            Sample(i, 0, prompt, [rng.randrange(top) for _ in range(new)], logprob, "")
            for i, prompt in enumerate(prompts)
        ]

    def plain_learn(self, model: Any, optimizer: Any, samples: list[Sample]) -> None:
        """The usual loop: logits of every position, samples one by one."""
        model.train()
        size = self.sizes.minibatch
        for start in range(0, len(samples), size):
            chosen = samples[start : start + size]
            ids, mask, _ = pad_right([[*s.prompt, *s.answer] for s in chosen], 0)
            with torch.autocast(DEVICE.type, torch.bfloat16, enabled=GPU):
                out = model(input_ids=ids.to(DEVICE), attention_mask=mask.to(DEVICE))
            logs = out.logits[:, :-1].float().log_softmax(-1)
            told = logs.gather(-1, ids.to(DEVICE)[:, 1:, None])[..., 0]
            entropy = -(logs.exp() * logs).sum(-1)
            total = torch.zeros((), device=DEVICE)
            for i, sample in enumerate(chosen):
                here = slice(len(sample.prompt) - 1, len(sample.prompt) + len(sample.answer) - 1)
                ratio = (told[i, here] - told[i, here].detach()).exp()
                advantage = 1.0 if i % 2 else -1.0
                gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
                total = total - (gain + 0.001 * entropy[i, here]).mean() / len(chosen)
            optimizer.zero_grad(set_to_none=True)
            total.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    def learn(
        self,
        model: nn.Module,
        optimizer: Any,
        samples: list[Sample],
        micro: int,
        tokens: int | None = None,
    ) -> None:
        """In passes of so many tokens; where none are named, by the model alone."""
        advantages = [1.0 if i % 2 else -1.0 for i in range(len(samples))]
        generator = torch.Generator(DEVICE).manual_seed(2)
        count = tokens or (pass_tokens(parameters(model)) if GPU else None)
        batching = Batching(0, self.sizes.minibatch, micro, 1.0, generator, count)
        update(model, optimizer, samples, advantages, Loss(kl=0.0), batching)

    def attempt(self, name: str, work: Callable[[], Any]) -> Any:
        """None, and a line that says why, where it fails: the other parts go on."""
        try:
            return work()
        except (RuntimeError, UserError) as error:
            if is_out_of_memory(error):
                print(f"{name}: out of GPU memory", flush=True)
            else:
                print(f"{name}: failed: {str(error).strip().splitlines()[0]}", flush=True)
                self.failed = True
        if GPU:
            torch.cuda.empty_cache()
        return None

    def tell_bound(
        self,
        name: str,
        took: float,
        moved: float | None,
        work: float,
        bandwidth: float,
        rate: float,
    ) -> None:
        if took <= 0:  # a difference of two times, each with its noise: no rate can be told
            print(f"{name}: within the noise of the clock", flush=True)
            return
        text = f"{name}: {1e3 * took:.2f} ms, {work / took / 1e12:.2f} TFLOP/s"
        text += f" ({100 * work / took / rate:.0f}% of the peak)"
        self.results.add(f"profile_{name}_flops", work / took / 1e12, "TFLOP/s")
        if moved is not None:
            floor = max(moved / bandwidth, work / rate)
            text += f", {moved / took / 1e12:.2f} TB/s ({100 * moved / took / bandwidth:.0f}%)"
            text += f"; the floor is {1e3 * floor:.2f} ms"
            self.results.add(f"profile_{name}_bytes", moved / took / 1e12, "TB/s")
            self.results.add(f"profile_{name}_floor", 1e3 * floor, "ms")
        print(text, flush=True)
