"""Goals: a product's instruction with one combination of its options, and a price limit.

The draws are the original's, in its order and with Python's own generator, so a seed gives the very
list that the original gives: first one price for each product with a price range, in catalogue
order; then one limit for each product with an instruction; then a shuffle with a fixed seed.

People's own instructions (`Wish`, the publisher's `items_human_ins.json`) make one goal each, of
weight 1, with a limit drawn for each; those that name no attribute are left out, as there.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fedrl.envs.webshop.product import Product, Record

MISSING_PRICE = 100.0
NO_LIMIT = 1_000_000
SHUFFLE_SEED = 233
LIMITS = [10.0 * tens for tens in range(1, 100)]


@dataclass(frozen=True, slots=True)
class Goal:
    asin: str  # the product it was made from
    category: str
    query: str
    name: str
    path: str
    instruction: str
    attributes: tuple[str, ...]
    price_upper: float
    options: Mapping[str, str] | tuple[str, ...]  # people's goals have values without names
    weight: float = 1.0

    @property
    def values(self) -> tuple[str, ...]:
        """The wanted option values."""
        return tuple(self.options.values() if isinstance(self.options, Mapping) else self.options)

    def to_record(self) -> Record:
        """In the original's schema."""
        options = self.options
        return {
            "asin": self.asin,
            "category": self.category,
            "query": self.query,
            "name": self.name,
            "product_category": self.path,
            "instruction_text": self.instruction,
            "attributes": list(self.attributes),
            "price_upper": self.price_upper,
            "goal_options": dict(options) if isinstance(options, Mapping) else list(options),
            "weight": self.weight,
        }

    @classmethod
    def from_record(cls, record: Record) -> Goal:
        options = record["goal_options"]
        return cls(
            asin=record["asin"],
            category=record["category"],
            query=record["query"],
            name=record["name"],
            path=record["product_category"],
            instruction=record["instruction_text"],
            attributes=tuple(record["attributes"]),
            price_upper=record["price_upper"],
            options=options if isinstance(options, Mapping) else tuple(options),
            weight=record.get("weight", 1.0),
        )


class Wish(NamedTuple):
    """What somebody wrote who was shown a product."""

    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]  # values, without the names of the options


class DrawnGoals(NamedTuple):
    """All that chance decides about a shop."""

    prices: Mapping[str, float]  # what a purchase of each product costs
    goals: tuple[Goal, ...]


def draw_goals(
    products: Sequence[Product], seed: int, shuffle_seed: int = SHUFFLE_SEED
) -> DrawnGoals:
    rng = random.Random(seed)
    prices = {product.asin: draw_price(product, rng) for product in products}
    sources = [product for product in products if product.instruction]
    limits = [draw_limit(prices[product.asin], rng) for product in sources]
    weights = _weights(sources)
    goals = [
        goal
        for product, limit, weight in zip(sources, limits, weights)
        for goal in _combinations(product, limit, weight)
    ]
    random.Random(shuffle_seed).shuffle(goals)
    return DrawnGoals(prices, tuple(goals))


def draw_human_goals(
    products: Sequence[Product],
    wishes: Mapping[str, Sequence[Wish]],
    seed: int,
    shuffle_seed: int = SHUFFLE_SEED,
) -> DrawnGoals:
    """The goals of people's instructions, by the product that each was written for."""
    rng = random.Random(seed)
    prices = {product.asin: draw_price(product, rng) for product in products}
    goals = []
    for product in products:
        for wish in wishes.get(product.asin, ()):
            if not wish.attributes:
                continue
            limit = draw_limit(prices[product.asin], rng)
            goals.append(
                Goal(
                    asin=product.asin,
                    category=product.category,
                    query=product.query,
                    name=product.title,
                    path=product.path,
                    instruction=wish.instruction.strip(".") + _price_words(limit),
                    attributes=wish.attributes,
                    price_upper=limit,
                    options=wish.options,
                )
            )
    random.Random(shuffle_seed).shuffle(goals)
    return DrawnGoals(prices, tuple(goals))


def _price_words(limit: float) -> str:
    return f", and price lower than {limit:.2f} dollars" if limit != NO_LIMIT else ""


def draw_price(product: Product, rng: random.Random) -> float:
    if not product.pricing:
        return MISSING_PRICE
    if len(product.pricing) == 1:
        return product.pricing[0]
    return rng.uniform(*product.pricing[:2])


def draw_limit(price: float, rng: random.Random) -> float:
    above = [limit for limit in LIMITS if limit > price][:4]
    return max(rng.sample(above, 2)) if len(above) >= 2 else NO_LIMIT


def _combinations(product: Product, limit: float, weight: float) -> Iterator[Goal]:
    names = sorted(product.options)
    price = _price_words(limit)
    for values in itertools.product(*(product.options[name] for name in names)):
        chosen = ", and ".join(f"{name}: {value}" for name, value in zip(names, values))
        yield Goal(
            asin=product.asin,
            category=product.category,
            query=product.query,
            name=product.title,
            path=product.path,
            instruction=f"{product.instruction}{' with ' if chosen else ''}{chosen}{price}",
            attributes=product.instruction_attributes,
            price_upper=limit,
            options=dict(zip(names, values)),
            weight=weight,
        )


def _weights(products: Sequence[Product]) -> list[float]:
    """A product's goals weigh as much as its attributes are rare among all goals."""
    count: Counter[str] = Counter()
    for product in products:
        goals = math.prod(len(values) for values in product.options.values())
        for attribute in product.instruction_attributes:
            count[attribute] += goals
    weights = []
    for product in products:
        # A product with an option of no values makes no goals: its attributes may count nothing.
        rarity = [1.0 / count[name] for name in product.instruction_attributes if count[name]]
        weights.append(sum(rarity) / max(len(rarity), 1))
    return weights
