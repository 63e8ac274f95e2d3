"""A real browser for tests of pages, and what counts as trouble in it."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Collection
from urllib.parse import urlsplit

import pytest

playwright = pytest.importorskip(
    "playwright.sync_api", reason="needs the package playwright: pip install playwright"
)
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
if not CHROMIUM:
    pytest.skip("needs Chromium on the PATH", allow_module_level=True)


def is_gone(url: str) -> bool:
    """Whether nobody answers there: a page goes on asking a server that its test has closed."""
    place = urlsplit(url)
    if not place.port:
        return False
    try:
        socket.create_connection((str(place.hostname), place.port), timeout=1).close()
    except OSError:
        return True
    return False


def until(page, expression: str, patience: float = 20.0) -> None:
    """Wait for it to hold; the page's own policy forbids `wait_for_function`, which is `eval`."""
    end = time.monotonic() + patience
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(50)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as starter:
        browser = starter.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def new_person(browser):
    """Opens an address as a new person: `new_person(url, allowed, expected, **options)`.

    At the end nothing may have gone wrong in the browser, nor may it have asked for anything that
    does not begin with one of the `allowed` addresses, which may still grow. Lines of the console
    with `expected` in them are no trouble.
    """
    contexts, trouble = [], []

    def open_page(url: str, allowed: Collection[str], expected: str = "", **options):
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()

        def known(text: str) -> bool:
            lost = "Failed to load resource: net::ERR_" in text and is_gone(url)
            return lost or bool(expected and expected in text)

        page.set_default_timeout(20_000)
        page.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss()))
        page.on("console", lambda line: known(line.text) or trouble.append(line.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on(
            "request",
            lambda asked: asked.url.startswith(tuple(allowed)) or trouble.append(asked.url),
        )
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert trouble == [], trouble
