"""Rollouts: a batch of prompts against `generate`, and episodes that end apart."""

from __future__ import annotations

import random
from typing import Any

import torch

from fedrl.llm.generation.cuda import CudaSampler
from fedrl.llm.generation.sampler import Answer, Request
from fedrl.llm.rl.logprobs import answer_logprobs, learner_rows
from fedrl.llm.rollout import Sample
from language.bench import Bench
from language.models import half
from language.timing import DEVICE, GPU, seconds, timed

MEAN, MOST = 60, 256
"""Tokens of an answer in `stream`: geometric with this mean, cut here."""


def rollout(bench: Bench) -> None:
    plain = half(bench.model)
    kinds: dict[str, dict[str, Any]] = {"ours": {}}
    if GPU:
        kinds["ours_unfused"] = {"fused": False}
    for count in bench.sizes.batches:
        took = bench.attempt(
            f"rollout plain at {count}",
            lambda n=count: timed(lambda: bench.plain_answer(plain, n), bench.sizes.repeats),
        )
        if took:
            _tell(bench, "plain", count, took, took / bench.sizes.new, None)
        for kind, options in kinds.items():
            measured = bench.attempt(
                f"rollout {kind} at {count}",
                lambda n=count, o=options: measure_engine(bench, n, o),
            )
            if measured:
                _tell(bench, kind, count, measured[0], measured[1], took)
    bench.attempt("agreement", lambda: agreement(bench, bench.sizes.batches[0]))


@torch.no_grad()
def agreement(bench: Bench, count: int) -> None:
    """How far the log-probabilities of the rollout are from the learner's, in its precision."""
    said = bench.answer(CudaSampler(bench.model, (), 0), count)
    parts = zip(bench.prompts, said.tokens, said.logprobs, strict=False)
    samples = [Sample(i, 0, p, t, x, "") for i, (p, t, x) in enumerate(parts)]
    rows = learner_rows(bench.model, samples, 0, DEVICE)
    learned, *_ = answer_logprobs(bench.model, rows, 1.0)
    told = torch.tensor(said.logprobs, device=DEVICE).flatten()
    gap = (learned - told).abs()
    print(
        f"log-probabilities against the learner's: mean gap {gap.mean():.2g}, most {gap.max():.2g}",
        flush=True,
    )
    bench.results.add("rollout_gap", float(gap.mean()), "nats")


def measure_engine(bench: Bench, count: int, options: dict[str, Any]) -> tuple[float, float]:
    """Seconds of a call, and of a decoded token: what more tokens cost on top of one."""
    engine = CudaSampler(bench.model, (), 0, **options)
    whole = timed(lambda: bench.answer(engine, count), bench.sizes.repeats)
    first = timed(lambda: bench.answer(engine, count, 1), bench.sizes.repeats)
    return whole, max(whole - first, 0.0) / (bench.sizes.new - 1)


def _tell(
    bench: Bench, kind: str, count: int, took: float, token: float, plain: float | None
) -> None:
    times = "" if plain is None else f", {plain / took:.1f}× plain"
    print(
        f"rollout {kind} at {count}: {count / took:,.0f} environment steps/s, "
        f"{1e3 * token:.2f} ms per token, prompts and the rest "
        f"{1e3 * (took - token * (bench.sizes.new - 1)):.0f} ms{times}",
        flush=True,
    )
    bench.results.add(f"rollout_{kind}_{count}", count / took, "steps/s")
    bench.results.add(f"rollout_{kind}_{count}_token", 1e3 * token, "ms")
    if plain is not None:
        bench.results.add(f"rollout_{kind}_{count}_ratio", plain / took, "times")


def stream(bench: Bench) -> None:
    """Episodes of several turns whose answers differ in length: all wait for the longest of each
    turn, or none waits."""
    for count in bench.sizes.batches:
        bench.attempt(f"stream at {count}", lambda n=count: _stream(bench, n))


def _stream(bench: Bench, count: int) -> None:
    engine = CudaSampler(bench.model, (), 0, seeded=True)
    turns, rng = min(bench.sizes.steps, 6), random.Random(2)
    most = MOST if GPU else 4 * bench.sizes.new
    lengths = [
        [min(1 + int(rng.expovariate(1 / MEAN)), most) for _ in range(count)] for _ in range(turns)
    ]

    def in_step() -> None:
        for said in lengths:
            bench.answer(engine, count, max(said))

    def on_its_own() -> None:
        done = [0] * count

        def request(i: int) -> Request:
            return Request(i, bench.prompts[i], 7 * i + done[i], lengths[done[i]][i])

        def answered(answers: list[Answer]) -> list[Request]:
            for answer in answers:
                assert len(answer.tokens) == lengths[done[answer.key]][answer.key]
                done[answer.key] += 1
            return [request(answer.key) for answer in answers if done[answer.key] < turns]

        engine.stream([request(i) for i in range(count)], most, 1.0, answered)

    tokens = sum(map(sum, lengths))
    took = {}
    for name, way in (("lockstep", in_step), ("stream", on_its_own)):
        way()
        took[name] = seconds(way)
        print(
            f"{name} at {count}: {turns} turns of answers of {tokens / turns / count:.0f} tokens "
            f"on average and {most} at most in {took[name]:.2f} s, "
            f"{tokens / took[name]:,.0f} tokens/s",
            flush=True,
        )
        bench.results.add(f"{name}_{count}", tokens / took[name], "tokens/s")
    bench.results.add(f"stream_{count}_ratio", took["lockstep"] / took["stream"], "times")
