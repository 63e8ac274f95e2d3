"""Shops of a federation: a knob at its identity changes nothing, and more of it changes more."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from support.realdata import data

from fedrl.core.types import UserError
from fedrl.envs.webshop import catalogue
from fedrl.envs.webshop.generate import generate
from fedrl.envs.webshop.goals import Goal, draw_goals
from fedrl.envs.webshop.product import Product, indexed_text
from fedrl.envs.webshop.reward import Rules, reward
from fedrl.envs.webshop.search import Index
from fedrl.envs.webshop.variants import (
    FIELDS,
    Variant,
    field_subsets,
    plain,
    rankers,
    reranked,
    reweighted,
    split_catalogue,
    with_lookalikes,
)

CLIENTS = 4
PRODUCTS = generate(300)
DRAWN = draw_goals(PRODUCTS, 0)
GOALS = [DRAWN.goals[client::CLIENTS][:25] for client in range(CLIENTS)]
OWNED = [[goal.asin for goal in goals] for goals in GOALS]
QUERIES = [goal.instruction.split(", and price")[0] for goals in GOALS for goal in goals[:5]]

Knob = Callable[[float], list[Variant]]
KNOBS: dict[str, tuple[Knob, Sequence[float]]] = {
    "overlap": (
        lambda x: split_catalogue(plain(CLIENTS), PRODUCTS, OWNED, 1 - x),
        (0, 0.3, 0.6, 1),
    ),
    "fields": (lambda x: field_subsets(plain(CLIENTS), int(x)), (0, 1, 2)),
    "weights": (lambda x: reweighted(plain(CLIENTS), x), (0, 0.2, 0.5, 1)),
    "lookalikes": (
        lambda x: with_lookalikes(plain(CLIENTS), PRODUCTS, GOALS, int(x)),
        (0, 1, 3, 9),
    ),
    "promoted": (lambda x: reranked(plain(CLIENTS), "promoted", x), (0, 0.1, 0.3, 1)),
    "shuffled": (lambda x: reranked(plain(CLIENTS), "shuffled", x), (0, 0.1, 0.3, 1)),
    "demoted": (lambda x: reranked(plain(CLIENTS), "demoted", x), (0, 0.1, 0.3, 1)),
}


def pages(variants: Sequence[Variant], k: int = 10) -> list[list[list[str]]]:
    """Per client and query, the asins of the first page."""
    found = []
    for variant, ranker in zip(variants, rankers(variants, PRODUCTS)):
        shown = variant.catalogue(PRODUCTS)
        found.append(
            [[shown[place].asin for place in ranker.search(query, k)] for query in QUERIES]
        )
    return found


def agreement(variants: Sequence[Variant]) -> float:
    """How much of the first page two clients have in common, over all pairs and queries."""
    shared = [
        len(set(one) & set(other)) / max(len(set(one) | set(other)), 1)
        for first, second in itertools.combinations(pages(variants), 2)
        for one, other in zip(first, second)
    ]
    return float(np.mean(shared))


@pytest.mark.parametrize("name", KNOBS)
def test_identity_is_the_plain_shop(name: str) -> None:
    knob, values = KNOBS[name]
    index = Index.build([product.asin for product in PRODUCTS], map(indexed_text, PRODUCTS))
    for variant in knob(values[0]):
        assert variant.catalogue(PRODUCTS) == PRODUCTS
        ranker = variant.ranker(PRODUCTS)
        assert isinstance(ranker, Index)
        for query in QUERIES:
            for mine, theirs in zip(index.ranked(query), ranker.ranked(query)):
                np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("name", KNOBS)
def test_more_of_a_knob_is_more_difference(name: str) -> None:
    knob, values = KNOBS[name]
    measured = [agreement(knob(value)) for value in values]
    assert measured[0] == 1
    assert all(later < earlier for earlier, later in itertools.pairwise(measured)), measured


@pytest.mark.parametrize("name", KNOBS)
def test_variants_repeat_and_depend_on_the_seed(name: str) -> None:
    knob, values = KNOBS[name]
    assert knob(values[-1]) == knob(values[-1])
    assert len({repr(variant) for variant in knob(values[-1])}) > 1


def test_another_seed_is_another_federation() -> None:
    for make in (
        lambda seed: split_catalogue(plain(CLIENTS), PRODUCTS, OWNED, 0.2, seed),
        lambda seed: field_subsets(plain(CLIENTS), 2, seed),
        lambda seed: reweighted(plain(CLIENTS), 0.5, seed),
        lambda seed: reranked(plain(CLIENTS), "shuffled", 0.5, seed),
        lambda seed: with_lookalikes(plain(CLIENTS), PRODUCTS, GOALS, 1, seed),
    ):
        assert make(1) != make(2)


def test_the_parts_of_a_catalogue() -> None:
    parts = split_catalogue(plain(CLIENTS), PRODUCTS, OWNED, 0.0)
    kept = [set(part.kept or ()) for part in parts]
    assert set().union(*kept) == set(range(len(PRODUCTS)))
    for part, owned in zip(parts, OWNED):
        assert set(owned) <= {product.asin for product in part.catalogue(PRODUCTS)}
    foreign = split_catalogue(plain(CLIENTS), PRODUCTS, [[]] * CLIENTS, 0.0)
    assert sum(len(part.kept or ()) for part in foreign) == len(PRODUCTS)
    wider = split_catalogue(plain(CLIENTS), PRODUCTS, OWNED, 0.4)
    for one, other in zip(kept, wider):
        assert one < set(other.kept or ())


def test_a_shop_can_always_be_searched() -> None:
    for variant in field_subsets(plain(50), 2):
        assert len(variant.fields) == 2
        assert {"title", "description"} & set(variant.fields)
        assert set(variant.fields) < set(FIELDS)


def test_weights_stay_sensible() -> None:
    for variant in reweighted(plain(200), 1.0):
        assert 0 <= variant.b <= 1
        assert 0.9 / 8 <= variant.k1 <= 0.9 * 8


def differences(copy: Product, product: Product) -> set[str]:
    names = set(copy.options) | set(product.options)
    changed = {name for name in names if copy.options.get(name) != product.options.get(name)}
    return changed | ({"price"} if copy.pricing != product.pricing else set())


def original(copy: Product) -> Product:
    return next(product for product in PRODUCTS if product.title == copy.title and
                product.bullets == copy.bullets)  # fmt: skip


def purchases(product: Product, goal: Goal) -> list[float]:
    """The rewards of every way to buy the product."""
    price = product.pricing[0] if product.pricing else 100.0
    choices = itertools.product(*product.options.values())
    return [
        reward(product, goal, price, dict(zip(product.options, values)), Rules()).value
        for values in choices
    ]


def test_lookalikes_differ_in_one_thing_and_do_not_win() -> None:
    kinds = set()
    for goal in itertools.chain(*GOALS):
        (variant,) = with_lookalikes(plain(1), PRODUCTS, [[goal]], 3)
        for copy in variant.lookalikes:
            changed = differences(copy, original(copy))
            assert len(changed) == 1
            assert changed <= {"color", "size", "price"}
            kinds |= changed
            assert max(purchases(copy, goal), default=0) < 1
    assert kinds == {"color", "size", "price"}


def test_lookalikes_come_up_beside_the_product() -> None:
    variants = with_lookalikes(plain(CLIENTS), PRODUCTS, GOALS, 2)
    for variant, ranker, goals in zip(variants, rankers(variants, PRODUCTS), GOALS):
        shown = variant.catalogue(PRODUCTS)
        assert len({product.asin for product in shown}) == len(shown)
        copies = {product.asin for product in variant.lookalikes}
        assert len(copies) > len(goals)
        for goal in goals[:5]:
            found = {shown[place].asin for place in ranker.search(goal.name)}
            assert goal.asin in found
            assert found & copies


def test_given_lookalikes_are_matched_by_their_names() -> None:
    goal = GOALS[0][0]
    product = next(product for product in PRODUCTS if product.asin == goal.asin)
    ready = [
        Product(**{name: getattr(product, name) for name in Product.__slots__} | {"asin": asin})
        for asin in (f"LK_COLOR_{goal.asin}", "LK_COLOR_B0NOTHERE0")
    ]
    (variant,) = with_lookalikes(plain(1), PRODUCTS, [[goal]], 2, given=ready)
    assert variant.lookalikes == (ready[0],)


@pytest.mark.realdata
def test_the_genuine_lookalikes_fit_the_genuine_goals() -> None:
    folder = data("webshop")
    products = catalogue.load(folder)
    goals = draw_goals(products, 0).goals[:200]
    given = catalogue.load_lookalikes(folder / "lookalike_v_color.json.gz")
    (variant,) = with_lookalikes(plain(1), products, [goals], 1, given=given)
    coloured = {goal.asin for goal in goals if "color" in goal.options}
    assert {copy.asin.rsplit("_", 1)[-1] for copy in variant.lookalikes} >= coloured


def test_reranking_moves_the_same_results_about() -> None:
    for kind in ("promoted", "shuffled", "demoted"):
        before = pages(plain(1), 50)[0]
        after = pages(reranked(plain(1), kind, 0.7), 50)[0]
        assert [set(page) for page in before] == [set(page) for page in after]
        assert before != after
        short = pages(reranked(plain(1), kind, 0.7), 10)[0]
        assert [page[:10] for page in after] == short


def test_demotion_is_of_goals_only() -> None:
    (variant,) = reranked(plain(1), "demoted", 1.0)
    instructed = {product.asin for product in PRODUCTS if product.instruction}
    before, after = pages(plain(1), 50)[0], pages([variant], 50)[0]
    for one, other in zip(before, after):
        assert [asin for asin in one if asin not in instructed] == [
            asin for asin in other if asin not in instructed
        ]


def test_shops_share_what_they_can() -> None:
    one, other = rankers(reweighted(plain(2), 0.5), PRODUCTS)
    assert isinstance(one, Index)
    assert isinstance(other, Index)
    assert one.docs is other.docs
    assert one.k1 != other.k1


def test_knobs_combine() -> None:
    variants = reranked(
        reweighted(split_catalogue(plain(CLIENTS), PRODUCTS, OWNED, 0.5), 0.5), "shuffled", 0.2
    )
    assert agreement(variants) < agreement(split_catalogue(plain(CLIENTS), PRODUCTS, OWNED, 0.5))


@pytest.mark.parametrize(
    ("turn", "word"),
    [
        (lambda: plain(0), "clients"),
        (lambda: split_catalogue(plain(2), PRODUCTS, [[], []], 1.5), "overlap"),
        (lambda: split_catalogue(plain(2), PRODUCTS, [[]], 0.5), "owned"),
        (lambda: field_subsets(plain(2), 3), "missing"),
        (lambda: reweighted(plain(2), -0.1), "spread"),
        (lambda: reranked(plain(2), "shuffled", 2.0), "strength"),
        (lambda: reranked(plain(2), "upwards", 0.5), "kind"),
        (lambda: with_lookalikes(plain(2), PRODUCTS, [[], []], -1), "copies"),
        (lambda: with_lookalikes(plain(2), PRODUCTS, [[]], 1), "goals"),
    ],
)
def test_mistakes_name_the_setting(turn: Callable[[], object], word: str) -> None:
    with pytest.raises(UserError, match=word):
        turn()
