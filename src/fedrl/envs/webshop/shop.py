"""WebShop: find the product that an instruction describes, choose its options, buy it.

The rules are the original's (pages, search, goals, reward; `fedrl parity webshop` replays
recordings of it), without its browser, web server and Java. Unless `faithful` is set, the reward is
mended so that every goal can be won, and goals that still cannot are left out.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple, TypedDict

from fedrl.core.limits import at_least_one, not_negative
from fedrl.core.types import FilePath, UserError
from fedrl.envs.text import Task, Turn
from fedrl.envs.webshop import pages
from fedrl.envs.webshop.goals import SHUFFLE_SEED, DrawnGoals, Goal, draw_goals, draw_price
from fedrl.envs.webshop.nouns import Tagger, plain, spacy_tagger
from fedrl.envs.webshop.product import Product
from fedrl.envs.webshop.reward import Rules, reward, unwinnable
from fedrl.envs.webshop.store import CACHE_SIZE, Ranker, Store, open_store


@dataclass(frozen=True)
class Settings:
    """Which shop, and how it judges and speaks."""

    name: Literal["webshop"] = "webshop"
    # Where the products come from: "generated" (nothing to download), "webshop" (the genuine
    # catalogue of `fedrl data webshop`), or the path of a folder with a catalogue.
    source: FilePath = "generated"
    # How many products to generate, or to read from the catalogue.
    products: int = 1000
    # Seed of the generated catalogue.
    catalogue_seed: int = 0
    # Seed of the sampled prices and of the goals' price limits.
    goal_seed: int = 0
    # Seed of the goals' order; the original's is fixed.
    order_seed: int = SHUFFLE_SEED
    # The original's reward and goals, those that cannot be won included.
    faithful: bool = False
    # How pages read: "text" joins the pieces by [SEP], "text_rich" has a line each, buttons marked.
    observation: Literal["text", "text_rich"] = "text"
    # Who says which words of a name are nouns: "plain" (a rule) or "spacy" (its English model).
    tagger: Literal["plain", "spacy"] = "plain"
    # The first so many goals are the split "valid", for evaluation.
    validation: int = 500
    # The next so many are the split "public": nobody trains or is evaluated on them (warm starts).
    # All others are the split "train", shared out among the clients.
    public: int = 0
    # Steps after which an episode is cut off.
    max_steps: int = 15

    def __post_init__(self) -> None:
        at_least_one(self, "world.", "products", "max_steps")
        if self.observation not in ("text", "text_rich"):
            raise UserError(
                f'world.observation is {self.observation!r}; choose "text" or "text_rich"'
            )
        if self.tagger not in ("plain", "spacy"):
            raise UserError(f'world.tagger is {self.tagger!r}; choose "plain" or "spacy"')
        not_negative(self, "world.", "validation", "public", "catalogue_seed")


DEFAULTS = Settings()


UNSEARCHABLE = re.compile(r"[\[\]\n]")
"""What would end the argument of a search too early."""


class ShopGoals(NamedTuple):
    """What shops with the same store, seeds and rules have in common."""

    drawn: DrawnGoals
    rules: Rules
    left_out: frozenset[int]


@lru_cache(maxsize=8)
def _shop_goals(store: Store, seeds: tuple[int, int], faithful: bool, tagger: Tagger) -> ShopGoals:
    drawn = draw_goals(store.products, *seeds)
    rules = Rules(faithful, lru_cache(CACHE_SIZE)(tagger))
    lost = [] if faithful else unwinnable(drawn.goals, store.by_asin, drawn.prices, rules)
    return ShopGoals(drawn, rules, frozenset(lost))


class WebShop:
    """The text world. `left_out` are the goals that cannot be won and are not among the tasks."""

    name = "webshop"
    splits = ("train", "valid", "public")

    def __init__(
        self,
        settings: Settings = DEFAULTS,
        tagger: Tagger | None = None,
        store: Store | None = None,
    ) -> None:
        """`tagger` and `store`, where given, are used instead of the ones that settings name.

        Goals are drawn from the store's products and numbered anew. For a client's version of one
        shop, with the same tasks under the same ids, use `variant`.
        """
        named = spacy_tagger() if settings.tagger == "spacy" and tagger is None else plain
        self.settings = settings
        self.store = store or open_store(
            settings.source, settings.products, settings.catalogue_seed
        )
        seeds = (settings.goal_seed, settings.order_seed)
        (self.prices, self.goals), self.rules, self.left_out = _shop_goals(
            self.store, seeds, settings.faithful, tagger or named
        )
        aside = settings.validation + settings.public
        if aside >= len(self.goals):
            raise UserError(
                f"world.validation and world.public set {aside} goals aside, but the shop has "
                f"only {len(self.goals)}: lower them, or raise world.products"
            )

    @property
    def max_steps(self) -> int:
        return self.settings.max_steps

    def variant(self, products: Sequence[Product], ranker: Ranker | None = None) -> WebShop:
        """A shop with the same goals and prices, but other products or another search engine.

        Goals whose product is gone, or has changed so that it no longer wins, are left out.
        """
        other = object.__new__(WebShop)
        other.settings, other.rules, other.goals = self.settings, self.rules, self.goals
        other.store = Store(products, ranker)
        other.prices = {
            product.asin: self.prices[product.asin]
            if product.asin in self.prices
            else draw_price(product, random.Random(f"{self.settings.goal_seed} {product.asin}"))
            for product in other.store.products
        }
        known, now = self.store.by_asin, other.store.by_asin
        gone = {i for i, goal in enumerate(self.goals) if goal.asin not in now}
        changed = [
            i
            for i, goal in enumerate(self.goals)
            if i not in gone and now[goal.asin] is not known.get(goal.asin)
        ]
        lost: list[int] = []
        if not self.rules.faithful:
            lost = unwinnable([self.goals[i] for i in changed], now, other.prices, self.rules)
        other.left_out = self.left_out | gone | {changed[position] for position in lost}
        return other

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in self.splits:
            raise UserError(f"split is {split!r}; choose from {', '.join(self.splits)}")
        return self._tasks[split]

    @cached_property
    def _tasks(self) -> Mapping[str, list[Task]]:
        first_public = self.settings.validation
        first_train = first_public + self.settings.public
        tasks: dict[str, list[Task]] = {split: [] for split in self.splits}
        for id, index in self._indices.items():
            split = "train" if index >= first_train else "public"
            split = "valid" if index < first_public else split
            tasks[split].append(Task(id, self.goals[index].category))
        return tasks

    @cached_property
    def _indices(self) -> Mapping[str, int]:
        """A goal's name tells its place in the original's order, whatever is left out."""
        playable = (index for index in range(len(self.goals)) if index not in self.left_out)
        return {f"goal-{index:05d}": index for index in playable}

    def goal(self, task: str) -> Goal:
        if task not in self._indices:
            raise UserError(f"task is {task!r:.40}; the shop has no such goal")
        return self.goals[self._indices[task]]

    def start(self, task: str, seed: int = 0) -> tuple[ShopEpisode, Turn]:
        return self.episode(self.goal(task), seed)

    def episode(self, goal: Goal, seed: int = 0) -> tuple[ShopEpisode, Turn]:
        """An episode of any goal, also one that is not among the tasks."""
        episode = ShopEpisode(self, goal, seed)
        return episode, episode.turn()

    def demonstrate(self, task: str, seed: int = 0) -> list[str]:
        """Searches by the instruction's words, else by the product's name; the shortest way."""
        goal = self.goal(task)
        words = " ".join((*goal.attributes, goal.query, *goal.values))
        ways = []
        for query in (words, goal.name, f"<q> {goal.query}"):
            way = self._purchase(goal, UNSEARCHABLE.sub(" ", query), seed)
            if way and way[1] != "click[next >]":
                return way
            if way:
                ways.append(way)
        if not ways:
            raise UserError(f"no search of this shop finds the product of {task}")
        return min(ways, key=len)

    def _purchase(self, goal: Goal, query: str, seed: int) -> list[str]:
        """The commands that buy the goal's product after this search; none where it is not found.

        Only what the pages show is used, so the product must be among the results.
        """
        episode, turn = self.episode(goal, seed)
        commands = [f"search[{query}]"]
        turn = episode.step(commands[0])
        product = f"click[{goal.asin.lower()}]"
        while product not in turn.admissible:
            if not episode.page.products:
                return []
            commands.append("click[next >]")
            turn = episode.step(commands[-1])
        clicks = pages.clickable_options(self.store.by_asin[goal.asin], not self.rules.faithful)
        options = [f"click[{value}]" for value in dict.fromkeys(goal.values) if value in clicks]
        return [*commands, product, *options, "click[buy now]"]


class Purchase(TypedDict):
    asin: str
    options: dict[str, str]
    price: float


class Ending(TypedDict):
    """What a turn's `info` has after the purchase."""

    won: bool
    purchase: Purchase
    reward_parts: dict[str, float]


class ShopEpisode:
    """One episode: the page that is shown, and what has been chosen so far."""

    def __init__(self, shop: WebShop, wanted: Goal, seed: int) -> None:
        self.shop = shop
        self.wanted = wanted
        self.seed = seed
        self.query = ""
        self.number = 1  # of the page of results
        self.asin = ""
        self.options: dict[str, str] = {}
        self.visited: set[str] = set()
        self.page = pages.START
        self.ending: Ending | None = None

    @property
    def goal(self) -> str:
        return self.wanted.instruction

    def step(self, command: str) -> Turn:
        """Any text is a command; one that fits nothing leaves the page as it is.

        After the purchase nothing happens any more.
        """
        name, argument = pages.parse(command, nested=not self.shop.rules.faithful)
        if self.page.kind == "done" or not argument:
            return self.turn()
        if name == "search":
            self._show_results(argument, 1)
        elif name == "click" and argument in self.page.clickables and argument != "search":
            return self.turn(self._click(argument))
        return self.turn()

    def turn(self, score: float = 0.0) -> Turn:
        page = self.page
        return Turn(
            self._observation(),
            score,
            page.kind == "done",
            page.admissible,
            {
                "won": False,
                "available": {
                    "has_search_bar": page.kind == "start",
                    "clickables": page.clickables,
                },
                **(self.ending or {}),
            },
        )

    def _observation(self) -> str:
        instruction = self.wanted.instruction
        if self.shop.settings.observation == "text":
            return pages.plain_text(self.page, instruction)
        return pages.rich_text(self.page, instruction, self.options.values(), self.visited)

    def _click(self, target: str) -> float:
        page = self.page
        if target == "buy now":
            return self._buy()
        if target == "back to search":
            self.page, self.options, self.visited = pages.START, {}, set()
        elif page.kind == "results" and target in ("next >", "< prev"):
            self._show_results(self.query, self.number + (1 if target == "next >" else -1))
        elif page.kind == "results":
            self.asin = page.products[target]
            self.visited.add(self.asin)
            self.page = self.shop.store.item(self.asin)
        elif page.kind == "sub":
            self.page = self.shop.store.item(self.asin)
        elif target == "< prev":
            self._show_results(self.query, self.number)
        elif target in pages.ITEM_BUTTONS:
            self.page = self.shop.store.sub(self.asin, target)
        else:
            self.options[page.options[target]] = target
        return 0.0

    def _show_results(self, query: str, number: int) -> None:
        self.query, self.number, self.options = query, number, {}
        seed = self.seed if query.startswith("<r>") else 0
        self.page = self.shop.store.results(query, seed, number)

    def _buy(self) -> float:
        price = self.shop.prices[self.asin]
        product = self.shop.store.by_asin[self.asin]
        score, parts = reward(product, self.wanted, price, self.options, self.shop.rules)
        self.page = pages.done_page(self.asin, self.options, score)
        self.ending = {
            "won": score == 1.0,
            "purchase": {"asin": self.asin, "options": dict(self.options), "price": price},
            "reward_parts": parts,
        }
        return score


def World(settings: Settings, clients: int, seed: int) -> WebShop:
    """What a recipe builds. Clients differ in their tasks, which the partition deals out."""
    return WebShop(settings)
