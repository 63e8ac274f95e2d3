"""The page of `fedrl watch` in a real browser, on a run that is being written."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from support.browsing import browser, new_person, playwright  # noqa: F401
from support.watched_runs import Written, serving

pytestmark = pytest.mark.slow
expect = playwright.expect
expect.set_options(timeout=20_000)
PAVG = """() => {
  const mark = document.createElement("i");
  mark.style.background = style(3).stroke;
  return mark.style.background;
}"""


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


def test_before_the_first_run_the_page_says_that_it_waits(tmp_path: Path, new_person):  # noqa: F811
    (tmp_path / "runs").mkdir()
    with serving(tmp_path / "runs") as server:
        page = new_person(server.url, [server.url.partition("#")[0]])
        expect(page.locator("#link")).to_have_text("no runs yet: they appear here when they begin")
        Written(tmp_path / "runs" / "a").round()
        expect(page.locator("#link")).to_have_text("1 run, 1 running")
        expect(page.locator("#tiles")).to_contain_text("1 of 8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_is_wider_than_the_screen(tmp_path: Path, new_person, scheme):  # noqa: F811
    for seed in (0, 1):
        run = Written(tmp_path / "runs" / f"pg-s{seed}", seed=seed, rounds=6)
        run.round(failed=2)
        run.round()
    with serving(tmp_path / "runs") as server:
        sight = {"viewport": {"width": 390, "height": 844}, "color_scheme": scheme}
        page = new_person(server.url, [server.url.partition("#")[0]], **sight)
        expect(page.locator("#chart canvas")).to_be_visible()
        expect(page.locator("#client-chart canvas")).to_be_visible()
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
        ground = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        light = sum(map(int, re.findall(r"\d+", ground)[:3])) / 3
        assert (light > 128) == (scheme == "light")


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


def test_runs_of_the_same_method_and_seed_have_legends_of_their_own(tmp_path: Path, new_person):  # noqa: F811
    for lr in (0.1, 0.2):
        Written(tmp_path / "runs" / f"pg-s0-{lr}", settings=f"lr = {lr}\n").round()
    with serving(tmp_path / "runs") as server:
        page = new_person(server.url, [server.url.partition("#")[0]])
        legend = page.locator("#chart .u-legend")
        expect(legend).to_contain_text("fedagent, seed 0 (lr=0.1)")
        expect(legend).to_contain_text("fedagent, seed 0 (lr=0.2)")
        expect(page.locator("#runs")).to_contain_text("seed 0 (lr=0.1)")
        page.get_by_label("show demo, fedagent, seed 0 (lr=0.1)").uncheck()
        expect(legend).not_to_contain_text("lr=0.1")


def test_a_method_keeps_its_colour_whatever_is_shown_beside_it(tmp_path: Path, new_person):  # noqa: F811
    for name in ("pavg", "fedsvrpg-m"):
        run = Written(tmp_path / "runs" / name)
        config = run.path / "config.toml"
        config.write_text(config.read_text().replace("fedagent", name))
        run.round()
    with serving(tmp_path / "runs") as server:
        page = new_person(server.url, [server.url.partition("#")[0]])
        expect(page.locator("#runs input:checked")).to_have_count(2)
        mark = page.locator("#runs li", has_text="pavg").locator(".swatch")
        seen = mark.evaluate("one => one.style.background")
        assert seen == page.evaluate(PAVG)  # as on the result pages
        page.get_by_label("show demo, fedsvrpg-m, seed 0").uncheck()
        expect(page.locator("#runs input:checked")).to_have_count(1)
        assert mark.evaluate("one => one.style.background") == seen


def test_seeds_of_a_method_share_its_colour_and_fade(tmp_path: Path, new_person):  # noqa: F811
    """Another setting is another style; a shade stays with its seed, whatever is shown."""
    for seed, lr in ((0, 0.1), (1, 0.1), (2, 0.1), (0, 0.2)):
        run = Written(tmp_path / "runs" / f"pg-s{seed}-{lr}", seed=seed, settings=f"lr = {lr}\n")
        config = run.path / "config.toml"
        config.write_text(config.read_text().replace("fedagent", "pavg"))
        run.round()
    with serving(tmp_path / "runs") as server:
        page = new_person(server.url, [server.url.partition("#")[0]])
        expect(page.locator("#runs input:checked")).to_have_count(4)

        def stroke(words: str) -> str:
            mark = page.locator("#runs li", has_text=words).locator(".swatch")
            return mark.evaluate("one => one.style.background")

        first, second, third = (stroke(f"seed {seed}{more}") for seed, more in
                                ((0, " (lr=0.1)"), (1, ""), (2, "")))  # fmt: skip
        other = stroke("seed 0 (lr=0.2)")
        solid = page.evaluate(PAVG)
        assert solid in (first, other)
        assert first != other
        faded = {one.replace("rgba", "rgb").rpartition(",")[0] for one in (second, third)}
        assert faded == {first.removesuffix(")").replace("rgba", "rgb")}  # the same, with an alpha
        assert second != third
        page.get_by_label("show demo, pavg, seed 1").uncheck()
        expect(page.locator("#runs input:checked")).to_have_count(3)
        assert stroke("seed 2") == third
        labels = page.locator("#chart .u-legend .u-label")
        expect(labels.filter(has_text="seed 2")).to_have_count(1)


def test_the_epsilon_of_a_private_run_is_a_tile_of_its_last_round(tmp_path: Path, new_person):  # noqa: F811
    private = Written(tmp_path / "runs" / "a", rounds=6)
    private.round(**{"privacy/epsilon": 0.75})
    Written(tmp_path / "runs" / "b", seed=1).round()
    with serving(tmp_path / "runs") as server:
        page = new_person(server.url, [server.url.partition("#")[0]])
        tile = page.locator("#tiles div", has_text="ε spent").locator("dd")
        page.locator("#runs li", has_text="seed 0").locator("small").click()
        expect(tile).to_have_text("0.75")
        private.round(**{"privacy/epsilon": 1.25})
        expect(tile).to_have_text("1.25")
        page.locator("#runs li", has_text="seed 1").locator("small").click()
        expect(page.locator("#title")).to_contain_text("seed 1")
        expect(tile).to_have_count(0)  # a run without noise promises nothing


def test_curves_are_smoothed_by_the_weight_that_is_set(tmp_path: Path, new_person):  # noqa: F811
    run = Written(tmp_path / "runs" / "a", rounds=6)
    for value in (0.0, 1.0, 0.0, 1.0):
        run.round(**{"eval/return": value})
    with serving(tmp_path / "runs") as server:
        page = new_person(server.url, [server.url.partition("#")[0]])
        page.locator("#metric").select_option("eval/return")
        drawn = "() => curves.plot.data[1].filter((y) => y !== null && y !== undefined)"
        assert page.evaluate(drawn) == [0, 1, 0, 1]
        page.locator("#smooth").fill("0.5")
        # An exponential mean that begins with the first value: 0, then ½·0 + ½·1, …
        assert page.evaluate(drawn) == [0, 0.5, 0.25, 0.625]
        expect(page.locator("#tiles")).to_contain_text("eval/return")
        tile = page.locator("#tiles div", has_text="eval/return").locator("dd")
        expect(tile).to_have_text("1")  # what was measured, not what is drawn
        page.locator("#smooth").fill("0")
        assert page.evaluate(drawn) == [0, 1, 0, 1]


def test_what_is_shown_comes_as_csv_as_it_was_measured(tmp_path: Path, new_person):  # noqa: F811
    for seed in (0, 1):
        run = Written(tmp_path / "runs" / f"pg-s{seed}-f00d", seed=seed, rounds=4)
        run.round(**{"train/return": 0.1 + seed})
        run.round()  # a round that does not tell it
        run.round(**{"train/return": 0.3 + seed})
    with serving(tmp_path / "runs") as server:
        page = new_person(server.url, [server.url.partition("#")[0]])
        page.locator("#metric").select_option("train/return")
        expect(page.locator("#chart .u-legend")).to_contain_text("seed 1")
        page.locator("#smooth").fill("0.9")
        with page.expect_download() as started:
            page.get_by_role("button", name="CSV").click()
        assert started.value.suggested_filename == "train_return.csv"
        head, *rows = Path(started.value.path()).read_text().splitlines()
        assert head == "run,round,metric,value"
        assert sorted(rows) == [
            '"pg-s0-f00d",1,"train/return",0.1',
            '"pg-s0-f00d",3,"train/return",0.3',
            '"pg-s1-f00d",1,"train/return",1.1',
            '"pg-s1-f00d",3,"train/return",1.3',
        ]
        page.get_by_label("show demo, fedagent, seed 1").uncheck()
        expect(page.locator("#chart .u-legend")).not_to_contain_text("seed 1")
        with page.expect_download() as started:
            page.get_by_role("button", name="CSV").click()
        assert len(Path(started.value.path()).read_text().splitlines()) == 3


def test_levels_of_a_method_share_its_colour_and_runs_of_a_sweep_go_by_variant(
    tmp_path: Path,
    new_person,  # noqa: F811
):
    slow = "of-a-step-size-that-is-twice-as-large"
    variants = {
        "pavg-alike": (0.1, 0.0), "pavg-differ": (0.1, 0.6), f"{slow}-alike": (0.2, 0.0),
        f"{slow}-differ": (0.2, 0.6),
    }  # fmt: skip
    for at, (variant, (lr, level)) in enumerate(variants.items()):
        run = Written(tmp_path / "runs" / f"{variant}-seed0.0123456789ab", settings=f"lr = {lr}\n")
        config = run.path / "config.toml"
        text = config.read_text().replace("fedagent", "pavg").replace("household", "cartpole")
        config.write_text(
            text.replace('"demo"', f'"{variant}-seed0.0123456789ab"') + f"length_spread = {level}\n"
        )
        os.utime(config, (at + 1, at + 1))  # the list has the newest first
        run.round()
    with serving(tmp_path / "runs") as server:
        page = new_person(server.url, [server.url.partition("#")[0]])
        for variant in variants:
            page.get_by_label(f"show pavg, {variant}, seed 0").set_checked(True)
        names = page.locator("#runs .name")
        expect(names).to_have_text([f"{one}, seed 0" for one in variants][::-1])
        labels = page.locator("#chart .u-legend .u-label")
        expect(labels).to_have_count(5)
        lines = page.evaluate(
            "() => curves.plot.series.slice(1).map((one) => "
            "[one.label.split(',')[0], [one.stroke(), String(one.dash)]])"
        )
        found = dict(lines)
        assert found["pavg-alike"][0] == found["pavg-differ"][0]
        assert found[f"{slow}-alike"][0] == found[f"{slow}-differ"][0] != found["pavg-alike"][0]
        assert len({tuple(one) for one in found.values()}) == 4  # dashes tell levels apart
        page.set_viewport_size({"width": 390, "height": 900})
        entry = page.locator("#chart .u-legend .u-series").nth(1)
        tops = entry.evaluate(
            "one => [...one.children].map((cell) => cell.getBoundingClientRect().top)"
        )
        assert max(tops) - min(tops) < 10  # a name and its value are one line
