"""Why a purchase earned what it earned, point by point, in plain words.

The reward counts points (each wanted attribute, each wanted option, the price) and multiplies their
share by how well the kind of product fits. Every judgement here is the reward's own, asked about
one point at a time, so the points of a `ScoreBreakdown` always make up its score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from fedrl.envs.webshop.goals import NO_LIMIT, Goal
from fedrl.envs.webshop.product import Product
from fedrl.envs.webshop.reward import (
    Rules,
    TypeMatch,
    close,
    count_attributes,
    count_options,
    match_type,
    reward,
)

NAMED = 6  # words of a list that are named; the others are counted


class Point(NamedTuple):
    """One thing that the goal asks for."""

    wanted: str
    bought: str
    earned: bool
    why: str


class ScoreBreakdown(NamedTuple):
    """A purchase judged: score = factor · earned points / points."""

    score: float
    points: tuple[Point, ...]
    factor: float  # r_type
    kind: str  # why the factor is what it is

    @property
    def earned(self) -> int:
        return sum(point.earned for point in self.points)


def score_breakdown(
    product: Product, goal: Goal, price: float, options: Mapping[str, str], rules: Rules
) -> ScoreBreakdown:
    """Buying `product` at `price` with the chosen `options`, as `reward` sees it."""
    named = goal.options.items() if isinstance(goal.options, Mapping) else enumerate(goal.options)
    kind = match_type(product, goal, rules)
    return ScoreBreakdown(
        reward(product, goal, price, options, rules).value,
        (
            *(_attribute(product, wanted) for wanted in goal.attributes),
            *(_option(product, goal, name, value, options, rules) for name, value in named),
            _price(product, goal, price),
        ),
        kind.r_type,
        _kind(kind, product, goal, rules),
    )


def money(amount: float) -> str:
    return f"${amount:,.2f}"


def price_tag(product: Product, drawn: float) -> str:
    """What the shop shows; a product without a price has one all the same."""
    return " to ".join(map(money, product.pricing[:2] or (drawn,)))


def limit(goal: Goal) -> str:
    return "any price" if goal.price_upper >= NO_LIMIT else f"at most {money(goal.price_upper)}"


def _attribute(product: Product, wanted: str) -> Point:
    texts = {
        "in its title": product.title,
        "in its features": " ".join(product.bullets),
        "in its description": product.description,
    }
    earned = bool(count_attributes(product, [wanted]))
    place = next((place for place, text in texts.items() if wanted in text.lower()), None)
    if earned and place is None:
        own = next(own for own in product.attributes if close(own, wanted))
        place = f"the catalogue has “{own}”"
    return Point(wanted, place or "said nowhere", earned, "")


def _option(
    product: Product,
    goal: Goal,
    name: str | int,
    value: str,
    options: Mapping[str, str],
    rules: Rules,
) -> Point:
    wanted_alone = {name: value} if isinstance(name, str) else (value,)

    def matches(chosen: str) -> bool:
        # The original's rule needs the wanted option as the goal has it: with its name, or without.
        return bool(
            count_options(product, replace(goal, options=wanted_alone), (chosen,), rules.faithful)
        )

    wanted = f"{name}: {value}" if isinstance(name, str) else value
    for own, chosen in options.items():
        if matches(chosen):
            return Point(wanted, f"{own}: {chosen}", True, "")
    chosen = options.get(str(name), "")
    bought = f"{name}: {chosen}" if chosen else "not chosen"
    if any(value in values for values in product.options.values()):
        why = (
            "It was chosen, but the original's rule does not recognise it."
            if value in options.values()
            else f"The product has it: choose “{value}” before buying."
        )
    elif name in product.options:
        why = f"The product has no {name} “{value}”."
    else:
        why = "The product has no such option."
    return Point(wanted, bought, False, why)


def _price(product: Product, goal: Goal, price: float) -> Point:
    why = ""
    if len(product.pricing) > 1:
        why = f"Shown as {price_tag(product, price)}; this shop has drawn {money(price)} from it."
    elif not product.pricing:
        why = "A product without a price counts as $100.00."
    return Point(limit(goal), money(price), price <= goal.price_upper, why)


def _kind(kind: TypeMatch, product: Product, goal: Goal, rules: Rules) -> str:
    """The original's three tests of “is it that kind of thing?”, as one sentence."""
    wanted = set(rules.tagger(goal.name))
    shared = sorted(wanted & set(rules.tagger(product.title)))
    words = f"{len(shared)} of the {len(wanted)} nouns of the wanted name"
    if kind.r_type == 0.0:
        return "Its name shares no noun with the name of the wanted product: nothing counts."
    if kind.r_type == 0.1:
        return f"Its name has only {words}, under a tenth: a tenth of the points counts."
    if kind.r_type == 0.5:
        return (
            f"It is not of the search “{goal.query}”, shares fewer than two categories with the "
            f"wanted product, and its name has only {words}: half of the points counts."
        )
    reasons = []
    if kind.query_match:
        reasons.append(f"it is of the search “{goal.query}”")
    if kind.category_match:
        reasons.append("it shares two or more categories with the wanted product")
    if kind.title_score > 0.2 and shared:
        reasons.append(f"its name has {words} ({_listed(shared)})")
    return f"The right kind of product: {'; '.join(reasons)}."


def _listed(words: list[str]) -> str:
    more = len(words) - NAMED
    return ", ".join(words[:NAMED]) + (f" and {more} more" if more > 0 else "")
