"""The shops of a federation: the plain one, and what `world.variants` makes of it for each client.

Shops share what they can: products, prices and pages of the plain one, and an index with every shop
that reads the same text of the same products. A client's own is then a list of products, or no more
than an order of results.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from fedrl.core.seeding import derive
from fedrl.core.types import UserError
from fedrl.envs.webshop.lookalikes import lookalikes, read_lookalikes
from fedrl.envs.webshop.product import FIELDS, Product, indexed_text
from fedrl.envs.webshop.search import K1, B, Index
from fedrl.envs.webshop.settings import Settings
from fedrl.envs.webshop.shop import WebShop
from fedrl.envs.webshop.store import Ranker, Store, catalogue_folder
from fedrl.envs.webshop.variants import Attack, Kept, Mask, Reranked, kept_products, variant_of


class ClientShops(WebShop):
    """The plain shop, which is also the one to evaluate in; `of_client` makes the others."""

    def __init__(self, settings: Settings, seed: int) -> None:
        super().__init__(settings)
        self.seed = seed
        if unknown := set(settings.withheld) - set(self.store.by_asin):
            raise UserError(f"world.withheld: the catalogue has no product {min(unknown)!r}")
        self._goods = lru_cache(maxsize=4)(self._with_lookalikes)
        self._index = lru_cache(maxsize=16)(self._indexed)

    def of_client(self, client: int, tasks: Collection[str]) -> WebShop:
        """The client's shop: its `tasks` can all be won in it, and others may be missing."""
        settings, variant = self.settings, variant_of(client, self.settings)
        base = self._goods(variant.attack)
        index = self._index(variant.attack, variant.fields)
        ranker: Ranker = index
        if (variant.k1, variant.b) != (K1, B):
            ranker = index.reweighted(variant.k1, variant.b)
        products, gone = base.store.products, frozenset[int]()
        if "catalogue" in settings.variants:
            kept = self._kept(client, tasks)
            gone = frozenset(np.flatnonzero(~kept[self._goal_places]).tolist())
            # A look-alike is where the product is that it passes for.
            kept = np.concatenate([kept, kept[self._originals(variant.attack)]])
            products = tuple(products[place] for place in np.flatnonzero(kept))
            ranker = Kept.of(ranker, kept)
        if variant.reranking != "plain":
            chance = derive(self.seed, "webshop reranking", client=client)
            ranker = Reranked(
                ranker, variant.reranking, settings.reranked, len(products), chance
            )  # fmt: skip
        if ranker is base.store.ranker:
            return base
        return base.in_store(Store(products, ranker, base.store.by_asin), gone)

    def _kept(self, client: int, tasks: Collection[str]) -> Mask:
        own = {self.goal(task).asin for task in tasks}
        aside = (*self.settings.withheld, *sorted(self.unseen_products))
        settings = replace(self.settings, withheld=aside)
        return kept_products(self._asins, own, client, settings, self.seed)

    def _with_lookalikes(self, attack: Attack | None) -> WebShop:
        """The plain shop, or that with all look-alikes of a kind."""
        if attack is None:
            return self
        plain = self.store.products
        if self.settings.lookalikes == "files":
            more = read_lookalikes(catalogue_folder(self.settings.source), attack, plain)
        else:
            more = lookalikes(plain, attack)
        return self.variant([*plain, *more])

    def _indexed(self, attack: Attack | None, fields: tuple[str, ...]) -> Index:
        store = self._goods(attack).store
        if fields == FIELDS:
            assert isinstance(store.ranker, Index)
            return store.ranker
        texts = (indexed_text(product, fields) for product in store.products)
        return Index.build([product.asin for product in store.products], texts)

    def _originals(self, attack: Attack | None) -> NDArray[np.int64]:
        """Where the product stands that each look-alike passes for."""
        copies: tuple[Product, ...] = self._goods(attack).store.products[len(self.store.products) :]
        return np.array([self._places[copy.asin.rsplit("_", 1)[-1]] for copy in copies], np.int64)

    @cached_property
    def _asins(self) -> NDArray[np.str_]:
        return np.array([product.asin for product in self.store.products])

    @cached_property
    def _places(self) -> dict[str, int]:
        return {product.asin: place for place, product in enumerate(self.store.products)}

    @cached_property
    def _goal_places(self) -> NDArray[np.int64]:
        """Where each goal's product stands in the catalogue."""
        return np.array([self._places[goal.asin] for goal in self.goals], np.int64)
