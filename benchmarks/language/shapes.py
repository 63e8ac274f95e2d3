"""One local step of other shapes, and the memory estimate beside the measured peak."""

from __future__ import annotations

import gc
import random
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fedrl.llm.generation.cuda import CudaSampler
from fedrl.llm.memory import PASS_TOKENS
from fedrl.llm.rollout import Sample
from fedrl.llm.weights import MergedWeights
from language.bench import Bench
from language.models import LORA_ONLY, LORA_RANK, SHAPES, SMOLLM2, adamw, adapted, built, parameters
from language.timing import DEVICE, DTYPE, GPU, activity, kernels, now

QUICK = ("qwen2.5-1.5b",)
MEMORY = [  # shape, LoRA, save_memory, episodes, prompt and answer tokens
    ("smollm2-135m", False, False, 64, 128, 16),
    ("smollm2-135m", False, False, 1024, 400, 24),
    ("smollm2-135m", False, True, 512, 1024, 64),
    ("smollm2-135m", True, False, 64, 3584, 512),
    ("qwen2.5-1.5b", True, False, 64, 600, 128),
    ("qwen2.5-1.5b", True, True, 64, 2048, 512),
    ("qwen2.5-1.5b", False, False, 64, 600, 128),
    ("qwen2.5-3b", True, False, 128, 600, 128),
    ("qwen2.5-3b", False, True, 64, 600, 128),
    ("llama-3.2-3b", True, False, 64, 600, 128),
    ("qwen2.5-7b", True, False, 64, 600, 128),
]


def shapes(bench: Bench) -> None:
    for name, shape in SHAPES.items():
        if bench.quick and GPU and name not in QUICK:
            continue
        for lora in (True, False):
            if lora or name not in LORA_ONLY:
                how = "lora" if lora else "full"
                bench.attempt(
                    f"{name} {how}", lambda n=name, s=shape, x=lora: local_step(bench, n, s, x)
                )


def local_step(bench: Bench, name: str, shape: tuple, lora: bool) -> None:
    """One minibatch: play it, learn from it in small passes and in large ones, push the weights."""
    forget()
    model = built(shape, DTYPE if lora else torch.float32)
    count = parameters(model)
    if lora:
        model = adapted(model)
    rows, how = bench.sizes.minibatch, "lora" if lora else "full"
    step = Step(bench, model, rows, bench.sizes.prompt, bench.sizes.new, rows)
    tokens = rows * (bench.sizes.prompt + bench.sizes.new)
    print(f"{name} {how}: {count / 1e9:.2f}B parameters, {tokens:,} tokens in a minibatch")
    for step.tokens in (PASS_TOKENS[0], 4 * PASS_TOKENS[0]):
        forget()
        step()
        play, learn = min((step() for _ in range(bench.sizes.repeats)), key=sum)
        samples = step.play()
        clock, busy, launched, idle = activity(partial(step.learn, samples))
        memory = torch.cuda.max_memory_allocated() / 1e9 if GPU else float("nan")
        print(
            f"  passes of {step.tokens:,} tokens: {play + learn:.2f} s (playing {play:.2f}, "
            f"learning {learn:.2f}): {tokens / (play + learn):,.0f} tokens/s, learning alone "
            f"{tokens / learn:,.0f}; peak {memory:.1f} GB; learning under the profiler "
            f"{1e3 * clock:.0f} ms, {1e3 * busy:.0f} in {launched:,} kernels, "
            f"{1e3 * idle:.0f} idle",
            flush=True,
        )
        label = f"shape_{name}_{how}_{step.tokens}"
        bench.results.add(label, tokens / (play + learn), "tokens/s")
        bench.results.add(f"{label}_learning", tokens / learn, "tokens/s")
        bench.results.add(f"{label}_learning_kernels", 1e3 * busy, "ms")
        bench.results.add(f"{label}_learning_idle", 1e3 * idle, "ms")
        if GPU:
            bench.results.add(f"{label}_memory", memory, "GB")
    if name in QUICK:
        kernels(partial(step.learn, samples), f"{name} {how}, learning")


class Step:
    """Seconds of playing and of learning, with a sampler and an optimizer of its own."""

    def __init__(
        self, bench: Bench, model: Any, rows: int, prompt: int, new: int, micro: int
    ) -> None:
        self.bench, self.model, self.new, self.micro = bench, model, new, micro
        self.tokens: int | None = None  # of a pass of the learner
        self.engine, self.optimizer = CudaSampler(model, (), 0), adamw(model)
        rng, top = random.Random(0), model.config.vocab_size
        self.prompts = [[rng.randrange(top) for _ in range(prompt)] for _ in range(rows)]
        self.generator = torch.Generator(DEVICE).manual_seed(0)

    def __call__(self) -> tuple[float, float]:
        start = now()
        samples = self.play()
        played = now()
        self.learn(samples)
        return played - start, now() - played

    def play(self) -> list[Sample]:
        said = self.engine.generate(self.prompts, self.new, 1.0, self.generator)
        parts = zip(self.prompts, said.tokens, said.logprobs, strict=True)
        return [Sample(i, 0, p, t, x, "") for i, (p, t, x) in enumerate(parts)]

    def learn(self, samples: list[Sample]) -> None:
        self.bench.learn(self.model, self.optimizer, samples, self.micro, self.tokens)
        self.engine.push(MergedWeights(self.model), 1)


def memory(bench: Bench) -> None:
    """Training of each shape at its longest: the estimate beside the allocator's peak."""
    chosen = [case for case in MEMORY if not (bench.quick and GPU and "7b" in case[0])]
    print("  model, how, episodes × (prompt + answer)      estimate   measured   ratio")
    for case in chosen:
        bench.attempt(f"memory {case}", lambda c=case: _memory(bench, *c))


def _memory(
    bench: Bench, name: str, lora: bool, again: bool, rows: int, prompt: int, new: int
) -> None:
    from fedrl.algorithms.fedagent.memory_estimate import estimate_memory
    from fedrl.algorithms.fedagent.settings import Settings
    from fedrl.llm.model_setup import checkpoint_activations

    forget()
    if not GPU:
        rows, prompt, new = 4, 24, 4
    model = built({"smollm2-135m": SMOLLM2, **SHAPES}[name], torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(Path(folder))
        settings = Settings(
            model=folder, device="cuda", lora_rank=LORA_RANK if lora else 0, save_memory=again,
            kl=0.0, tasks=rows // 2, group=2, minibatch=min(rows, 64), microbatch=64,
            prompt_tokens=prompt, answer_tokens=new,
        )  # fmt: skip
        estimate = estimate_memory(settings, 0).memory
    if lora:
        model = adapted(model)
    if again:
        checkpoint_activations(model)
    step = Step(bench, model, rows, prompt, new, 64)
    for _ in range(2):  # AdamW's moments come with the first
        step()
    measured = held()
    how = ("lora" if lora else "full") + (" again" if again else "")
    ratio = estimate.total / measured if measured else float("nan")
    print(
        f"  {name} {how} {rows} × ({prompt} + {new}): ".ljust(46)
        + f"{estimate.total / 1e9:8.2f} GB {measured / 1e9:7.2f} GB {ratio:7.3f}   "
        + ", ".join(f"{part} {size / 1e9:.2f}" for part, size in estimate._asdict().items()),
        flush=True,
    )
    label = f"memory_{name}_{how.replace(' ', '_')}_{rows}_{prompt}_{new}"
    bench.results.add(f"{label}_estimate", estimate.total / 1e9, "GB")
    if GPU:
        bench.results.add(f"{label}_measured", measured / 1e9, "GB")


def forget() -> None:
    """Without what was measured before: a model and its graphs refer to each other."""
    gc.collect()
    if GPU:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def held() -> int:
    """The peak of a GPU's memory since `forget`, with what CUDA graphs keep for themselves: to the
    allocator it is free once they are captured, and nobody else gets it."""
    if not GPU:
        return 0
    kept = sum(
        segment["total_size"] - segment["allocated_size"]
        for segment in torch.cuda.memory_snapshot()
        if tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)
    )
    return torch.cuda.max_memory_allocated() + kept
