"""The shop's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedrl.core.limits import at_least_one, not_negative, one_of
from fedrl.core.types import FilePath, UserError, Word
from fedrl.envs.webshop.goals import SHUFFLE_SEED

KINDS = ("catalogue", "lookalikes", "fields", "ranking", "reranking")
"""In what clients' shops may differ; `variants` has what each is."""

MOST = {"lookalikes": 4, "fields": 8, "ranking": 8, "reranking": 4}
"""How many kinds there are of each; catalogues are drawn for every client."""


@dataclass(frozen=True)
class Settings:
    """Which shop, and how it judges and speaks."""

    name: Literal["webshop"] = "webshop"
    # Where the products come from: "generated" (nothing to download), "webshop" (the genuine
    # catalogue of `fedrl data webshop`), or the path of a folder with a catalogue.
    source: FilePath = "generated"
    # How many products to generate, or to read from the catalogue: of clients' own, all.
    products: int = 1000
    # Seed of the generated catalogue.
    catalogue_seed: int = 0
    # Seed of the sampled prices and of the goals' price limits.
    goal_seed: int = 0
    # Seed of the goals' order; the original's is fixed.
    order_seed: int = SHUFFLE_SEED
    # What is asked for: "made" (a product's attributes with each combination of its options), or
    # "human", what people wrote of products (items_human_ins.json beside the catalogue).
    goals: Literal["made", "human"] = "made"
    # The original's reward and goals, those that cannot be won included.
    faithful: bool = False
    # How pages read: "text" joins the pieces by [SEP], "text_rich" has a line each, buttons marked.
    observation: Literal["text", "text_rich"] = "text"
    # Who says which words of a name are nouns: "plain" (a rule) or "spacy" (its English model).
    tagger: Literal["plain", "spacy"] = "plain"
    # The first so many goals are the split "valid", for evaluation; of a client's own shop a fifth
    # at most.
    validation: int = 500
    # The next so many are the split "public": nobody trains or is evaluated on them (warm starts).
    # All others are the split "train", shared out among the clients.
    public: int = 0
    # So many of the products that goals are about are set aside: their goals are the split
    # "unseen", and in no other. Searches find the products all the same, but for clients'
    # catalogues of their own (variants), which lack them.
    unseen_products: int = 0
    # Steps after which an episode is cut off.
    max_steps: int = 15
    # What differs from client to client: catalogue (each has a part of the products), lookalikes
    # (false products beside the right ones), fields (what the search reads of a product), ranking
    # (BM25's k1 and b), reranking (the order of results). Several combine. A client keeps its shop
    # in all rounds; eval/… is in the shop without, algorithm.eval_own in the clients' own.
    variants: tuple[Word, ...] = ()
    # N: how many kinds of lookalikes, fields, ranking or reranking there are; clients have them in
    # turn. 0 is the authors' choice: 2, 4, 4 and 4; at most 4, 8, 8 and 4.
    shops: int = 0
    # catalogue: how unlike the clients' catalogues are, from 0 (the same products) to 1 (drawn
    # apart); the authors' are 0, 0.3, 0.7 and 1.
    divergence: float = 0.7
    # catalogue: what share a client's shop has of the products that no task of its own is about.
    keep: float = 0.7
    # catalogue: ids of products that no client's shop has, unless a task of its own is about one.
    withheld: tuple[Word, ...] = ()
    # lookalikes: "generated", or "files": lookalike_v_color.json and its like beside the catalogue.
    lookalikes: Literal["generated", "files"] = "generated"
    # reranking: how many of the first results are shuffled or reversed.
    reranked: int = 50

    def __post_init__(self) -> None:
        at_least_one(self, "world.", "products", "max_steps", "reranked")
        if self.observation not in ("text", "text_rich"):
            raise UserError(
                f'world.observation is {self.observation!r}; choose "text" or "text_rich"'
            )
        if self.tagger not in ("plain", "spacy"):
            raise UserError(f'world.tagger is {self.tagger!r}; choose "plain" or "spacy"')
        if self.goals == "human" and self.source == "generated":
            raise UserError(
                'world.goals is "human", but nobody wrote of generated products: set world.source'
            )
        one_of("world.goals", self.goals, ("made", "human"))
        not_negative(
            self, "world.", "validation", "public", "catalogue_seed", "shops", "unseen_products"
        )
        self._check_variants()

    def _check_variants(self) -> None:
        for kind in self.variants:
            one_of("world.variants", kind, KINDS)
        if len(set(self.variants)) < len(self.variants):
            raise UserError(f"world.variants names one twice: {', '.join(self.variants)}")
        for kind in set(self.variants) & set(MOST):
            if self.shops > MOST[kind]:
                raise UserError(
                    f"world.shops is {self.shops}, but there are only {MOST[kind]} kinds of {kind}"
                )
        for key in ("divergence", "keep"):
            if not 0 <= getattr(self, key) <= 1:
                raise UserError(f"world.{key} is {getattr(self, key)}; it is a share from 0 to 1")
        if self.withheld and "catalogue" not in self.variants:
            raise UserError('world.withheld is only read with world.variants = ["catalogue"]')
        one_of("world.lookalikes", self.lookalikes, ("generated", "files"))
        if self.lookalikes == "files" and self.source == "generated":
            raise UserError(
                'world.lookalikes is "files", but a generated catalogue has none: set world.source'
            )
