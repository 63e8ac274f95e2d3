"""Methods at several levels of heterogeneity: compared within a level, and drawn against it."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from support.pages import Page, groups, write_run, write_runs

from fedrl.report import differences, plots
from fedrl.report import page as report
from fedrl.report.confounders import confounders
from fedrl.report.level_panels import level_panels
from fedrl.report.panels import group_styles, main_panels
from fedrl.report.terminal import summary
from fedrl.report.worlds import by_world, is_of_a_method, methods

SPREAD = 'name = "cartpole"\nlength_spread = {}'


def crossed(folder: Path, levels: dict[float, dict[str, list[float]]]) -> list[Path]:
    return [
        run
        for level, finals in levels.items()
        for run in write_runs(folder / str(level), finals, world=SPREAD.format(level))
    ]


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """PAvg is better where poles are alike, the other one where they differ."""
    return crossed(tmp_path, {
        0.0: {"pavg": [90.0, 91, 92], "fedhapg-m": [80.0, 82, 81]},
        0.6: {"pavg": [50.0, 53, 51], "fedhapg-m": [71.0, 70, 72]},
    })  # fmt: skip


def test_methods_are_compared_within_a_level(folders: list[Path]):
    there = groups(folders)
    assert list(by_world(there)) == ["length_spread=0.0", "length_spread=0.6"]
    found = differences.differences(there, "eval/return")
    assert len(found) == 2  # of six pairs
    signs = {one.first.split()[0]: one.values.mean() > 0 for one in found}
    assert signs == {"pavg": True, "fedhapg-m": True}  # each is the better one once
    assert confounders(there, "eval/return") == []  # a level is what is asked about


@pytest.mark.slow
def test_the_page_and_the_terminal_judge_each_level(folders: list[Path], tmp_path: Path):
    told = summary(groups(folders))
    assert "methods are compared within a level: length_spread=0.0, length_spread=0.6" in told
    assert "different worlds" not in told
    text = Page(report.build(folders, tmp_path / "page.html").read_text()).text
    assert "At length_spread=0.0: highest final return pavg" in text
    assert "At length_spread=0.6: highest final return fedhapg-m" in text


def test_final_values_are_drawn_against_the_level(folders: list[Path]):
    panel, means = level_panels(groups(folders), "eval/return")
    assert (panel.title, panel.x_label) == ("final return", "length_spread")
    assert means.title == "return, mean over rounds"
    np.testing.assert_allclose(means.lines["pavg"], panel.lines["pavg"] / 2)  # straight from 0
    assert {name: x.tolist() for name, x in panel.x.items()} == {
        "pavg": [0.0, 0.6], "fedhapg-m": [0.0, 0.6],
    }  # fmt: skip
    np.testing.assert_allclose(panel.lines["pavg"], [[90, 50], [91, 53], [92, 51]])


def test_step_sizes_may_be_tuned_for_each_level(tmp_path: Path):
    folders = [
        write_run(
            tmp_path / f"{name}-{level}-{seed}", seed=seed, final=50.0 + seed + lr,
            algorithm=f'name = "{name}"\nlr = {lr}', world=SPREAD.format(level),
        )
        for seed in (0, 1)
        for name, level, lr in (
            ("pavg", 0.0, 0.1), ("pavg", 0.6, 0.2), ("fedprox", 0.0, 0.3), ("fedprox", 0.6, 0.4),
        )
    ]  # fmt: skip
    there = groups(folders)
    assert len(by_world(there)) == 2
    assert set(methods(there).values()) == {"pavg", "fedprox"}  # one line each


def test_one_method_at_several_levels_is_compared_between_them(tmp_path: Path):
    one = crossed(tmp_path / "one", {0.0: {"pavg": [90.0, 91]}, 0.6: {"pavg": [50.0, 53]}})
    assert list(by_world(groups(one))) == [""]
    assert len(differences.differences(groups(one), "eval/return")) == 1
    assert level_panels(groups(one), "eval/return") == []
    # Two methods, each at a level of its own: nothing is varied with the method.
    two = crossed(tmp_path / "two", {0.0: {"pavg": [90.0, 91]}, 0.6: {"fedprox": [50.0, 53]}})
    assert list(by_world(groups(two))) == [""]
    assert "world.length_spread" in confounders(groups(two), "eval/return")[0]


def test_who_takes_part_is_no_method():
    """`federation.clients` begins as `federation.client` does."""
    keys = ("algorithm.lr", "aggregate.name", "federation.kind", "federation.client")
    assert all(map(is_of_a_method, keys))
    assert not any(map(is_of_a_method, ("federation.clients", "world.name", "rounds")))


def test_the_rest_from_whom_the_best_is_told_apart_is_counted(tmp_path: Path):
    finals = {"a": [90.0, 92, 91], "b": [90.0, 91, 92], "c": [10.0, 11, 12], "d": [5.0, 6, 8]}
    told = summary(groups(write_runs(tmp_path, finals)))
    assert "a is not told apart from b (from 2 others it is): +0 (" in told


def test_runs_beside_a_sweeps_are_called_by_their_method(tmp_path: Path):
    """Two of one method, each at a level, beside variants of a sweep."""
    there = groups([
        *(
            write_run(
                tmp_path / f"{variant}-{seed}", seed=seed,
                name=f"{variant}-seed{seed}.0123456789ab",
                algorithm=f'name = "{variant.partition("-")[0]}"', world=SPREAD.format(level),
            )
            for variant, level in (("pavg-alike", 0.0), ("pavg-differ", 0.6))
            for seed in (0, 1)
        ),
        *crossed(tmp_path, {0.0: {"fedprox": [3.0, 4]}, 0.6: {"fedprox": [3.0, 4]}}),
    ])  # fmt: skip
    assert [one.name for one in there] == [
        "pavg-alike", "pavg-differ", "fedprox length_spread=0.0", "fedprox length_spread=0.6",
    ]  # fmt: skip


@pytest.fixture
def own(tmp_path: Path) -> list[Path]:
    """A method without a colour of its own with two step sizes, beside a sweep: its runs are found
    in another order at each level."""
    ours = [
        write_run(
            tmp_path / f"{variant}-{seed}", seed=seed, final=100.0,
            name=f"{variant}-seed{seed}.0123456789ab",
            algorithm='name = "pavg"\nlr = 0.01', world=SPREAD.format(level) + "\nhorizon = 100",
        )
        for variant, level in (("pavg-alike", 0.0), ("pavg-differ", 0.6))
        for seed in (0, 1)
    ]  # fmt: skip
    return ours + [
        write_run(
            tmp_path / f"own-{level}-{lr}-{seed}", seed=seed, final=90.0 + seed,
            algorithm=f'name = "own.py:Own"\nlr = {lr}',
            world=SPREAD.format(level) + "\nhorizon = 100",
        )
        for level, rates in ((0.6, (0.004, 0.008)), (0.0, (0.008, 0.004)))
        for lr in rates
        for seed in (0, 1)
    ]  # fmt: skip


def test_a_method_has_one_colour_at_all_levels(own: list[Path]):
    there = groups(own)
    assert methods(there)["pavg-alike"] == methods(there)["pavg-differ"] == "pavg"
    panels = [*main_panels(there, "eval/return"), *level_panels(there, "eval/return")]
    assert all({*one.lines} == {"pavg", "Own lr=0.004", "Own lr=0.008"} for one in panels)
    (looks,) = {tuple(sorted(one.styles.items())) for one in panels}
    assert len({style for _, style in looks}) == 3
    tables = group_styles(there)
    assert tables["Own lr=0.004 length_spread=0.6"] == dict(looks)["Own lr=0.004"]


@pytest.mark.slow
def test_no_bar_is_longer_than_the_horizon_and_the_page_says_who_stands_there(
    own: list[Path], tmp_path: Path
):
    there = groups(own)
    for one in (*level_panels(there, "eval/return")[:1], *main_panels(there, "eval/return")):
        assert one.possible[1] == 100
    text = Page(report.build(own, tmp_path / "page.html").read_text()).text
    assert "All seeds of pavg-alike, pavg-differ end at the most that there is (100, the" in text
    assert "cartpole: pavg, Own at two levels of length_spread" in text
    for ending in ("png", "svg"):
        assert (tmp_path / "page_plots" / f"levels.{ending}").is_file()


def test_levels_are_points_with_bars_and_nothing_solid_between_them(folders: list[Path]):
    figure = plots.curves(level_panels(groups(folders), "eval/return"))
    axes = figure.axes[0]
    assert [line.get_linestyle() for line in axes.lines if line.get_marker() == "o"] == [":", ":"]
    assert len(axes.collections) == 2  # bars, and no band
    assert all(one.get_paths() for one in axes.collections)


def test_figures_have_three_panels_in_a_row(folders: list[Path]):
    panels = main_panels(groups(folders), "eval/return")
    figure = plots.curves(panels)
    assert len(figure.axes) == len(panels) == 6
    assert figure.get_figwidth() == 3 * plots.PANEL_SIZE[0]
    assert len(figure.legends) == 1
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["pavg", "fedhapg-m"]


@pytest.mark.slow
def test_tables_have_method_and_level(own: list[Path], tmp_path: Path):
    report.build(own, tmp_path / "page.html")
    found = {}
    for name in ("numbers", "comparison", "differences"):
        with (tmp_path / "page_plots" / f"{name}.csv").open() as file:
            found[name] = list(csv.DictReader(file))
    for rows in (found["numbers"], found["comparison"]):
        told = {row["group"]: (row["method"], row["level"]) for row in rows}
        assert told["pavg-differ"] == ("pavg", "length_spread=0.6")
        assert told["Own lr=0.008 length_spread=0.0"] == ("Own lr=0.008", "length_spread=0.0")
    told = {
        (one["first_method"], one["second_method"], one["level"]) for one in found["differences"]
    }
    assert ("pavg", "Own lr=0.004", "length_spread=0.6") in told
    report.build(own[:4], tmp_path / "alone.html")  # one method, at no level that is compared
    with (tmp_path / "alone_plots" / "comparison.csv").open() as file:
        assert {(row["method"], row["level"]) for row in csv.DictReader(file)} == {
            ("pavg-alike", ""), ("pavg-differ", ""),
        }  # fmt: skip
