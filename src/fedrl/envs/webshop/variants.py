"""Shops that differ from client to client: environment heterogeneity of a federation.

A `Variant` says in what one client's shop differs from the plain one. Each function below turns one
knob for a list of variants, so knobs combine; a knob at its identity value leaves the plain shop to
the bit, and what it draws for a client depends only on (seed, client), so more of a knob goes
further in the same direction.

    variants = reweighted(split_catalogue(plain(10), products, owned, overlap=0.3), spread=0.5)
    for variant, ranker in zip(variants, rankers(variants, products)):
        client_shop = shop.variant(variant.catalogue(products), ranker)
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from fedrl.core.seeding import derive, generator
from fedrl.core.types import UserError
from fedrl.envs.webshop.generate import asin_of
from fedrl.envs.webshop.goals import NO_LIMIT, Goal
from fedrl.envs.webshop.product import Product, indexed_text
from fedrl.envs.webshop.search import K1, B, Index
from fedrl.envs.webshop.store import MOST_RESULTS, Ranker

FIELDS = ("title", "description", "bullet", "options")
DEPTH = MOST_RESULTS
"""Results that a re-ranking moves about among themselves: those that a shop shows."""

Change = Literal["color", "size", "price"]
CHANGES: tuple[Change, ...] = ("color", "size", "price")
Reranking = Literal["promoted", "shuffled", "demoted"]


class Rerank(NamedTuple):
    """How a shop re-orders what it found. Products move by up to `strength` times 50 places.

    "promoted": brands that the shop favours, a quarter of all, move up. "shuffled": every product
    moves down by its own, fixed amount. "demoted": products that goals are made of move down.
    """

    kind: Reranking = "shuffled"
    strength: float = 0.0
    seed: int = 0

    def push(self, product: Product) -> float:
        """How far down the product moves, in [-1, 1], at full strength."""
        if self.kind == "shuffled":
            return self._draw(product.asin)
        if self.kind == "promoted":
            return -1.0 if self._draw(product.title.split(" ", 1)[0]) < 0.25 else 0.0
        return self._draw(product.asin) if product.instruction else 0.0

    def _draw(self, name: str) -> float:
        return zlib.crc32(f"{self.seed} {name}".encode()) / 2**32


@dataclass(frozen=True)
class Variant:
    """What makes one client's shop differ; as it stands by default, nothing."""

    kept: tuple[int, ...] | None = None  # positions in the catalogue; None: all of it
    lookalikes: tuple[Product, ...] = ()  # products of this shop only, after the catalogue's
    fields: tuple[str, ...] = FIELDS  # what the search reads of a product
    k1: float = K1
    b: float = B
    rerank: Rerank = Rerank()  # noqa: RUF009 (a NamedTuple does not change)

    def catalogue(self, products: Sequence[Product]) -> list[Product]:
        """The products of this shop; the ranker's positions count in this list."""
        own = products if self.kept is None else [products[place] for place in self.kept]
        return [*own, *self.lookalikes]

    def ranker(self, products: Sequence[Product]) -> Ranker:
        """The search engine of this shop alone; `rankers` shares the work between shops."""
        return rankers([self], products)[0]


@dataclass(frozen=True, eq=False)
class Reordered:
    """A search engine whose results are moved about."""

    index: Index
    products: Sequence[Product]
    rerank: Rerank

    def search(self, query: str, k: int = 50) -> list[int]:
        places = self.index.search(query, max(k, DEPTH))
        reach = DEPTH * self.rerank.strength
        keys = [
            rank + reach * self.rerank.push(self.products[place])
            for rank, place in enumerate(places[:DEPTH])
        ]
        moved = [places[rank] for rank in sorted(range(len(keys)), key=keys.__getitem__)]
        return [*moved, *places[DEPTH:]][:k]


def plain(clients: int) -> list[Variant]:
    """Equal shops, to turn knobs on."""
    if clients < 1:
        raise UserError(f"clients is {clients}; a federation has at least 1")
    return [Variant()] * clients


def rankers(variants: Sequence[Variant], products: Sequence[Product]) -> list[Ranker]:
    """One search engine per shop; shops with the same products and fields share an index."""
    built: dict[object, tuple[Index, list[Product]]] = {}
    made: list[Ranker] = []
    for variant in variants:
        key = (variant.kept, tuple(copy.asin for copy in variant.lookalikes), variant.fields)
        if key not in built:
            shown = variant.catalogue(products)
            texts = (indexed_text(product, variant.fields) for product in shown)
            built[key] = Index.build([product.asin for product in shown], texts), shown
        index, shown = built[key]
        if (variant.k1, variant.b) != (K1, B):
            index = index.reweighted(variant.k1, variant.b)
        made.append(
            index if not variant.rerank.strength else Reordered(index, shown, variant.rerank)
        )
    return made


def split_catalogue(
    variants: Sequence[Variant],
    products: Sequence[Product],
    owned: Sequence[Sequence[str]],
    overlap: float,
    seed: int = 0,
) -> list[Variant]:
    """Each shop has its own part of the catalogue, and every other product by chance `overlap`.

    `owned[c]` are the asins of client c's goals: always in its shop. 1 is the whole catalogue.
    """
    _within("overlap", overlap)
    if len(owned) != len(variants):
        raise UserError(f"owned has {len(owned)} lists for {len(variants)} clients: give one each")
    if overlap == 1:
        return list(variants)
    asins = np.array([product.asin for product in products])
    home = generator(seed, "webshop home").integers(len(variants), size=len(products))
    parts = []
    for client, variant in enumerate(variants):
        luck = generator(seed, "webshop overlap", client=client).random(len(products))
        kept = (luck < overlap) | (home == client) | np.isin(asins, np.array(list(owned[client])))
        parts.append(replace(variant, kept=tuple(np.flatnonzero(kept).tolist())))
    return parts


def field_subsets(variants: Sequence[Variant], missing: int, seed: int = 0) -> list[Variant]:
    """The search of each shop reads `missing` fields less, its own choice.

    Title or description is always read, or some products could not be found at all. 0 leaves all.
    """
    if missing not in (0, 1, 2):
        raise UserError(f"missing is {missing}; choose 0, 1 or 2 of {', '.join(FIELDS)}")
    return [
        replace(
            variant,
            fields=tuple(name for name in FIELDS if name not in _lost(missing, seed, client)),
        )
        for client, variant in enumerate(variants)
    ]


def _lost(missing: int, seed: int, client: int) -> list[str]:
    order = generator(seed, "webshop fields", client=client).permutation(len(FIELDS))
    names = [FIELDS[place] for place in order]
    if {"title", "description"} == set(names[:2]):
        names[1], names[2] = names[2], names[1]
    return names[:missing]


def reweighted(variants: Sequence[Variant], spread: float, seed: int = 0) -> list[Variant]:
    """BM25's k1 and b around the defaults: k1 within a factor 8, b within [0, 1]. 0 leaves them."""
    _within("spread", spread)
    changed = []
    for client, variant in enumerate(variants):
        first, second = generator(seed, "webshop weights", client=client).uniform(-1, 1, 2).tolist()
        b = variant.b + spread * second * (1 - variant.b if second > 0 else variant.b)
        changed.append(replace(variant, k1=variant.k1 * 8 ** (spread * first), b=b))
    return changed


def reranked(
    variants: Sequence[Variant], kind: Reranking, strength: float, seed: int = 0
) -> list[Variant]:
    """Each shop re-orders its results in its own way. 0 leaves the order."""
    _within("strength", strength)
    if kind not in ("promoted", "shuffled", "demoted"):
        raise UserError(f"kind is {kind!r}; choose promoted, shuffled or demoted")
    return [
        replace(
            variant, rerank=Rerank(kind, strength, derive(seed, "webshop rerank", client=client))
        )
        for client, variant in enumerate(variants)
    ]


def with_lookalikes(
    variants: Sequence[Variant],
    products: Sequence[Product],
    goals: Sequence[Sequence[Goal]],
    copies: int,
    seed: int = 0,
    given: Sequence[Product] = (),
) -> list[Variant]:
    """Put near-copies of the products of client c's `goals[c]` into its shop, `copies` per goal.

    A copy differs in one of color, size and price, so that it cannot win that goal; the product
    itself stays. `given` are ready-made ones, named after their original (`…_B07XYZ1234`), to take
    instead. 0 puts in nothing.
    """
    if copies < 0:
        raise UserError(f"copies is {copies}; it must not be negative")
    if len(goals) != len(variants):
        raise UserError(f"goals has {len(goals)} lists for {len(variants)} clients: give one each")
    ready: dict[str, list[Product]] = {}
    for product in given:
        ready.setdefault(product.asin.rsplit("_", 1)[-1], []).append(product)
    by_asin = {product.asin: product for product in products}
    pools = {name: _values(products, name) for name in ("color", "size")}
    taken = set(by_asin)
    made = []
    for client, variant in enumerate(variants):
        extra: dict[str, Product] = {}
        for place, goal in enumerate(goals[client]):
            if given:
                new = ready.get(goal.asin, [])[:copies]
            else:
                draw = generator(seed, "webshop look-alike", round=place, client=client)
                new = _copies(by_asin[goal.asin], goal, copies, pools, draw, taken)
            extra.update((product.asin, product) for product in new)
        made.append(replace(variant, lookalikes=(*variant.lookalikes, *extra.values())))
    return made


def _copies(
    product: Product,
    goal: Goal,
    count: int,
    pools: Mapping[str, Sequence[str]],
    draw: np.random.Generator,
    taken: set[str],
) -> list[Product]:
    wanted = goal.options if isinstance(goal.options, Mapping) else {}
    able = [change for change in CHANGES if change in wanted]
    if goal.price_upper < NO_LIMIT:
        able.append("price")
    made: list[Product] = []
    for _ in range(count if able else 0):
        change = able[int(draw.integers(len(able)))]
        copy = replace(
            product, asin=_unused(taken, draw), instruction="", instruction_attributes=()
        )
        if change == "price":
            price = round(goal.price_upper * (1.05 + 0.4 * draw.random()), 2)
            made.append(replace(copy, pricing=(price,)))
        elif values := _others(product.options[change], wanted[change], pools[change], draw):
            made.append(replace(copy, options={**product.options, change: values}))
    return made


def _others(
    values: Sequence[str], wanted: str, pool: Sequence[str], draw: np.random.Generator
) -> tuple[str, ...]:
    """The values with a new one in the place of the wanted one, and none that resembles it."""
    words = _words(wanted)
    fresh = [value for value in pool if value not in values and not _words(value) & words]
    new = fresh[int(draw.integers(len(fresh)))] if fresh else wanted
    changed = [new if value == wanted else value for value in values]
    return tuple(value for value in changed if not _words(value) & words)


def _words(value: str) -> set[str]:
    return set("".join(c if c.isalnum() else " " for c in value.lower()).split())


def _values(products: Sequence[Product], name: str) -> list[str]:
    return sorted({value for product in products for value in product.options.get(name, ())})


def _unused(taken: set[str], draw: np.random.Generator) -> str:
    asin = asin_of(int(draw.integers(36**8)))
    while asin in taken:
        asin = asin_of(int(draw.integers(36**8)))
    taken.add(asin)
    return asin


def _within(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise UserError(f"{name} is {value}; choose a number from 0 to 1")
