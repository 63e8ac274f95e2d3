"""Goals of products that nobody trains on, and goals that people wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("rapidfuzz", reason="needs the extra gym")

from support.webshop_goods import CUP, LAMP, TABLE

from fedrl.core.types import UserError
from fedrl.envs.webshop.catalogue import load_wishes
from fedrl.envs.webshop.client_shops import ClientShops
from fedrl.envs.webshop.goals import NO_LIMIT, Wish, draw_goals, draw_human_goals
from fedrl.envs.webshop.shop import Settings, WebShop

SMALL = {"products": 120, "validation": 40, "public": 40}


def products(shop: WebShop, split: str) -> set[str]:
    return {shop.goal(task.id).asin for task in shop.tasks(split)}


def test_goals_of_unseen_products_are_in_no_other_split():
    plain, shop = WebShop(Settings(**SMALL)), WebShop(Settings(**SMALL, unseen_products=12))
    assert plain.splits == ("train", "valid", "public")
    assert shop.splits == (*plain.splits, "unseen")
    assert len(shop.unseen_products) == 12
    assert products(shop, "unseen") <= shop.unseen_products
    for split in plain.splits:
        assert not products(shop, split) & shop.unseen_products
        # The others stay where they were, under the same names.
        kept = [t for t in plain.tasks(split) if plain.goal(t.id).asin not in shop.unseen_products]
        assert list(shop.tasks(split)) == kept
    everything = sum(len(shop.tasks(split)) for split in shop.splits)
    assert everything == sum(len(plain.tasks(split)) for split in plain.splits)


def test_more_unseen_products_begin_with_fewer():
    few, more = (WebShop(Settings(**SMALL, unseen_products=n)) for n in (5, 12))
    assert few.unseen_products < more.unseen_products


def test_clients_shops_set_the_same_products_aside():
    shops = ClientShops(Settings(**SMALL, unseen_products=12, variants=("reranking",)), seed=0)
    own = shops.of_client(1, [task.id for task in shops.tasks("train")[:5]])
    assert own.unseen_products == shops.unseen_products
    assert [t.id for t in own.tasks("unseen")] == [t.id for t in shops.tasks("unseen")]


def test_something_must_be_left_to_train_on():
    with pytest.raises(UserError, match=r"unseen_products is 9999, but goals are about \d+ prod"):
        WebShop(Settings(**SMALL, unseen_products=9999)).tasks("train")


# What people wrote


WISHES = {
    TABLE.asin: (
        Wish("i need a table of solid wood.", ("solid wood",), ("light oak", "large")),
        Wish("something nice", (), ()),
        Wish("an easy clean table", ("easy clean",), ()),
    ),
    "B0UNKNOWN": (Wish("gone", ("solid wood",), ()),),
}


def test_each_instruction_with_attributes_is_a_goal():
    prices, goals = draw_human_goals([TABLE, CUP, LAMP], WISHES, seed=0)
    assert prices == draw_goals([TABLE, CUP, LAMP], seed=0).prices
    assert len(goals) == 2
    wood = next(goal for goal in goals if goal.attributes == ("solid wood",))
    assert wood.instruction.startswith("i need a table of solid wood")
    assert not wood.instruction.startswith("i need a table of solid wood.")
    assert wood.values == ("light oak", "large")
    assert wood.weight == 1
    if wood.price_upper != NO_LIMIT:
        assert wood.instruction.endswith(f", and price lower than {wood.price_upper:.2f} dollars")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A generated catalogue in the publisher's form, with what people wrote of two products."""
    from fedrl.envs.webshop.generate import generate

    goods = [product for product in generate(80, 0) if product.instruction and product.options]
    records = [
        {
            "asin": p.asin, "name": p.title, "full_description": p.description,
            "small_description": list(p.bullets), "category": p.category, "query": p.query,
            "product_category": p.path, "pricing": f"${p.pricing[0]}" if p.pricing else "",
            "customization_options": {
                name: [{"value": value} for value in values] for name, values in p.options.items()
            },
        }
        for p in goods
    ]  # fmt: skip
    told = {
        p.asin: {
            "attributes": p.attributes,
            "instruction": p.instruction,
            "instruction_attributes": p.instruction_attributes,
        }
        for p in goods
    }
    asked = {
        p.asin: [
            {"asin": p.asin, "instruction": f"i want {word}", "instruction_attributes": [word],
             "instruction_options": [values[0].upper() for values in p.options.values()]}
            for word in p.attributes
        ]
        for p in goods[:9]
    }  # fmt: skip
    (tmp_path / "items_shuffle_1000.json").write_text(json.dumps(records))
    (tmp_path / "items_ins_v2_1000.json").write_text(json.dumps(told))
    (tmp_path / "items_human_ins.json").write_text(json.dumps(asked))
    return tmp_path


def test_peoples_goals_are_read_as_the_publisher_has_them_and_won_by_the_expert(folder: Path):
    wishes = load_wishes(folder)
    count = len(json.loads((folder / "items_shuffle_1000.json").read_text()))
    shop = WebShop(
        Settings(source=str(folder), products=count, goals="human", validation=5, public=3)
    )
    assert len(shop.goals) == sum(map(len, wishes.values()))
    won = 0
    for task in shop.tasks("train"):
        episode, turn = shop.start(task.id)
        assert "i want" in episode.goal
        for command in shop.demonstrate(task.id):
            turn = episode.step(command)
        won += turn.info["won"]
    assert won == len(shop.tasks("train")) > 0


def test_products_whose_wishes_differ_are_judged_wish_by_wish():
    """One that cannot be won does not take the product's others with it."""
    from fedrl.envs.webshop.nouns import plain
    from fedrl.envs.webshop.reward import Rules, unwinnable

    wishes = {TABLE.asin: (Wish("a", ("no such thing",), ()), Wish("b", ("solid wood",), ()))}
    prices, goals = draw_human_goals([TABLE], wishes, seed=0)
    lost = unwinnable(goals, {TABLE.asin: TABLE}, prices, Rules(False, plain))
    assert [goals[i].attributes for i in lost] == [("no such thing",)]


def test_nobody_wrote_of_generated_products():
    with pytest.raises(UserError, match=r"world\.goals"):
        Settings(goals="human")


def test_a_catalogue_without_them_says_what_is_missing(folder: Path):
    (folder / "items_human_ins.json").unlink()
    with pytest.raises(UserError, match=r"items_human_ins\.json"):
        WebShop(Settings(source=str(folder), products=3, goals="human"))
