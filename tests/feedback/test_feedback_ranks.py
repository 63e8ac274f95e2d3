"""The feedback page in a browser: what is shown of films follows from the stars that are shown."""

from __future__ import annotations

import pytest
from support.browsing import browser, new_person, playwright  # noqa: F401
from support.feedback_browsing import DESKTOP, PHONE, part, press, sent
from support.feedback_pages import rate, running

from fedrl.feedback import effect
from fedrl.feedback.effect import Effect, Recommendation

pytestmark = pytest.mark.slow

expect = playwright.expect
FEW = "With so few answers small differences mean little."


def films(*told):
    """Of (name, stars, earlier stars): the name, or all else."""
    return tuple(
        Recommendation(f"film {name}", now, sharing=sharing, first=was, other=was)
        for name, now, was, sharing in told
    )


def ten(first=0, **other):
    return films(*((n, 4.5 - n / 10, 4.5 - n / 10, 1) for n in range(first, first + 10)))


def over(folder, round, without, after, fell=(), answers=0):
    given = folder.given()
    found = Effect(
        "films", answers or len(given), without, after, round=round, films=400, fell=fell
    )
    effect.write(folder, found, given)


def changed(visit, folder, server, before, after, fell=(), answers=1, **options):
    """A person's page at "What changed" after a round that learned from an answer."""
    over(folder, 1, before, before)
    page = visit(server, **options)
    press(page, "1")
    sent(page)
    over(folder, 2, before, after, fell, answers)
    page.reload()
    part(page, "What changed")
    return page


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_films_with_the_same_stars_share_a_rank(visit, folder, size):
    folder.ask([rate("a"), rate("b")])
    after = films(
        ("x", 4.2, 3.9, 1), ("y", 4.1, 3.9, 1), *((n, 3.85, 3.85, 31) for n in range(8))
    )  # fmt: skip
    with running(folder) as server:
        page = changed(visit, folder, server, ten(), after, viewport=size)
        now = page.get_by_role("region", name="Now")
        ranks = now.locator("ol").evaluate("list => [...list.children].map((one) => one.value)")
        assert ranks == [1, 2, *[3] * 8]
        expect(now.locator(".shares")).to_have_text(["31 films share this"])
        expect(now.locator("em.new")).to_have_count(2)  # others have the stars of before
        expect(page.locator("#effect-sum")).to_contain_text("2 recommendations are new among")
        expect(page.locator("#effect-note")).to_contain_text(FEW)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_an_arrow_goes_the_way_of_the_stars_beside_it(visit, folder):
    """A film that fell by less than others has risen among them, and is liked less all the same."""
    folder.ask([rate("a"), rate("b")])
    before = films(
        ("p", 4.5, None, 1), ("q", 4.4, None, 1), ("r", 4.3, None, 1), ("s", 4.2, None, 1)
    )
    after = films(("s", 4.6, 4.2, 1), ("r", 4.27, 4.3, 1), ("q", 4.2, 4.4, 1), ("p", 4.1, 4.5, 1))
    with running(folder) as server:
        page = changed(visit, folder, server, before, after, answers=30)
        rows = page.get_by_role("region", name="Now").locator("li")
        expect(rows).to_contain_text(["(+0.40)↑ 3", "(−0.03)", "(−0.20)↓ 1", "(−0.40)↓ 3"])
        expect(rows.nth(1).locator("em")).to_have_count(0)
        expect(page.locator("#effect-sum")).to_contain_text("recommendations have another order")
        expect(page.locator("#effect-note")).not_to_contain_text(FEW)


def test_an_order_that_nobody_sees_is_none(visit, folder):
    folder.ask([rate("a"), rate("b")])
    before = films(("p", 4.5, None, 1), ("q", 4.301, None, 2), ("r", 4.3, None, 2))
    after = films(("p", 4.5, 4.5, 1), ("r", 4.302, 4.3, 2), ("q", 4.301, 4.301, 2))
    with running(folder) as server:
        page = changed(visit, folder, server, before, after)
        expect(page.locator("#effect-sum")).to_contain_text("recommendations are the same")
        expect(page.locator(".side em")).to_have_count(0)


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_what_fell_is_told_with_its_stars_before_and_after(visit, folder, size):
    folder.ask([rate("a"), rate("b")])
    fell = films(("action", 2.9, 3.8, 3), ("war", 3.0, 3.9, 3))
    lost = ten()[0]._replace(other=3.1)
    with running(folder) as server:
        page = changed(
            visit, folder, server, (lost, *ten()[1:]), ten(1), fell, viewport=size
        )  # fmt: skip
        down = page.get_by_role("region", name="Fell most")
        expect(down.locator("li")).to_contain_text(["film action", "film war"])
        expect(down).to_contain_text("3.80 → 2.90")
        expect(down).to_contain_text("1 more fell as far.")
        page.get_by_text("Only the last time it learned").click()
        left = page.get_by_role("region", name="No longer among the first 10")
        expect(left.locator("li")).to_have_count(1)
        expect(left).to_contain_text("film 0")
        expect(left).to_contain_text("4.50 → 3.10")
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_what_all_films_had_before_is_no_guess_that_fell(visit, folder):
    folder.ask([rate("a"), rate("b")])
    alike = films(*((n, 3.75, 3.75, 400) for n in range(10)))
    fell = films(("action", 2.9, 3.75, 1))
    with running(folder) as server:
        page = changed(visit, folder, server, alike, ten(), fell)
        down = page.get_by_role("region", name="Liked least now")
        expect(down).to_contain_text("2.90")
        expect(down).not_to_contain_text("3.75")
