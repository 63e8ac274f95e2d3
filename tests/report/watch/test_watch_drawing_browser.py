"""What the page of `fedrl watch` draws: the map of clients, and curves of awkward numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.browsing import browser, new_person, playwright, until  # noqa: F401
from support.watched_runs import Written, serving

pytestmark = pytest.mark.slow
expect = playwright.expect
expect.set_options(timeout=20_000)
COLOURS = """(cells) => {
  const {wide, high} = map.size, {width, height} = map.canvas;
  const {data} = map.canvas.getContext("2d").getImageData(0, 0, width, height);
  const at = (x, y) => 4 * (Math.floor(y) * width + Math.floor(x));
  const begin = ([column, client]) => at((column + 0.5) * wide, (client + 0.5) * high);
  return cells.map((cell) => [...data.slice(begin(cell), begin(cell) + 4)]);
}"""
PICTURE = "() => document.querySelector('#chart canvas').toDataURL()"


def test_a_client_has_the_name_of_its_folder_and_what_is_learned_from_is_drawn_first(
    tmp_path: Path,
    new_person,  # noqa: F811
):
    run = Written(tmp_path / "runs" / "a", clients=3)
    text = (run.path / "config.toml").read_text().partition("[world]")[0]
    paid = '[world]\nname = "prompts"\nreward = ["./mine.py:correct"]\n'
    (run.path / "config.toml").write_text(text + paid)
    about = {"status": "running", "client_names": ["north", "south", "2"]}
    (run.path / "meta.json").write_text(json.dumps(about))
    for _ in range(2):
        run.round(**{"eval/return": 0.5})
    with serving(tmp_path / "runs") as server:
        page = new_person(server.url, [server.url.partition("#")[0]])
        expect(page.locator("#client-chart canvas")).to_be_visible()
        expect(page.locator("#metric")).to_have_value("eval/return")
        page.locator("#map").focus()
        for name in ("client 0 (north)", "client 1 (south)", "client 2"):
            page.keyboard.press("ArrowDown")
            expect(page.locator("#tip")).to_have_text(f"{name}, round 2: took part")
            shown = "() => byClient.plot.series.filter((one) => one._focus).map((one) => one.label)"
            assert name in page.evaluate(shown)


def test_the_map_answers_to_keys(tmp_path: Path, new_person):  # noqa: F811
    run = Written(tmp_path / "runs" / "a", clients=3)
    for _ in range(4):
        run.round(failed=1)
    with serving(tmp_path / "runs") as server:
        page = new_person(server.url, [server.url.partition("#")[0]])
        tip, chart = page.locator("#tip"), page.locator("#client-chart canvas")
        expect(chart).to_be_visible()
        page.locator("#map").focus()
        expect(tip).to_contain_text("arrow keys")
        for key, told in (
            ("ArrowDown", "client 0, round 4: took part"),
            ("ArrowDown", "client 1, round 4: failed: NaN"),
            ("ArrowRight", "client 1, round 4: failed: NaN"),  # no further than there is
            ("ArrowLeft", "client 1, round 3: failed: NaN"),
            ("Home", "client 1, round 1: failed: NaN"),
            ("End", "client 1, round 4: failed: NaN"),
            ("ArrowDown", "client 2, round 4: took part"),
        ):
            page.keyboard.press(key)
            expect(tip).to_have_text(told)
        shown = "() => byClient.plot.series.filter((one) => one._focus).map((one) => one.label)"
        assert "client 2" in page.evaluate(shown)  # its curve stands out
        run.round()
        expect(page.locator("#cohort")).to_contain_text("round 5")
        expect(tip).to_have_text("client 2, round 4: took part")
        expect(page.locator("#map")).to_be_focused()
        expect(page.locator("#cell")).to_be_visible()
        page.locator("#map").hover(position={"x": 2, "y": 14})
        expect(tip).to_have_text("client 1, round 1: failed: NaN")
        page.locator("#title").hover()
        expect(tip).to_have_text("client 2, round 4: took part")
        page.keyboard.press("Escape")
        expect(page.locator("#cell")).to_be_hidden()
        expect(tip).to_contain_text("arrow keys")


def test_a_cell_of_a_high_map_is_seen_together_with_what_is_told_of_it(
    tmp_path: Path,
    new_person,  # noqa: F811
):
    run = Written(tmp_path / "runs" / "a", clients=300)
    run.round()
    with serving(tmp_path / "runs") as server:
        size = {"viewport": {"width": 1280, "height": 500}}
        page = new_person(server.url, [server.url.partition("#")[0]], **size)
        expect(page.locator("#client-chart canvas")).to_be_visible()
        page.locator("#map").focus()
        page.evaluate("scrollTo(0, 0)")
        for presses, client in ((1, 0), (151, 151)):
            for _ in range(presses):
                page.keyboard.press("ArrowDown")
            expect(page.locator("#tip")).to_have_text(f"client {client}, round 1: took part")
            expect(page.locator("#tip")).to_be_in_viewport()
            expect(page.locator("#cell")).to_be_in_viewport()


@pytest.mark.parametrize("width", [390, 1280])
def test_long_runs_share_columns(tmp_path: Path, new_person, width: int):  # noqa: F811
    """One failure in a thousand rounds is seen, and none are drawn outside of the canvas."""
    run = Written(tmp_path / "runs" / "a", rounds=1000, clients=2)
    for number in range(1000):
        run.round(failed=1 if number == 700 else None)
    with serving(tmp_path / "runs") as server:
        size = {"viewport": {"width": width, "height": 844}}
        page = new_person(server.url, [server.url.partition("#")[0]], **size)
        expect(page.locator("#cohort")).to_contain_text("round 1000")
        each, columns, wide = page.evaluate("[map.each, map.columns, map.size.wide]")
        assert wide >= 2
        assert columns * each >= 1000 > (columns - 1) * each
        assert page.evaluate("map.canvas.clientWidth <= map.canvas.parentElement.clientWidth - 12")
        cells = [[700 // each, 1], [700 // each, 0], [columns - 1, 0]]
        bad, good, newest = page.evaluate(COLOURS, cells)
        assert bad != good
        assert newest == good
        first = 700 // each * each + 1
        at = {"x": (700 // each + 0.5) * wide, "y": 12 + 3}
        page.locator("#map").hover(position=at)
        expect(page.locator("#tip")).to_have_text(
            f"client 1, rounds {first} to {first + each - 1}: "
            f"took part in {each}, 1 failed: NaN"
        )  # fmt: skip
        page.set_viewport_size({"width": 700, "height": 844})
        until(page, f"map.columns !== {columns}")  # drawn anew though nothing is new
        assert page.evaluate("document.documentElement.scrollWidth") <= 700


def test_what_is_not_finite_is_told_and_one_value_is_a_point(tmp_path: Path, new_person):  # noqa: F811
    run = Written(tmp_path / "runs" / "a")
    for value in (2.0, float("nan"), float("inf")):
        run.round(**{"a/loss": value, "a/nothing": float("nan")})
    with serving(tmp_path / "runs") as server:
        page = new_person(server.url, [server.url.partition("#")[0]])
        page.locator("#metric").select_option("a/loss")
        tile = page.locator("#tiles div", has_text="a/loss").locator("dd")
        expect(tile).to_have_text("inf")
        expect(page.locator("#chart canvas")).to_be_visible()
        draws = "() => curves.plot.series[1].points.show(curves.plot, 1)"
        assert page.evaluate(draws)  # a line needs two
        run.round(**{"a/loss": 1.0})
        expect(tile).to_have_text("1")
        assert not page.evaluate(draws)
        assert page.evaluate("curves.plot.data[1].filter(said)") == [2, 1]
        page.locator("#smooth").fill("0.5")
        assert page.evaluate("curves.plot.data[1].filter(said)") == [2, 1.5]
        page.locator("#metric").select_option("a/nothing")
        expect(page.locator("#tiles div", has_text="a/nothing").locator("dd")).to_have_text("nan")
        page.get_by_label("logarithmic").check()
        expect(page.locator("#not-positive")).to_be_hidden()
        page.locator("#metric").select_option("eval/success")
        run.round(**{"eval/success": -1})
        expect(page.locator("#not-positive")).to_be_visible()


def test_a_zoomed_picture_is_drawn_when_its_numbers_change(tmp_path: Path, new_person):  # noqa: F811
    run = Written(tmp_path / "runs" / "a")
    for value in (0.0, 1.0, 0.0, 1.0, 0.0, 1.0):
        run.round(**{"eval/success": value})
    with serving(tmp_path / "runs") as server:
        page = new_person(server.url, [server.url.partition("#")[0]])
        expect(page.locator("#chart canvas")).to_be_visible()
        box = page.locator("#chart .u-over").bounding_box()
        page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 60, steps=5)
        page.mouse.up()
        page.locator("#find").hover()
        span = "() => [curves.plot.scales.x.min, curves.plot.scales.x.max]"
        until(page, "curves.plot.scales.x.min > 1")
        before, seen = page.evaluate(span), page.evaluate(PICTURE)
        # As the slider does, without a pointer over the chart, which would draw it.
        page.locator("#smooth").fill("0.9")
        until(page, f"({PICTURE})() !== {seen!r}", patience=5)
        assert page.evaluate(span) == before


def test_a_name_in_the_legend_answers_to_keys(tmp_path: Path, new_person):  # noqa: F811
    Written(tmp_path / "runs" / "a").round()
    with serving(tmp_path / "runs") as server:
        page = new_person(server.url, [server.url.partition("#")[0]])
        name = page.get_by_role("button", name="fedagent, seed 0").and_(page.locator("th"))
        for key, shown in (("Enter", False), ("Space", True)):
            name.press(key)
            assert page.evaluate("curves.plot.series[1].show") == shown


def test_seconds_carry_over_to_minutes(tmp_path: Path, new_person):  # noqa: F811
    Written(tmp_path / "runs" / "a")
    with serving(tmp_path / "runs") as server:
        page = new_person(server.url, [server.url.partition("#")[0]])
        told = page.evaluate("[59.4, 59.7, 119.8, 3599.9, null].map(time)")
        assert told == ["59 s", "1 min 00 s", "2 min 00 s", "1 h 00 min", "–"]
