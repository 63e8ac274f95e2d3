"""The warm start: a model learns to answer as the expert does, on PUBLIC tasks only.

A part of the expert's answers is replaced while the label stays the expert's: so the model also
learns what to do after a mistake. Half of the replacements are random, half repeat the last answer,
which mostly does nothing: a model that never saw "nothing happens" says the same thing again until
its episode is over. Answers are read and played as an agent's are. In the household the expert
searches with what the agent has seen; in the shop it leaves a wrong product and chooses another; in
a third-party world, where nobody can advise after a mistake, its demonstrations are followed.

Prompts are encoded by the format itself, as they are when the agent acts: with the model's chat
template where the format has one, and cut to the same limit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch

from fedrl.envs.household.expert import Expert
from fedrl.envs.household.world import HouseholdEpisode
from fedrl.envs.text import Episode, TextWorld
from fedrl.envs.webshop.pages import SEARCH_TEMPLATE
from fedrl.envs.webshop.shop import ShopEpisode
from fedrl.llm.policy import Policy
from fedrl.llm.prompts.compact_household import ENTITY
from fedrl.llm.prompts.formats import Format, tokenize
from fedrl.llm.rl.loss import logprobs, rows
from fedrl.llm.rollout import Sample

NOISE = 0.15
"""Share of the expert's commands that are replaced."""

ENDS = ("click[buy now]", SEARCH_TEMPLATE)
"""Never taken by chance: a purchase ends the lesson, and the template is no search."""

RISE = 50
"""Steps in which the learning rate rises to its highest."""

PADDED = {"cpu": 4096, "cuda": 32_768}
"""Tokens of a forward pass, padding included. More than this fills a cache (or a GPU) and pads
short examples for the sake of a long one; less waits for kernel launches."""


def lessons(
    world: TextWorld,
    format: Format,
    tasks: Sequence[str],
    seed: int,
    noise: float = NOISE,
    listed: bool = False,
) -> Iterator[tuple[str, str]]:
    """(prompt, answer) of every step of the demonstrations, in words."""
    for notes, answer in situations(world, format, tasks, seed, noise, listed):
        yield format.prompt(notes), answer


def examples(
    tokenizer: Any,
    world: TextWorld,
    format: Format,
    tasks: Sequence[str],
    seed: int,
    noise: float = NOISE,
    limit: int = 2048,
    listed: bool = False,
) -> list[Sample]:
    """The same as tokens: prompts of at most `limit`, answers with the token that ends them."""
    found = []
    for notes, said in situations(world, format, tasks, seed, noise, listed):
        (prompt,) = format.encode(tokenizer, [notes], limit)
        (answer,) = tokenize(tokenizer, [said], limit)
        found.append(Sample(0, 0, prompt, [*answer, tokenizer.eos_token_id], [], ""))
    return found


def situations(
    world: TextWorld,
    format: Format,
    tasks: Sequence[str],
    seed: int,
    noise: float,
    listed: bool = False,
) -> Iterator[tuple[Any, str]]:
    """The agent's notes and the expert's answer; the notes change when the next are asked for.

    `listed`: the household's expert searches in the order in which the room lists its places, not
    in likely places first.
    """
    rng = random.Random(seed)
    for task in tasks:
        yield from _lesson(world, format, task, rng, noise, listed)


def _lesson(
    world: TextWorld, format: Format, task: str, rng: random.Random, noise: float, listed: bool
) -> Iterator[tuple[Any, str]]:
    episode, turn = world.start(task)
    notes = format.begin(episode.goal, turn)
    places = ENTITY.findall(turn.observation) if listed else ()
    adviser = _adviser(world, episode, task, places)
    plan = iter(() if adviser else world.demonstrate(task))
    last = ""
    for _ in range(2 * world.max_steps):
        command = adviser.advise() if adviser else next(plan, "")
        if turn.done or not command:
            return
        said = format.answer(notes, command)
        yield notes, said
        if adviser and rng.random() < noise:
            others = [c for c in turn.admissible if c not in ENDS]
            again = last and rng.random() < 0.5
            said = last if again else format.answer(notes, rng.choice(others or [command]))
            command, _ = format.command(notes, said)
        last = said
        turn = episode.step(command)
        if adviser:
            adviser.watch(command)
        format.observe(notes, command, turn, said)


class Adviser(Protocol):
    """Knows a good command in any state of its episode."""

    def advise(self) -> str: ...

    def watch(self, command: str) -> None: ...


def _adviser(
    world: TextWorld, episode: Episode, task: str, places: Sequence[str]
) -> Adviser | None:
    if isinstance(episode, HouseholdEpisode):
        return Expert(episode.game, search=True, order=places)
    if isinstance(episode, ShopEpisode):
        return Shopper(episode, world.demonstrate(task))
    return None


class Shopper:
    """Follows the shop's demonstration, and comes back to it from anywhere."""

    def __init__(self, visit: ShopEpisode, plan: Sequence[str]) -> None:
        self.visit = visit
        self.search = plan[0]
        self.product = f"click[{visit.wanted.asin.lower()}]"
        self.options = [c for c in plan[plan.index(self.product) + 1 :] if c not in ENDS]

    def advise(self) -> str:
        visit, page = self.visit, self.visit.page
        if page.kind == "start":
            return self.search
        if page.kind == "results":
            if self.product in page.admissible:
                return self.product
            known = self.search == f"search[{visit.query}]" and page.products
            return "click[next >]" if known else "click[back to search]"
        if page.kind == "item" and visit.asin == visit.wanted.asin:
            chosen = {f"click[{value}]" for value in visit.options.values()}
            return next((c for c in self.options if c not in chosen), ENDS[0])
        return "click[< prev]"

    def watch(self, command: str) -> None:
        """The page tells everything."""


def imitate(
    policy: Policy,
    samples: Sequence[Sample],
    steps: int,
    lr: float,
    batch: int,
    seed: int,
    tell: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """`steps` of AdamW on the answers' tokens, the rate rising at first and then falling to 10%.

    With the model's own dropout, where it has some: no ratio is formed that it could spoil.
    """
    model = policy.model
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr, weight_decay=0.01)
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / RISE) * (1 - 0.9 * step / steps)
        chosen = torch.randint(len(samples), (batch,), generator=generator).tolist()
        picked = [samples[i] for i in chosen]
        tokens = sum(len(sample.answer) for sample in picked)
        optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=policy.device)
        for part in parts(picked, PADDED[policy.device.type]):
            logs, _ = logprobs(model, rows(part, policy.pad, policy.device), 1.0)
            loss = -logs.sum() / tokens
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        tell(step, float(total))
    model.eval()


@torch.no_grad()
def surprise(policy: Policy, samples: Sequence[Sample]) -> float:
    """The mean of −log p over the answers' tokens: what `imitate` lowers, on other examples."""
    policy.model.eval()
    total = torch.zeros((), device=policy.device)
    for part in parts(samples, PADDED[policy.device.type]):
        total -= logprobs(policy.model, rows(part, policy.pad, policy.device), 1.0)[0].sum()
    return float(total) / sum(len(sample.answer) for sample in samples)


def parts(samples: Sequence[Sample], padded: int) -> Iterator[list[Sample]]:
    """Samples of alike lengths together, so many that their padded rows hold `padded` tokens."""
    part: list[Sample] = []
    for sample in sorted(samples, key=lambda s: len(s.prompt) + len(s.answer)):
        width = len(sample.prompt) + len(sample.answer)
        if part and (len(part) + 1) * width > padded:
            yield part
            part = []
        part.append(sample)
    yield part
