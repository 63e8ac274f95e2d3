"""A page of the shop, read into its parts: what the compact prompt says of it.

Two ways in which the shop shows a page are read: one line with separators, and marked buttons.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from fedrl.envs.text import Turn
from fedrl.envs.webshop.pages import SEP

SHOWN_ITEMS = 10
"""Of a page of results: the shop shows no more at once."""

PRICE_STEP = 10
"""Dollars. Goals' limits are whole tens, so that prices rounded up to tens (and limits rounded
down) compare as the exact ones do, with a tenth of the words."""

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

WORD = re.compile(r"<[a-z]>|[^\W_]+(?:['’.-][^\W_]+)*")
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


def read_page(turn: Turn) -> Page:
    if turn.done:
        return Page("done")
    return _parse(turn.observation, tuple(turn.admissible))


@lru_cache(KEPT_PAGES)
def _parse(observation: str, admissible: tuple[str, ...]) -> Page:
    targets = [target for name, target in map(command_parts, admissible) if name == "click"]
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
            items[-1] = items[-1]._replace(price=price_words(piece))
        elif items:
            items[-1] = items[-1]._replace(title=words(piece))
        elif match := NUMBER.match(piece):
            number = match[1]
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
            title, price = groups.pop()[0] if groups else "", price_words(piece)
            break
        else:
            groups.append((words(piece), []))
    options_of = tuple((name, tuple(values)) for name, values in groups if values)
    return Page("item", buttons, options=options, groups=options_of, text=title, price=price)


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


def command_parts(command: str) -> tuple[str, str]:
    """ "click[red]" is ("click", "red")."""
    name, _, rest = command.partition("[")
    return name, rest[:-1] if rest.endswith("]") else rest


def price_words(text: str) -> str:
    """Of a range the upper end: what the purchase costs is not told before it is made."""
    prices = PRICE.findall(text)
    return f"price {round_to_tens(prices[-1], math.ceil)}" if prices else ""


def round_to_tens(amount: str, rounded: Callable[[float], int]) -> int:
    return PRICE_STEP * rounded(float(amount) / PRICE_STEP)


def words(text: str) -> str:
    """Lower case without punctuation (but within words: "1.5", "men's"), a mark before numbers."""
    tokens = WORD.findall(text.lower())
    return " ".join(NUMBER_MARK + word if word[0].isdigit() else word for word in tokens)
