"""Photograph fedrl's own pages for the documentation: `make pictures`.

Trains six small runs, asks a person three questions, and takes what a browser shows of `fedrl
watch`, `fedrl report` and `fedrl feedback`. Needs the package playwright, and Chromium on the PATH.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

import fedrl
from fedrl.feedback.page import open_page
from fedrl.feedback.queries import Query
from fedrl.feedback.store import Folder, client_folder

HERE = Path(__file__).parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WIDTH = 1100
FILMS = ("The Green Mile (1999), Crime, Drama", "Heat (1995), Action, Crime", "Toy Story (1995)")


def main() -> None:
    with tempfile.TemporaryDirectory() as place, sync_playwright() as starter:
        browser = starter.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        folder = Path(place)
        runs = trained(folder / "runs")
        page = runs.report(folder / "report.html")
        shot(browser, "report", page.as_uri(), 830, settled)
        server = fedrl.watch([folder / "runs"])
        with server:
            serving(server)
            shot(browser, "watch", server.url, 700, choose_all)
        private = Folder(client_folder(folder / "private", 3))
        private.ask(
            [Query(f"q{n}", "rate", (f"k{n}",), (film,), (3.7,)) for n, film in enumerate(FILMS)]
        )
        with open_page(private, 3) as server:
            serving(server)
            shot(browser, "feedback", server.url, 640, answer_one)
            server.shutdown()
        browser.close()


def trained(place: Path) -> fedrl.Runs:
    for seed in range(3):
        for beta, name in ((0.5, "fedsvrpg-m"), (1.0, "pavg")):
            algorithm = {"name": name, "beta": beta}
            fedrl.run("momentum/cartpole", rounds=40, eval_every=2, seed=seed, algorithm=algorithm,
                      out=str(place))  # fmt: skip
    return fedrl.load(f"{place}/*/*")


def serving(server) -> None:
    threading.Thread(target=server.serve_forever, daemon=True).start()


def shot(browser: Browser, name: str, url: str, height: int, ready: Callable[[Page], None]) -> None:
    page = browser.new_page(viewport={"width": WIDTH, "height": height})
    page.goto(url)
    ready(page)
    page.screenshot(path=HERE / f"screen_{name}.png")
    print(f"screen_{name}.png")
    page.close()


def settled(page: Page) -> None:
    page.wait_for_load_state("networkidle")


def choose_all(page: Page) -> None:
    boxes = page.locator("input[type=checkbox]:visible")
    boxes.first.wait_for()
    for box in boxes.all()[:6]:
        box.check()
    page.wait_for_timeout(2000)  # curves of all of them are read and drawn


def answer_one(page: Page) -> None:
    page.wait_for_selector("body.seen")
    page.keyboard.press("1")
    page.wait_for_timeout(1000)


if __name__ == "__main__":
    main()
