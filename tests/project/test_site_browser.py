"""The site in a real browser: every page, both widths, both colours, nothing asked elsewhere."""

from __future__ import annotations

import functools
import http.server
import threading

import pytest
from support.browsing import browser as browser
from support.browsing import new_person as new_person
from support.built_site import site as site

pytestmark = pytest.mark.slow
SCREENS = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
LOOKED_AT = """() => {
  const wrong = [], wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) wrong.push(`the page is ${wide} wide`);
  for (const image of document.images) {
    if (image.complete && !image.naturalWidth) wrong.push(`${image.src} is broken`);
    if (!image.alt) wrong.push(`${image.src} has no words for who cannot see it`);
  }
  const scrolls = (element) => {
    for (let at = element; at && at.tagName !== "ARTICLE"; at = at.parentElement)
      if (/auto|scroll/.test(getComputedStyle(at).overflowX)) return true;
    return false;
  };
  const article = document.querySelector("article");
  // Beside the text there is another column; on a phone code goes to the edge of the screen.
  const right = innerWidth < 700 ? innerWidth : article.getBoundingClientRect().right + 1;
  for (const part of article.querySelectorAll("td, th, img, pre")) {
    const box = part.getBoundingClientRect();
    if (box.width && box.right > right && !scrolls(part))
      wrong.push(`cut off at the right: ${part.textContent.slice(0, 60) || part.src}`);
    // A table that scrolls is no excuse: these words lie over those of the next column.
    const own = [...part.children].some((at) => /auto|scroll/.test(getComputedStyle(at).overflowX));
    if (/^T[DH]$/.test(part.tagName) && part.scrollWidth > part.clientWidth + 1
        && box.width && !own)
      wrong.push(`wider than its cell: ${part.textContent.slice(0, 60)}`);
    if (innerWidth < 700 && /[.]png$/.test(part.src) && part.naturalWidth > 2 * part.naturalHeight
        && box.width && box.width < 0.45 * part.naturalWidth)
      wrong.push(`too small to read: ${part.src}`);
  }
  // Cut off, a formula is another one; its lines are short enough for a phone instead.
  for (const code of article.querySelectorAll("pre > code")) {
    const text = code.textContent.slice(0, 60);
    if (code.closest(".formula")) {
      if (code.scrollWidth > code.clientWidth) wrong.push(`a formula is cut off: ${text}`);
      if (code.parentElement.querySelector("button")) wrong.push(`a button lies over: ${text}`);
    } else if (!code.closest(".doc") && !code.querySelector("span")
        && /[Σ∇√ᵀ‖]|θ ←/.test(code.textContent))
      wrong.push(`a formula that is not marked as one: ${text}`);
  }
  return wrong;
}"""
"""What a page shows that a reader cannot read or reach, in words."""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/favicon.ico":  # a browser asks for it where a picture is all of the page
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()


@pytest.fixture(scope="module")
def address(site):
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.parametrize("screen", SCREENS)
def test_every_page_fits_in_both_colours_and_asks_nobody_else(site, address, new_person, screen):
    """As the switch does it: colours change, what was loaded does not."""
    page = new_person(address, [address, "data:"], viewport=SCREENS[screen])
    page.on("response", lambda got: failed.append(got.url) if got.status >= 400 else None)
    failed, wrong = [], {}
    for name in pages(site):
        page.goto(address + name, wait_until="load")
        for scheme, called in (("light", "default"), ("dark", "slate")):
            page.evaluate(f"document.body.dataset.mdColorScheme = '{called}'")
            if found := page.evaluate(LOOKED_AT):
                wrong[f"{name} {scheme}"] = found
    assert failed == []
    assert wrong == {}


@pytest.mark.parametrize(("scheme", "called"), [("light", "default"), ("dark", "slate")])
def test_the_site_has_the_colours_that_a_reader_prefers(address, new_person, scheme, called):
    page = new_person(address, [address, "data:"], color_scheme=scheme)
    assert page.locator("body").get_attribute("data-md-color-scheme") == called


def test_words_in_pictures_are_inside_of_them(site, address, new_person):
    """An SVG in a page is cut at its edges: a label that passes them cannot be read."""
    page = new_person(address, [address, "data:"], viewport=SCREENS["desktop"])
    outside = """() => [...document.querySelectorAll("text")].filter((word) => {
      const box = word.getBoundingClientRect(), all = document.documentElement.viewBox.baseVal;
      const whole = document.documentElement.getBoundingClientRect();
      const scale = whole.width / all.width;
      return box.right > whole.left + all.width * scale + 1 || box.left < whole.left - 1
          || box.bottom > whole.top + all.height * scale + 1 || box.top < whole.top - 1;
    }).map((word) => word.textContent)"""
    wrong = {}
    for path in [*site.glob("pictures/*.svg"), *site.glob("results/**/*.svg")]:
        name = path.relative_to(site).as_posix()
        page.goto(address + name)
        if found := page.evaluate(outside):
            wrong[name] = found
    assert wrong == {}


def pages(site) -> list[str]:
    """Addresses of all pages but those that show a file of the repository."""
    found = (path.parent.relative_to(site).as_posix() for path in site.rglob("index.html"))
    return sorted(f"{name}/".removeprefix("./") for name in found if not name.startswith("source"))


def test_the_search_finds_a_method(address, new_person):
    page = new_person(address, [address, "data:", "blob:"], viewport=SCREENS["desktop"])
    page.locator(".md-search__input").fill("control variates")
    found = page.locator(".md-search-result__link[href*='methods/scaffold']").first
    found.wait_for(state="attached")
