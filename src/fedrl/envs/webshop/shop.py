"""WebShop: find the product that an instruction describes, choose its options, buy it.

The rules are the original's (pages, search, goals, reward; `fedrl parity webshop` replays
recordings of it), without its browser, web server and Java. Unless `faithful` is set, the reward is
mended so that every goal can be won, and goals that still cannot are left out.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple, TypedDict

from fedrl.core.types import UserError
from fedrl.envs.text import Task, Turn
from fedrl.envs.webshop import pages
from fedrl.envs.webshop.catalogue import load_wishes
from fedrl.envs.webshop.goals import DrawnGoals, Goal, draw_goals, draw_human_goals, draw_price
from fedrl.envs.webshop.nouns import Tagger, plain, spacy_tagger
from fedrl.envs.webshop.product import Product
from fedrl.envs.webshop.reward import Rules, reward, unwinnable
from fedrl.envs.webshop.settings import Settings as Settings
from fedrl.envs.webshop.store import CACHE_SIZE, Ranker, Store, catalogue_folder, open_store

DEFAULTS = Settings()

SPLITS = ("train", "valid", "public")
UNSEEN = "unseen"
"""All goals of products that `world.unseen_products` sets aside."""


UNSEARCHABLE = re.compile(r"[\[\]\n]")
"""What would end the argument of a search too early."""


class ShopGoals(NamedTuple):
    """What shops with the same store, seeds and rules have in common."""

    drawn: DrawnGoals
    rules: Rules
    left_out: frozenset[int]
    places: Mapping[str, int]  # a goal's name tells its place in the original's order


@lru_cache(maxsize=8)
def _shop_goals(
    store: Store, seeds: tuple[int, int], faithful: bool, tagger: Tagger, people: Path | None = None
) -> ShopGoals:
    """`people` is the folder with their instructions, where goals are those."""
    if people is None:
        drawn = draw_goals(store.products, *seeds)
    else:
        drawn = draw_human_goals(store.products, load_wishes(people), *seeds)
    rules = Rules(faithful, lru_cache(CACHE_SIZE)(tagger))
    lost = [] if faithful else unwinnable(drawn.goals, store.by_asin, drawn.prices, rules)
    places = {f"goal-{place:05d}": place for place in range(len(drawn.goals))}
    return ShopGoals(drawn, rules, frozenset(lost), places)


class WebShop:
    """The text world. `left_out` are the goals that cannot be won and are not among the tasks."""

    name = "webshop"

    def __init__(
        self,
        settings: Settings = DEFAULTS,
        tagger: Tagger | None = None,
        store: Store | None = None,
        own: bool = False,
    ) -> None:
        """`tagger` and `store`, where given, are used instead of the ones that settings name. With
        `own` all products of the catalogue are read, and no split is more than a fifth of the
        goals but `train`: a client's shop may be small.

        Goals are drawn from the store's products and numbered anew. For a client's version of one
        shop, with the same tasks under the same ids, use `variant`.
        """
        named = spacy_tagger() if settings.tagger == "spacy" and tagger is None else plain
        self.store = store or open_store(
            settings.source, 0 if own else settings.products, settings.catalogue_seed
        )
        seeds = (settings.goal_seed, settings.order_seed)
        people = catalogue_folder(settings.source) if settings.goals == "human" else None
        (self.prices, self.goals), self.rules, self.left_out, self.places = _shop_goals(
            self.store, seeds, settings.faithful, tagger or named, people
        )
        if own:
            most = len(self.goals) // 5
            valid, public = min(settings.validation, most), min(settings.public, most)
            settings = replace(settings, validation=valid, public=public)
        self.settings = settings
        aside = settings.validation + settings.public
        if aside >= len(self.goals):
            raise UserError(
                f"world.validation and world.public set {aside} goals aside, but the shop has "
                f"only {len(self.goals)}: lower them, or raise world.products"
            )

    @property
    def max_steps(self) -> int:
        return self.settings.max_steps

    @property
    def splits(self) -> tuple[str, ...]:
        return (*SPLITS, UNSEEN) if self.settings.unseen_products else SPLITS

    @cached_property
    def unseen_products(self) -> frozenset[str]:
        """Ids of the products whose goals are the split "unseen"; the same in every client's shop,
        and more of them begin with fewer."""
        asins = sorted({goal.asin for goal in self.goals})
        count = self.settings.unseen_products
        if count and count >= len(asins):
            raise UserError(
                f"world.unseen_products is {count}, but goals are about {len(asins)} products only"
            )
        random.Random(f"{self.settings.order_seed} unseen products").shuffle(asins)
        return frozenset(asins[:count])

    def variant(self, products: Sequence[Product], ranker: Ranker | None = None) -> WebShop:
        """A shop with the same goals and prices, but other products or another search engine.

        Goals whose product is gone, or has changed so that it no longer wins, are left out.
        """
        store = Store(products, ranker)
        gone = (i for i, goal in enumerate(self.goals) if goal.asin not in store.by_asin)
        return self.in_store(store, frozenset(gone))

    def in_store(self, store: Store, gone: frozenset[int]) -> WebShop:
        """The same, of a store that lacks the products of the goals `gone`."""
        other = object.__new__(WebShop)
        other.settings, other.rules, other.store = self.settings, self.rules, store
        other.goals, other.places, other.prices = self.goals, self.places, self.prices
        other.left_out = self.left_out | gone
        if store.by_asin is not self.store.by_asin:
            other._notice_changes(self)
        return other

    def _notice_changes(self, plain: WebShop) -> None:
        """Prices of products that the plain shop has not, and goals that can no longer be won."""
        seed = self.settings.goal_seed
        new = {
            product.asin: draw_price(product, random.Random(f"{seed} {product.asin}"))
            for product in self.store.products
            if product.asin not in plain.prices
        }
        self.prices = {**plain.prices, **new}
        known, now = plain.store.by_asin, self.store.by_asin
        changed = [
            i
            for i, goal in enumerate(self.goals)
            if i not in self.left_out and now[goal.asin] is not known.get(goal.asin)
        ]
        if not self.rules.faithful:
            goals = [self.goals[i] for i in changed]
            lost = unwinnable(goals, now, self.prices, self.rules)
            self.left_out |= {changed[position] for position in lost}

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in self.splits:
            raise UserError(f"split is {split!r}; choose from {', '.join(self.splits)}")
        return self._tasks[split]

    @cached_property
    def _tasks(self) -> Mapping[str, list[Task]]:
        first_public = self.settings.validation
        first_train = first_public + self.settings.public
        tasks: dict[str, list[Task]] = {split: [] for split in self.splits}
        for id, index in self.places.items():
            if index in self.left_out:
                continue
            split = "train" if index >= first_train else "public"
            split = "valid" if index < first_public else split
            split = UNSEEN if self.goals[index].asin in self.unseen_products else split
            tasks[split].append(Task(id, self.goals[index].category))
        return tasks

    def goal(self, task: str) -> Goal:
        place = self.places.get(task)
        if place is None or place in self.left_out:
            raise UserError(f"task is {task!r:.40}; the shop has no such goal")
        return self.goals[place]

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
        before, score = self._state, self._follow(command)
        return self.turn(score, failed=before == self._state)

    def _follow(self, command: str) -> float:
        """Do what the command says, if it fits the page; the score of a purchase."""
        name, argument = pages.parse(command, nested=not self.shop.rules.faithful)
        if self.page.kind == "done" or not argument:
            return 0.0
        if name == "search":
            self._show_results(argument, 1)
        elif name == "click" and argument in self.page.clickables and argument != "search":
            return self._click(argument)
        return 0.0

    @property
    def _state(self) -> tuple[pages.Page, str, dict[str, str]]:
        """All that a command can change for the agent."""
        return self.page, self.query, dict(self.options)

    def turn(self, score: float = 0.0, failed: bool = False) -> Turn:
        """`failed`: the last command did nothing, which the page does not say."""
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
                **({"failed": True} if failed else {}),
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
    """What a recipe builds. Clients differ in their tasks, which the partition deals out, and with
    `world.variants` in their shops."""
    if not settings.variants:
        return WebShop(settings)
    from fedrl.envs.webshop.client_shops import ClientShops

    return ClientShops(settings, seed)


def OwnWorld(settings: Settings, clients: int, seed: int) -> WebShop:
    """Of a client's own catalogue, or nobody's."""
    if settings.variants:
        raise UserError(
            'world.variants: with partition.strategy = "own" every shop is as its owner has it'
        )
    return WebShop(settings, own=True)
