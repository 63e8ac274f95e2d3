"""The warm start: a model learns to answer as the expert does, on PUBLIC tasks only.

Where the expert can advise in any state (the household), it searches with what the agent has seen,
and a part of its commands is replaced by random ones while the label stays the expert's: so the
model also learns what to do after a mistake. Elsewhere its demonstrations are followed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import torch

from fedrl.envs.household.expert import Expert
from fedrl.envs.household.world import HouseholdEpisode
from fedrl.envs.text import TextWorld
from fedrl.llm.formats import Format
from fedrl.llm.learner import logprobs, rows
from fedrl.llm.policy import Policy
from fedrl.llm.rollout import Sample

NOISE = 0.15
"""Share of the expert's commands that are replaced."""


def lessons(
    world: TextWorld, format: Format, tasks: Sequence[str], seed: int, noise: float = NOISE
) -> Iterator[tuple[str, str]]:
    """(prompt, answer) of every step of the demonstrations."""
    rng = random.Random(seed)
    for task in tasks:
        yield from _lesson(world, format, task, rng, noise)


def _lesson(
    world: TextWorld, format: Format, task: str, rng: random.Random, noise: float
) -> Iterator[tuple[str, str]]:
    episode, turn = world.start(task)
    notes = format.begin(episode.goal, turn)
    adviser: Expert | None = None
    if isinstance(episode, HouseholdEpisode):
        adviser = Expert(episode.game, search=True)
    plan = iter(() if adviser else world.demonstrate(task))
    for _ in range(2 * world.max_steps):
        command = adviser.advise() if adviser else next(plan, "")
        if turn.done or not command:
            return
        yield format.prompt(notes), format.answer(notes, command)
        if adviser and rng.random() < noise:
            command = rng.choice(turn.admissible)
        turn = episode.step(command)
        if adviser:
            adviser.watch(command)
        format.observe(notes, command, turn)


def imitate(
    policy: Policy,
    lessons: Sequence[tuple[str, str]],
    steps: int,
    lr: float,
    batch: int,
    seed: int,
    tell: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """`steps` of AdamW on the answers' tokens, the rate rising at first and then falling to 10%."""
    tokenizer, model = policy.tokenizer, policy.model
    prompts = tokenizer([p for p, _ in lessons], add_special_tokens=False)["input_ids"]
    answers = tokenizer([a for _, a in lessons], add_special_tokens=False)["input_ids"]
    end = tokenizer.eos_token_id
    samples = [Sample(0, 0, p, [*a, end], [], "") for p, a in zip(prompts, answers, strict=True)]
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr, weight_decay=0.01)
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / 50) * (1 - 0.9 * step / steps)
        chosen = torch.randint(len(samples), (batch,), generator=generator).tolist()
        logs, _ = logprobs(
            model, rows([samples[i] for i in chosen], policy.pad, policy.device), 1.0
        )
        loss = -logs.mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        tell(step, float(loss.detach()))
    model.eval()
