"""The reward of a purchase: the original's numbers, and the mended ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.webshop_goods import CUP, LAMP, TABLE, with_options

from fedrl.core.types import UserError
from fedrl.envs.webshop.goals import draw_goals
from fedrl.envs.webshop.nouns import lookup, plain, spacy_tagger
from fedrl.envs.webshop.reward import Rules, count_options, reward, title_score, unwinnable
from fedrl.envs.webshop.shop import Settings, WebShop
from fedrl.envs.webshop.word_lists import word_list

DEFAULT, FAITHFUL = Rules(), Rules(faithful=True)
GOALS = {goal.values: goal for goal in draw_goals([TABLE], 0).goals}
GOAL = GOALS["light oak", "small"]
WANTED = {"color": "light oak", "size": "small"}


@pytest.mark.parametrize("rules", [DEFAULT, FAITHFUL])
def test_the_perfect_purchase(rules):
    value, parts = reward(TABLE, GOAL, 42.5, WANTED, rules)
    assert value == 1.0
    assert parts["r_type"] == parts["r_att"] == parts["r_option"] == 1.0
    assert parts["r_price"] is True
    assert parts["w_att"] + parts["w_option"] + parts["w_price"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    "options, price, lost",
    [
        ({"color": "light oak"}, 42.5, 1),
        ({}, 42.5, 2),
        ({"color": "light oak", "size": "medium"}, 42.5, 1),
        (WANTED, 1e6, 1),
        ({}, 1e6, 3),
    ],
)
def test_each_fault_costs_its_share(options, price, lost):
    value, _ = reward(TABLE, GOAL, price, options, DEFAULT)
    assert value == pytest.approx(1 - lost / 5)


def test_attributes_count_by_text_too():
    bare = replace(TABLE, attributes=())
    assert reward(bare, GOAL, 42.5, WANTED, DEFAULT).parts["r_att"] == 1.0
    blank = replace(bare, bullets=("",), description="")
    assert reward(blank, GOAL, 42.5, WANTED, DEFAULT).parts["r_att"] == 0.0


def test_a_goal_without_options_has_no_option_part():
    (goal,) = draw_goals([LAMP], 0).goals
    value, parts = reward(LAMP, goal, 20.0, {}, DEFAULT)
    assert value == 1.0
    assert "r_option" not in parts
    assert "w_option" not in parts


@pytest.mark.parametrize(
    "changes, r_type",
    [
        ({}, 1.0),
        ({"title": "Oak Board and Many Other Words"}, 1.0),  # the same query
        ({"query": "beds", "title": "Oak Board"}, 1.0),  # two categories in common
        ({"query": "beds", "path": "Toys", "title": "Oak Side Table"}, 1.0),  # the name
        ({"query": "beds", "path": "Toys › Tables", "title": "Oak Board"}, 0.5),
        ({"title": "Something Else"}, 0.0),  # no noun in common overrides all
    ],
)
def test_the_kind_of_product(changes, r_type):
    rules = Rules(tagger=lookup({TABLE.title: ["oak", "side", "table", "drawer", "finish"]}))
    _, parts = reward(replace(TABLE, **changes), GOAL, 42.5, WANTED, rules)
    assert parts["r_type"] == r_type


def test_hardly_a_noun_in_common():
    wanted = [f"noun{i}" for i in range(11)]
    rules = Rules(tagger=lookup({TABLE.title: wanted, "x": wanted[:1]}))
    _, parts = reward(replace(TABLE, title="x"), GOAL, 42.5, WANTED, rules)
    assert parts["r_type"] == 0.1


def test_title_score():
    assert title_score(["a", "b"], ["a", "a", "c", "c"], faithful=True) == 1 / 4
    assert title_score(["a", "b"], ["a", "a", "c", "c"], faithful=False) == 1 / 2
    assert title_score(["a"], [], faithful=True) == 0.2


def test_a_colour_within_a_word_loses_only_in_the_original():
    goal = GOALS["titanium", "small"]
    options = {"color": "titanium", "size": "small"}
    assert reward(TABLE, goal, 42.5, options, FAITHFUL).value < 1.0
    assert reward(TABLE, goal, 42.5, options, DEFAULT).value == 1.0
    goods, prices = {TABLE.asin: TABLE}, {TABLE.asin: 42.5}
    assert unwinnable([goal], goods, prices, FAITHFUL) == [0]
    assert unwinnable([goal], goods, prices, DEFAULT) == []


def test_unwinnable_goals_are_counted():
    drawn = draw_goals([TABLE, LAMP], 0)
    goods = {TABLE.asin: TABLE, LAMP.asin: LAMP}
    lost = unwinnable(drawn.goals, goods, drawn.prices, FAITHFUL)
    assert [drawn.goals[i].options["color"] for i in lost] == ["titanium"] * 2
    assert unwinnable(drawn.goals, goods, drawn.prices, DEFAULT) == []


@pytest.mark.parametrize(
    "bought, wanted, faithful, default",
    [
        ("dark blue", "blue", 1, 1),  # one colour, other words
        ("red", "blue", 0, 0),
        ("tank top", "tank top", 0, 1),
        ("titanium", "tan", 1, 0),
        ("tan", "titanium", 0, 0),
        ("x-large", "large", 0, 0),
        ("large", "x-large", 1, 1),  # its words are among the wanted ones
        ("black rug", "the black one", 1, 1),
    ],
)
def test_values_of_options(bought, wanted, faithful, default):
    goal = replace(GOAL, options={"color": wanted})
    product = replace(TABLE, options={"color": (bought,)})
    assert count_options(product, goal, [bought], faithful=True) == faithful
    assert count_options(product, goal, [bought], faithful=False) == default


@pytest.mark.parametrize(
    "wanted, other", [("x-large", "large"), ("pack of 2", "pack of 5"), ("blue", "dark blue")]
)
def test_where_the_very_value_is_offered_no_other_counts(wanted, other):
    goal = replace(GOAL, options={"size": wanted})
    product = replace(TABLE, options={"size": (wanted, other)})
    assert count_options(product, goal, [other], faithful=True) == 1
    assert count_options(product, goal, [other], faithful=False) == 0
    assert count_options(product, goal, [wanted], faithful=False) == 1


def test_no_other_value_of_a_goals_own_product_wins():
    shop = WebShop(Settings(products=150, validation=10))
    for goal in shop.goals[:300]:
        product = shop.store.by_asin[goal.asin]
        for name, values in product.options.items():
            for value in values:
                chosen = {**goal.options, name: value}
                won = reward(product, goal, 1.0, chosen, shop.rules).value == 1.0
                assert won == (chosen == goal.options)


def test_values_without_names_are_normalised_on_both_sides():
    goal = replace(GOAL, options=("titanium",))
    assert count_options(TABLE, goal, ["titanium"], faithful=True) == 1


VALUES = st.one_of(
    st.text(max_size=12),
    st.lists(
        st.sampled_from([*word_list("colours"), "tank", "x", "12", "–", "é", "[2]"]), max_size=3
    ).map(" ".join),
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["color", "size", "style"]), VALUES, max_size=3))
def test_by_default_the_wanted_options_always_match_themselves(options):
    goal = replace(GOAL, options=options)
    assert reward(TABLE, goal, 42.5, options, DEFAULT).value == 1.0


@settings(deadline=None)
@given(
    product=st.sampled_from([TABLE, LAMP, CUP]),
    price=st.floats(0, 2000),
    options=st.dictionaries(st.text(max_size=5), VALUES, max_size=4),
    faithful=st.booleans(),
)
def test_rewards_lie_between_0_and_1(product, price, options, faithful):
    for goal in GOALS.values():
        assert 0.0 <= reward(product, goal, price, options, Rules(faithful)).value <= 1.0


def test_an_option_named_like_a_button_cannot_be_chosen():
    product = with_options(TABLE, {"color": ("reviews", "red")})
    drawn = draw_goals([product], 0)
    lost = unwinnable(drawn.goals, {product.asin: product}, drawn.prices, DEFAULT)
    assert [drawn.goals[i].options for i in lost] == [{"color": "reviews"}]


def test_plain_nouns():
    assert plain("The Women's 18-55mm Lens with USB_C, 4K and a Bag (Bag)") == [
        "women",
        "lens",
        "bag",
        "bag",
    ]
    assert plain("") == []


def test_a_lookup_falls_back():
    tagger = lookup({"known": ["noun"]})
    assert list(tagger("known")) == ["noun"]
    assert list(tagger("Oak Table")) == ["oak", "table"]


def test_a_missing_spacy_model_is_said():
    pytest.importorskip("spacy")
    with pytest.raises(UserError, match="python -m spacy download no_such_model"):
        spacy_tagger("no_such_model")
