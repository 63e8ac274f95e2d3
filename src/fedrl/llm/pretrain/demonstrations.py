"""Demonstrations of a world's expert on PUBLIC tasks: what a warm start imitates.

A part of the expert's answers is replaced while the label stays the expert's: so the model also
learns what to do after a mistake. Half of the replacements are random, half repeat the last answer,
which mostly does nothing: a model that never saw "nothing happens" says the same thing again until
its episode is over. Answers are read and played as an agent's are. In the household the expert
searches with what the agent has seen; in the shop it leaves a wrong product and chooses another; in
a third-party world, where nobody can advise after a mistake, its demonstrations are followed.

Prompts are encoded by their format itself, as they are when the agent acts: with the model's chat
template where the format has one, and cut to the same limit.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from fedrl.core.types import UserError
from fedrl.envs.household.expert import Expert
from fedrl.envs.household.world import HouseholdEpisode
from fedrl.envs.text import Demonstrates, Episode, TextWorld
from fedrl.envs.webshop.pages import SEARCH_TEMPLATE
from fedrl.envs.webshop.shop import ShopEpisode
from fedrl.llm.model_types import Tokenizer
from fedrl.llm.prompts.compact_household import ENTITY
from fedrl.llm.prompts.prompt_format import Notes, PromptFormat, require_tokens, tokenize
from fedrl.llm.rollout import Sample

NOISE = 0.15
"""Share of the expert's commands that are replaced."""

ENDS = ("click[buy now]", SEARCH_TEMPLATE)
"""Never taken by chance: a purchase ends the demonstration, and the template is no search."""


@dataclass(frozen=True)
class Expertise:
    """How the expert plays."""

    noise: float = NOISE
    listed: bool = False  # the household's searches as the room lists its places, not by likelihood
    seed: int = 0


def texts(
    world: TextWorld, format: PromptFormat[Notes], tasks: Sequence[str], expert: Expertise
) -> Iterator[tuple[str, str]]:
    """(prompt, completion) of every step of the demonstrations, in words."""
    for notes, said in _steps(world, format, tasks, expert):
        yield format.prompt(notes), said


def samples(
    tokenizer: Tokenizer,
    world: TextWorld,
    format: PromptFormat[Notes],
    tasks: Sequence[str],
    expert: Expertise,
    limit: int = 2048,
) -> list[Sample]:
    """The same as tokens: prompts of at most `limit`, completions with the token that ends them."""
    encoded = []
    for notes, said in _steps(world, format, tasks, expert):
        (prompt,) = format.encode(tokenizer, [notes], limit)
        require_tokens([prompt], [f"a demonstration in {world.name}"])
        (answer,) = tokenize(tokenizer, [said], limit)
        encoded.append(Sample(0, 0, prompt, [*answer, tokenizer.eos_token_id], [], ""))
    return encoded


def _steps(
    world: TextWorld, format: PromptFormat[Notes], tasks: Sequence[str], expert: Expertise
) -> Iterator[tuple[Notes, str]]:
    """The agent's notes and the expert's completion; the notes change when the next are asked
    for."""
    rng = random.Random(expert.seed)
    for task in tasks:
        yield from _demonstration(world, format, task, rng, expert)


def _demonstration(
    world: TextWorld,
    format: PromptFormat[Notes],
    task: str,
    rng: random.Random,
    expert: Expertise,
) -> Iterator[tuple[Notes, str]]:
    episode, turn = world.start(task)
    notes = format.start(episode.goal, turn)
    places = ENTITY.findall(turn.observation) if expert.listed else ()
    adviser = _adviser(world, episode, task, places)
    plan = iter(() if adviser else _plan(world, task))
    last = ""
    for _ in range(2 * world.max_steps):
        command = adviser.advise() if adviser else next(plan, "")
        if turn.done or not command:
            return
        said = format.render(notes, command)
        yield notes, said
        if adviser and rng.random() < expert.noise:
            others = [c for c in turn.admissible if c not in ENDS]
            again = last and rng.random() < 0.5
            said = last if again else format.render(notes, rng.choice(others or [command]))
            command, _ = format.parse(notes, said)
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
        return Shopper(episode, _plan(world, task))
    return None


def _plan(world: TextWorld, task: str) -> list[str]:
    if not isinstance(world, Demonstrates):
        raise UserError(
            f"the world {world.name!r} has no expert to imitate: a method demonstrate(task) that "
            "returns the commands which win it"
        )
    return world.demonstrate(task)


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
