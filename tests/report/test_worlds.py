"""Runs of different worlds on one page: each world is compared by itself, never with another."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pages import Page, groups, write_runs

from fedrl.report import differences, plots
from fedrl.report import page as report
from fedrl.report.comparison_file import paired_differences
from fedrl.report.confounders import more_than_the_method
from fedrl.report.panels import main_panels, other_panels
from fedrl.report.terminal import summary
from fedrl.report.worlds import by_world

POLES = 'name = "gymnasium"\nid = "CartPole-v1"'
ACROBOT = 'name = "gymnasium"\nid = "Acrobot-v1"'


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """By final return pavg wins on CartPole, and nobody on Acrobot."""
    return [
        *write_runs(tmp_path / "a", {"pavg": [400.0, 401], "fedprox": [200.0, 202]}, world=POLES),
        *write_runs(tmp_path / "b", {"pavg": [-90.0, -91], "fedprox": [-92.0, -89]}, world=ACROBOT),
    ]


def test_differences_are_within_a_world(folders: list[Path]):
    there = groups(folders)
    assert {world: len(same) for world, same in by_world(there).items()} == {
        "CartPole-v1": 2, "Acrobot-v1": 2,
    }  # fmt: skip
    found = differences.differences(there, "eval/return")
    names = [(one.first, one.second) for one in found]
    names += [(one["first"], one["second"]) for one in paired_differences(there, "eval/return")]
    assert len(names) == 2 + 4
    assert all(("CartPole" in one) == ("CartPole" in other) for one, other in names)
    assert more_than_the_method(there) == []  # within each world nothing else differs


def test_the_terminal_says_so_and_judges_each_world(folders: list[Path]):
    line, poles, _, acrobot, _ = summary(groups(folders)).splitlines()[-5:]
    assert line == "return of different worlds is not compared: CartPole-v1, Acrobot-v1"
    assert poles.startswith("CartPole-v1: best by final return, seed by seed: pavg")
    assert acrobot.startswith("Acrobot-v1: no winner by final return")
    assert "CartPole" not in acrobot


def test_worlds_share_no_axis_and_groups_keep_their_colour(folders: list[Path]):
    there = groups(folders)
    others = other_panels(there, "eval/return")["train/return"]
    for panels in (main_panels(there, "eval/return"), others):
        assert {len(panel.lines) for panel in panels} == {2}
        titles = {panel.title.rpartition(", ")[2] for panel in panels}
        assert titles == {"CartPole-v1", "Acrobot-v1"}
        looks = [[panel.styles[name] for name in panel.lines] for panel in panels]
        assert looks[0] == looks[1]  # a method looks the same in both
        assert len(set(looks[0])) == 2


def test_a_figure_of_several_worlds_names_all_lines(folders: list[Path]):
    there = groups(folders)
    figure = plots.curves(main_panels(there, "eval/return"))
    named = {text.get_text() for text in figure.legends[0].get_texts()}
    assert named == {"pavg", "fedprox"}  # in the colour that each has in both worlds


def test_what_makes_clients_differ_leaves_a_world_comparable(tmp_path: Path):
    spread = 'name = "cartpole"\nhorizon = 100\nlength_spread = {}'
    alike = [
        *write_runs(tmp_path / "a", {"pavg": [50.0, 51]}, world=spread.format(0.0)),
        *write_runs(tmp_path / "b", {"pavg": [40.0, 42]}, world=spread.format(0.5)),
    ]
    assert list(by_world(groups(alike))) == [""]
    assert len(differences.differences(groups(alike), "eval/return")) == 1
    world = 'name = "cartpole"\nhorizon = 500'
    longer = write_runs(tmp_path / "c", {"pavg": [200.0, 210]}, world=world)
    assert list(by_world(groups([*alike, *longer]))) == ["horizon=100", "horizon=500"]


def test_a_discount_scales_exact_values_alone(tmp_path: Path):
    def apart(name: str) -> bool:
        world = f'name = "{name}"\ngamma = '
        there = [
            write_runs(tmp_path / name / g, {"pavg": [1.0, 2]}, world=world + g)
            for g in ("0.9", "0.99")
        ]
        return len(by_world(groups([run for same in there for run in same]))) == 2

    assert apart("random_mdp")
    assert not apart("cartpole")


@pytest.mark.slow
def test_the_page_says_so_and_judges_each_world(folders: list[Path], tmp_path: Path):
    page = Page(report.build(folders, tmp_path / "page.html").read_text())
    head = page.text.partition("Comparison")[0]
    assert "return of different worlds is not compared: CartPole-v1, Acrobot-v1" in head
    assert "On CartPole-v1: highest final return pavg" in head
    assert "On Acrobot-v1: no winner by final return" in head
    pairs = [line for line in page.text.splitlines() if "−" in line]
    assert pairs
    assert not any("CartPole" in line and "Acrobot" in line for line in pairs)
