"""How much of their prompts episodes share, in both worlds' formats: what reading them once saves.

Eight tasks, eight episodes of each, random commands, in tokens of the given model. Of a group that
learns to act alike more is shared.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator, Sequence
from typing import Any

from fedrl.envs.batch import Batch
from fedrl.envs.text import TextWorld
from fedrl.llm.generation.prompt_tree import prompt_tree
from fedrl.llm.prompts.prompt_format import world_format
from language.bench import Bench

EPISODES, GROUP, TURNS, ROWS = 64, 8, 12, 64


def prompts(bench: Bench) -> None:
    if bench.tokenizer is None:
        print("prompts: give a --model with a tokenizer")
        return
    for name, world in worlds():
        for format in ("compact", "chat"):
            bench.attempt(
                f"{name} {format}", lambda n=name, w=world, f=format: shares(bench, n, w, f)
            )


def worlds() -> Iterator[tuple[str, TextWorld]]:
    """The genuine ones where FEDRL_DATA holds them, else generated."""
    from fedrl.envs.household import world as household
    from fedrl.envs.webshop import settings, shop

    genuine = "FEDRL_DATA" in os.environ
    games, goods = ("alfworld", "webshop") if genuine else ("generated", "generated")
    yield "household", household.Household(household.Settings(source=games))
    yield "webshop", shop.WebShop(settings.Settings(source=goods))


def shares(bench: Bench, name: str, world: TextWorld, kind: str) -> None:
    rng = random.Random(0)
    turns = list(played(world, kind, bench.tokenizer, rng))
    told = [prompt for turn in turns for prompt in turn.values()]
    total = sum(map(len, told))
    equal = sum(len(p) for turn in turns for p in turn.values()) - sum(
        len(p) for turn in turns for p in set(map(tuple, turn.values()))
    )
    own = sum(alike(now[i], before[i]) for before, now in itertools.pairwise(turns) for i in now)
    side_by_side = total - sum(fresh(list(turn.values())) for turn in turns)
    rng.shuffle(told)
    batches = [told[i : i + ROWS] for i in range(0, len(told) - ROWS + 1, ROWS)] or [told]
    used = sum(map(len, (p for batch in batches for p in batch)))
    learned = 1 - sum(map(fresh, batches)) / used
    padded = sum(len(batch) * max(map(len, batch)) for batch in batches) / used
    print(
        f"{name} {kind}: {total / len(told):.0f} tokens on average, {max(map(len, told))} at most; "
        f"of a turn's tokens {equal / total:.0%} are in equal prompts and "
        f"{side_by_side / total:.0%} in common beginnings; {own / total:.0%} begin as their own "
        f"last turn; minibatches of {ROWS}: {learned:.0%} in common beginnings, padded "
        f"{padded:.2f} times as many",
        flush=True,
    )
    label = f"prompts_{name}_{kind}"
    bench.results.add(f"{label}_side_by_side", side_by_side / total, "share")
    bench.results.add(f"{label}_own", own / total, "share")
    bench.results.add(f"{label}_minibatch", learned, "share")
    bench.results.add(f"{label}_padded", padded, "times")


def played(
    world: TextWorld, kind: str, tokenizer: Any, rng: random.Random
) -> Iterator[dict[int, list[int]]]:
    """The prompts of every turn, by episode."""
    format = world_format(kind, world)
    ids = [task.id for task in world.tasks("train")]
    batch = Batch(world, TURNS)
    turns = batch.reset([t for t in rng.choices(ids, k=EPISODES // GROUP) for _ in range(GROUP)])
    pairs = zip(batch.episodes, turns, strict=True)
    notes = [format.start(episode.goal, turn) for episode, turn in pairs]
    while running := batch.running:
        encoded = format.encode(tokenizer, [notes[i] for i in running], 2048)
        yield dict(zip(running, encoded, strict=True))
        commands = [""] * EPISODES
        for i in running:
            commands[i] = rng.choice(list(turns[i].admissible) or ["search[shoe]"])
        turns = batch.step(commands)
        for i in running:
            said = f"<think>so</think><action>{commands[i]}</action>"
            format.observe(notes[i], commands[i], turns[i], said)


def fresh(prompts: Sequence[Sequence[int]]) -> int:
    """Tokens that are left when what prompts begin with alike counts once."""
    return len(prompt_tree(sorted({tuple(prompt) for prompt in prompts})).ids)


def alike(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(b))
