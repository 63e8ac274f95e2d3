"""The shop in about a hundred words: for small models with a vocabulary of whole words.

Products are called by their number on the page, so that their ids need not be in the vocabulary;
titles and texts are cut to the words that the task has in common with them, before others; options
are said in plain words. The answers are "search red cotton shirt", "item 3", "option dark brown",
"buy", "next", "prev", "back", "description", "features" and "reviews". One that left everything as
it was is named ("option blue did nothing"): the page alone would ask for it again. Other answers
are named if they are asked for (`history`: "did item 3").
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from fedrl.envs.text import Turn
from fedrl.llm.model_types import Tokenizer
from fedrl.llm.prompts.prompt_format import tokenize
from fedrl.llm.prompts.webshop_page import (
    BUTTONS,
    KEPT_PAGES,
    NUMBER_MARK,
    SAID,
    Item,
    Page,
    command_parts,
    read_page,
    round_to_tens,
    words,
)

Known = tuple[Page, str, set[str], dict[str, str], str]
"""All that an answer can change."""

TITLE_WORDS = 8
"""Of a product: enough for the three or four phrases of an instruction, ten titles to a page."""

TEXT_WORDS = 16
"""Of a description, the features or the reviews: real ones run to hundreds of words."""

SHOWN_VALUES = 8
"""Of one option; some products come in a hundred colours. All of them can be chosen."""

SHOWN_STEPS = 9
"""Later steps read like this one: the built-in vocabulary counts to nine."""

SMALL_WORDS = frozenset("a an and by for from in of on or the to with".split())

OPENING = re.compile(r"^find me ")
LIMIT = re.compile(r"(?:, and )?price lower than (\d{1,9}(?:\.\d+)?) dollars")


@dataclass
class Notes:
    task: str
    wanted: frozenset[str]  # stems of the task's words
    page: Page
    step: int = 1
    query: str = ""
    looked_at: set[str] = field(default_factory=set)  # links of products
    chosen: dict[str, str] = field(default_factory=dict)  # name of an option: the value
    sub_page: str = ""  # the button that opened it
    failed: str = ""  # the last answer, if it did nothing
    earlier: list[str] = field(default_factory=list)  # the answers before, as they are shown

    @property
    def known(self) -> Known:
        return self.page, self.query, set(self.looked_at), dict(self.chosen), self.sub_page


class CompactWebShop:
    """See the module's docstring."""

    def __init__(self, history: int = 0) -> None:
        self.history = history

    def start(self, goal: str, turn: Turn) -> Notes:
        task = _task(goal)
        return Notes(task, frozenset(map(stem, task.split())), read_page(turn))

    def observe(self, notes: Notes, command: str, turn: Turn, said: str = "") -> None:
        known, answer = notes.known, said or (self.render(notes, command) if command else "")
        self._follow(notes, command, turn)
        notes.failed = _named(answer) if notes.known == known else ""
        if self.history:
            notes.earlier = [*notes.earlier, _named(answer)][-self.history :]

    def _follow(self, notes: Notes, command: str, turn: Turn) -> None:
        before, page = notes.page, read_page(turn)
        name, target = command_parts(command)
        notes.page = page
        notes.step += 1
        if name == "search" and page.kind == "results":
            notes.query = words(target)
        if page.kind in ("start", "results"):
            notes.chosen = {}
        elif before.kind == "results":
            notes.looked_at.add(target)
        elif before.kind == page.kind == "item" and target in before.options.values():
            said = next(said for said, link in before.options.items() if link == target)
            group = next((g for g, values in before.groups if said in values), "")
            notes.chosen[group] = said
        elif before.kind == "item" and page.kind == "sub":
            notes.sub_page = target

    def prompt(self, notes: Notes) -> str:
        page = notes.page
        parts = [f"task {notes.task}", f"step {min(notes.step, SHOWN_STEPS)}"]
        parts += [f"did {answer}" for answer in notes.earlier]
        if notes.failed:
            parts.append(f"{notes.failed} did nothing")
        if page.kind in ("start", "results") and notes.query:
            parts.append(f"query {notes.query}")
        if page.kind == "results":
            parts.append(f"results {page.number}")
            parts += _items(notes)
        elif page.kind == "item":
            parts.append(f"product {gist(page.text, notes.wanted, TITLE_WORDS)} {page.price}")
            for name, values in page.groups:
                parts.append(f"{name} : {' , '.join(_shown(values, notes.task))}")
            parts.append("chosen " + " , ".join(notes.chosen.values()))
        elif page.kind == "sub":
            parts.append(f"{notes.sub_page} {gist(page.text, notes.wanted, TEXT_WORDS)}")
        else:
            parts.append(page.kind)
        return " ; ".join(parts) + " >"

    def encode(self, tokenizer: Tokenizer, notes: Sequence[Notes], limit: int) -> list[list[int]]:
        return tokenize(tokenizer, [self.prompt(each) for each in notes], limit)

    def parse(self, notes: Notes, completion: str) -> tuple[str, bool]:
        """Anything that does not fit the page is no command; a search always does."""
        page = notes.page
        verb, _, rest = words(completion).partition(" ")
        target: str | None = None
        if verb == "search" and rest:
            return f"search[{rest.replace(NUMBER_MARK, '')}]", True
        if verb == "item":
            target = _nth(page.items, rest.removeprefix(NUMBER_MARK))
        elif verb == "option":
            target = page.options.get(rest)
        elif not rest and BUTTONS.get(verb) in page.buttons:
            target = BUTTONS[verb]
        return ("", False) if target is None else (f"click[{target}]", True)

    def render(self, notes: Notes, command: str) -> str:
        page = notes.page
        name, target = command_parts(command)
        if name == "search":
            return f"search {words(target)}"
        if target in page.buttons and target in SAID:
            return SAID[target]
        for number, item in enumerate(page.items, 1):
            if item.link == target:
                return f"item {number}"
        for said, link in page.options.items():
            if link == target:
                return f"option {said}"
        return words(command)


def _task(goal: str) -> str:
    limit = LIMIT.search(goal)
    task = OPENING.sub("", words(LIMIT.sub("", goal)))
    return f"{task} price {round_to_tens(limit[1], math.floor)}" if limit else task


def _named(answer: str) -> str:
    """As the agent says it, or as much of it as can be read."""
    said = words(answer).replace(f"item {NUMBER_MARK}", "item ")
    return " ".join(said.split()[:TITLE_WORDS]) or "nothing"


def _items(notes: Notes) -> Iterable[str]:
    for number, item in enumerate(notes.page.items, 1):
        seen = "seen " if item.link in notes.looked_at else ""
        title = gist(item.title, notes.wanted, TITLE_WORDS)
        yield f"item {number} {seen}{title} {item.price}"


def _shown(values: Sequence[str], task: str) -> list[str]:
    """As many values as are shown, in their order; those that the task names before others."""
    if len(values) <= SHOWN_VALUES:
        return list(values)
    best = sorted(range(len(values)), key=lambda i: f" {values[i]} " not in f" {task} ")
    return [values[i] for i in sorted(best[:SHOWN_VALUES])]


def _nth(items: Sequence[Item], number: str) -> str | None:
    numbers = [str(i) for i in range(1, len(items) + 1)]
    return items[numbers.index(number)].link if number in numbers else None


@lru_cache(16 * KEPT_PAGES)
def gist(text: str, wanted: frozenset[str], limit: int) -> str:
    """At most so many words, in their order; the task's own before others.

    Small words and strange numbers (a product's model) are left out, and the first word (the
    brand, of a title) is the first to go.
    """
    candidates = [word for word in text.split() if word not in SMALL_WORDS]
    named = [stem(word) in wanted for word in candidates]
    kept = [i for i, word in enumerate(candidates) if named[i] or word.isalpha()]
    kept.sort(key=lambda i: (not named[i], i == 0))
    return " ".join(candidates[i] for i in sorted(kept[:limit]))


@lru_cache(KEPT_PAGES)
def stem(word: str) -> str:
    """So much that "glass", "glasses" and "dish", "dishes" meet."""
    if word.endswith(("shes", "ches", "xes", "sses")):
        return word[:-2]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word
