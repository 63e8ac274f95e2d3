"""A product of the shop, and the text by which the search engine knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]
"""A product, an instruction or a goal under WebShop's own names, as its files have it."""

DEPARTMENTS = ("beauty", "electronics", "fashion", "garden", "grocery")
"""The five categories of the catalogue: what preference heterogeneity is about."""


@dataclass(frozen=True, slots=True)
class Product:
    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]  # {"color": ("red", "blue")}, lower case
    pricing: tuple[float, ...]  # nothing: missing; one: the price; two: a range
    category: str  # one of DEPARTMENTS
    query: str  # the search that found it, "console tables"
    path: str  # "Home & Kitchen › Furniture › …"
    attributes: tuple[str, ...]
    instruction: str = ""  # products with one make goals
    instruction_attributes: tuple[str, ...] = ()


FIELDS = ("title", "description", "bullet", "options")
"""What the original's search reads of a product: of its bullet points the first."""


def indexed_text(product: Product, fields: tuple[str, ...] = FIELDS) -> str:
    """What the search index reads, lower case: title, description, FIRST bullet, options.

    `fields` chooses others, "bullets" (all of them) among them: a shop with another index
    (environment heterogeneity). A product that has nothing in these is known by its title.
    """
    options = ", and ".join(
        f"{name}: {', '.join(values)}" for name, values in product.options.items()
    )
    parts = {
        "title": product.title,
        "description": product.description,
        "bullet": product.bullets[0] if product.bullets else "",
        "options": options,
    }
    if fields == FIELDS:
        return " ".join(parts.values()).lower()
    parts["bullets"] = " ".join(product.bullets)
    text = " ".join(parts[name] for name in fields)
    return (text if text.strip() else product.title).lower()
