"""Shops of a federation: what a variant changes and nothing else, counted and enumerated."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from support.realdata import data

from fedrl.core.seeding import generator
from fedrl.core.types import UserError
from fedrl.envs.webshop.client_shops import ClientShops
from fedrl.envs.webshop.goals import Goal
from fedrl.envs.webshop.lookalikes import MARKS, TOO_MUCH, lookalikes
from fedrl.envs.webshop.product import FIELDS, Product, indexed_text
from fedrl.envs.webshop.reward import reward
from fedrl.envs.webshop.search import K1, B, Index
from fedrl.envs.webshop.shop import Settings, WebShop, World
from fedrl.envs.webshop.variants import (
    ATTACKS,
    FIELD_SETS,
    RERANKINGS,
    WEIGHTS,
    Reranked,
    Variant,
    kept_products,
    variant_of,
)

PLAIN = Settings(products=300, validation=50)
SHOP = WebShop(PLAIN)
ASINS = [product.asin for product in SHOP.store.products]
TASKS = [[task.id for task in SHOP.tasks("train")[client::40][:8]] for client in range(8)]
QUERIES = [goal.instruction.split(", and price")[0] for goal in SHOP.goals[:40]]


def shops(*variants: str, seed: int = 0, **settings) -> ClientShops:
    made = World(replace(PLAIN, variants=variants, **settings), 8, seed)
    assert isinstance(made, ClientShops)
    return made


def of(clients: ClientShops, client: int) -> WebShop:
    return clients.of_client(client, TASKS[client])


def found(shop: WebShop, query: str) -> list[str]:
    return [product.asin for product in shop.store.find(query)]


def goods(shop: WebShop) -> set[str]:
    return {product.asin for product in shop.store.products}


KINDS: dict[str, tuple[ClientShops, ClientShops | None]] = {
    "catalogue": (shops("catalogue"), shops("catalogue", keep=1.0)),
    "lookalikes": (shops("lookalikes"), None),
    "fields": (shops("fields"), shops("fields", shops=1)),
    "ranking": (shops("ranking"), None),
    "reranking": (shops("reranking"), shops("reranking", shops=1)),
}


# What every variant keeps


@pytest.mark.parametrize("kind", KINDS)
def test_two_clients_get_other_results_for_the_same_query(kind: str) -> None:
    one, other = (of(KINDS[kind][0], client) for client in (0, 1))
    pages = [(found(one, query), found(other, query)) for query in QUERIES]
    assert any(mine != theirs for mine, theirs in pages)
    again = of(shops(kind), 1)
    assert [theirs for _, theirs in pages] == [found(again, query) for query in QUERIES]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind][1]])
def test_the_identity_is_the_plain_shop_to_the_bit(kind: str) -> None:
    identity = KINDS[kind][1]
    assert identity is not None
    for client in range(4):
        shop = of(identity, client)
        assert shop.tasks("train") == SHOP.tasks("train")
        for query in QUERIES:
            assert found(shop, query) == found(SHOP, query)
            assert shop.store.results(query, 0, 1) == SHOP.store.results(query, 0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_shop_to_evaluate_in_is_the_plain_one(kind: str) -> None:
    clients = KINDS[kind][0]
    assert clients.store is SHOP.store
    assert clients.tasks("valid") == SHOP.tasks("valid")
    assert clients.goals is of(clients, 1).goals


@pytest.mark.parametrize("kind", KINDS)
def test_a_clients_own_tasks_can_be_won_in_its_shop(kind: str) -> None:
    for client in range(4):
        shop = of(KINDS[kind][0], client)
        there = {task.id for task in shop.tasks("train")}
        assert set(TASKS[client]) <= there <= {task.id for task in SHOP.tasks("train")}
        for task in TASKS[client]:
            commands = shop.demonstrate(task)
            episode, turn = shop.start(task)
            for command in commands:
                turn = episode.step(command)
            assert turn.info["won"]
            assert len(commands) <= shop.max_steps


def test_variants_combine_and_clients_have_them_in_turn() -> None:
    settings = replace(PLAIN, variants=("fields", "lookalikes", "reranking"))
    rows = [variant_of(client, settings) for client in range(32)]
    assert len(set(rows)) == 32 == 2 * 4 * 4
    assert rows[0] == Variant("price")
    assert rows[1] == Variant("color")
    assert rows[2] == Variant("price", FIELD_SETS[1])
    assert rows[8] == Variant("price", reranking="shuffled")
    assert variant_of(32, settings) == rows[0]
    assert variant_of(5, PLAIN) == Variant() == Variant(None, FIELDS, K1, B, "plain")
    eight = replace(PLAIN, variants=("ranking",), shops=8)
    assert [(v.k1, v.b) for v in (variant_of(k, eight) for k in range(8))] == list(WEIGHTS)


def test_a_combined_shop_has_all_of_its_parts() -> None:
    clients = shops("catalogue", "lookalikes", "fields", "ranking", "reranking", divergence=1.0)
    client = next(
        k
        for k in range(128)
        if variant_of(k, clients.settings)
        == Variant("color", FIELD_SETS[1], *WEIGHTS[2], "reversed")
    )
    shop = clients.of_client(client, TASKS[0])
    kept = clients.of_client(client, TASKS[0]).store.products
    copies = [product for product in kept if product.asin.startswith("LK_COLOR_")]
    plain = goods(shop) & set(ASINS)
    assert {copy.asin.removeprefix("LK_COLOR_") for copy in copies} == {
        copy.asin.removeprefix("LK_COLOR_")
        for copy in lookalikes(SHOP.store.products, "color")
        if copy.asin.removeprefix("LK_COLOR_") in plain
    }
    everything = [*SHOP.store.products, *lookalikes(SHOP.store.products, "color")]
    texts = [product.title.lower() for product in everything]
    index = Index.build([product.asin for product in everything], texts, *WEIGHTS[2])
    for query in QUERIES[:10]:
        best = [everything[place].asin for place in index.search(query, 200)]
        there = [asin for asin in best if asin in goods(shop)][:50]
        assert found(shop, query) == there[::-1]


# Catalogues


def test_a_catalogue_is_what_its_definition_counts_out() -> None:
    settings = replace(PLAIN, variants=("catalogue",), divergence=0.3, keep=0.6,
                       withheld=tuple(ASINS[5:15]))  # fmt: skip
    own = set(ASINS[:20])
    kept = kept_products(ASINS, own, 3, settings, 7)
    u = dict(zip(sorted(ASINS), generator(7, "webshop catalogue").random(300)))
    v = dict(zip(sorted(ASINS), generator(7, "webshop catalogue", client=3).random(300)))
    others = set(ASINS) - own - set(ASINS[5:15])
    ranked = sorted(others, key=lambda asin: 0.7 * u[asin] + 0.3 * v[asin])
    assert {asin for asin, there in zip(ASINS, kept) if there} == own | set(ranked[:168])
    turned = ASINS[::-1]
    again = kept_products(turned, own, 3, settings, 7)
    assert again.tolist() == kept[::-1].tolist()


def overlap(divergence: float, keep: float = 0.7) -> float:
    """Jaccard of two clients' catalogues, the mean over all pairs of 6 without tasks."""
    settings = replace(PLAIN, variants=("catalogue",), divergence=divergence, keep=keep)
    rows = [kept_products(ASINS, (), client, settings, 0) for client in range(6)]
    assert {int(row.sum()) for row in rows} == {round(keep * 300)}
    pairs = itertools.combinations(rows, 2)
    return float(np.mean([(one & other).sum() / (one | other).sum() for one, other in pairs]))


def test_catalogues_diverge_with_the_knob() -> None:
    measured = [overlap(divergence) for divergence in (0, 0.3, 0.7, 1)]
    assert measured[0] == 1
    assert all(later < earlier for earlier, later in itertools.pairwise(measured)), measured
    # Two draws of 210 of 300 share 147, with a deviation of 4.4; 15 pairs, 5 of them apart.
    expected = 0.7 / (2 - 0.7)
    assert abs(measured[-1] - expected) < 4 * 0.025 / np.sqrt(5)


def test_what_a_part_of_the_catalogue_shows_is_the_plain_order_without_the_rest() -> None:
    clients = shops("catalogue", divergence=1.0, keep=0.5)
    for client in range(3):
        shop = of(clients, client)
        assert goods(shop) >= {SHOP.goal(task).asin for task in TASKS[client]}
        for query in QUERIES[:15]:
            deep = [ASINS[place] for place in SHOP.store.ranker.search(query, 200)]
            assert found(shop, query) == [asin for asin in deep if asin in goods(shop)][:50]
        gone = {SHOP.goals[i].asin for i in shop.left_out - SHOP.left_out}
        assert gone
        assert not gone & goods(shop)


def test_withheld_products_are_in_no_clients_shop_but_in_the_plain_one() -> None:
    used = {goal.asin for goal in SHOP.goals}
    nobody = tuple(asin for asin in ASINS if asin not in used)[:10]
    clients = shops("catalogue", keep=1.0, withheld=nobody)
    assert len(nobody) == 10
    assert goods(of(clients, 0)) == set(ASINS) - set(nobody)
    assert goods(clients) == set(ASINS)


def test_products_that_are_set_aside_for_evaluation_are_in_no_clients_catalogue() -> None:
    clients = shops("catalogue", keep=1.0, unseen_products=7)
    aside = clients.unseen_products
    assert len(aside) == 7
    tasks = [task.id for task in clients.tasks("train")][:9]
    assert goods(clients.of_client(0, tasks)) == set(ASINS) - aside
    assert aside <= goods(clients)
    assert {clients.goal(task.id).asin for task in clients.tasks("unseen")} == aside


# Look-alikes


def purchases(product: Product, goal: Goal, price: float) -> list[float]:
    """The rewards of every way to buy the product, under both rules."""
    ways = list(itertools.product(*product.options.values()))
    rules = (SHOP.rules, replace(SHOP.rules, faithful=True))
    return [
        reward(product, goal, price, dict(zip(product.options, values)), rule).value
        for values in ways
        for rule in rules
    ]


@pytest.mark.parametrize(("client", "attack"), list(enumerate(ATTACKS)))
def test_a_lookalike_passes_for_the_product_and_cannot_win(client: int, attack: str) -> None:
    clients = shops("lookalikes", shops=4)
    shop = of(clients, client)
    assert shop.store.products[:300] == SHOP.store.products
    copies = {
        product.asin.removeprefix(MARKS[ATTACKS[client]]): product
        for product in shop.store.products[300:]
    }
    changed = {"price": {"pricing"}, "price_color": {"pricing", "options"}}.get(attack, {"options"})
    aside = {"asin", "instruction", "instruction_attributes"}
    for asin, copy in copies.items():
        plain = SHOP.store.by_asin[asin]
        unlike = {name for name in Product.__slots__ if getattr(copy, name) != getattr(plain, name)}
        assert unlike - aside == changed
        if "options" in unlike:
            name = "size" if attack == "size" else "color"
            assert {n for n in copy.options if copy.options[n] != plain.options[n]} == {name}
            assert not set(copy.options[name]) & set(plain.options[name])
        assert attack not in ("price", "price_color") or copy.pricing == (TOO_MUCH,)
    seen = 0
    for goal in SHOP.goals[::5]:
        if copy := copies.get(goal.asin):
            seen += 1
            assert max(purchases(copy, goal, shop.prices[copy.asin])) < 1
            assert copy.asin in found(shop, goal.name)
            assert goal.asin in found(shop, goal.name)
    assert seen > 30


def test_products_whose_goals_have_no_price_limit_have_no_dearer_lookalike() -> None:
    cheap, dear = (
        replace(SHOP.store.products[0], asin=f"P{price:09}", pricing=(float(price),))
        for price in (979, 980)
    )
    assert [copy.asin for copy in lookalikes([cheap, dear], "price")] == ["LK_PRICE_P000000979"]


@pytest.mark.slow
@pytest.mark.realdata
def test_the_authors_lookalikes_stand_beside_the_genuine_catalogue() -> None:
    settings = Settings(
        source=str(data("webshop")), variants=("lookalikes",), shops=4, lookalikes="files"
    )
    clients = World(settings, 4, 0)
    assert isinstance(clients, ClientShops)
    counts = [len(clients.of_client(client, ()).store.products) - 1000 for client in range(4)]
    assert counts[1:] == [286, 268, 286]
    made = World(replace(settings, lookalikes="generated"), 4, 0)
    assert isinstance(made, ClientShops)
    assert len(made.of_client(0, ()).store.products) - 1000 == counts[0]


# Fields and weights


@pytest.mark.parametrize("client", range(8))
def test_fields_are_what_is_indexed(client: int) -> None:
    clients = shops("fields", shops=8)
    texts = []
    for product in SHOP.store.products:
        options = ", and ".join(f"{n}: {', '.join(v)}" for n, v in product.options.items())
        parts = {
            "title": product.title, "description": product.description, "options": options,
            "bullet": product.bullets[0], "bullets": " ".join(product.bullets),
        }  # fmt: skip
        text = " ".join(parts[name] for name in FIELD_SETS[client])
        texts.append((text if text.strip() else product.title).lower())
    index = Index.build(ASINS, texts)
    ranker = of(clients, client).store.ranker
    assert isinstance(ranker, Index)
    for query in QUERIES[:10]:
        for mine, theirs in zip(ranker.ranked(query), index.ranked(query)):
            np.testing.assert_array_equal(mine, theirs)


def test_a_product_without_the_fields_is_known_by_its_title() -> None:
    bare = replace(SHOP.store.products[0], options={}, description=" ", bullets=())
    assert indexed_text(bare, ("options",)) == bare.title.lower()
    assert indexed_text(bare, ("description", "options", "bullets")) == bare.title.lower()
    assert indexed_text(bare, ("title",)) == bare.title.lower()


def test_weights_are_the_authors_and_share_one_index() -> None:
    clients = shops("ranking", shops=8)
    texts = [indexed_text(product) for product in SHOP.store.products]
    for client, (k1, b) in enumerate(WEIGHTS):
        ranker = of(clients, client).store.ranker
        assert isinstance(ranker, Index)
        assert ranker.docs is clients.store.ranker.docs  # type: ignore[attr-defined]
        index = Index.build(ASINS, texts, k1, b)
        for query in QUERIES[:5]:
            for mine, theirs in zip(ranker.ranked(query), index.ranked(query)):
                np.testing.assert_array_equal(mine, theirs)


# Order


def test_results_are_reversed_or_shuffled_and_no_other_ones() -> None:
    clients = shops("reranking", reranked=20)
    plain, shuffled, back, _ = (of(clients, client) for client in range(4))
    other = of(clients, 5)  # shuffled, too, in an order of its own
    orders = set()
    for query in QUERIES:
        best = found(SHOP, query)
        head, tail = best[:20], best[20:]
        assert found(plain, query) == best
        assert found(back, query) == [*head[::-1], *tail]
        mixed = found(shuffled, query)
        assert (sorted(mixed[:20]), mixed[20:]) == (sorted(head), tail)
        assert found(other, query) != mixed
        orders.add(tuple(head.index(asin) for asin in mixed[:20]))
    assert len(orders) == len(QUERIES)


def test_the_first_fifty_are_moved_unless_one_says_otherwise() -> None:
    back = of(shops("reranking"), 2)
    best = found(SHOP, QUERIES[0])
    assert len(best) == 50
    assert found(back, QUERIES[0]) == best[::-1]


def test_half_of_the_queries_are_answered_at_random() -> None:
    ranker = Reranked(SHOP.store.ranker, "half", 50, 300, 11)
    queries = [f"{query} {number}" for number in range(10) for query in QUERIES]
    plain = [SHOP.store.ranker.search(query, 50) for query in queries]
    answers = [ranker.search(query, 50) for query in queries]
    chance = [mine for mine, best in zip(answers, plain) if mine != best]
    assert abs(len(chance) / len(queries) - 0.5) < 4 * 0.5 / np.sqrt(len(queries))
    assert all(len(set(page)) == 50 and max(page) < 300 for page in chance)
    assert np.mean([len({*a} & {*b}) for a, b in itertools.pairwise(chance)]) < 20  # 8 by chance
    assert [ranker.search(query, 10) for query in queries[:20]] == [
        ranker.search(query, 10) for query in queries[:20]
    ]


def test_pages_of_one_search_belong_together() -> None:
    """There is no memory: the second page goes on where the first ended."""
    for client in range(4):
        shop = of(shops("reranking"), client)
        pages = [shop.store.results(QUERIES[3], 0, number) for number in range(1, 6)]
        asins = [asin for page in pages for asin in page.products.values()]
        assert asins == found(shop, QUERIES[3])
        assert len(set(asins)) == 50


def test_another_seed_is_another_federation() -> None:
    for kind, client in (("catalogue", 0), ("reranking", 1), ("reranking", 3)):
        one, other = (of(shops(kind, seed=seed), client) for seed in (1, 2))
        assert [found(one, q) for q in QUERIES] != [found(other, q) for q in QUERIES]


def test_names_of_the_kinds() -> None:
    assert RERANKINGS == ("plain", "shuffled", "reversed", "half")
    assert len(FIELD_SETS) == len(WEIGHTS) == 8


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"variants": ("catalog",)}, "world.variants is 'catalog'; did you mean 'catalogue'"),
        ({"variants": ("fields", "fields")}, "world.variants names one twice"),
        ({"variants": ("fields",), "shops": 9}, "only 8 kinds of fields"),
        ({"variants": ("lookalikes",), "shops": 5}, "only 4 kinds of lookalikes"),
        ({"withheld": ("B0",)}, r"world.withheld is only read with world.variants = \["),
        ({"keep": 1.2}, "world.keep is 1.2; it is a share from 0 to 1"),
        ({"divergence": -0.1}, "world.divergence"),
        ({"lookalikes": "files"}, "a generated catalogue has none"),
        ({"reranked": 0}, "world.reranked is 0"),
        ({"shops": -1}, "world.shops is -1"),
    ],
)
def test_mistakes_name_the_setting(settings: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        replace(PLAIN, **settings)


def test_a_product_that_is_not_there_cannot_be_withheld() -> None:
    with pytest.raises(UserError, match="the catalogue has no product 'B0NOTHERE0'"):
        shops("catalogue", withheld=("B0NOTHERE0",))


def test_missing_files_are_named(tmp_path) -> None:
    from fedrl.envs.webshop.lookalikes import read_lookalikes

    read: Callable[..., object] = read_lookalikes
    with pytest.raises(UserError, match=r"holds no lookalike_v_size.json"):
        read(tmp_path, "size", SHOP.store.products)
