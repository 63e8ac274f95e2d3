"""A model for an agent to begin from: it says what the world understands, and is clumsy.

A small Llama over the world's own words imitates a player most of whose answers are at random.
Reinforcement learning then has something to choose from; where you have a model that can read, use
that instead.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from fedrl.envs.batch import Batch
from fedrl.envs.text import TextWorld, Turn
from fedrl.llm import builtin_model, builtin_tokenizers
from fedrl.llm.export import write_model
from fedrl.llm.pretrain.supervised import Supervised, train_supervised
from fedrl.llm.prompts.prompt_format import tokenize, world_format
from fedrl.llm.rollout import Sample

Player = Callable[[str, Turn, random.Random], str]
"""`player(task, turn, rng)`: an answer to what it sees."""


def make_beginner(
    world: TextWorld,
    player: Player,
    out: Path,
    episodes: int = 200,
    steps: int = 300,
    tokenizer: Callable[[list[str]], PreTrainedTokenizerFast] = builtin_tokenizers.word_tokenizer,
    width: int = 32,
    layers: int = 2,
) -> Path:
    """Write a model folder that imitates this player; one that exists is left alone."""
    if out.exists():
        return out
    rng, format = random.Random(0), world_format("compact", world)
    tasks = [rng.choice(world.tasks("train")).id for _ in range(episodes)]
    batch = Batch(world)
    turns = batch.reset(tasks)
    notes = [format.start(episode.goal, turn) for episode, turn in zip(batch.episodes, turns)]
    played = []
    texts = []
    while running := batch.running:
        answers = [player(task, turn, rng) for task, turn in zip(tasks, turns)]
        prompts = [format.prompt(notes[i]) for i in running]
        texts += [text for i, prompt in zip(running, prompts) for text in (prompt, answers[i])]
        played += [(copy.deepcopy(notes[i]), answers[i]) for i in running]
        turns = batch.step(answers)
        for i in running:
            format.observe(notes[i], answers[i], turns[i], answers[i])
    shape = builtin_model.Shape(width, layers)
    policy = builtin_model.model_to_teach("builtin", lambda: tokenizer(texts), shape)
    words = policy.tokenizer
    prompts = format.encode(words, [notes for notes, _ in played], 512)
    said = tokenize(words, [answer for _, answer in played], 512)
    samples = [
        Sample(0, 0, prompt, [*answer, words.eos_token_id], [], "")
        for prompt, answer in zip(prompts, said)
    ]
    train_supervised(policy, samples, Supervised(steps, 4e-3, 32))
    write_model(policy.model, words, out)
    return out
