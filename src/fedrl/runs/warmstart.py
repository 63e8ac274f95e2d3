"""`fedrl warmstart`: a model that has seen the expert play PUBLIC tasks, as an ordinary folder.

Reinforcement learning needs episodes that succeed now and then. The public tasks are disjoint from
every client's and from the evaluation's (`splits` of a world never share a task), and the folder's
`warmstart.json` records which ones were shown, to the model that it started from, too. Public tasks
that are not shown tell how well the imitation carries over. A folder appears when it is whole.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from fedrl.algorithms.fedagent import algorithm as fedagent
from fedrl.core.limits import above_zero, at_least_one, not_negative
from fedrl.core.registry import missing_extra, suggestion
from fedrl.core.types import UserError
from fedrl.envs.text import spaced

HELD_OUT = 50
"""Public tasks, beyond those that are shown, on which the loss is told at the end."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is imitated, and how long."""

    # Model to start from: "builtin" (a small new one over the world's words), a folder or an id.
    model: str = "builtin"
    # How the agent is told its situation: compact (small models) or chat.
    format: str = "compact"
    # Chat: answers carry their reasoning in <think> before the choice in <action>.
    thinking: bool = True
    # Public tasks that the expert plays; further ones tell the loss on tasks that were not shown.
    tasks: int = 300
    # How often the expert plays each of them, with other mistakes.
    times: int = 1
    # Share of the expert's commands that are replaced by random ones: what to do after a mistake.
    noise: float = 0.15
    # Household: the expert searches in the order in which the room lists its places, which a small
    # model can read, instead of likely places first, which it must know.
    listed: bool = False
    # Optimiser steps.
    steps: int = 600
    # Examples per step.
    batch: int = 64
    # Learning rate of AdamW at its highest.
    lr: float = 4e-3
    # Longest prompt, in tokens, as in the run that follows.
    prompt_tokens: int = 2048
    # Width of the built-in model.
    width: int = 64
    # Layers of the built-in model.
    layers: int = 2
    # Deviation of the built-in model's first weights; 0 is 1/√width.
    spread: float = 0.0
    # Split whose tasks the agent plays at the end, to tell its success; of "public", those that it
    # was not shown. Empty: none.
    eval: str = ""
    # Tasks of that split, evenly spaced; 0 is all of them.
    eval_tasks: int = 0
    # Of the demonstrations, the model's first weights and the order of examples.
    seed: int = 0

    def __post_init__(self) -> None:
        at_least_one(
            self, "--", "tasks", "times", "steps", "batch", "prompt_tokens", "width", "layers"
        )
        not_negative(self, "--", "seed", "spread", "eval_tasks")
        if not 0 <= self.noise < 1:
            raise UserError(f"--noise is {self.noise}; it is a share from 0 to below 1")
        above_zero(self, "--", "lr")


def warmstart(world: Any, settings: Settings, out: Path, console: Console | None = None) -> Path:
    """Make the folder `out`; one that exists is left alone."""
    console = console or Console(highlight=False)
    before = fedagent.shown(settings.model)
    shown, held_out = _public(world, settings, before)
    exam = _exam(world, settings, before.union(shown))
    with whole(out) as half:
        start = time.perf_counter()
        try:
            record, answers = _teach(world, settings, half, shown, held_out, console)
        except ModuleNotFoundError as error:
            raise missing_extra(error, "fedrl warmstart", "llm") from error
        if exam:
            found = _evaluate(world, settings, half, exam, answers)
            console.print(
                f"{found['success']:.1%} success, score {found['return']:.3f} on "
                f"{len(exam):,} tasks of {settings.eval}"
            )
            record["found"] |= found
        record["tasks"] = [*sorted(before.difference(shown)), *dict.fromkeys(shown)]
        record["seconds"] = round(time.perf_counter() - start, 1)
        text = json.dumps(record, indent=1) + "\n"
        (half / "warmstart.json").write_text(text, encoding="utf-8")
    return out


@contextmanager
def whole(out: Path) -> Iterator[Path]:
    """A folder beside `out` to write into, which takes its name at the end.

    Nothing is left behind of one that came to no end, and what a kill left is cleared away.
    """
    if os.path.lexists(out):
        raise UserError(f"{out} exists already; name another folder, or delete it")
    half = out.with_name(f".{out.name}.part")
    with _naming(out):
        if half.exists():
            shutil.rmtree(half)
        half.mkdir(parents=True)
    try:
        yield half
        with _naming(out):
            half.rename(out)
    finally:
        shutil.rmtree(half, ignore_errors=True)


@contextmanager
def _naming(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"--out {out}: cannot make this folder ({error.strerror}); name another place"
        ) from error


def _teach(
    world: Any,
    settings: Settings,
    half: Path,
    shown: Sequence[str],
    held_out: Sequence[str],
    console: Console,
) -> tuple[dict[str, Any], int]:
    """Imitate and save; the record so far, and the tokens of the longest answer.

    The model is gone on return: the evaluation loads it anew, and both need not fit on one GPU.
    """
    import torch

    from fedrl.llm import export
    from fedrl.llm.pretrain.imitation import examples, imitate, surprise
    from fedrl.llm.prompts import formats

    format = formats.choose(settings.format, world.name, settings.thinking)
    with console.status("the expert plays …") as status:
        policy = _model(world, format, settings, shown)
        how = (settings.noise, settings.prompt_tokens, settings.listed)
        samples = examples(policy.tokenizer, world, format, shown, settings.seed, *how)
        others = examples(policy.tokenizer, world, format, held_out, settings.seed, *how)
    lengths = sorted(len(sample.prompt) for sample in samples)
    console.print(
        f"{len(samples):,} examples of {len(set(shown)):,} public tasks; prompts of "
        f"{lengths[len(lengths) // 2]} tokens in the middle, {lengths[-1]} at most"
    )
    torch.manual_seed(settings.seed)
    began, losses = time.perf_counter(), list[float]()
    with console.status("imitating the expert …") as status:

        def tell(step: int, loss: float) -> None:
            losses.append(loss)
            if step % 20 == 19:
                pace = 1e3 * (time.perf_counter() - began) / (step + 1)
                status.update(
                    f"step {step + 1} of {settings.steps}, loss {loss:.3f}, {pace:.0f} ms a step"
                )

        imitate(policy, samples, settings.steps, settings.lr, settings.batch, settings.seed, tell)
    found = {"loss": last_tenth(losses)}
    if others:
        found["held_out_loss"] = surprise(policy, others)
    console.print(
        f"{settings.steps:,} steps in {time.perf_counter() - began:.0f} s: loss {found['loss']:.3f}"
        + (
            f", on {len(held_out)} tasks that were not shown {found['held_out_loss']:.3f}"
            if others
            else ""
        )
    )
    export.write(policy.model, policy.tokenizer, half)
    record = {
        "settings": dataclasses.asdict(settings),
        "world": dataclasses.asdict(world.settings),
        "examples": len(samples),
        "parameters": sum(p.numel() for p in policy.model.parameters()),
        "found": found,
    }
    return record, max(len(sample.answer) for sample in samples)


def _public(world: Any, settings: Settings, before: set[str]) -> tuple[list[str], list[str]]:
    """Public tasks that are shown (each `times` times), and some that never were.

    Both evenly spaced: a world may list its tasks by type.
    """
    public = [task.id for task in world.tasks("public")]
    if len(public) < settings.tasks:
        raise UserError(
            f"--tasks is {settings.tasks}, but the world has only {len(public)} public tasks: "
            f"raise --world.public"
        )
    shown = spaced(public, settings.tasks)
    others = sorted(set(public).difference(shown, before), key=public.index)
    return shown * settings.times, spaced(others, min(HELD_OUT, len(others)))


def _model(world: Any, format: Any, settings: Settings, shown: Sequence[str]) -> Any:
    """The model to teach: a new one over the words of these tasks, or the one that is named."""
    from fedrl.llm import builtin, tokenizer
    from fedrl.llm.policy import Policy, choose_device, load
    from fedrl.llm.pretrain.imitation import lessons

    device = choose_device("auto")
    if settings.model != "builtin":
        return load(settings.model, device)
    said = lessons(world, format, shown, settings.seed, settings.noise, settings.listed)
    words = tokenizer.build(text for pair in said for text in pair)
    shape = (settings.width, settings.layers, settings.seed, settings.spread)
    model: Any = builtin.build(words, *shape)
    return Policy(model.to(device), words, device)


def last_tenth(losses: Sequence[float]) -> float:
    """The mean of the last tenth: a single step's is noise."""
    tail = losses[-max(len(losses) // 10, 1) :]
    return sum(tail) / len(tail)


def _exam(world: Any, settings: Settings, known: set[str]) -> list[Any]:
    """The tasks to play at the end."""
    if not settings.eval:
        return []
    if settings.eval not in world.splits:
        raise UserError(
            f"--eval is {settings.eval!r}; {suggestion(settings.eval, list(world.splits))}"
        )
    tasks = [task for task in world.tasks(settings.eval) if task.id not in known]
    if not tasks:
        raise UserError(f"--eval {settings.eval}: the world has no such tasks that are not shown")
    return spaced(tasks, min(settings.eval_tasks or len(tasks), len(tasks)))


def _evaluate(
    world: Any, settings: Settings, model: Path, exam: Sequence[Any], answers: int
) -> dict[str, float]:
    """Success and score of the folder's agent, as a run's evaluation would find them."""
    from fedrl.algorithms.fedagent.local_trainer import Bench

    agent = fedagent.Settings(
        model=str(model),
        format="chat" if settings.format == "chat" else "compact",
        thinking=settings.thinking,
        answer_tokens=2 * answers,
        prompt_tokens=settings.prompt_tokens,
        kl=0.0,
    )
    bench = Bench(agent, world)
    found = bench.evaluate(bench.policy.weights(), exam, settings.seed)
    return {name: found[f"eval/{name}"] for name in ("success", "return", "steps")}
