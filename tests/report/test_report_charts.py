"""The report's charts: the pictures' numbers, in a real browser, with and without scripts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from support.browsing import browser, new_person
from support.pages import write_run

from fedrl.core.intervals import interval
from fedrl.report import page as report
from fedrl.report.chart_data import chart_data
from fedrl.report.panels import panel
from fedrl.report.plots import Panel
from fedrl.report.run_groups import group_runs
from fedrl.runs.read import load

__all__ = ["browser", "new_person"]
pytestmark = pytest.mark.slow
PANELS = 5


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> list[Path]:
    place = tmp_path_factory.mktemp("runs")
    return [
        write_run(place / f"{name}-{seed}", seed=seed, algorithm=f'name = "{name}"', final=final)
        for name, final in (("pavg", 50.0), ("fedhapg-m", 80.0))
        for seed, final in ((0, final), (1, final + 5.0))
    ]


@pytest.fixture(scope="module")
def url(folders, tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("page") / "report.html"
    return report.build(folders, out).as_uri()


def test_a_charts_numbers_are_the_pictures(folders):
    groups = group_runs([load(folder) for folder in folders])
    shown = panel(groups, "eval/return")
    data = json.loads(chart_data(shown))
    for line, (name, samples) in zip(data["lines"], shown.lines.items(), strict=True):
        mean, half = interval(samples)
        assert line["name"] == name
        np.testing.assert_allclose(line["x"], shown.x[name])
        np.testing.assert_allclose(line["y"], mean, rtol=1e-4)
        np.testing.assert_allclose(line["low"], mean - half, rtol=1e-4)
        np.testing.assert_allclose(line["high"], mean + half, rtol=1e-4)


def test_shares_stay_possible_gaps_are_gaps_and_names_cannot_end_the_script():
    samples = np.array([[0.0, np.nan, 1.0], [0.5, 0.5, 0.9]])
    odd = "</script><b>"
    text = chart_data(Panel("t", "round", {odd: np.arange(3.0)}, {odd: samples}, share=True))
    assert "<" not in text
    [line] = json.loads(text)["lines"]
    assert line["name"] == odd
    assert line["y"][1] is None
    assert line["low"][0] == 0.0
    assert line["high"][2] == 1.0


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_pointer_is_told_values_and_a_name_hides_its_curves(url, new_person, width, scheme):
    page = new_person(
        url, ["file:", "data:"], viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    assert page.locator("figure.panel .u-wrap").count() == PANELS
    assert page.locator("#tools").is_visible()
    over = page.locator("figure.panel .u-over").first
    over.scroll_into_view_if_needed()
    over.hover()
    tip = page.locator("figure.panel .tip").first
    assert re.search(r"round \d+\nfedhapg-m: [\d.]+ \(.* to .*\)\npavg: ", tip.inner_text())
    box = tip.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width  # noqa: PT018
    page.locator("button[data-group=pavg]").first.click()
    assert page.locator("button[data-group=pavg][aria-pressed=false]").count() == 2
    over.hover()
    assert "pavg" not in tip.inner_text()
    assert "fedhapg-m" in tip.inner_text()
    page.locator("#smooth").fill("0.9")
    over.hover()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_scripts_and_on_paper_there_are_pictures(url, new_person):
    page = new_person(url, ["file:", "data:"], java_script_enabled=False)
    images = page.locator("figure.panel img")
    assert images.count() == PANELS
    assert all(images.nth(n).bounding_box()["width"] > 200 for n in range(PANELS))
    printed = new_person(url, ["file:", "data:"])
    printed.emulate_media(media="print")
    assert not printed.locator("figure.panel .chart").first.is_visible()
    assert printed.locator("figure.panel img").first.bounding_box()["width"] > 200


def test_a_long_command_can_be_read_to_its_end(tmp_path, new_person):
    """Where runs differ in their commands, these are one column of many."""
    folders = [
        write_run(tmp_path / name, algorithm=f'name = "{name}"') for name in ("pavg", "fedprox")
    ]
    for folder in folders:
        meta = json.loads((folder / "meta.json").read_text())
        settings = " ".join(f"--federation.setting-{n} {folder.name}" for n in range(9))
        meta["command"] = f"fedrl run x.toml {settings}"
        (folder / "meta.json").write_text(json.dumps(meta))
    url = report.build(folders, tmp_path / "report.html").as_uri()
    page = new_person(url, ["file:", "data:"], viewport={"width": 1280, "height": 900})
    section = page.locator("section", has=page.get_by_text("How it was run"))
    assert "--federation.setting-8 pavg" in section.inner_text()
    assert section.locator(".scroll").evaluate_all(
        "tables => tables.every(table => table.scrollWidth <= table.clientWidth)"
    )


def test_levels_answer_too_and_are_not_smoothed(tmp_path: Path, new_person):
    folders = [
        write_run(
            tmp_path / f"{name}-{level}-{seed}", seed=seed, algorithm=f'name = "{name}"',
            final=final + seed, world=f'name = "cartpole"\nlength_spread = {level}',
        )
        for name, final in (("pavg", 50.0), ("fedhapg-m", 80.0))
        for level in (0.0, 0.6)
        for seed in (0, 1)
    ]  # fmt: skip
    page = new_person(report.build(folders, tmp_path / "page.html").as_uri(), ["file:", "data:"])
    assert page.locator("button[data-group]").all_inner_texts() == ["pavg", "fedhapg-m"] * 2
    assert page.evaluate("charts.map((one) => one.data.points)")[:3] == [True, True, False]
    picture = "() => charts[0].plot.ctx.canvas.toDataURL()"
    before = page.evaluate(picture)
    page.locator("#smooth").fill("0.9")
    assert page.evaluate(picture) == before
    page.locator("button[data-group=pavg]").first.click()
    page.wait_for_function(f"(before) => ({picture})() !== before", arg=before)
    over = page.locator("figure.panel .u-over").first
    over.hover()
    tip = page.locator("figure.panel .tip").first.inner_text()
    assert re.search(r"length_spread 0(\.6)?\nfedhapg-m: 80.5 \(", tip)
    assert "pavg" not in tip
