"""What each page shows, and what can be clicked on it.

A page is a sequence of pieces after the instruction. In `text` mode they are joined by ` [SEP] `,
in `text_rich` mode each is a line and buttons are marked. The pieces are those that the original's
HTML pages leave once their tags are gone; a page of a product or of search results never changes,
so callers keep pages.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fedrl.envs.webshop.product import Product

SEP = " [SEP] "
PER_PAGE = 10
BACK, PREVIOUS, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews")
ITEM_BUTTONS = frozenset(name.lower() for name in (BACK, PREVIOUS, *SUB_PAGES, BUY))
SEARCH_TEMPLATE = "search[<words>]"
"""Stands among the admissible commands for all searches."""


class Piece(NamedTuple):
    text: str
    kind: str = "text"  # or "button", "product", "option"


@dataclass(frozen=True, slots=True)
class Page:
    kind: str  # "start", "results", "item", "sub" or "done"
    pieces: tuple[Piece, ...]
    products: Mapping[str, str] = field(default_factory=dict)  # what to click: the id
    options: Mapping[str, str] = field(default_factory=dict)  # what to click: the option's name
    text: str = field(init=False)
    clickables: tuple[str, ...] = field(init=False)
    admissible: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        buttons = (piece.text.lower() for piece in self.pieces if piece.kind == "button")
        clickables = tuple(dict.fromkeys([*buttons, *self.products, *self.options]))
        start = self.kind == "start"
        clicks = tuple(f"click[{name}]" for name in clickables if not start)
        # A frozen dataclass sets its derived fields through object.
        object.__setattr__(self, "text", SEP.join(piece.text for piece in self.pieces))
        object.__setattr__(self, "clickables", clickables)
        object.__setattr__(self, "admissible", (SEARCH_TEMPLATE,) if start else clicks)


START = Page("start", (Piece("Search", "button"),))


def results_page(products: Sequence[Product], number: int, total: int) -> Page:
    """`products` are those of this page, `number` counts from 1."""
    pieces = [_button(BACK), Piece(f"Page {number} (Total results: {total})")]
    if number > 1:
        pieces.append(_button(PREVIOUS))
    pieces.append(_button(NEXT))
    for product in products:
        pieces.append(Piece(product.asin, "product"))
        pieces += _shown(product.title)
        pieces.append(Piece(price_tag(product)))
    links = {product.asin.lower(): product.asin for product in products}
    return Page("results", tuple(pieces), products=links)


def item_page(product: Product) -> Page:
    pieces = [_button(BACK), _button(PREVIOUS)]
    for name, values in product.options.items():
        pieces += _shown(name)
        pieces += [piece for value in values for piece in _shown(value, "option")]
    pieces += _shown(product.title)
    pieces += [Piece(f"Price: {price_tag(product)}"), Piece("Rating: N.A.")]
    pieces += [_button(name) for name in (*SUB_PAGES, BUY)]
    options = {value: name for name, values in product.options.items() for value in values}
    return Page("item", tuple(pieces), options=options)


def sub_page(product: Product, name: str) -> Page:
    texts: Iterable[str] = ()
    if name == "description":
        texts = (product.description,)
    elif name == "features":
        texts = product.bullets
    shown = [piece for text in texts for piece in _shown(text)]
    return Page("sub", (_button(BACK), _button(PREVIOUS), *shown))


def done_page(asin: str, options: Mapping[str, str], reward: float) -> Page:
    """The original's last page, with the fields that its text mode leaves empty."""
    bought = ["Purchased", "asin", asin, "options", _json_in_html(options)]
    for name in ("attrs", "category", "query", "product category"):
        bought += [name, "None"]
    wanted = ["Target", "asin", "options", "attrs", "price upper", "instuction text"]
    wanted += ["category", "product category", "query", "Goal", "None"]
    code = ["Your code:", "None", "(Paste it in your MTurk interface.)"]
    score = ["Reward", "Your score (min 0.0, max 1.0)", str(reward), "Reward Details", "None"]
    lines = ["Thank you for shopping with us!", *code, *bought, *wanted, *score]
    return Page("done", tuple(Piece(line) for line in lines))


def plain_text(page: Page, instruction: str) -> str:
    if page.kind == "done":
        return page.text
    opening = f"WebShop{SEP}" if page.kind == "start" else ""
    return f"{opening}Instruction:{SEP}{instruction.strip()}{SEP}{page.text}"


def rich_text(
    page: Page, instruction: str, chosen: Collection[str] = (), visited: Collection[str] = ()
) -> str:
    """`chosen` are option values, `visited` product ids: both appear as clicked."""
    lines = [] if page.kind == "done" else ["Instruction:", instruction]
    if page.kind == "start":
        lines.insert(0, "WebShop")
    clicked: list[str] = []
    for piece in page.pieces:
        if piece.kind == "text":
            lines.append(piece.text)
        elif piece.kind == "button":
            lines.append(_marked(piece.text, False))
        elif piece.kind == "product":
            lines.append("\n" + _marked(piece.text, piece.text in visited))
        else:
            lines.append("  " + _marked(piece.text, piece.text in chosen))
            if piece.text in chosen:
                clicked.insert(0, f"You have clicked {piece.text}.")
    return "\n".join([*clicked, *lines]) + "\n"


def price_tag(product: Product) -> str:
    if not product.pricing:
        return "$100.0"
    return " to ".join(f"${price}" for price in product.pricing[:2])


def parse(command: str, nested: bool = False) -> tuple[str, str]:
    r"""The name and the argument in lower case: the original's `(.+)\[(.+)\]`, in linear time.

    Of several brackets the original takes the last opening one, so an option "set [2]" cannot be
    clicked; `nested` mends that.
    """
    line = command.split("\n", 1)[0]
    end = line.rfind("]")
    start = line.rfind("[", 1, max(end - 1, 1))
    if nested and line.startswith("click[") and start > 5:
        start = 5
    if start < 1:
        return command, ""
    return line[:start], line[start + 1 : end].lower()


def clickable_options(product: Product, nested: bool) -> dict[str, str]:
    """Which option each value chooses, of the values that a click can reach."""
    return {
        value: name
        for name, values in product.options.items()
        for value in values
        if value not in ITEM_BUTTONS and parse(f"click[{value}]", nested) == ("click", value)
    }


def _button(text: str) -> Piece:
    return Piece(text, "button")


def _marked(text: str, clicked: bool) -> str:
    word = "clicked button" if clicked else "button"
    return f"[{word}] {text} [{word}_]"


def _shown(text: str, kind: str = "text") -> list[Piece]:
    """What remains of a text in an HTML page: blanks alone stay as nothing, line breaks vanish."""
    if not text or (not text.strip(" \t\n\f\r") and "\n" in text):
        return []
    return [Piece(text.strip(), kind)]


def _json_in_html(options: Mapping[str, str]) -> str:
    """JSON as the original's template engine writes it into a page."""
    text = json.dumps(options, sort_keys=True)
    for character in "<>&'":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
