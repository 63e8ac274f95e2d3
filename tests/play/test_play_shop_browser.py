"""The shop in a real browser: bought by typing and clicking, and odd input does no harm."""

from __future__ import annotations

import re
import threading

import pytest
from support.browsing import browser, new_person  # noqa: F401

from fedrl.envs.webshop.shop import Settings, WebShop
from fedrl.play.shop_server import open_shop
from fedrl.play.shop_visitors import LONGEST_QUERY, NOTHING, STALE

pytestmark = pytest.mark.slow

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def shop():
    return WebShop(Settings(products=500, validation=100))


@pytest.fixture(scope="module")
def task(shop):
    """A goal with at least two options, so that there is something to choose."""
    return next(t.id for t in shop.tasks("valid") if len(shop.goal(t.id).values) >= 2)


@pytest.fixture(scope="module")
def common(shop):
    """A search that fills pages."""
    return " ".join(sorted({product.query for product in shop.store.products})[:8])


@pytest.fixture(scope="module")
def server(shop, task):
    with open_shop(shop, task=task) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def visit(new_person, server):  # noqa: F811
    """Opens the shop as a new person."""
    return lambda **options: new_person(server.url, (server.url,), **options)


def press_enter(page):
    with page.expect_navigation():
        page.keyboard.press("Enter")


def click(button):
    """Wait for the page that it leads to: what is read next must not be the page before."""
    with button.page.expect_navigation():
        button.click()


def search(page, words):
    page.get_by_role("searchbox").fill(words)
    press_enter(page)


def play(page, command):
    """A command of the text world as a person does it."""
    if command.startswith("search["):
        search(page, command[len("search[") : -1])
    else:
        target = command.replace("\\", "\\\\").replace('"', '\\"')
        click(page.locator(f'button[value="{target}"]').first)


def steps(page):
    return int(page.locator(".steps b").inner_text())


def type_command(page, command):
    if not page.locator("details.agent[open]").count():
        page.get_by_text("What an agent sees").click()
    page.get_by_label("A command of your own").fill(command)
    press_enter(page)


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_the_experts_way_wins(visit, shop, task, scripts):
    page = visit(java_script_enabled=scripts)
    way = shop.demonstrate(task)
    for number, command in enumerate(way, 1):
        assert page.locator(".goal p").inner_text() == shop.goal(task).instruction
        if command == "click[buy now]":
            assert page.locator("[aria-pressed=true]").count() == len(shop.goal(task).values)
        play(page, command)
        assert steps(page) == number
    assert page.get_by_role("heading", level=1).inner_text() == "Exactly what was asked for"
    assert page.locator("td.no").count() == 0
    assert page.locator(".score b").inner_text() == "1.00"
    page.get_by_text("The expert's way").click()
    assert page.locator("details[open] .way li").all_inner_texts() == way


def test_typing_can_begin_at_once_and_every_page_kind_opens(visit, shop, task, common):
    page = visit()
    page.keyboard.type(common)
    press_enter(page)
    click(page.locator("button.product").first)
    title = page.locator("h1").inner_text()
    for name in ("Description", "Features", "Reviews"):
        click(page.get_by_role("button", name=name))
        assert page.locator("article h2").inner_text() == name
        click(page.get_by_role("button", name="< Prev"))
        assert page.locator("h1").inner_text() == title
    click(page.get_by_role("button", name="Back to Search"))
    assert steps(page) == 9
    click(page.get_by_role("button", name="Another goal"))
    assert steps(page) == 0
    page.get_by_label("Go to a goal").fill(task)
    press_enter(page)
    assert page.locator(".goal p").inner_text() == shop.goal(task).instruction


def test_two_people_do_not_see_each_other(visit, shop, task, common):
    one, two = visit(), visit()
    way = shop.demonstrate(task)
    for command in way[:2]:
        play(one, command)
    search(two, common)
    one.reload()
    assert one.get_by_role("button", name="Buy Now").is_visible()
    assert (steps(one), steps(two)) == (2, 1)
    for command in way[2:]:
        play(one, command)
    two.reload()
    assert two.locator("h1").inner_text().startswith("Results")
    assert steps(two) == 1


def test_the_back_button_does_no_harm(visit, common):
    page = visit()
    search(page, common)
    click(page.locator("button.product").first)
    page.go_back()
    page.reload()
    assert steps(page) == 2
    other = page.context.new_page()  # the same person in a second tab
    other.goto(page.url)
    click(page.get_by_role("button", name="Back to Search"))
    click(other.get_by_role("button", name="Buy Now"))
    assert other.locator(".note").inner_text() == STALE
    assert steps(other) == 3


@pytest.mark.parametrize(
    "words",
    [
        "x" * 10_000,
        EVIL,
        f'"><img src=x onerror=alert(1)>{EVIL}',
        "'; --",
        "💡 лампа \u202e",
        "%00%ff",
    ],
    ids=["long", "script", "attribute", "quotes", "unicode", "percent"],
)
def test_odd_searches_do_no_harm(visit, words, common):
    page = visit()
    search(page, words)
    assert steps(page) == 1
    shown = page.get_by_role("searchbox").input_value()
    assert shown == " ".join(words.split())[:LONGEST_QUERY].lower().replace("\u202e", "").strip()
    search(page, common)
    assert page.locator("button.product").count() == 10


def test_unknown_products_and_commands_do_no_harm(visit, common):
    page = visit()
    search(page, common)
    for number, command in enumerate(("click[b0nosuchxx]", f"click[{EVIL}]", "dance"), 2):
        type_command(page, command)
        assert page.locator(".agent .note").inner_text() == NOTHING
        assert steps(page) == number
        assert page.locator("button.product").count() == 10
    type_command(page, "click[next >]")
    assert "Page 2" in page.locator("h1").inner_text()
    assert page.locator(".note").count() == 0


@pytest.mark.parametrize("width", [360, 420, 1200])
def test_nothing_is_wider_than_the_screen(visit, shop, task, width):
    page = visit(viewport={"width": width, "height": 800})
    for command in shop.demonstrate(task):
        play(page, command)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.goto(re.sub(r"#.*", "", page.url))
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
