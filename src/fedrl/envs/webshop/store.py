"""Products with a search engine: what shops share and clients may have different ones of."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from fedrl.datasets.fetch import root
from fedrl.envs.webshop import catalogue, pages
from fedrl.envs.webshop.generate import generate
from fedrl.envs.webshop.product import Product, indexed_text
from fedrl.envs.webshop.search import Index

MOST_RESULTS = 50
CACHE_SIZE = 2048  # pages and searches that a store remembers: a few megabytes
LONGEST_CACHED_QUERY = 1000  # characters of a query that is remembered


class Ranker(Protocol):
    """A search engine over the products of a store, by their positions."""

    def search(self, query: str, k: int = 50) -> list[int]: ...


class Store:
    """Products with their search index; what was shown once is remembered, up to a bound."""

    def __init__(
        self,
        products: Sequence[Product],
        ranker: Ranker | None = None,
        by_asin: Mapping[str, Product] | None = None,
    ) -> None:
        """`by_asin`, where given, is of a store that has all these products and perhaps more."""
        self.products = tuple(products)
        self.by_asin = by_asin or {product.asin: product for product in self.products}
        self.ranker = ranker or Index.build(
            [product.asin for product in self.products],
            [indexed_text(product) for product in self.products],
        )
        self._found = lru_cache(CACHE_SIZE)(self._find)
        self._shown = lru_cache(CACHE_SIZE)(self._results)
        self.item = lru_cache(CACHE_SIZE)(self._item)
        self.sub = lru_cache(CACHE_SIZE)(self._sub)

    def find(self, query: str, seed: int = 0) -> Sequence[Product]:
        """All that the search finds, best first."""
        return (self._find if len(query) > LONGEST_CACHED_QUERY else self._found)(query, seed)

    def results(self, query: str, seed: int, number: int) -> pages.Page:
        """Page `number` of what the search finds; `seed` decides what `<r>` finds."""
        return (self._results if len(query) > LONGEST_CACHED_QUERY else self._shown)(
            query, seed, number
        )

    def _find(self, query: str, seed: int) -> Sequence[Product]:
        """The best 50; `<q>`, `<c>`, `<a>` and `<r>` are the original's exact lookups."""
        kind, *words = query.split(" ")
        phrase = " ".join(words).strip()
        if kind == "<q>":
            return [product for product in self.products if product.query == phrase]
        if kind == "<c>":
            named = words[0].strip() if words else ""
            return [product for product in self.products if product.category == named]
        if kind == "<a>":
            return [product for product in self.products if phrase in product.attributes]
        if kind == "<r>":
            count = min(MOST_RESULTS, len(self.products))
            return random.Random(seed).sample(self.products, count)
        return [self.products[position] for position in self.ranker.search(query, MOST_RESULTS)]

    def _results(self, query: str, seed: int, number: int) -> pages.Page:
        products = self.find(query, seed)
        shown = products[(number - 1) * pages.PER_PAGE : number * pages.PER_PAGE]
        return pages.results_page(shown, number, len(products))

    def _item(self, asin: str) -> pages.Page:
        return pages.item_page(self.by_asin[asin])

    def _sub(self, asin: str, name: str) -> pages.Page:
        return pages.sub_page(self.by_asin[asin], name)


@lru_cache(maxsize=4)
def open_store(source: str, products: int, seed: int) -> Store:
    """One store per catalogue and process: shops share it. 0 `products` are all that it has."""
    if source == "generated":
        return Store(generate(products, seed))
    folder = catalogue_folder(source)
    if not products:
        return Store(catalogue.load(folder, name=""))
    return Store(catalogue.load(folder, products))


def catalogue_folder(source: str) -> Path:
    """Where the catalogue lies that the setting `source` names."""
    return root("webshop") if source == "webshop" else Path(source)
