"""The learner's steps and whole local epochs, against a padded loop."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

from fedrl.llm.generation.cuda import CudaSampler
from fedrl.llm.learner import decoder, plain_ops
from fedrl.llm.model_setup import compile_layers
from fedrl.llm.rl import logprobs
from fedrl.llm.weights import MergedWeights
from language.bench import Bench
from language.models import adamw, half
from language.timing import seconds, timed


@contextmanager
def learner(kind: str) -> Iterator[None]:
    """Ours as it is; padded as before; packed without the fused kernels."""
    packs, ops = logprobs.packs, decoder.ops_for
    try:
        if kind in ("padded", "compiled"):
            logprobs.packs = lambda model: False
        if kind == "unfused":
            decoder.ops_for = lambda x: plain_ops
        yield
    finally:
        logprobs.packs, decoder.ops_for = packs, ops


def learn(bench: Bench) -> None:
    size, count = bench.sizes.minibatch, 2 * bench.sizes.minibatch
    samples = bench.samples(count)
    tokens = sum(len(s.prompt) + len(s.answer) for s in samples)
    rates: dict[str, float] = {}

    def measure(kind: str) -> None:
        model = copy.deepcopy(bench.model)
        if kind == "compiled":
            compile_layers(model)
        optimizer = adamw(model)
        way = bench.plain_learn if kind == "plain" else bench.learn
        words = () if kind == "plain" else (size,)
        with learner(kind):
            took = timed(lambda: way(model, optimizer, samples, *words), bench.sizes.repeats)
        rates[kind] = tokens / took
        times = f", {rates[kind] / rates['plain']:.2f}× plain" if "plain" in rates else ""
        print(
            f"learn {kind}: {rates[kind]:,.0f} tokens/s, {took / 2 * 1e3:.0f} ms per "
            f"optimiser step of {size} rows{times}",
            flush=True,
        )
        bench.results.add(f"learn_{kind}", rates[kind], "tokens/s")

    for kind in ("plain", "ours", "unfused", "padded", *(("compiled",) if bench.compile else ())):
        bench.attempt(f"learn {kind}", lambda k=kind: measure(k))


def epoch(bench: Bench) -> None:
    episodes, steps = bench.sizes.batches[0], bench.sizes.steps
    samples = bench.samples(episodes * steps)
    took: dict[str, tuple[float, float]] = {}

    def plain() -> None:
        model, player = copy.deepcopy(bench.model), half(bench.model)
        optimizer = adamw(model)
        bench.plain_learn(model, optimizer, samples[: bench.sizes.minibatch])  # warms up
        play = seconds(lambda: [bench.plain_answer(player, episodes) for _ in range(steps)])
        learned = seconds(lambda: bench.plain_learn(model, optimizer, samples))
        copied = seconds(lambda: player.load_state_dict(model.state_dict()))
        took["plain"] = (play, learned + copied)

    def ours() -> None:
        model = copy.deepcopy(bench.model)
        engine, optimizer, size = CudaSampler(model, (), 0), adamw(model), bench.sizes.minibatch
        bench.answer(engine, episodes)  # captures
        for _ in range(2):  # compiles, then captures
            bench.learn(model, optimizer, samples[:size], size)
        play = seconds(lambda: [bench.answer(engine, episodes) for _ in range(steps)])
        learned = seconds(lambda: bench.learn(model, optimizer, samples, size))
        pushed = seconds(lambda: engine.push(MergedWeights(model), 1))
        took["ours"] = (play, learned + pushed)

    for kind, way in (("plain", plain), ("ours", ours)):
        if bench.attempt(f"epoch {kind}", lambda w=way: (w(),)) is None:
            continue
        play, learned = took[kind]
        print(
            f"epoch {kind}: {episodes} episodes × {steps} steps in {play + learned:.2f} s "
            f"(playing {play:.2f} s, learning {learned:.2f} s)",
            flush=True,
        )
        bench.results.add(f"epoch_{kind}", play + learned, "s")
    if len(took) == 2:
        ratio = sum(took["plain"]) / sum(took["ours"])
        print(f"epoch: ours is {ratio:.1f}× as fast", flush=True)
        bench.results.add("epoch_ratio", ratio, "times")
