"""A person at the feedback page, in a real browser."""

from __future__ import annotations

from support.browsing import playwright

expect = playwright.expect
PHONE, DESKTOP = {"width": 360, "height": 740}, {"width": 1100, "height": 800}

UNSENT = """Object.keys(localStorage).filter(
  (name) => !/^fedrl-(told|keys)/.test(name)).length"""


def visits(new_person):
    """What opens a server's page; it may talk to servers that were visited and to nobody else."""
    allowed = set()

    def open_(server, link="", **options):
        allowed.add(f"{server.site}{server.root}")
        allowed.add(f"blob:{server.site}/")  # what a person downloads
        return new_person(link or server.url, allowed, "ERR_CON", **options)

    return open_


def sent(page):
    """Wait until nothing is left to send (the page's own rules forbid playwright's way to wait)."""
    for _ in range(1000):
        if page.evaluate(UNSENT) == 0:
            return
        page.wait_for_timeout(20)
    raise AssertionError("the page did not get rid of its answers")


def press(page, keys):
    """Each key once what is on the screen has been there long enough to be seen."""
    for key in keys:
        expect(page.locator("body.seen")).to_be_attached()
        page.keyboard.press(key)


def click(page, name):
    expect(page.locator("body.seen")).to_be_attached()
    page.get_by_role("button", name=name).click()


def part(page, name):
    """Turn to one of the page's three parts."""
    page.get_by_role("button", name=name, exact=True).click()


def count(page, text):
    expect(page.locator("#count")).to_have_text(text)


def look_again(page):
    """The page asks the server at once, as when a person comes back to it."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
