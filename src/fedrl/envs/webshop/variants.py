"""In what clients' shops differ: environment-level heterogeneity, as FedAgent's authors have it.

The tasks are dealt out as ever and stand in the prompt; the shop around them does not. Each variant
is at one stage of a search (the authors' names; D products that no task of the client is about):

    catalogue    Catalog Split        what there is: the products of the client's own tasks, and
                                      of the D others round(keep · D), those with the lowest
                                      (1 − div) u + div v; u for all clients, v each client's own
    lookalikes   Lookalike Injection  what there is: copies that fail one part of the reward
    fields       Field-Subset Index   what is indexed: parts of a product's text
    ranking      BM25 Reweighting     how it is matched: k1 and b
    reranking    Rank Wrapper         how it is shown: plain, shuffled, reversed, half at random

`div` decides which products a client has, never how many: two catalogues share 1 of their others at
div 0, and keep / (2 − keep) of them (Jaccard) at div 1.

Where we differ from the authors' release:
- Clients have the kinds in turn, client k the (k mod N)-th, where the release draws one for each;
  combined variants count on: the next one goes by k div N.
- A shop has no memory: the order that a query gets, and whether it is answered at random, depends
  on (seed, client, query). There every search draws anew, also for the next page of the same one.
- The release shuffles or reverses all 200 results that it asks for, so that the best of them comes
  on page 20, which 15 steps do not reach; here it is the first `reranked`, 50.
- One search engine for all (BM25 with Lucene's arithmetic). The release has a second one for its
  variants, to which "description" and "features" are empty; so its third kind of fields reads the
  titles. Here it reads descriptions, and `options` stand where no product has "features".
- Of a part of the catalogue 200 results are asked for, as there, and the first 50 that the shop has
  are shown, as in every other shop.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedrl.core.seeding import generator
from fedrl.envs.webshop.product import FIELDS
from fedrl.envs.webshop.search import K1, B
from fedrl.envs.webshop.settings import Settings
from fedrl.envs.webshop.store import Ranker

SEARCHED = 200
"""Results that are asked for before those that a shop does not have are left out."""

FIELD_SETS: tuple[tuple[str, ...], ...] = (
    FIELDS,
    ("title",),
    ("description",),
    ("bullets",),
    ("options",),
    ("title", "bullets"),
    ("description", "options"),
    ("description", "options", "bullets"),
)
WEIGHTS = (
    (1.2, 0.75), (1.2, 0.0), (0.3, 0.75), (5.0, 0.75),
    (0.1, 0.75), (1.2, 1.0), (2.0, 0.5), (0.3, 0.0),
)  # fmt: skip
"""k1 and b; the plain shop has 0.9 and 0.4."""

Attack = Literal["price", "color", "size", "price_color"]
ATTACKS: tuple[Attack, ...] = ("price", "color", "size", "price_color")
Reranking = Literal["plain", "shuffled", "reversed", "half"]
RERANKINGS: tuple[Reranking, ...] = ("plain", "shuffled", "reversed", "half")

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Variant:
    """What makes one client's shop differ, beside its catalogue; by default nothing."""

    attack: Attack | None = None  # the part of the reward that its look-alikes fail
    fields: tuple[str, ...] = FIELDS
    k1: float = K1
    b: float = B
    reranking: Reranking = "plain"


def variant_of(client: int, settings: Settings) -> Variant:
    """Which kind of each of the settings' variants a client's shop has."""
    place = client

    def turn(kind: str, kinds: int, usual: int) -> int | None:
        nonlocal place
        if kind not in settings.variants:
            return None
        place, which = divmod(place, min(settings.shops or usual, kinds))
        return which

    attack = turn("lookalikes", len(ATTACKS), 2)
    fields = turn("fields", len(FIELD_SETS), 4)
    weights = turn("ranking", len(WEIGHTS), 4)
    reranking = turn("reranking", len(RERANKINGS), 4)
    k1, b = (K1, B) if weights is None else WEIGHTS[weights]
    return Variant(
        None if attack is None else ATTACKS[attack], FIELD_SETS[fields or 0], k1, b,
        RERANKINGS[reranking or 0],
    )  # fmt: skip


def kept_products(
    asins: Sequence[str] | NDArray[np.str_],
    own: Collection[str],
    client: int,
    settings: Settings,
    seed: int,
) -> Mask:
    """Which of the catalogue's products a client's shop has; `own` are those of its tasks.

    Products are drawn in the order of their ids: what a client has depends on neither file nor
    process.
    """
    names = np.asarray(asins)
    order = np.argsort(names)
    mine = np.isin(names, list(own))
    others = order[~mine[order] & ~np.isin(names, settings.withheld)[order]]
    score = np.empty(len(asins))
    common = generator(seed, "webshop catalogue").random(len(asins))
    private = generator(seed, "webshop catalogue", client=client).random(len(asins))
    score[order] = (1 - settings.divergence) * common + settings.divergence * private
    first = np.argsort(score[others], kind="stable")[: round(settings.keep * len(others))]
    mine[others[first]] = True
    return mine


@dataclass(frozen=True, eq=False)
class Kept:
    """A larger catalogue's search engine, of whose results only those are shown that there are."""

    ranker: Ranker
    place: NDArray[np.int32]  # of the catalogue's products in this shop's; −1: it has none

    @staticmethod
    def of(ranker: Ranker, kept: Mask) -> Kept:
        place = np.full(len(kept), -1, np.int32)
        place[kept] = np.arange(int(kept.sum()), dtype=np.int32)
        return Kept(ranker, place)

    def search(self, query: str, k: int = 50) -> list[int]:
        found = self.place[self.ranker.search(query, max(k, SEARCHED))]
        there: list[int] = found[found >= 0][:k].tolist()
        return there


@dataclass(frozen=True, eq=False)
class Reranked:
    """A search engine whose `first` results come in another order, or are any `products`."""

    ranker: Ranker
    kind: Reranking
    first: int
    products: int
    seed: int

    def search(self, query: str, k: int = 50) -> list[int]:
        chance = random.Random(f"{self.seed} {query}")
        if self.kind == "half" and chance.random() < 0.5:
            return chance.sample(range(self.products), min(k, self.products))
        found = self.ranker.search(query, max(k, self.first))
        head = found[: self.first]
        if self.kind == "reversed":
            head.reverse()
        elif self.kind == "shuffled":
            chance.shuffle(head)
        return [*head, *found[self.first :]][:k]
