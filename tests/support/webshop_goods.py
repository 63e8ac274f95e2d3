"""A few products that the shop's tests share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fedrl.envs.webshop.product import Product

TABLE = Product(
    asin="T000000001",
    title="Oak Side Table with Drawer, Oak Finish",
    description="A small table for the living room.",
    bullets=("Solid wood top ", "Easy clean surface"),
    options={"color": ("light oak", "titanium"), "size": ("small", "large")},
    pricing=(42.5,),
    category="garden",
    query="side tables",
    path="Home & Kitchen › Furniture › Tables › Side Tables",
    attributes=("solid wood", "easy assemble"),
    instruction="Find me solid wood, easy clean side tables",
    instruction_attributes=("solid wood", "easy clean"),
)
LAMP = Product(
    asin="L000000001",
    title="Brass Desk Lamp",
    description="",
    bullets=("",),
    options={},
    pricing=(10.0, 30.0),
    category="electronics",
    query="desk lamps",
    path="Electronics › Lamps",
    attributes=("energy efficient",),
    instruction="Find me energy efficient desk lamps",
    instruction_attributes=("energy efficient",),
)
CUP = replace(
    LAMP,
    asin="C000000001",
    title="Porcelain Cup",
    bullets=("Holds tea", "Holds coffee"),
    pricing=(),
    category="grocery",
    query="cups",
    path="Kitchen › Cups",
    attributes=(),
    instruction="",
    instruction_attributes=(),
)


def with_options(product: Product, options: Mapping[str, tuple[str, ...]]) -> Product:
    return replace(product, options=options)
