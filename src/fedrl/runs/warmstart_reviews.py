"""`fedrl warmstart imdb`: a model that has read PUBLIC reviews, as an ordinary folder.

Reinforcement learning moves a model that can already write a little. The public reviews are
nobody's: no client trains or is evaluated on them (`envs.imdb`), whatever the run's seed, and the
folder's `warmstart.json` records which ones were read, so that a run whose clients hold one of them
is refused.
"""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from fedrl.algorithms.fedagent import algorithm as fedagent
from fedrl.core.limits import above_zero, at_least_one, not_negative
from fedrl.core.registry import missing_extra
from fedrl.core.types import UserError
from fedrl.envs.imdb.world import World
from fedrl.runs.warmstart import last_tenth, whole

HELD_OUT = 0.1
"""Share of the public reviews that are not read, but tell the loss at the end."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is read, and how long."""

    # Model to start from: "builtin" (a small new one over the reviews' words), a folder or an id.
    model: str = "builtin"
    # Tokens of the built-in model where reviews are genuine: pieces of words. Of generated reviews,
    # every word is one.
    vocabulary: int = 4000
    # Longest beginning of a review that is read, in tokens.
    window: int = 48
    # Optimiser steps.
    steps: int = 600
    # Reviews per step.
    batch: int = 64
    # Learning rate of AdamW at its highest.
    lr: float = 4e-3
    # Width of the built-in model.
    width: int = 64
    # Layers of the built-in model.
    layers: int = 2
    # Of the model's first weights and the order of reviews.
    seed: int = 0

    def __post_init__(self) -> None:
        at_least_one(self, "--", "steps", "batch", "width", "layers")
        not_negative(self, "--", "seed")
        above_zero(self, "--", "lr")
        if self.window < 2:
            raise UserError(f"--window is {self.window}; it must be at least 2")
        if self.vocabulary < 300:
            raise UserError(f"--vocabulary is {self.vocabulary}; it must be at least 300")


def warmstart(world: World, settings: Settings, out: Path, console: Console | None = None) -> Path:
    """Make the folder `out`; one that exists is left alone."""
    console = console or Console(highlight=False)
    count = round((1 - HELD_OUT) * len(world.public))
    if not count or count == len(world.public):
        raise UserError(
            f"world.public is {len(world.public)}; reading needs some: --world.public 2000"
        )
    before = fedagent.shown(settings.model)
    with whole(out) as half:
        start = time.perf_counter()
        try:
            record = _teach(world, settings, half, count, console)
        except ModuleNotFoundError as error:
            raise missing_extra(error, "fedrl warmstart", "llm") from error
        record["tasks"] = [*sorted(before), *(review.id for review in world.public[:count])]
        record["seconds"] = round(time.perf_counter() - start, 1)
        text = json.dumps(record, indent=1) + "\n"
        (half / "warmstart.json").write_text(text, encoding="utf-8")
    return out


def _teach(
    world: World, settings: Settings, half: Path, count: int, console: Console
) -> dict[str, Any]:
    """Read and save; the record so far."""
    import torch

    from fedrl.llm import export
    from fedrl.llm.pretrain import language_modelling
    from fedrl.llm.pretrain.imitation import imitate, surprise

    texts = [review.text for review in world.public]
    policy = language_modelling.reader(
        settings, texts[:count], world.settings.source == "generated"
    )
    samples = language_modelling.lessons(policy.tokenizer, texts, settings.window)
    torch.manual_seed(settings.seed)
    began, losses = time.perf_counter(), list[float]()
    with console.status("reading …") as status:

        def tell(step: int, loss: float) -> None:
            losses.append(loss)
            if step % 20 == 19:
                pace = 1e3 * (time.perf_counter() - began) / (step + 1)
                status.update(
                    f"step {step + 1} of {settings.steps}, loss {loss:.3f}, {pace:.0f} ms a step"
                )

        how = (settings.steps, settings.lr, settings.batch, settings.seed)
        imitate(policy, samples[:count], *how, tell)
    found = {"loss": last_tenth(losses), "held_out_loss": surprise(policy, samples[count:])}
    parameters = sum(p.numel() for p in policy.model.parameters())
    console.print(
        f"{count:,} public reviews, {settings.steps:,} steps in "
        f"{time.perf_counter() - began:.0f} s: loss {found['loss']:.3f}, on {len(texts) - count:,} "
        f"that were not read {found['held_out_loss']:.3f}; {parameters:,} parameters"
    )
    export.write(policy.model, policy.tokenizer, half)
    return {
        "settings": dataclasses.asdict(settings),
        "world": dataclasses.asdict(world.settings),
        "examples": count,
        "parameters": parameters,
        "found": found,
    }
