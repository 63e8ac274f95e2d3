"""Where the time of a local epoch goes, and the least that each part could take.

A floor counts what cannot be done without: each weight, key and value read once per decode step at
the bandwidth of a copy; two operations per weight and token read, six per weight and token learned,
at the rate of a large matrix product. What rows begin with alike counts once.
"""

from __future__ import annotations

import copy
import statistics

import torch

from fedrl.llm.generation.cuda import CudaSampler
from fedrl.llm.generation.prompt_tree import prompt_tree
from fedrl.llm.rl.batches import to_packed
from fedrl.llm.weights import MergedWeights
from language.bench import Bench
from language.models import adamw, parameters
from language.rollout import measure_engine
from language.timing import DEVICE, activity, kernels, peaks, timed


def profile(bench: Bench) -> None:
    bandwidth, rate = bench.attempt("peaks", peaks) or (float("nan"), float("nan"))
    print(f"peaks measured here: {bandwidth / 1e12:.2f} TB/s, {rate / 1e12:.1f} TFLOP/s")
    bench.attempt("profile epoch", lambda: profile_epoch(bench, bandwidth, rate))
    for count in bench.sizes.batches:
        bench.attempt(
            f"profile decode at {count}",
            lambda n=count: profile_decode(bench, n, bandwidth, rate),
        )
    bench.attempt("profile learn", lambda: profile_learn(bench, rate))


def profile_epoch(bench: Bench, bandwidth: float, rate: float) -> None:
    """A local epoch part by part: the clock, kernels (of graphs, too), gaps, and the floor."""
    episodes, steps, size = bench.sizes.batches[0], bench.sizes.steps, bench.sizes.minibatch
    model = copy.deepcopy(bench.model)
    engine, optimizer = CudaSampler(model, (), 0), adamw(model)
    samples = bench.samples(episodes * steps)
    bench.answer(engine, episodes)
    bench.learn(model, optimizer, samples[:size], size)
    body, head = sizes(bench)
    different = sorted({tuple(prompt) for prompt in bench.prompts[:episodes]})
    fresh = len(prompt_tree(different).ids)
    reading = 2 * body * fresh * steps / rate
    moved, _ = decode_costs(bench, engine, episodes)
    decoding = moved / bandwidth * steps * bench.sizes.new
    learned = sum(
        len(to_packed(samples[i : i + size], torch.device("cpu")).ids)
        for i in range(0, len(samples), size)
    )
    learning = 6 * (body * learned + head * bench.sizes.new * len(samples)) / rate
    parts = {
        "reading": (lambda: [bench.answer(engine, episodes, 1) for _ in range(steps)], reading),
        "playing": (
            lambda: [bench.answer(engine, episodes) for _ in range(steps)],
            reading + decoding,
        ),
        "learning": (lambda: bench.learn(model, optimizer, samples, size), learning),
        "pushing": (
            lambda: engine.push(MergedWeights(model), 1),
            6 * parameters(model) / bandwidth,
        ),
    }
    print(f"a local epoch of {episodes} episodes × {steps} steps:")
    print("  part       clock ms  kernels ms   kernels  idle ms  floor ms  over the floor")
    for name, (work, floor) in parts.items():
        work()
        clock, busy, count, idle = activity(work)
        print(
            f"  {name:9} {1e3 * clock:9.1f} {1e3 * busy:11.1f} {count:9d} {1e3 * idle:8.1f} "
            f"{1e3 * floor:9.2f} {clock / floor:9.1f}",
            flush=True,
        )
        bench.results.add(f"profile_epoch_{name}", 1e3 * clock, "ms")
        bench.results.add(f"profile_epoch_{name}_idle", 1e3 * idle, "ms")
        bench.results.add(f"profile_epoch_{name}_floor", 1e3 * floor, "ms")
    print("  (playing holds reading)")


def sizes(bench: Bench) -> tuple[int, int]:
    """Parameters of the body, and of the output layer."""
    head = bench.model.get_output_embeddings().weight
    tied = head is bench.model.get_input_embeddings().weight
    return parameters(bench.model) - head.numel() * (1 if tied else 2), head.numel()


def decode_costs(bench: Bench, engine: CudaSampler, count: int) -> tuple[float, float]:
    """Bytes and operations of one decode step."""
    weights, width = engine.weights, engine.dtype.itemsize
    length = statistics.mean(map(len, bench.prompts[:count])) + bench.sizes.new / 2
    body = sum(x.numel() for layer in weights.layers for x in layer if x is not None)
    cache = 2 * len(weights.layers) * weights.kv * weights.size * width * length * count
    logits = count * len(weights.head) * 8  # written and read
    moved = width * (body + weights.head.numel()) + cache + logits
    attention = 4 * len(weights.layers) * weights.heads * weights.size * length
    return moved, count * (2 * (body + weights.head.numel()) + attention)


def profile_decode(bench: Bench, count: int, bandwidth: float, rate: float) -> None:
    _, token = measure_engine(bench, count, {})
    engine = CudaSampler(bench.model, (), 0)
    moved, work = decode_costs(bench, engine, count)
    bench.tell_bound(f"decode_{count}", token, moved, work, bandwidth, rate)
    bench.answer(engine, count)
    kernels(lambda: bench.answer(engine, count), f"a call at {count} with its prompts")
    engine.generate([[3] for _ in range(count)], 2, 1.0, torch.Generator(DEVICE))
    kernels(
        lambda: engine.generate([[3]] * count, bench.sizes.new, 1.0, torch.Generator(DEVICE)),
        f"decoding alone at {count}, without a prompt to attend to",
    )


def profile_learn(bench: Bench, rate: float) -> None:
    model = copy.deepcopy(bench.model)
    samples, size = bench.samples(bench.sizes.minibatch), bench.sizes.minibatch
    optimizer = adamw(model)
    took = timed(lambda: bench.learn(model, optimizer, samples, size), bench.sizes.repeats)
    body, head = sizes(bench)
    tokens = sum(len(s.prompt) + len(s.answer) for s in samples)
    work = 6 * body * tokens + 6 * head * bench.sizes.new * len(samples)
    bench.tell_bound("learn", took, None, work, float("nan"), rate)
    kernels(lambda: bench.learn(model, optimizer, samples, size), "an optimiser step")
