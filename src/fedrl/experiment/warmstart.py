"""`fedrl warmstart`: a model that has seen the expert play PUBLIC tasks, as an ordinary folder.

Reinforcement learning needs episodes that succeed now and then. The public tasks are disjoint from
every client's and from the evaluation's (`splits` of a world never share a task), and the folder's
`warmstart.json` records which ones were shown.
"""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from fedrl.registry import missing_extra
from fedrl.types import UserError


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is imitated, and how long."""

    # Model to start from: "builtin" (a small new one over the world's words), a folder or an id.
    model: str = "builtin"
    # How the agent is told its situation: compact (small models) or chat.
    format: str = "compact"
    # Public tasks that the expert plays.
    tasks: int = 300
    # Optimiser steps.
    steps: int = 600
    # Examples per step.
    batch: int = 64
    # Learning rate of AdamW at its highest.
    lr: float = 4e-3
    # Width of the built-in model.
    width: int = 64
    # Layers of the built-in model.
    layers: int = 2
    # Of the demonstrations, the model's first weights and the order of examples.
    seed: int = 0

    def __post_init__(self) -> None:
        for key in ("tasks", "steps", "batch", "width", "layers"):
            if getattr(self, key) < 1:
                raise UserError(f"--{key} is {getattr(self, key)}; it must be at least 1")
        if self.seed < 0:
            raise UserError(f"--seed is {self.seed}; it must not be negative")
        if not self.lr > 0:
            raise UserError(f"--lr is {self.lr}; it must be above 0")


def warmstart(world: Any, settings: Settings, out: Path, console: Console | None = None) -> Path:
    """Make the folder `out`; one that exists is left alone."""
    console = console or Console()
    if out.exists():
        raise UserError(f"{out} exists already; name another folder, or delete it")
    try:
        import torch

        from fedrl.llm import builtin, formats, tokenizer
        from fedrl.llm.imitate import imitate, lessons
        from fedrl.llm.policy import Policy, choose_device, load
    except ModuleNotFoundError as error:
        raise missing_extra(error, "fedrl warmstart", "llm") from error
    public = [task.id for task in world.tasks("public")][: settings.tasks]
    if len(public) < settings.tasks:
        raise UserError(
            f"--tasks is {settings.tasks}, but the world has only {len(public)} public tasks: "
            f"raise --world.public"
        )
    start = time.perf_counter()
    format = formats.choose(settings.format, world.name)
    examples = list(lessons(world, format, public, settings.seed))
    device = choose_device("auto")
    if settings.model == "builtin":
        words = tokenizer.build(text for pair in examples for text in pair)
        model: Any = builtin.build(words, settings.width, settings.layers, settings.seed)
        policy = Policy(model.to(device), words, device)
    else:
        policy = load(settings.model, device)
    torch.manual_seed(settings.seed)
    with console.status("imitating the expert …") as status:

        def tell(step: int, loss: float) -> None:
            if step % 20 == 19:
                status.update(f"step {step + 1} of {settings.steps}, loss {loss:.3f}")

        imitate(policy, examples, settings.steps, settings.lr, settings.batch, settings.seed, tell)
    policy.model.save_pretrained(out)
    policy.tokenizer.save_pretrained(out)
    record = {
        "settings": dataclasses.asdict(settings),
        "world": dataclasses.asdict(world.settings),
        "tasks": public,
        "examples": len(examples),
        "parameters": sum(p.numel() for p in policy.model.parameters()),
        "seconds": round(time.perf_counter() - start, 1),
    }
    (out / "warmstart.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return out
