"""Products that pass for others and fail one part of the reward: price, colour or size, or two.

A look-alike is a copy under the id `LK_PRICE_…`, in title, description and bullet points the
product itself, so a search that finds one finds the other. Its price is above every limit, or none
of its colours (sizes) is taken for one of the product's. So it wins no goal of that product.

Those of FedAgent's authors (files beside the catalogue) put any of three colours in the place of
each, also one that the product itself has: some of them win. Of products so dear that their goals
have no limit they have a price look-alike, too, which wins; we have none.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedrl.core.types import UserError
from fedrl.envs.webshop import catalogue
from fedrl.envs.webshop.goals import LIMITS, MISSING_PRICE
from fedrl.envs.webshop.product import Product
from fedrl.envs.webshop.reward import stands_for
from fedrl.envs.webshop.variants import Attack

TOO_MUCH = 9999.0
"""The authors' price, above every goal's limit."""

TRIES = 20
"""Draws for each value that is to be replaced; one that resembles the product's own is no use."""

MARKS: dict[Attack, str] = {
    "price": "LK_PRICE_", "color": "LK_COLOR_", "size": "LK_SIZE_", "price_color": "LK_PCOL_",
}  # fmt: skip


def lookalikes(products: Sequence[Product], attack: Attack) -> list[Product]:
    """One for each product that has what is changed; made of the catalogue's own option values."""
    made = [
        replace(
            product, asin=MARKS[attack] + product.asin, instruction="", instruction_attributes=()
        )
        for product in products
        if attack != "price" or max(product.pricing, default=MISSING_PRICE) < LIMITS[-2]
    ]
    if attack in ("price", "price_color"):
        made = [replace(copy, pricing=(TOO_MUCH,)) for copy in made]
    if attack == "price":
        return made
    name = "size" if attack == "size" else "color"
    values = sorted({value for product in products for value in product.options.get(name, ())})
    changed = (_changed(copy, name, values) for copy in made if copy.options.get(name))
    return [copy for copy in changed if copy is not None]


def _changed(copy: Product, name: str, values: Sequence[str]) -> Product | None:
    """With other values of this option, as many as it had; nothing where that would not matter:
    another option has a value that stands for one of these, or all values are alike."""
    own = copy.options[name]
    rest = [v for option, some in copy.options.items() if option != name for v in some]
    if any(stands_for(value, name, wanted) for value in rest for wanted in own):
        return None
    chance = random.Random(copy.asin)
    fresh: dict[str, None] = {}
    for _ in range(TRIES * len(own)):
        value = chance.choice(values)
        if not any(stands_for(value, name, wanted) for wanted in own):
            fresh[value] = None
        if len(fresh) == len(own):
            break
    return replace(copy, options={**copy.options, name: tuple(fresh)}) if fresh else None


def read_lookalikes(folder: Path, attack: Attack, products: Sequence[Product]) -> list[Product]:
    """The authors'; those of prices follow from the catalogue, and have no file."""
    if attack == "price":
        return lookalikes(products, attack)
    for name in (f"lookalike_v_{attack}.json", f"lookalike_v_{attack}.json.gz"):
        if (folder / name).exists():
            known = {product.asin for product in products}
            read = catalogue.load_lookalikes(folder / name)
            return [copy for copy in read if copy.asin.removeprefix(MARKS[attack]) in known]
    raise UserError(
        f"world.lookalikes: {folder} holds no lookalike_v_{attack}.json (plain or .gz); "
        'set world.lookalikes = "generated"'
    )
