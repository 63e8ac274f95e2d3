"""What a person has chosen in the page of `fedrl watch`: news, reloads and deletions leave it."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import pytest
from support.browsing import browser, new_person, playwright, until  # noqa: F401
from support.watched_runs import Written, serving

pytestmark = pytest.mark.slow
expect = playwright.expect
expect.set_options(timeout=20_000)
SLOW = """() => {
  const real = window.fetch, open = new Map();
  window.most = 0;
  window.fetch = async (path, options) => {
    if (!String(path).startsWith("run?")) return real(path, options);
    const run = new URLSearchParams(path.slice(4)).get("run");
    open.set(run, (open.get(run) || 0) + 1);
    window.most = Math.max(window.most, open.get(run));
    const answer = await real(path, options);
    await new Promise((done) => setTimeout(done, 700));
    open.set(run, open.get(run) - 1);
    return answer;
  };
}"""
OUTDATED = """() => {
  const real = window.fetch;
  window.fetch = async (path, options) => {
    if (!String(path).startsWith("run?")) return real(path, options);
    const {edition} = kept.get(focus);
    const body = {edition, since: 1, rounds: [1], metrics: {}, lines: 5, clients: [[1, 0, ""]]};
    return new Response(JSON.stringify(body));
  };
}"""


def open_page(new_person, server, **options):  # noqa: F811
    page = new_person(server.url, [server.url.partition("#")[0]], **options)
    expect(page.locator("#runs li")).not_to_have_count(0)
    return page


def test_rounds_are_counted_once_though_answers_overlap(tmp_path: Path, new_person):  # noqa: F811
    runs = [Written(tmp_path / "runs" / name, seed=seed) for seed, name in enumerate("ab")]
    for run in runs:
        run.round()
    with serving(tmp_path / "runs") as server:
        page = open_page(new_person, server)
        expect(page.locator("#chart .u-legend")).to_contain_text("seed 1")
        page.evaluate(SLOW)
        for _ in range(6):
            for run in runs:
                run.round()
            page.locator("#runs li", has_text="seed 0").locator("small").click()
            page.locator("#runs li", has_text="seed 1").locator("small").click()
            page.wait_for_timeout(300)
        read = "() => [...kept.values()].map((mine) => [mine.rounds, mine.clients.length])"
        until(page, "[...kept.values()].every((mine) => mine.rounds.at(-1) === 7)")
        assert page.evaluate(read) == [[list(range(8)), 35]] * 2
        assert page.evaluate("most") == 1  # request about a run at a time


def test_news_that_do_not_go_on_where_the_page_is_are_dropped(tmp_path: Path, new_person):  # noqa: F811
    run = Written(tmp_path / "runs" / "a")
    for _ in range(3):
        run.round()
    with serving(tmp_path / "runs") as server:
        page = open_page(new_person, server)
        expect(page.locator("#tiles")).to_contain_text("3 of 8")
        page.evaluate(OUTDATED)
        page.wait_for_timeout(2500)
        read = "() => [kept.get(focus).rounds, kept.get(focus).clients.length]"
        assert page.evaluate(read) == [[0, 1, 2, 3], 15]


def test_rows_keep_focus_and_clicks_while_news_come(tmp_path: Path, new_person):  # noqa: F811
    for seed in (0, 1):
        run = Written(tmp_path / "runs" / f"pg-s{seed}", seed=seed)
        run.round()
    with serving(tmp_path / "runs") as server:
        page = open_page(new_person, server)
        page.locator("#find").focus()
        page.keyboard.press("Tab")
        expect(page.get_by_label("show demo, fedagent, seed 1")).to_be_focused()
        page.keyboard.press("Space")
        run.round()
        Written(tmp_path / "runs" / "pg-s2", seed=2)  # the newest is the first
        expect(page.locator("#runs li").first).to_contain_text("seed 2")
        expect(page.locator("#runs li")).to_have_count(3)
        expect(page.get_by_label("show demo, fedagent, seed 1")).to_be_focused()
        expect(page.get_by_label("show demo, fedagent, seed 1")).not_to_be_checked()
        for _ in range(3):
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator("#title")).to_contain_text("seed 0")
        expect(page.locator("#runs button[aria-current=true]")).to_contain_text("seed 0")
        expect(page.locator("#runs button[aria-current=true]")).to_be_focused()
        page.locator("#runs li", has_text="seed 2").locator("small").hover()
        page.mouse.down()
        page.wait_for_timeout(2500)
        page.mouse.up()
        expect(page.locator("#title")).to_contain_text("seed 2")
        page.evaluate("document.activeElement.blur()")
        page.locator("#skip").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#metric")).to_be_focused()


def test_a_page_that_is_loaded_again_shows_what_it_did(tmp_path: Path, new_person):  # noqa: F811
    for seed in (0, 1):
        run = Written(tmp_path / "runs" / f"pg-s{seed}", seed=seed)
        run.round(failed=2, **{"eval/return": 1.5})
        run.add("clients.jsonl", {"round": 1, "client": 0, "status": "ok", "env/steps": 9})
        run.round(**{"eval/return": 2.5})
    with serving(tmp_path / "runs") as server:
        page = open_page(new_person, server)
        page.locator("#runs li", has_text="seed 0").locator("small").click()
        page.locator("#metric").select_option("eval/return")
        page.locator("#smooth").fill("0.5")
        page.get_by_label("logarithmic").check()
        page.locator("#client-metric").select_option("env/steps")
        page.locator("#map").click(position={"x": 2, "y": 2 * 12 + 2})
        expect(page.locator("#tip")).to_have_text("client 2, round 1: failed: NaN")
        page.reload()
        expect(page.locator("#title")).to_contain_text("seed 0")
        expect(page.locator("#metric")).to_have_value("eval/return")
        expect(page.locator("#smooth")).to_have_value("0.5")
        expect(page.get_by_label("logarithmic")).to_be_checked()
        expect(page.locator("#client-metric")).to_have_value("env/steps")
        expect(page.locator("#tip")).to_have_text("client 2, round 1: failed: NaN")
        assert page.evaluate("curves.plot.data[1].filter(said)") == [1.5, 2]
        # Another run has no such cell, and the first one still has it.
        page.locator("#runs li", has_text="seed 1").locator("small").click()
        expect(page.locator("#tip")).to_contain_text("A row is a client")
        page.locator("#runs li", has_text="seed 0").locator("small").click()
        expect(page.locator("#tip")).to_contain_text("client 2")


def test_where_nothing_is_chosen_no_curve_is_left(tmp_path: Path, new_person):  # noqa: F811
    Written(tmp_path / "runs" / "a").round()
    with serving(tmp_path / "runs") as server:
        page = open_page(new_person, server)
        box = page.get_by_label("show demo, fedagent, seed 0")
        expect(page.locator("#chart canvas")).to_be_visible()
        box.uncheck()
        for _ in range(2):
            expect(page.locator("#chart canvas")).to_have_count(0)
            expect(page.locator("#csv")).to_be_disabled()
            expect(page.locator("#title")).to_contain_text("seed 0")
            expect(page.locator("#cohort")).to_contain_text("5 clients")
            page.reload()
            expect(page.locator("#runs li")).to_have_count(1)
            page.wait_for_timeout(1500)
            expect(box).not_to_be_checked()
        box.check()
        expect(page.locator("#chart canvas")).to_be_visible()


def test_a_run_that_is_deleted_leaves_and_another_in_its_folder_is_another(
    tmp_path: Path,
    new_person,  # noqa: F811
):
    for seed in (0, 1):
        run = Written(tmp_path / "runs" / f"pg-s{seed}", seed=seed)
        run.round()
        run.episodes(True)
    with serving(tmp_path / "runs") as server:
        page = open_page(new_person, server)
        page.locator("#runs li", has_text="seed 1").locator("small").click()
        expect(page.locator("#title")).to_contain_text("seed 1")
        shutil.rmtree(tmp_path / "runs" / "pg-s1")
        expect(page.locator("#runs li")).to_have_count(1)
        expect(page.locator("#title")).to_contain_text("seed 0")
        expect(page.locator("#chart .u-legend")).not_to_contain_text("seed 1")
        shutil.rmtree(tmp_path / "runs" / "pg-s0")
        expect(page.locator("#link")).to_contain_text("no runs yet")
        expect(page.locator("#title")).to_have_text("No run chosen")
        for place in ("#chart canvas", "#tiles div"):
            expect(page.locator(place)).to_have_count(0)
        for place in ("#clients", "#episodes"):
            expect(page.locator(place)).to_be_hidden()
        again = Written(tmp_path / "runs" / "pg-s1", seed=1, rounds=9)
        expect(page.locator("#tiles")).to_contain_text("0 of 9")
        again.round()
        expect(page.locator("#tiles")).to_contain_text("1 of 9")
        assert page.evaluate("kept.get(focus).rounds") == [0, 1]


def test_names_full_of_html_are_text_in_rows_legends_and_csv(tmp_path: Path, new_person):  # noqa: F811
    bad = '<img src=x onerror=alert(1)><b>"q"'
    for place in ("one", "two"):
        run = Written(tmp_path / "runs" / place / bad, settings=f"lr = '{bad} {place}'\n")
        config = run.path / "config.toml"
        config.write_text(config.read_text().replace('"demo"', f"'{bad}'"))
        run.round(failed=1)
    with serving(tmp_path / "runs") as server:
        page = open_page(new_person, server, viewport={"width": 390, "height": 844})
        legend = page.locator("#chart .u-legend")
        expect(legend).to_contain_text("<img src=x onerror=alert(1)>")
        expect(page.locator("#runs li").first.locator("small")).to_contain_text(bad)
        expect(page.locator("#title")).to_contain_text(bad)
        expect(page.locator("img, #body b")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        with page.expect_download() as started:
            page.get_by_role("button", name="CSV").click()
        rows = list(csv.DictReader(io.StringIO(Path(started.value.path()).read_text())))
        # One name of two folders: their paths.
        assert {row["run"] for row in rows} == {
            str(tmp_path / "runs" / place / bad) for place in ("one", "two")
        }
        assert len(rows) == 4
