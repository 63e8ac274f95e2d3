"""The paper's size: the main recipe of each world, round by round, with a shape's random weights.

Runs `fedagent/household` and `fedagent/webshop` through `fedrl.run`, as a user would, on genuine
data where FEDRL_DATA is set and in generated worlds elsewhere. Lengths are those of `forced`:
stated, and the same for every model. Evaluations (every fifth round of the recipe) and checkpoints
(every tenth) are left out of the run and of its hours; `--whole` evaluates on as many tasks as are
played and writes a checkpoint, for their memory; hours are without them all the same.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from language.bench import Bench
from language.forced import Lengths, forced
from language.model_folder import ALL_SHAPES, VOCABULARY, source, world_settings, write_model
from language.models import LORA_RANK
from language.shapes import forget, held
from language.timing import GPU, now

STEPS = {"household": (5, 50), "webshop": (3, 15)}
WAYS = {"full": 0, "lora": LORA_RANK}
ROUNDS = 70
AUTHORS_HOURS, AUTHORS_GPUS = (24, 35), 4
"""What the authors say of 70 rounds, on H100s."""
EVALUATED = 64
"""Tasks of an evaluation, with --whole."""
CHAT_TOKENS = {"household": 503, "webshop": 887}
"""Of genuine prompts on average, in SmolLM2's tokens (docs/benchmarks.md): to compare ours with."""


@dataclass(frozen=True)
class Size:
    """What differs from the recipe, None where nothing does."""

    rounds: int = 2  # the first compiles and captures
    tasks: int | None = None
    group: int | None = None
    local_epochs: int | None = None
    cohort: int | None = None
    prompt_tokens: int | None = None
    steps: int | None = None  # of the longest episode
    mean: int = 100
    most: int = 512
    evaluated: int | None = None

    def lengths(self, world: str) -> Lengths:
        low, high = STEPS[world]
        high = high if self.steps is None else min(self.steps, high)
        return Lengths(self.mean, self.most, (min(low, high), high))


SHORT = Size(rounds=1, tasks=2, local_epochs=1, cohort=1, steps=8)
TINY = Size(1, 2, 2, 1, 1, 192, 6, 4, 8)


def add_options(parser: argparse.ArgumentParser) -> None:
    options = parser.add_argument_group("recipe")
    options.add_argument("--shape", choices=ALL_SHAPES, help="default: qwen2.5-1.5b")
    options.add_argument("--worlds", nargs="+", choices=STEPS, default=list(STEPS))
    options.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    for name in ("rounds", "tasks", "group", "local-epochs", "cohort", "steps"):
        meaning = "the longest episode's" if name == "steps" else "instead of the recipe's"
        options.add_argument(f"--{name}", type=int, metavar="N", help=meaning)
    options.add_argument("--whole", action="store_true", help="evaluations and checkpoints, too")


def chosen_size(asked: Any) -> Size:
    size = (SHORT if asked.quick else Size()) if GPU else TINY
    names = ("rounds", "tasks", "group", "local_epochs", "cohort", "steps")
    said = {name: getattr(asked, name) for name in names if getattr(asked, name) is not None}
    size = replace(size, **said)
    return replace(size, evaluated=EVALUATED if GPU else 2) if asked.whole else size


def recipe(bench: Bench) -> None:
    asked, size = bench.asked, chosen_size(bench.asked)
    shape = asked.shape or ("smollm2-135m" if asked.quick and GPU else "qwen2.5-1.5b")
    with tempfile.TemporaryDirectory() as place:
        began = time.perf_counter()
        folder = str(Path(place) / "model")
        count = write_model(folder, shape, asked.model, asked.worlds)
        print(
            f"{shape}{'' if GPU else ', tiny'}: {count / 1e9:.4g}B parameters, random; written in "
            f"{time.perf_counter() - began:.1f} s; tokenizer "
            f"{asked.model or f'BPE of {VOCABULARY} tokens, of the worlds'}",
            flush=True,
        )
        for world in asked.worlds:
            for way in asked.ways:
                name = f"{world} {way}"
                bench.attempt(
                    name, lambda w=world, h=way: _run(bench, size, folder, shape, w, h, place)
                )


# A run


@dataclass
class Spent:
    """What a round took, and of what."""

    playing: float = 0.0
    learning: float = 0.0
    seconds: float = 0.0
    episodes: int = 0
    answers: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0

    @property
    def rest(self) -> float:
        """Weights that are set, copied and averaged."""
        return self.seconds - self.playing - self.learning


@dataclass
class Rounds:
    """Of a run, as they end; the last one is under way."""

    every: list[Spent] = field(default_factory=lambda: [Spent()])

    @property
    def done(self) -> list[Spent]:
        return self.every[:-1]

    def end(self, done: Any) -> None:
        """Called after every round; round 0 only evaluates."""
        if failed := [one for one in done.clients if one["status"] == "failed"]:
            raise RuntimeError(f"client {failed[0]['client']} failed: {failed[0]['reason']}")
        if done.round:
            laps = done.seconds.items()
            self.every[-1].seconds = sum(took for name, took in laps if name != "evaluate")
            self.every.append(Spent())


@contextmanager
def watched(rounds: Rounds, whole: bool) -> Iterator[None]:
    """Within it playing and learning are timed, and only a whole run evaluates and saves."""
    from fedrl.algorithms.fedagent import local_trainer
    from fedrl.algorithms.fedagent.algorithm import FedAgent
    from fedrl.runs.run_dir import RunDir

    play, learn = local_trainer.collect_rollout, local_trainer.LocalOptimizer.update
    evaluate = FedAgent.evaluate

    def evaluated(*args: Any, **more: Any) -> Any:
        before = replace(rounds.every[-1])
        found = evaluate(*args, **more)
        rounds.every[-1] = before  # what was played for it is not training's
        return found

    def timed_play(*args: Any, **more: Any) -> Any:
        start = now()
        rollout = play(*args, **more)
        spent = rounds.every[-1]
        spent.playing += now() - start
        spent.episodes += len(rollout.returns)
        spent.answers += len(rollout.samples)
        spent.prompt_tokens += sum(len(sample.prompt) for sample in rollout.samples)
        spent.answer_tokens += rollout.tokens
        return rollout

    def timed_learn(*args: Any, **more: Any) -> Any:
        start = now()
        logged = learn(*args, **more)
        rounds.every[-1].learning += now() - start
        return logged

    with ExitStack() as stack:
        for owner, name, new in (
            (local_trainer, "collect_rollout", timed_play),
            (local_trainer.LocalOptimizer, "update", timed_learn),
            (FedAgent, "evaluate", evaluated if whole else lambda *args: {}),
            *([] if whole else [(RunDir, "checkpoint", lambda *args: None)]),
        ):
            stack.enter_context(patch.object(owner, name, new))
        yield


def flags(size: Size, folder: str, world: str, way: str, out: str) -> list[str]:
    """What the run says otherwise than its recipe."""
    said: dict[str, Any] = {
        "out": out, "rounds": size.rounds, "eval_every": size.rounds,
        "checkpoint_every": size.rounds, "federation.cohort": size.cohort,
        "algorithm.model": folder, "algorithm.lora_rank": WAYS[way],
        "algorithm.tasks": size.tasks, "algorithm.group": size.group,
        "algorithm.local_epochs": size.local_epochs,
        "algorithm.prompt_tokens": size.prompt_tokens, "algorithm.answer_tokens": size.most,
        "algorithm.eval_tasks": size.evaluated,
    }  # fmt: skip
    said |= {f"world.{key}": value for key, value in world_settings(world).items()}
    return [x for key, value in said.items() if value is not None for x in (f"--{key}", str(value))]


def _run(
    bench: Bench, size: Size, folder: str, shape: str, world: str, way: str, place: str
) -> None:
    import fedrl
    from fedrl.algorithms.fedagent.memory_estimate import estimate_memory

    config = fedrl.configure(f"fedagent/{world}", flags(size, folder, world, way, place))
    lengths, settings = size.lengths(world), config.algorithm
    print(
        f"\n{world} ({source(world)}), {way}: {config.federation.cohort} clients × "
        f"{settings.local_epochs} epochs × {settings.tasks} tasks × {settings.group} episodes; "
        f"{lengths}",
        flush=True,
    )
    forget()
    estimate = estimate_memory(settings, size.evaluated or 0).memory.total
    rounds, began = Rounds(), time.perf_counter()
    with forced(lengths), watched(rounds, bench.asked.whole):
        fedrl.run(config, progress=False, callbacks=[rounds.end])
    took = time.perf_counter() - began
    peak = held()
    label = f"recipe_{shape}_{world}_{way}"
    _tell(bench, label, world, rounds.done, took)
    whole = fedrl.configure(f"fedagent/{world}")
    _tell_hours(bench, label, rounds.done, part_of_round(config, whole, size))
    measured = "not measured without a GPU"
    if GPU:
        measured = f"{peak / 1e9:.1f} GB, reserved {torch.cuda.max_memory_reserved() / 1e9:.1f}"
    print(f"  memory: peak {measured}, estimated {estimate / 1e9:.4g} GB", flush=True)
    bench.results.add(f"{label}_memory_estimate", estimate / 1e9, "GB")
    if GPU:
        bench.results.add(f"{label}_memory", peak / 1e9, "GB")


class Share(NamedTuple):
    """What part of the recipe's round a run's rounds are."""

    clients: float
    epochs: float  # of a client

    def whole(self, one: Spent) -> float:
        """Seconds of the recipe's round. A client plays and learns in every epoch, and its weights
        are set, sent and averaged once."""
        return ((one.playing + one.learning) / self.epochs + one.rest) / self.clients


def part_of_round(config: Any, whole: Any, size: Size) -> Share | None:
    """None where it cannot be said. Clients and epochs come one after the other, so fewer are a
    share; episodes are played side by side."""
    now, then = config.algorithm, whole.algorithm
    alike = all(
        getattr(now, name) == getattr(then, name)
        for name in ("tasks", "group", "answer_tokens", "prompt_tokens")
    )
    if not alike or size.steps is not None or size.mean != Size().mean:
        return None
    return Share(
        config.federation.cohort / whole.federation.cohort, now.local_epochs / then.local_epochs
    )


def _tell(bench: Bench, label: str, world: str, done: list[Spent], took: float) -> None:
    later = done[1:] or done
    print(
        f"  starting {took - sum(one.seconds for one in done):.1f} s (loading included, and "
        "evaluations and checkpoints where there are any)"
    )
    for number, one in enumerate(done, 1):
        print(
            f"  round {number}: {one.seconds:.2f} s: playing {one.playing:.2f}, learning "
            f"{one.learning:.2f}, the rest {one.rest:.2f}; {one.episodes} episodes of "
            f"{one.answers / one.episodes:.1f} steps, prompts of "
            f"{one.prompt_tokens / one.answers:.0f} tokens, answers of "
            f"{one.answer_tokens / one.answers:.1f}: {one.prompt_tokens:,} and "
            f"{one.answer_tokens:,} in all"
        )

    def mean(name: str) -> float:
        return statistics.mean(getattr(one, name) for one in later)

    seconds, answers = mean("seconds"), mean("answer_tokens")
    both = answers + mean("prompt_tokens")
    rates = {
        "generated": answers / mean("playing"),
        "learned": both / mean("learning"),
        "learned_answers": answers / mean("learning"),
        "overall": both / seconds,
    }
    print(f"  (genuine prompts are of {CHAT_TOKENS[world]} tokens on average in SmolLM2's)")
    print(
        f"  {'later rounds' if len(done) > 1 else 'the first round alone'}: "
        f"{rates['generated']:,.0f} answer tokens/s generated, {rates['learned']:,.0f} tokens/s of "
        f"prompts and answers learned ({rates['learned_answers']:,.0f} of answers)"
    )
    for name, rate in rates.items():
        bench.results.add(f"{label}_{name}", rate, "tokens/s")
    for name in ("prompt_tokens", "answer_tokens"):
        bench.results.add(f"{label}_{name}", mean(name), "tokens")
    for name in ("playing", "learning", "rest"):
        bench.results.add(f"{label}_{name}", 100 * mean(name) / seconds, "%")
    bench.results.add(f"{label}_first_round", done[0].seconds, "s")
    bench.results.add(f"{label}_round", seconds, "s")


def _tell_hours(bench: Bench, label: str, done: list[Spent], part: Share | None) -> None:
    """Of the whole recipe, beside the authors'."""
    if part is None:
        print("  other rounds than the recipe's: no hours are told from them", flush=True)
        return
    later = statistics.mean(map(part.whole, done[1:] or done))
    # What starting took in the first round comes once, however small its share of a round was.
    started = done[0].seconds - statistics.mean(one.seconds for one in done[1:] or done)
    hours = (ROUNDS * later + started) / 3600
    low, high = (AUTHORS_GPUS * hours for hours in AUTHORS_HOURS)
    made = f"{1 / part.clients:.3g} clients × {1 / part.epochs:.3g} epochs"
    whole = "" if part == Share(1, 1) else f" of {later:.0f} s (each {made} such as these)"
    print(
        f"  {ROUNDS} rounds{whole} without evaluations and checkpoints: {hours:.1f} hours on this "
        f"GPU; the authors' {AUTHORS_HOURS[0]} to {AUTHORS_HOURS[1]} hours on {AUTHORS_GPUS} H100s "
        f"are {low} to {high} GPU-hours, {low / hours:.1f} to {high / hours:.1f} times as many",
        flush=True,
    )
    bench.results.add(f"{label}_whole_round", later, "s")
    bench.results.add(f"{label}_hours", hours, "h")
