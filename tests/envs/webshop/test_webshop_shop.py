"""The shop: pages, clicks, purchases, tasks, and the expert."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.realdata import data
from support.webshop_goods import CUP, LAMP, TABLE, with_options

from fedrl.core.types import UserError
from fedrl.envs.webshop import pages
from fedrl.envs.webshop.product import DEPARTMENTS, Product
from fedrl.envs.webshop.shop import Settings, WebShop
from fedrl.envs.webshop.store import Store

CHAIRS = [
    replace(
        CUP,
        asin=f"CHAIR{i:05d}",
        title=f"Chair {i}",
        query="chairs",
        category="garden",
        attributes=("folding",) if i % 2 else (),
    )
    for i in range(25)
]
GOODS = (TABLE, LAMP, CUP, *CHAIRS)
STORE = Store(GOODS)
SMALL = Settings(validation=2)


def shop(goods: Sequence[Product] | None = None, **settings) -> WebShop:
    return WebShop(replace(SMALL, **settings), store=Store(goods) if goods else STORE)


def task_of(world: WebShop, asin: str, **options: str) -> str:
    index = next(
        i
        for i, goal in enumerate(world.goals)
        if goal.asin == asin and options.items() <= dict(goal.options).items()
    )
    return f"goal-{index:05d}"


def walk(world: WebShop, *commands: str, task: str | None = None):
    visit, turn = world.start(task or task_of(world, TABLE.asin))
    for command in commands:
        turn = visit.step(command)
    return visit, turn


def after(*commands: str, **settings) -> str:
    return walk(shop(**settings), *commands)[1].observation


TO_TABLE = ("search[oak side table]", "click[t000000001]")


def test_the_first_page_asks_for_a_search():
    visit, turn = walk(shop())
    assert turn.observation == f"WebShop [SEP] Instruction: [SEP] {visit.goal} [SEP] Search"
    assert turn.info == {
        "won": False,
        "available": {"has_search_bar": True, "clickables": ("search",)},
    }
    assert turn.admissible == ("search[<words>]",)
    assert (turn.reward, turn.done) == (0.0, False)


def test_results_list_ten_products_with_prices_and_next_never_disappears():
    visit, turn = walk(shop(), "search[chair]")
    head = f"Instruction: [SEP] {visit.goal} [SEP] Back to Search [SEP] Page 1 (Total results: 25)"
    assert turn.observation.startswith(f"{head} [SEP] Next > [SEP] CHAIR")
    assert turn.observation.count("CHAIR") == 10
    assert turn.observation.count("$100.0") == 10  # missing prices
    assert "click[< prev]" not in turn.admissible
    seen = set(visit.page.products)
    for number in (2, 3, 4, 5):
        turn = visit.step("click[next >]")
        assert f"Page {number} (Total results: 25) [SEP] < Prev [SEP] Next >" in turn.observation
        assert not seen & set(visit.page.products)
        seen |= set(visit.page.products)
    assert len(seen) == 25
    assert visit.page.products == {}
    turn = visit.step("click[< prev]")
    assert "Page 4 " in turn.observation


def test_prices_are_shown_as_a_range():
    assert "[SEP] Brass Desk Lamp [SEP] $10.0 to $30.0" in after("search[brass lamp]")


def test_the_item_page_lists_options_and_buttons():
    visit, turn = walk(shop(), *TO_TABLE)
    assert turn.observation == (
        f"Instruction: [SEP] {visit.goal} [SEP] Back to Search [SEP] < Prev [SEP] color [SEP] "
        "light oak [SEP] titanium [SEP] size [SEP] small [SEP] large [SEP] "
        "Oak Side Table with Drawer, Oak Finish [SEP] Price: $42.5 [SEP] Rating: N.A. [SEP] "
        "Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
    )
    buttons = ("back to search", "< prev", "description", "features", "reviews", "buy now")
    options = ("light oak", "titanium", "small", "large")
    assert turn.info["available"]["clickables"] == buttons + options
    assert turn.admissible == tuple(f"click[{name}]" for name in buttons + options)


@pytest.mark.parametrize(
    "name, text",
    [
        ("description", " [SEP] A small table for the living room."),
        ("features", " [SEP] Solid wood top [SEP] Easy clean surface"),
        ("reviews", ""),
    ],
)
def test_sub_pages_lead_back_to_the_item_and_keep_the_options(name, text):
    visit, turn = walk(shop(), *TO_TABLE, "click[titanium]", f"click[{name}]")
    assert turn.observation.endswith(f"Back to Search [SEP] < Prev{text}")
    turn = visit.step("click[< prev]")
    assert visit.page.kind == "item"
    assert visit.options == {"color": "titanium"}


@pytest.mark.parametrize(
    "way_back", [("click[< prev]",), ("search[oak]",), ("click[back to search]", "search[oak]")]
)
def test_every_return_to_the_results_clears_the_options(way_back):
    visit, _ = walk(shop(), *TO_TABLE, "click[titanium]", *way_back)
    assert visit.page.kind == "results"
    assert visit.options == {}


def test_a_later_choice_replaces_an_earlier_one():
    visit, _ = walk(shop(), *TO_TABLE, "click[titanium]", "click[light oak]", "click[large]")
    assert visit.options == {"color": "light oak", "size": "large"}


def test_a_purchase_ends_the_episode():
    world = shop()
    task = task_of(world, TABLE.asin, color="light oak", size="large")
    visit, turn = walk(
        world, *TO_TABLE, "click[large]", "click[light oak]", "click[buy now]", task=task
    )
    assert (turn.reward, turn.done, turn.info["won"]) == (1.0, True, True)
    assert turn.info["purchase"] == {
        "asin": TABLE.asin,
        "options": {"color": "light oak", "size": "large"},
        "price": 42.5,
    }
    assert turn.info["reward_parts"]["r_option"] == 1.0
    assert turn.observation.startswith("Thank you for shopping with us! [SEP] ")
    assert '{"color": "light oak", "size": "large"}' in turn.observation
    assert "Your score (min 0.0, max 1.0) [SEP] 1.0" in turn.observation
    assert turn.admissible == ()
    again = visit.step("search[more]")
    assert (again.reward, again.done) == (0.0, True)  # not paid twice
    assert again.observation == turn.observation


def test_a_poor_purchase_is_not_won():
    _, turn = walk(shop(), "search[brass lamp]", "click[l000000001]", "click[buy now]")
    assert turn.done
    assert turn.reward < 1.0
    assert turn.info["won"] is False


@pytest.mark.parametrize(
    "command",
    [
        "click[search]",
        "click[no such thing]",
        "click[]",
        "search[]",
        "search",
        "Click[buy now]",
        "click [buy now]",
        "buy now",
        "think[what now]",
        "click[buy now",
        "",
        "\n",
        "[[[]]]",
    ],
)
def test_what_fits_nothing_changes_nothing(command):
    for way in ((), ("search[oak]",), TO_TABLE, (*TO_TABLE, "click[features]")):
        visit, before = walk(shop(), *way)
        turn = visit.step(command)
        assert turn == before._replace(info={**before.info, "failed": True})  # and says so


WORLD = shop()
COMMANDS = st.one_of(
    st.text(max_size=60),
    st.builds("{}[{}]".format, st.sampled_from(["search", "click", "x["]), st.text(max_size=40)),
    st.sampled_from(
        ["search[oak]", "search[<r>]", "search[<c>]", "search[<a> folding]", "click[next >]"]
    ),
    st.sampled_from(
        ["click[t000000001]", "click[titanium]", "click[< prev]", "click[features]"],
    ),
    st.sampled_from(["click[buy now]", "click[back to search]"]),
)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(COMMANDS, max_size=15), st.sampled_from(["text", "text_rich"]))
def test_any_text_is_a_command(commands, observation):
    visit, turn = walk(shop(observation=observation))
    for command in commands:
        turn = visit.step(command)
        assert isinstance(turn.observation, str)
        assert 0.0 <= turn.reward <= 1.0
        listed = tuple(f"click[{name}]" for name in turn.info["available"]["clickables"])
        assert turn.admissible == (
            ("search[<words>]",) if turn.info["available"]["has_search_bar"] else listed
        )


@pytest.mark.parametrize("command", ["[" * 10**6, "search[" + "ab " * 10**5 + "]", "]" * 10**6])
def test_very_long_commands(command):
    visit, _ = walk(shop())
    assert not visit.step(command).done


@settings(deadline=None)
@given(st.text("search[]click x\n", max_size=30))
def test_commands_are_read_by_the_original_pattern(command):
    found = re.match(r"(.+)\[(.+)\]", command)
    expected = (found[1], found[2].lower()) if found else (command, "")
    assert pages.parse(command) == expected


def test_admissible_clicks_do_something_or_are_chosen_already():
    visit, turn = walk(shop(), *TO_TABLE)
    for command in turn.admissible:
        fresh, _ = walk(shop(), *TO_TABLE)
        fresh.step(command)
        assert (fresh.page, fresh.options) != (visit.page, visit.options), command


def test_brackets_within_an_option_hinder_only_the_original():
    goods = [with_options(TABLE, {"pack": ("set [2]", "set [4]")}), LAMP]
    for faithful in (True, False):
        world = shop(goods, faithful=faithful, validation=0)
        visit, _ = walk(world, *TO_TABLE, "click[set [2]]")
        assert visit.options == ({} if faithful else {"pack": "set [2]"})


def test_a_value_of_two_options_chooses_the_last():
    goods = [with_options(TABLE, {"top": ("oak", "ash"), "legs": ("oak", "pine")}), LAMP]
    world = shop(goods, validation=0)
    task = task_of(world, TABLE.asin, top="ash")
    visit, turn = walk(world, *TO_TABLE, "click[oak]", task=task)
    assert visit.options == {"legs": "oak"}
    assert turn.info["available"]["clickables"][-3:] == ("oak", "ash", "pine")
    (lost,) = world.left_out  # the click on oak takes the pine legs away
    assert world.goals[lost].options == {"legs": "pine", "top": "oak"}


def test_exact_lookups():
    for query, found in (("<q> chairs", 25), ("<c> garden", 26), ("<a> folding", 12)):
        assert f"(Total results: {found})" in after(f"search[{query}]")
    assert len(STORE.find("<r>", seed=1)) == len(GOODS)
    assert STORE.find("<r>", seed=1) != STORE.find("<r>", seed=2)
    assert "(Total results: 0)" in after("search[<q>]")
    assert "(Total results: 0)" in after("search[qwertz]")


def test_rich_text_marks_what_was_clicked():
    rich = {"observation": "text_rich"}
    assert after(**rich).startswith("WebShop\nInstruction:\nFind me ")
    assert after(**rich).endswith("dollars\n[button] Search [button_]\n")
    results = after(*TO_TABLE, "click[< prev]", **rich)
    assert "\n\n[clicked button] T000000001 [clicked button_]\nOak Side Table" in results
    item = after(*TO_TABLE, "click[titanium]", "click[small]", **rich)
    assert item.startswith("You have clicked small.\nYou have clicked titanium.\nInstruction:\n")
    assert "\ncolor\n  [button] light oak [button_]\n  [clicked button] titanium [cl" in item
    fresh = after(*TO_TABLE, "click[back to search]", "search[oak side table]", **rich)
    assert "\n\n[button] T000000001 [button_]\n" in fresh


def test_only_odd_blanks_survive_as_html_would_keep_them():
    odd = replace(TABLE, bullets=("", " \n ", "  ", "\xa0", " a \n b "))
    page = pages.sub_page(odd, "features")
    assert [piece.text for piece in page.pieces[2:]] == ["", "", "a \n b"]


def test_the_receipt_escapes_as_html_templates_do():
    page = pages.done_page("A1", {"b": "<it's & é>", "a": "x"}, 0.5)
    assert '{"a": "x", "b": "\\u003cit\\u0027s \\u0026 \\u00e9\\u003e"}' in page.text


def test_splits_part_the_goals():
    world = shop()
    valid, train = world.tasks("valid"), world.tasks("train")
    assert [task.id for task in valid] == ["goal-00000", "goal-00001"]
    assert [task.id for task in train] == ["goal-00002", "goal-00003", "goal-00004"]
    assert {task.category for task in (*valid, *train)} == {"garden", "electronics"}
    assert world.tasks("public") == []
    public = shop(validation=1, public=3)
    assert [len(public.tasks(split)) for split in ("valid", "public", "train")] == [1, 3, 1]
    with pytest.raises(UserError, match="choose from train, valid"):
        world.tasks("test")
    for wrong in ("goal-00005", "goal-1", "goal-²", "x", "goal--1", "goal-" + "9" * 5000):
        with pytest.raises(UserError, match="no such goal"):
            world.start(wrong)


@pytest.mark.parametrize(
    "setting",
    [
        {"products": 0},
        {"max_steps": 0},
        {"observation": "html"},
        {"tagger": "x"},
        {"validation": -1},
        {"public": -1},
    ],
)
def test_wrong_settings_are_named(setting):
    with pytest.raises(UserError, match=f"world.{next(iter(setting))} is"):
        Settings(**setting)


def test_no_goals_left_to_train_on_is_said():
    with pytest.raises(UserError, match="set 5 goals aside, but the shop has only 5"):
        shop(validation=3, public=2)


def test_goals_that_cannot_be_won_are_left_out_and_others_keep_their_names():
    goods = [with_options(TABLE, {"color": ("reviews", "red", "blue")}), LAMP]
    world = shop(goods, validation=1)
    (lost,) = world.left_out
    assert world.goals[lost].options == {"color": "reviews"}
    ids = [task.id for split in world.splits for task in world.tasks(split)]
    assert sorted(ids) == [f"goal-{i:05d}" for i in range(4) if i != lost]
    with pytest.raises(UserError):
        world.start(f"goal-{lost:05d}")
    assert not shop(goods, validation=1, faithful=True).left_out


class Backwards:
    """A client's own idea of relevance."""

    def search(self, query: str, k: int = 50) -> list[int]:
        return list(range(len(GOODS)))[::-1][:k]


def test_a_variant_has_the_same_goals_and_prices():
    world = shop()
    other = world.variant(GOODS, Backwards())
    assert other.goals is world.goals
    assert other.prices == world.prices
    assert other.tasks("train") == world.tasks("train")
    assert "CHAIR00024" in walk(other, "search[oak]")[1].observation


def test_a_variant_may_add_products_and_lose_goals():
    world = shop()
    lookalike = replace(LAMP, asin="LOOKALIKE1", instruction="")
    other = world.variant([*GOODS, lookalike])
    assert 10.0 <= other.prices["LOOKALIKE1"] <= 30.0
    assert other.prices == world.variant([*GOODS, lookalike]).prices
    assert other.left_out == world.left_out
    without = world.variant([good for good in GOODS if good.asin != TABLE.asin])
    assert {without.goals[i].asin for i in without.left_out} == {TABLE.asin}
    changed = world.variant([with_options(TABLE, {"color": ("light oak",), "size": ("small",)})])
    assert len(changed.left_out) == 4  # three combinations are gone, and the lamp


def won_by_the_expert(world: WebShop, tasks) -> list[int]:
    lengths = []
    for task in tasks:
        visit, turn = world.start(task.id)
        commands = world.demonstrate(task.id)
        for command in commands:
            assert not turn.done
            turn = visit.step(command)
        assert turn.done
        assert turn.info["won"], task
        lengths.append(len(commands))
    return lengths


def test_the_expert_wins_the_small_shop():
    world = shop()
    assert max(won_by_the_expert(world, world.tasks("train") + world.tasks("valid"))) <= 5


def test_the_expert_pages_through_results():
    world = shop().variant(GOODS, Backwards())
    task = task_of(world, LAMP.asin)
    assert world.demonstrate(task)[0] == "search[<q> desk lamps]"  # shorter than three pages
    assert len(won_by_the_expert(world, world.tasks("train"))) == 3


def test_the_expert_wins_every_generated_goal_within_the_step_limit():
    world = WebShop(Settings(products=300, validation=50))
    tasks = world.tasks("valid") + world.tasks("train")
    assert {task.category for task in tasks} == set(DEPARTMENTS)
    assert max(won_by_the_expert(world, tasks[::7])) <= world.max_steps


def test_shops_of_one_catalogue_share_it():
    settings = Settings(products=300, validation=50)
    one, other = WebShop(settings), WebShop(replace(settings, observation="text_rich"))
    assert one.store is other.store
    assert one.goals is other.goals


@pytest.mark.realdata
@pytest.mark.slow
def test_the_expert_wins_every_genuine_goal_within_the_step_limit():
    world = WebShop(Settings(source=str(data("webshop"))))
    assert not world.left_out
    tasks = world.tasks("valid") + world.tasks("train")
    assert len(tasks) == 6910
    assert len(world.tasks("valid")) == 500
    assert max(won_by_the_expert(world, tasks)) <= world.max_steps
