"""Episodes in the page of `fedrl watch`, in a real browser, while they are played."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from support.browsing import browser, new_person, playwright  # noqa: F401
from support.watched_runs import Written, an_episode, serving

from fedrl.report.watch import server as server_module

pytestmark = pytest.mark.slow
expect = playwright.expect
expect.set_options(timeout=20_000)
BAD = "<script>alert('foreign')</script><img src=x onerror=\"alert('foreign')\">"


def test_an_episode_appears_while_the_file_grows(tmp_path: Path, new_person):  # noqa: F811
    run = Written(tmp_path / "runs" / "a", rounds=6)
    with serving(tmp_path / "runs") as server:
        home = server.url.partition("#")[0]
        page = new_person(server.url, [home], expected="ERR_CONNECTION_RE")
        expect(page.locator("#tiles")).to_contain_text("0 of 6")
        expect(page.locator("#episodes")).to_be_hidden()  # a run that has none
        run.episodes(False, False)
        shown = page.locator("#played .episode")
        expect(shown).to_have_count(2)
        expect(shown.first).to_contain_text("lost Find the mug of task-0")
        run.round()
        run.episodes(True, False)
        expect(page.locator("#episode-round")).to_have_value("1")
        expect(shown.first).to_contain_text("won")
        shown.first.locator("summary").first.click()
        expect(shown.first).to_contain_text("You see what is there in round 1.")
        # A page is not turned while somebody reads it.
        run.round()
        run.episodes(True, True)
        expect(page.locator("#newest")).to_have_text("newest: round 2")
        expect(page.locator("#episode-round")).to_have_value("1")
        expect(shown.first.locator(".outcome")).to_be_visible()
        # The same task in other rounds, which stays open.
        page.get_by_label("the round before").click()
        expect(shown.first.locator(".turns")).to_contain_text("in round 0.")
        expect(shown.first.locator(".outcome")).to_be_visible()
        expect(page.get_by_label("the round before")).to_be_disabled()
        page.locator("#newest").click()
        expect(shown.first.locator(".turns")).to_contain_text("in round 2.")
        expect(page.locator("#newest")).to_be_hidden()
        expect(page.get_by_label("the round after")).to_be_disabled()
        page.locator("#episode-round").select_option("1")
        expect(shown.first.locator(".turns")).to_contain_text("in round 1.")
    # The server comes back, and the run was cut back to its first round.
    expect(page.locator("#link")).to_contain_text("start fedrl watch again")
    log = run.path / "episodes.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:2]))
    with serving(tmp_path / "runs"):
        expect(page.locator("#episode-round option")).to_have_count(1)
        expect(page.locator("#played")).to_contain_text("in round 0.")
        # Another run, which has none.
        Written(tmp_path / "runs" / "b", seed=1)
        page.get_by_label("show demo, fedagent, seed 1").check()
        expect(page.locator("#title")).to_contain_text("seed 1")
        expect(page.locator("#episodes")).to_be_hidden()


def test_a_page_that_nobody_sees_holds_no_connection(
    tmp_path: Path,
    new_person,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
):
    """A browser has six for all pages of a server together: a seventh page would wait for ever."""
    monkeypatch.setattr(server_module, "HEARTBEAT", 0.01)
    begun, ended, tell = [], threading.Semaphore(0), server_module.WatchServer._tell

    def noted(self, *words):
        begun.append(words)
        try:
            tell(self, *words)
        finally:
            ended.release()

    monkeypatch.setattr(server_module.WatchServer, "_tell", noted)
    seen = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
    seen += "document.dispatchEvent(new Event('visibilitychange'))"
    run = Written(tmp_path / "runs" / "a")
    run.episodes(True)
    with serving(tmp_path / "runs") as server:
        home = server.url.partition("#")[0]
        page = new_person(server.url, [home])
        expect(page.locator("#played .episode")).to_have_count(1)
        page.evaluate(seen % "true")
        assert ended.acquire(timeout=20)
        run.round()
        run.episodes(True)
        page.evaluate(seen % "false")
        expect(page.locator("#episode-round")).to_have_value("1")
        assert len(begun) == 2
        page.close()
        assert ended.acquire(timeout=20)


@pytest.mark.parametrize("width", [390, 1280])
def test_foreign_text_is_text_and_fits(tmp_path: Path, new_person, width: int):  # noqa: F811
    run = Written(tmp_path / "runs" / "a")
    step = {"said": f"<think>{BAD}</think>", "command": f"{BAD} " + "x" * 400, "valid": True,
            "saw": BAD + "y" * 3000}  # fmt: skip
    one = an_episode(0, BAD, False, goal=BAD, kind=BAD, begin=BAD + "z" * 300)
    run.add("episodes.jsonl", one | {"steps": [step, step | {"command": "", "valid": False}]})
    with serving(tmp_path / "runs") as server:
        home = server.url.partition("#")[0]
        size = {"width": width, "height": 800}
        # A dialog would be trouble; that the server ends before the page is not.
        page = new_person(server.url, [home], expected="ERR_CONNECTION_RE", viewport=size)
        shown = page.locator("#played .episode")
        shown.locator("summary").first.click()
        expect(shown).to_contain_text("<script>alert('foreign')</script>")
        for folded in page.locator("#played .long").all():
            folded.locator("summary").click()
        expect(page.locator("#played script")).to_have_count(0)
        expect(page.locator("#played img")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_long_run_makes_no_heavy_page(tmp_path: Path, new_person):  # noqa: F811
    """Of 500 rounds only those that are looked at are sent."""
    run = Written(tmp_path / "runs" / "a", rounds=500)
    for run.at in range(500):
        run.episodes(True, False, True, False, begin="x" * 20_000)
    assert (run.path / "episodes.jsonl").stat().st_size > 40_000_000
    with serving(tmp_path / "runs") as server:
        home = server.url.partition("#")[0]
        page = new_person(server.url, [home], expected="ERR_CONNECTION_RE")
        expect(page.locator("#episode-round option")).to_have_count(500)
        expect(page.locator("#episode-round")).to_have_value("499")
        page.locator("#episode-round").select_option("7")
        expect(page.locator("#played")).to_contain_text("in round 7.")
        expect(page.locator("#played .episode")).to_have_count(4)
        assert page.evaluate("document.querySelectorAll('#played *').length") < 200
        page.context.new_cdp_session(page).send("HeapProfiler.collectGarbage")
        assert page.evaluate("performance.memory.usedJSHeapSize") < 30e6
