"""`fedrl warmstart`: a model that has seen the expert play PUBLIC tasks, as an ordinary folder.

Reinforcement learning needs episodes that succeed now and then. The public tasks are disjoint from
every client's and from the evaluation's (`splits` of a world never share a task), and the folder's
`warmstart.json` records which ones were shown, to the model that it started from, too. Public tasks
that are not shown tell how well the imitation carries over. A folder appears when it is whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from fedrl.algorithms.fedagent import settings as fedagent
from fedrl.core.limits import above_zero, at_least_one, not_negative
from fedrl.core.registry import suggestion
from fedrl.core.types import UserError
from fedrl.envs.text import Task, TextWorld, spaced
from fedrl.llm.warmstart_record import shown_among, shown_record
from fedrl.runs.warmstart_training import Record, train, training_record, warmstart_folder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from fedrl.llm.rollout import Sample

PUBLIC = "public"
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
    # Turns before the present one that a prompt shows, as in the run that follows; -1 is the
    # format's own.
    history: int = -1
    # A text file with the prompt in words of one's own, as in the run that follows.
    template: str = ""
    # Public tasks that the expert plays; further ones tell the loss on tasks that were not shown.
    # If you do not say how many, all that there are, where these are fewer.
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
    # Tokens of the built-in model: the world's words, or bytes, which can write anything. auto:
    # bytes for prompts, words for the others.
    tokens: Literal["auto", "words", "bytes"] = "auto"
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


def warmstart(
    world: TextWorld, settings: Settings, out: Path, console: Console | None = None
) -> Path:
    """Make the folder `out`; one that exists is left alone."""
    console = console or Console(highlight=False)
    shown, held_out = _public_tasks(world, settings)
    eval_tasks = _eval_tasks(world, settings, shown)
    with warmstart_folder(out, "teaching") as (folder, record):
        taught, longest = _imitate_expert(world, settings, folder, shown, held_out, console)
        record |= taught
        if eval_tasks:
            found = _evaluate(world, settings, folder, eval_tasks, longest)
            console.print(
                f"{found['success']:.1%} success, score {found['return']:.3f} on "
                f"{len(eval_tasks):,} tasks of {settings.eval}"
            )
            record["found"] |= found
        record |= shown_record(settings.model, world, shown)
    return out


def as_many_as_there_are(world: TextWorld, settings: Settings, console: Console) -> Settings:
    """Where nobody said how many tasks are shown, and the world has fewer than usual."""
    count = len(world.tasks(PUBLIC)) if PUBLIC in world.splits else 0
    if not 0 < count < settings.tasks:
        return settings
    console.print(f"--tasks is not given: all {count} public tasks of the world are shown")
    return dataclasses.replace(settings, tasks=count)


def _imitate_expert(
    world: TextWorld,
    settings: Settings,
    folder: Path,
    shown: Sequence[str],
    held_out: Sequence[str],
    console: Console,
) -> tuple[Record, int]:
    """Imitate and save; the record so far, and the tokens of the longest answer.

    The model is gone on return: the evaluation loads it anew, and both need not fit on one GPU.
    """
    from fedrl.llm import builtin_model, builtin_tokenizers
    from fedrl.llm.export import write_model
    from fedrl.llm.pretrain import demonstrations, supervised
    from fedrl.llm.prompts.prompt_format import world_format

    format = world_format(
        settings.format, world, settings.thinking, settings.history, settings.template
    )
    expert = demonstrations.Expertise(settings.noise, settings.listed, settings.seed)

    def tokenizer() -> PreTrainedTokenizerFast:
        pairs = demonstrations.texts(world, format, shown, expert)
        texts = (text for pair in pairs for text in pair)
        if settings.tokens == "bytes" or (settings.tokens == "auto" and world.name == "prompts"):
            return builtin_tokenizers.byte_tokenizer()
        return builtin_tokenizers.entity_tokenizer(texts)

    def samples_of(tasks: Sequence[str]) -> list[Sample]:
        limit = settings.prompt_tokens
        return demonstrations.samples(policy.tokenizer, world, format, tasks, expert, limit)

    with console.status("the expert plays …"):
        shape = builtin_model.Shape(settings.width, settings.layers, settings.seed, settings.spread)
        policy = builtin_model.model_to_teach(settings.model, tokenizer, shape)
        samples, others = samples_of(shown), samples_of(held_out)
    lengths = sorted(len(sample.prompt) for sample in samples)
    console.print(
        f"{len(samples):,} examples of {len(set(shown)):,} public tasks; prompts of "
        f"{lengths[len(lengths) // 2]} tokens in the middle, {lengths[-1]} at most"
    )
    plan = supervised.Supervised(settings.steps, settings.lr, settings.batch, settings.seed)
    loss, seconds = train(policy, samples, plan, console, "imitating the expert …")
    found, unseen = {"loss": loss}, ""
    if others:
        found["held_out_loss"] = supervised.negative_log_likelihood(policy, others)
        unseen = f", on {len(held_out)} tasks that were not shown {found['held_out_loss']:.3f}"
    console.print(f"{settings.steps:,} steps in {seconds:.0f} s: loss {loss:.3f}{unseen}")
    write_model(policy.model, policy.tokenizer, folder)
    record = training_record(settings, world, len(samples), policy, found)
    return record, max(len(sample.answer) for sample in samples)


def _public_tasks(world: TextWorld, settings: Settings) -> tuple[list[str], list[str]]:
    """Public tasks that are shown (each `times` times), and some that never were.

    Both evenly spaced: a world may list its tasks by type.
    """
    if PUBLIC not in world.splits:
        raise UserError(f"the world {world.name!r} has no split public, whose tasks are imitated")
    public = [task.id for task in world.tasks(PUBLIC)]
    if len(public) < settings.tasks:
        lower = f"lower --tasks to {len(public)}, or " if public else ""
        raise UserError(
            f"--tasks is {settings.tasks}, but the world has only {len(public)} public tasks: "
            f"{lower}raise --world.public"
        )
    shown = spaced(public, settings.tasks)
    known = shown_among(settings.model, world, public).union(shown)
    others = [task for task in public if task not in known]
    return shown * settings.times, spaced(others, min(HELD_OUT, len(others)))


def _eval_tasks(world: TextWorld, settings: Settings, shown: Sequence[str]) -> list[Task]:
    """The tasks to play at the end."""
    if not settings.eval:
        return []
    if settings.eval not in world.splits:
        raise UserError(
            f"--eval is {settings.eval!r}; {suggestion(settings.eval, list(world.splits))}"
        )
    tasks = list(world.tasks(settings.eval))
    known = shown_among(settings.model, world, [task.id for task in tasks]).union(shown)
    tasks = [task for task in tasks if task.id not in known]
    if not tasks:
        raise UserError(f"--eval {settings.eval}: the world has no such tasks that are not shown")
    return spaced(tasks, min(settings.eval_tasks or len(tasks), len(tasks)))


def _evaluate(
    world: TextWorld, settings: Settings, model: Path, tasks: Sequence[Task], longest: int
) -> dict[str, float]:
    """Success and score of the folder's agent, as a run's evaluation would find them; `longest` is
    the expert's longest answer, in tokens."""
    from fedrl.algorithms.fedagent.local_trainer import LocalTrainer
    from fedrl.llm.out_of_memory import OutOfMemory

    agent = fedagent.Settings(
        model=str(model),
        format="chat" if settings.format == "chat" else "compact",
        thinking=settings.thinking,
        history=settings.history,
        template=settings.template,
        answer_tokens=2 * longest,
        prompt_tokens=settings.prompt_tokens,
        kl=0.0,
    )
    try:
        trainer = LocalTrainer(agent, world)
        found = trainer.evaluate(trainer.policy.weights(), tasks, settings.seed)
    except OutOfMemory as error:
        raise OutOfMemory(
            "out of memory in the evaluation after the warm start: lower --eval_tasks (it is "
            f"{settings.eval_tasks}, and 0 is all), or leave out --eval"
        ) from error
    return {name: found[f"eval/{name}"] for name in ("success", "return", "steps")}
