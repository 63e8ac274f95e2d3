"""The reward of a purchase, and whether a goal can be won at all.

reward = r_type · (n_att + n_opt + [price ≤ limit]) / (|attributes| + |options| + 1)

`faithful` gives the original's numbers. Its way with options makes some goals impossible: it
reduces what was bought to the first colour found anywhere in it ("tan" in "titanium"), but compares
that with the written-out pair `('color', 'titanium')`. By default colours are found only as whole
words, and the very value that is wanted always matches; and a name is compared by its distinct
nouns, so a product's name always matches itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from rapidfuzz.fuzz import token_set_ratio
from rapidfuzz.utils import default_process

from fedrl.envs.webshop.goals import Goal
from fedrl.envs.webshop.nouns import Tagger, plain
from fedrl.envs.webshop.pages import clickable_options
from fedrl.envs.webshop.product import Product
from fedrl.envs.webshop.word_lists import word_list

CLOSE = 85
LATIN_1 = dict.fromkeys(range(128, 256))


@dataclass(frozen=True)
class Rules:
    faithful: bool = False
    tagger: Tagger = plain


class TypeMatch(NamedTuple):
    """Is it the kind of thing that was asked for?"""

    r_type: float
    query_match: bool
    category_match: bool
    title_score: float


class Reward(NamedTuple):
    value: float  # 1.0: won
    parts: dict[str, float]  # under the original's names


def reward(
    product: Product, goal: Goal, price: float, options: Mapping[str, str], rules: Rules
) -> Reward:
    """What buying `product` at `price` with the chosen `options` is worth."""
    kind = match_type(product, goal, rules)
    attributes = count_attributes(product, goal.attributes)
    matched = count_options(product, goal, tuple(options.values()), rules.faithful)
    return _combine(goal, kind, attributes, price, matched)


def _combine(
    goal: Goal,
    kind: TypeMatch,
    attributes: int,
    price: float,
    matched: int,
) -> Reward:
    wanted = len(goal.options)
    affordable = price <= goal.price_upper
    whole = len(goal.attributes) + wanted + 1
    parts: dict[str, float] = {
        "r_type": kind.r_type,
        "r_att": attributes / len(goal.attributes) if goal.attributes else 1.0,
        "w_att": len(goal.attributes) / whole,
        "query_match": kind.query_match,
        "category_match": kind.category_match,
        "title_score": kind.title_score,
        "r_price": affordable,
        "w_price": 1 / whole,
    }
    if wanted:
        parts["r_option"] = matched / wanted
        parts["w_option"] = wanted / whole
    return Reward((attributes + matched + affordable) / whole * kind.r_type, parts)


def match_type(product: Product, goal: Goal, rules: Rules) -> TypeMatch:
    query = product.query == goal.query
    category = len(_categories(product.path) & _categories(goal.path)) >= 2
    score = title_score(rules.tagger(product.title), rules.tagger(goal.name), rules.faithful)
    r_type = 1.0 if query or category or score > 0.2 else 0.5
    if score < 0.1:
        r_type = 0.1
    if score == 0.0:
        r_type = 0.0
    return TypeMatch(r_type, query, category, score)


def title_score(bought: Sequence[str], wanted: Sequence[str], faithful: bool) -> float:
    """Shared nouns per wanted noun; the original counts a repeated wanted noun every time."""
    if not wanted:
        return 0.2
    return len(set(bought) & set(wanted)) / len(wanted if faithful else set(wanted))


@lru_cache(maxsize=4096)
def _categories(path: str) -> frozenset[str]:
    return frozenset(part.strip() for part in path.split("›"))


def count_attributes(product: Product, wanted: Sequence[str]) -> int:
    texts = (product.title, " ".join(product.bullets), product.description)
    lower = [text.lower() for text in texts]
    return sum(
        any(close(own, attribute) for own in product.attributes)
        or any(attribute in text for text in lower)
        for attribute in wanted
    )


def count_options(product: Product, goal: Goal, bought: Sequence[str], faithful: bool) -> int:
    """How many of the wanted options some chosen value stands for; names do not matter.

    The original takes "pack of 5" for "pack of 2" and "large" for "x-large", because the words of
    the one are among those of the other. Unless `faithful`, a product that offers the very value
    counts only with it; likeness is for products that call it otherwise.
    """
    offered = set() if faithful else {v for values in product.options.values() for v in values}
    colour = _first_colour if faithful else _whole_colour
    chosen = [colour(own) for own in bought]
    wanted = (
        [_written_out(pair) for pair in goal.options.items()]
        if isinstance(goal.options, Mapping)
        else [colour(value) for value in goal.options]
    )
    return sum(
        (not faithful and value in bought)
        or (value not in offered and any(close(own, option) for own in chosen))
        for value, option in zip(goal.values, wanted)
    )


def stands_for(chosen: str, name: str, wanted: str) -> bool:
    """Whether some rule takes the chosen value for the wanted one of the option `name`."""
    if chosen == wanted:
        return True
    colours = {_first_colour(chosen), _whole_colour(chosen)}
    sought = {_written_out((name, wanted)), _first_colour(wanted), _whole_colour(wanted)}
    return any(close(own, option) for own in colours for option in sought)


@lru_cache(maxsize=16384)
def _written_out(pair: tuple[str, str]) -> str:
    """The original looks for a colour among the two members of the pair, then prints the pair."""
    return next((colour for colour in word_list("colours") if colour in pair), str(pair))


@lru_cache(maxsize=16384)
def _first_colour(value: str) -> str:
    return next((colour for colour in word_list("colours") if colour in value), value)


@lru_cache(maxsize=16384)
def _whole_colour(value: str) -> str:
    words = set(re.findall(r"[^\W\d_]+", value))
    return next((colour for colour in word_list("colours") if colour in words), value)


def close(text: str, other: str) -> bool:
    return round(token_set_ratio(_processed(text), _processed(other))) > CLOSE


@lru_cache(maxsize=16384)
def _processed(text: str) -> str:
    """Lower case, letters and digits only; Latin-1's upper half is dropped, as thefuzz does."""
    return default_process(text.translate(LATIN_1))


def unwinnable(
    goals: Sequence[Goal],
    products: Mapping[str, Product],
    prices: Mapping[str, float],
    rules: Rules,
) -> list[int]:
    """Positions of the goals that buying their own product does not win."""
    lost = []
    own: dict[tuple[str, tuple[str, ...]], tuple[TypeMatch, int, dict[str, str]]] = {}
    for position, goal in enumerate(goals):
        product, key = products[goal.asin], (goal.asin, goal.attributes)  # people ask differently
        if key not in own:
            own[key] = (
                match_type(product, goal, rules),
                count_attributes(product, goal.attributes),
                clickable_options(product, nested=not rules.faithful),
            )
        kind, attributes, clicks = own[key]
        chosen = {clicks[value]: value for value in goal.values if value in clicks}
        price = prices[goal.asin]
        matched = count_options(product, goal, tuple(chosen.values()), rules.faithful)
        if _combine(goal, kind, attributes, price, matched).value != 1.0:
            lost.append(position)
    return lost
