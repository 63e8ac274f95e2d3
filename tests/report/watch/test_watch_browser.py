"""The page of `fedrl watch` in a real browser, on a run that is being written."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.browsing import browser, new_person, playwright  # noqa: F401
from support.watched_runs import Written, serving

pytestmark = pytest.mark.slow
expect = playwright.expect
expect.set_options(timeout=20_000)


def test_a_run_is_followed_to_its_end_through_a_restart(tmp_path: Path, new_person):  # noqa: F811
    run = Written(tmp_path / "runs" / "a", rounds=6)
    run.round(failed=2)
    with serving(tmp_path / "runs") as server:
        url = server.url
        home = url.partition("#")[0]
        # Refused while no server is there; reset where it stops in the middle of an answer.
        page = new_person(url, [home], expected="ERR_CONNECTION_RE")
        expect(page.locator("#title")).to_contain_text("fedagent, seed 0 · household")
        expect(page.locator("#tiles")).to_contain_text("1 of 6")
        expect(page.locator("#metric")).to_have_value("eval/success")
        expect(page.locator("#chart canvas")).to_be_visible()
        expect(page.locator("#failures")).to_contain_text("1 × NaN")
        run.round()
        expect(page.locator("#tiles")).to_contain_text("2 of 6")
    expect(page.locator("#link")).to_contain_text("start fedrl watch again")
    for _ in range(4):
        run.round()
    run.status("finished")
    with serving(tmp_path / "runs"):
        expect(page.locator("#tiles")).to_contain_text("6 of 6")
        expect(page.locator("#tiles")).to_contain_text("finished")
        Written(tmp_path / "runs" / "b", seed=1)
        expect(page.locator("#runs li")).to_have_count(2)
        page.get_by_label("show demo, fedagent, seed 1").check()
        expect(page.locator("#chart .u-legend")).to_contain_text("seed 1")
        expect(page.locator("#chart .u-legend")).not_to_contain_text("demo")  # what all are called
        page.get_by_label("Find").fill("seed nothing")
        expect(page.locator("#runs li")).to_have_count(0)
        page.reload()
        expect(page.locator("#runs input:checked")).to_have_count(2)


def test_a_run_with_something_to_see_comes_first(tmp_path: Path, new_person):  # noqa: F811
    Written(tmp_path / "runs" / "a", rounds=6).round()
    empty = Written(tmp_path / "runs" / "pg-s1-f00d", seed=1)
    empty.status("stopped")
    (tmp_path / "runs" / "pg-s1-f00d" / "log.txt").write_text("10:00 stopped: OSError no room\n")
    with serving(tmp_path / "runs") as server:
        page = new_person(server.url, [server.url.partition("#")[0]])
        expect(page.locator("#title")).to_contain_text("seed 0")
        expect(page.locator("#runs")).to_contain_text("f00d")
        page.locator("#runs li", has_text="f00d").locator("small").click()
        expect(page.locator("#tiles")).to_contain_text("OSError no room")
