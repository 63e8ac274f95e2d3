"""The site in a real browser: both widths, both colour schemes, nothing asked for elsewhere."""

from __future__ import annotations

import functools
import http.server
import threading

import pytest
from support.browsing import browser as browser
from support.browsing import new_person as new_person
from support.built_site import site as site

pytestmark = pytest.mark.slow

SEEN = (
    "",
    "start/student/",
    "start/person/",
    "three_companies/",
    "results/",
    "concepts/heterogeneity/",
    "methods/fedagent/",
    "notebooks/first_comparison/",
    "reference/methods/",
    "results/fedqhd/",
    "comparison/",
)
SCREENS = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words) -> None:
        pass


@pytest.fixture(scope="module")
def address(site):
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_pages_fit_and_ask_nobody_else(address, new_person, screen, scheme):
    size = SCREENS[screen]
    page = new_person(address, [address, "data:"], viewport=size, color_scheme=scheme)
    for name in SEEN:
        page.goto(address + name)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= size["width"], f"{name} is {wide} wide"
        broken = "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
        assert page.evaluate(broken) == [], name
        wanted = {"light": "default", "dark": "slate"}[scheme]
        assert page.locator("body").get_attribute("data-md-color-scheme") == wanted


def test_the_search_finds_a_method(address, new_person):
    page = new_person(address, [address, "data:", "blob:"], viewport=SCREENS["desktop"])
    page.locator(".md-search__input").fill("control variates")
    found = page.locator(".md-search-result__link[href*='methods/scaffold']").first
    found.wait_for(state="attached")
