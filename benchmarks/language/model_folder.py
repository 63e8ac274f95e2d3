"""A model's folder with random weights, and a tokenizer for the worlds that it will play."""

from __future__ import annotations

import os
import random
from typing import Any

import torch

from language.forced import drawn_command
from language.models import SHAPES, SMOLLM2, built, parameters
from language.timing import GPU

ALL_SHAPES = {"smollm2-135m": SMOLLM2, **SHAPES}
GENUINE = {"household": "alfworld", "webshop": "webshop"}
VOCABULARY = 1500
"""Of the tokenizer that stands in where none is given: about 3.7 characters a token in generated
prompts of the household and 2.8 in the shop's. Much larger ones know whole sentences of a world."""


def write_model(folder: str, shape: str, tokenizer: str | None, worlds: list[str]) -> int:
    """Random weights and a tokenizer as any model has them on a disk; how many parameters."""
    words: Any
    if tokenizer:
        from transformers import AutoTokenizer

        words = AutoTokenizer.from_pretrained(tokenizer)
    else:
        from fedrl.llm.builtin_tokenizers import bpe_tokenizer

        words = bpe_tokenizer([text for world in worlds for text in prompts_of(world)], VOCABULARY)
    sizes = ALL_SHAPES[shape]
    model = built(sizes, torch.bfloat16 if GPU else torch.float32)
    if len(words) > model.config.vocab_size:  # of a tiny one
        model.resize_token_embeddings(len(words))
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return parameters(model)


def prompts_of(world: str, count: int = 40, steps: int = 4) -> list[str]:
    """What an agent is told in some episodes of random commands, from which a tokenizer learns."""
    from fedrl.llm.prompts.chat import Chat

    opened, format, rng = open_world(world), Chat(), random.Random(0)
    tasks, texts = [task.id for task in opened.tasks("train")], []
    for _ in range(count):
        episode, turn = opened.start(rng.choice(tasks))
        notes = format.start(episode.goal, turn)
        for _ in range(steps):
            texts.append(format.prompt(notes))
            command = drawn_command(turn.admissible, episode.goal, rng)
            turn = episode.step(command)
            format.observe(notes, command, turn)
    return texts


def source(world: str) -> str:
    return GENUINE[world] if os.environ.get("FEDRL_DATA") else "generated"


def world_settings(world: str) -> dict[str, Any]:
    """Generated games as large as the genuine ones, where those are not here."""
    said: dict[str, Any] = {"source": source(world)}
    if said == {"source": "generated"} and world == "household":
        said["size"] = "dataset"
    return said


def open_world(world: str) -> Any:
    from fedrl.envs.household.world import Household
    from fedrl.envs.household.world import Settings as Rooms
    from fedrl.envs.webshop.settings import Settings as Shop
    from fedrl.envs.webshop.shop import WebShop

    if world == "household":
        return Household(Rooms(**world_settings(world)))
    return WebShop(Shop(**world_settings(world)))
