"""`fedrl warmstart imdb`: a model that has read PUBLIC reviews, as an ordinary folder.

Reinforcement learning moves a model that can already write a little. The public reviews are
nobody's: no client trains or is evaluated on them (`envs.imdb`), whatever the run's seed, and the
folder's `warmstart.json` records which ones were read, so that a run whose clients hold one of them
is refused.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from fedrl.core.limits import above_zero, at_least_one, not_negative
from fedrl.core.types import UserError
from fedrl.envs.imdb.world import Imdb
from fedrl.llm.warmstart_record import shown_record
from fedrl.runs.warmstart_training import Record, train, training_record, warmstart_folder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

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
    # Architecture of the built-in model: llama, or gpt2 (the paper's model's).
    architecture: Literal["llama", "gpt2"] = "llama"
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


def warmstart(world: Imdb, settings: Settings, out: Path, console: Console | None = None) -> Path:
    """Make the folder `out`; one that exists is left alone."""
    console = console or Console(highlight=False)
    count = round((1 - HELD_OUT) * len(world.public))
    if not count or count == len(world.public):
        raise UserError(
            f"world.public is {len(world.public)}; reading needs some: --world.public 2000"
        )
    with warmstart_folder(out, "reading") as (folder, record):
        record |= _read_reviews(world, settings, folder, count, console)
        read = (review.id for review in world.public[:count])
        record |= shown_record(settings.model, world, read)
    return out


def _read_reviews(
    world: Imdb, settings: Settings, folder: Path, count: int, console: Console
) -> Record:
    """Read and save; the record so far."""
    from fedrl.llm import builtin_model, builtin_tokenizers
    from fedrl.llm.export import write_model
    from fedrl.llm.pretrain import language_modelling, supervised

    texts = [review.text for review in world.public]

    def tokenizer() -> PreTrainedTokenizerFast:
        if world.settings.source == "generated":
            return builtin_tokenizers.word_tokenizer(texts[:count])
        return builtin_tokenizers.bpe_tokenizer(texts[:count], settings.vocabulary)

    shape = builtin_model.Shape(
        settings.width, settings.layers, settings.seed, architecture=settings.architecture
    )
    policy = builtin_model.model_to_teach(settings.model, tokenizer, shape)
    samples = language_modelling.text_samples(policy.tokenizer, texts, settings.window)
    plan = supervised.Supervised(settings.steps, settings.lr, settings.batch, settings.seed)
    loss, seconds = train(policy, samples[:count], plan, console, "reading …")
    held_out = supervised.negative_log_likelihood(policy, samples[count:])
    found = {"loss": loss, "held_out_loss": held_out}
    record = training_record(settings, world, count, policy, found)
    console.print(
        f"{count:,} public reviews, {settings.steps:,} steps in "
        f"{seconds:.0f} s: loss {loss:.3f}, on {len(texts) - count:,} "
        f"that were not read {held_out:.3f}; {record['parameters']:,} parameters"
    )
    write_model(policy.model, policy.tokenizer, folder)
    return record
