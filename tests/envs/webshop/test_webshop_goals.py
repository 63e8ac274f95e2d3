"""Goals: every combination of options of a product with an instruction, and a price limit."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.webshop_goods import CUP, LAMP, TABLE

from fedrl.envs.webshop.goals import NO_LIMIT, Goal, draw_goals, draw_limit

GOODS = [TABLE, CUP, LAMP]


def test_every_combination_of_options_is_a_goal():
    goals = draw_goals(GOODS, seed=0).goals
    table = [goal.options for goal in goals if goal.asin == TABLE.asin]
    assert len(table) == 4
    assert {(options["color"], options["size"]) for options in table} == {
        (color, size) for color in TABLE.options["color"] for size in TABLE.options["size"]
    }
    assert [goal.asin for goal in goals].count(LAMP.asin) == 1
    assert all(goal.asin != CUP.asin for goal in goals)  # nobody wrote an instruction


def test_the_instruction_names_options_and_limit():
    goals = {tuple(goal.values): goal for goal in draw_goals(GOODS, seed=0).goals}
    goal = goals["light oak", "large"]
    assert goal.instruction == (
        "Find me solid wood, easy clean side tables with color: light oak, and size: large, "
        f"and price lower than {goal.price_upper:.2f} dollars"
    )
    assert goals[()].instruction.startswith(
        "Find me energy efficient desk lamps, and price lower than "
    )


def test_a_dear_product_has_no_limit():
    (goal,) = draw_goals([replace(LAMP, pricing=(985.0,))], seed=0).goals
    assert goal.price_upper == NO_LIMIT
    assert "price" not in goal.instruction


@settings(deadline=None)
@given(price=st.floats(0.0, 2000.0), seed=st.integers(0, 10))
def test_limits_are_among_the_next_multiples_of_ten(price, seed):
    limit = draw_limit(price, random.Random(seed))
    if price >= 980:
        assert limit == NO_LIMIT
    else:
        assert limit % 10 == 0
        assert price < limit <= min(price + 40, 990)
        assert limit > (price // 10 + 1) * 10  # the larger of two is never the lowest


@settings(deadline=None)
@given(seed=st.integers(0, 1000))
def test_prices_lie_in_their_range_and_hang_on_the_seed_alone(seed):
    prices, goals = draw_goals(GOODS, seed)
    assert prices[TABLE.asin] == 42.5
    assert prices[CUP.asin] == 100.0
    assert 10.0 <= prices[LAMP.asin] <= 30.0
    assert (prices, goals) == draw_goals(GOODS, seed)
    assert all(prices[goal.asin] < goal.price_upper for goal in goals)


def test_the_order_has_its_own_seed():
    one, other = draw_goals(GOODS, 0, shuffle_seed=1), draw_goals(GOODS, 0, shuffle_seed=2)
    assert one.goals != other.goals
    assert sorted(one.goals, key=repr) == sorted(other.goals, key=repr)


def test_rare_attributes_weigh_more():
    weights = {goal.asin: goal.weight for goal in draw_goals(GOODS, 0).goals}
    assert weights == {TABLE.asin: pytest.approx(1 / 4), LAMP.asin: pytest.approx(1.0)}


def test_records_in_the_original_schema():
    for goal in draw_goals(GOODS, 0).goals:
        assert Goal.from_record(goal.to_record()) == goal
    unnamed = replace(draw_goals(GOODS, 0).goals[0], options=("light oak", "small"))
    assert unnamed.to_record()["goal_options"] == ["light oak", "small"]
    assert Goal.from_record(unnamed.to_record()) == unnamed
    assert unnamed.values == ("light oak", "small")
