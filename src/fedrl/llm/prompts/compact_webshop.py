"""The shop in about a hundred words: for small models with a vocabulary of whole words.

Products are called by their number on the page, so that their ids need not be in the vocabulary;
titles and texts are cut to the words that the task has in common with them, before others; options
are said in plain words. The answers are "search red cotton shirt", "item 3", "option dark brown",
"buy", "next", "prev", "back", "description", "features" and "reviews". One that left everything as
it was is named ("option blue did nothing"): the page alone would ask for it again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from fedrl.envs.text import Turn
from fedrl.envs.webshop.pages import SEP
from fedrl.llm.prompts.formats import tokenize

TITLE_WORDS = 8
"""Of a product: enough for the three or four phrases of an instruction, ten titles to a page."""

TEXT_WORDS = 16
"""Of a description, the features or the reviews: real ones run to hundreds of words."""

SHOWN_ITEMS = 10
"""Of a page of results: the shop shows no more at once."""

SHOWN_VALUES = 8
"""Of one option; some products come in a hundred colours. All of them can be chosen."""

PRICE_STEP = 10
"""Dollars. Goals' limits are whole tens, so that prices rounded up to tens (and limits rounded
down) compare as the exact ones do, with a tenth of the words."""

SHOWN_STEPS = 9
"""Later steps read like this one: the built-in vocabulary counts to nine."""

NUMBER_MARK = "#"
"""Before the numbers of the shop's own texts. The built-in vocabulary takes a word and a number for
one thing ("item 3", "price 40"); the 12 of "amber 12 ounce" must stay the 12 of the option."""

KEPT_PAGES = 1024
"""Pages whose parts are kept: a group of episodes reads the same ones."""

BUTTONS = {
    "buy": "buy now", "next": "next >", "prev": "< prev", "back": "back to search",
    "description": "description", "features": "features", "reviews": "reviews",
}  # fmt: skip
SAID = {button: word for word, button in BUTTONS.items()}
SMALL_WORDS = frozenset("a an and by for from in of on or the to with".split())

WORD = re.compile(r"<[a-z]>|[^\W_]+(?:['’.-][^\W_]+)*")
OPENING = re.compile(r"^find me ")
LIMIT = re.compile(r"(?:, and )?price lower than (\d{1,9}(?:\.\d+)?) dollars")
PRICE = re.compile(r"\$(\d{1,9}(?:\.\d+)?)")
PRICE_TAG = re.compile(r"\$[\d.]+(?: to \$[\d.]+)?")
NUMBER = re.compile(r"Page (\d+) ")
MARKED = re.compile(r"\[(?:clicked )?button\] (.*) \[(?:clicked )?button_\]")


class Item(NamedTuple):
    link: str
    title: str
    price: str


class Page(NamedTuple):
    """What a page says; `options` has the words for every value, and what to click for it."""

    kind: str  # "start", "results", "item", "sub" or "done"
    buttons: frozenset[str] = frozenset()
    number: str = ""  # of the page of results
    items: tuple[Item, ...] = ()
    options: Mapping[str, str] = MappingProxyType({})
    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()  # name of an option, its values
    text: str = ""  # the title of an item, or what a sub-page tells
    price: str = ""


@dataclass
class Notes:
    task: str
    wanted: frozenset[str]  # stems of the task's words
    page: Page
    step: int = 1
    query: str = ""
    looked_at: set[str] = field(default_factory=set)  # links of products
    chosen: dict[str, str] = field(default_factory=dict)  # name of an option: the value
    told: str = ""  # which of the sub-pages this is
    failed: str = ""  # the last answer, if it did nothing

    @property
    def known(self) -> tuple[Any, ...]:  # all that an answer can change
        return self.page, self.query, set(self.looked_at), dict(self.chosen), self.told


class CompactWebShop:
    """See the module's docstring."""

    def begin(self, goal: str, turn: Turn) -> Notes:
        task = _task(goal)
        return Notes(task, frozenset(map(stem, task.split())), _page(turn))

    def observe(self, notes: Notes, command: str, turn: Turn, said: str = "") -> None:
        known, answer = notes.known, said or (self.answer(notes, command) if command else "")
        self._follow(notes, command, turn)
        notes.failed = _named(answer) if notes.known == known else ""

    def _follow(self, notes: Notes, command: str, turn: Turn) -> None:
        before, page = notes.page, _page(turn)
        name, target = _parts(command)
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
            notes.told = target

    def prompt(self, notes: Notes) -> str:
        page = notes.page
        parts = [f"task {notes.task}", f"step {min(notes.step, SHOWN_STEPS)}"]
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
            parts.append(f"{notes.told} {gist(page.text, notes.wanted, TEXT_WORDS)}")
        else:
            parts.append(page.kind)
        return " ; ".join(parts) + " >"

    def encode(self, tokenizer: Any, notes: Sequence[Notes], limit: int) -> list[list[int]]:
        return tokenize(tokenizer, [self.prompt(each) for each in notes], limit)

    def command(self, notes: Notes, answer: str) -> tuple[str, bool]:
        """Anything that does not fit the page is no command; a search always does."""
        page = notes.page
        verb, _, rest = words(answer).partition(" ")
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

    def answer(self, notes: Notes, command: str) -> str:
        page = notes.page
        name, target = _parts(command)
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


# Reading pages


def _page(turn: Turn) -> Page:
    if turn.done:
        return Page("done")
    return _read(turn.observation, tuple(turn.admissible))


@lru_cache(KEPT_PAGES)
def _read(observation: str, admissible: tuple[str, ...]) -> Page:
    targets = [target for name, target in map(_parts, admissible) if name == "click"]
    buttons = frozenset(targets) & SAID.keys()
    links = [target for target in targets if target not in buttons]
    pieces = _pieces(observation)
    if not targets:
        return Page("start")
    if "buy now" in buttons:
        return _product(pieces, buttons, links)
    if "next >" in buttons:
        return _results(pieces, buttons, links)
    return Page("sub", buttons, text=words(" ".join(_after_buttons(pieces))))


def _pieces(observation: str) -> list[str]:
    """The texts of a page without the instruction, in either of the shop's two ways to show it."""
    if SEP in observation:
        pieces = observation.split(SEP)
    else:
        lines = (line.strip() for line in observation.split("\n"))
        pieces = [MARKED.sub(r"\1", line) for line in lines if line]
    start = pieces.index("Instruction:") + 2 if "Instruction:" in pieces else 0
    return pieces[start:]


def _after_buttons(pieces: list[str]) -> list[str]:
    start = next((i for i, piece in enumerate(pieces) if piece.lower() not in SAID), len(pieces))
    return pieces[start:]


def _results(pieces: list[str], buttons: frozenset[str], links: list[str]) -> Page:
    number, items, known = "1", list[Item](), set(links)
    for piece in pieces:
        if piece.lower() in known:
            items.append(Item(piece.lower(), "", ""))
        elif items and PRICE_TAG.fullmatch(piece):
            items[-1] = items[-1]._replace(price=_price(piece))
        elif items:
            items[-1] = items[-1]._replace(title=words(piece))
        elif found := NUMBER.match(piece):
            number = found[1]
    return Page("results", buttons, number, tuple(items[:SHOWN_ITEMS]))


def _product(pieces: list[str], buttons: frozenset[str], links: list[str]) -> Page:
    options = _names(links)
    said = {link.strip(): name for name, link in options.items()}
    groups: list[tuple[str, list[str]]] = []
    title = price = ""
    for piece in _after_buttons(pieces):
        if piece in said and groups:
            groups[-1][1].append(said[piece])
        elif piece.startswith("Price: "):
            # The piece before the price is the title, the ones before that are names of options.
            title, price = groups.pop()[0] if groups else "", _price(piece)
            break
        else:
            groups.append((words(piece), []))
    found = tuple((name, tuple(values)) for name, values in groups if values)
    return Page("item", buttons, options=options, groups=found, text=title, price=price)


def _names(links: Iterable[str]) -> dict[str, str]:
    """Words for every value: two that read alike are told apart by a number."""
    names: dict[str, str] = {}
    for link in links:
        name = base = words(link) or "unnamed"
        count = 1
        while name in names:
            count += 1
            name = f"{base} {NUMBER_MARK}{count}"
        names[name] = link
    return names


def _parts(command: str) -> tuple[str, str]:
    """ "click[red]" is ("click", "red")."""
    name, _, rest = command.partition("[")
    return name, rest[:-1] if rest.endswith("]") else rest


# Writing prompts


def _task(goal: str) -> str:
    limit = LIMIT.search(goal)
    task = OPENING.sub("", words(LIMIT.sub("", goal)))
    return f"{task} price {_tens(limit[1], math.floor)}" if limit else task


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


def _price(text: str) -> str:
    """Of a range the upper end: what the purchase costs is not told before it is made."""
    found = PRICE.findall(text)
    return f"price {_tens(found[-1], math.ceil)}" if found else ""


def _tens(amount: str, rounded: Callable[[float], int]) -> int:
    return PRICE_STEP * rounded(float(amount) / PRICE_STEP)


def _nth(items: Sequence[Item], number: str) -> str | None:
    numbers = [str(i) for i in range(1, len(items) + 1)]
    return items[numbers.index(number)].link if number in numbers else None


@lru_cache(16 * KEPT_PAGES)
def gist(text: str, wanted: frozenset[str], limit: int) -> str:
    """At most so many words, in their order; the task's own before others.

    Small words and strange numbers (a product's model) are left out, and the first word (the
    brand, of a title) is the first to go.
    """
    found = [word for word in text.split() if word not in SMALL_WORDS]
    named = [stem(word) in wanted for word in found]
    kept = [i for i, word in enumerate(found) if named[i] or word.isalpha()]
    kept.sort(key=lambda i: (not named[i], i == 0))
    return " ".join(found[i] for i in sorted(kept[:limit]))


@lru_cache(KEPT_PAGES)
def stem(word: str) -> str:
    """So much that "glass", "glasses" and "dish", "dishes" meet."""
    if word.endswith(("shes", "ches", "xes", "sses")):
        return word[:-2]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def words(text: str) -> str:
    """Lower case without punctuation (but within words: "1.5", "men's"), a mark before numbers."""
    found = WORD.findall(text.lower())
    return " ".join(NUMBER_MARK + word if word[0].isdigit() else word for word in found)
