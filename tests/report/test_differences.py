"""What a report says of differences: seed by seed, with intervals, and no winner by chance."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from support.pages import Page, groups, write_runs

from fedrl.core.iqm import bootstrap_interval, iqm
from fedrl.report import differences
from fedrl.report import page as report
from fedrl.report.client_panel import client_panels, client_values
from fedrl.report.run_groups import over_rounds
from fedrl.report.terminal import summary
from fedrl.runs.read import load


@pytest.mark.parametrize("count", [4, 8, 20])
def test_iqm_is_the_trimmed_mean_where_that_is_defined(count: int):
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(count).normal(size=(3, count))
    np.testing.assert_allclose(iqm(values), stats.trim_mean(values, 0.25, axis=1))


def test_iqm_counts_an_edge_in_part_and_hears_no_outlier():
    # Of five, the middle half has the third whole and three quarters of its two neighbours.
    assert iqm([0, 1, 2, 3, 1000]) == pytest.approx((0.75 * 1 + 2 + 0.75 * 3) / 2.5)
    assert iqm([7]) == 7
    assert iqm([-np.inf, 1, 1, 1, 1, np.inf]) == 1
    assert np.isnan(iqm([1, 2, np.nan, 3]))


def test_the_bootstraps_interval_covers_about_what_it_says():
    random, inside = np.random.default_rng(1), 0
    for _ in range(100):
        low, high = bootstrap_interval(random.normal(size=30))
        inside += low <= 0 <= high
    assert 85 <= inside <= 99
    assert bootstrap_interval([1.0, 2, 3, 4]) == bootstrap_interval([1.0, 2, 3, 4])
    assert np.isnan(bootstrap_interval([1.0])).all()


def test_pairs_take_out_what_a_seed_does_to_both(tmp_path: Path):
    """Seeds lie far apart, methods by 2 in each of them: intervals over seeds overlap, pairs do
    not."""
    easy = [10.0, 50.0, 90.0, 130.0]
    there = groups(write_runs(tmp_path, {"pavg": easy, "fedhapg-m": [v + 2 for v in easy]}))
    (found,) = differences.differences(there, "eval/return")
    assert (found.first, found.second) == ("fedhapg-m", "pavg")
    np.testing.assert_allclose(found.values, 2)
    assert found.decided
    assert differences.winner(there, "eval/return") == "fedhapg-m"


@pytest.mark.slow
def test_of_one_seed_each_nothing_follows(tmp_path: Path):
    folders = write_runs(tmp_path / "runs", {"fedprox": [40.0], "scaffold": [90.0], "pavg": [50.0]})
    there = groups(folders)
    found = report.headline(there, "eval/return")
    assert found.one_seed_each
    assert found.winner == ""
    assert [name for name, _ in found.finals] == ["fedprox", "scaffold", "pavg"]  # no ranking
    page = Page(report.build(folders, tmp_path / "page.html").read_text())
    assert "one seed each: nothing follows about which is better" in page.text
    assert "no winner" not in page.text
    assert "highest" not in page.text.partition("Comparison")[0]
    assert "One seed each: nothing is told apart." in page.text
    assert summary(there).splitlines()[-1].startswith("one seed each: nothing follows")
    # One of several seeds among them: the sentence is of intervals again.
    more = [*folders, *write_runs(tmp_path / "more", {"fedprox": [41.0]}, first_seed=1)]
    assert not report.headline(groups(more), "eval/return").one_seed_each
    # A single run has nobody beside it.
    assert not report.headline(groups(folders[:1]), "eval/return").one_seed_each


@pytest.mark.slow
def test_no_winner_where_the_interval_holds_0(tmp_path: Path):
    folders = write_runs(tmp_path, {"pavg": [50, 60, 70, 64], "fedhapg-m": [60, 55, 75, 62]})
    assert differences.winner(groups(folders), "eval/return") == ""
    page = Page(report.build(folders, tmp_path / "page.html").read_text())
    assert "no winner by final return, as far as these seeds tell" in page.text
    assert "highest final" not in page.text
    assert "no: 0 is within the interval" in page.text
    assert page.text.index("final IQM") < page.text.index("at round")


def test_two_seeds_that_differ_alike_decide_nothing(tmp_path: Path):
    """Both solved three tasks more: an interval without width is no knowledge."""
    finals = {"pavg": [50.0, 61], "fedhapg-m": [53.0, 64]}
    folders = write_runs(tmp_path / "two", finals)
    (found,) = differences.differences(groups(folders), "eval/return")
    assert not found.decided
    assert differences.winner(groups(folders), "eval/return") == ""
    table = differences.table(groups(folders), "eval/return")
    assert table is not None
    assert table.rows[0][-1] == "no: two seeds that differ alike say nothing of others"
    third = {name: [*values, values[0] + 30] for name, values in finals.items()}
    assert (
        differences.winner(groups(write_runs(tmp_path / "three", third)), "eval/return")
        == "fedhapg-m"
    )
    # Two seeds that differ by nearly the same are told apart, as their interval says.
    near = {"pavg": [50.0, 61], "fedhapg-m": [53.0, 64.1]}
    (found,) = differences.differences(groups(write_runs(tmp_path / "near", near)), "eval/return")
    assert found.decided


def test_the_best_of_three_has_to_be_told_apart_from_both(tmp_path: Path):
    finals = {"pavg": [50.0, 50], "fedhapg-m": [80.0, 80.5], "fedsvrpg-m": [70.0, 89]}
    there = groups(write_runs(tmp_path, finals))
    assert differences.winner(there, "eval/return") == ""
    assert differences.winner(there[:2], "eval/return") == "fedhapg-m"


@pytest.mark.slow
def test_the_headline_names_whom_the_best_is_not_told_apart_from(tmp_path: Path):
    """Second by its mean is one who is told apart; the rival comes after it."""
    finals = {"fedprox": [80.0, 60, 70, 90], "pavg": [76.0, 55.5, 66, 85.5],
              "scaffold": [40.0, 99, 40, 99]}  # fmt: skip
    folders = write_runs(tmp_path, finals)
    there = groups(folders)
    assert differences.rivals(there, "eval/return") == ["scaffold"]
    found = report.headline(there, "eval/return")
    assert found.winner == ""
    assert [name for name, _ in found.finals] == ["fedprox", "pavg", "scaffold"]
    assert [name for name, _ in found.rivals] == ["scaffold"]
    told = summary(there).splitlines()
    rival = "fedprox is not told apart from scaffold (from 1 other it is): "
    assert told[-2].startswith(f"no winner by final return: {rival}+5.5 (-")
    assert told[-2].endswith(") over scaffold")
    assert told[-1].startswith(f"by the mean over rounds {rival}+2.75 (-")
    assert told[-1].endswith(") over scaffold")
    assert any("75 ± 21" in line for line in told)
    told = summary(there[:2]).splitlines()
    assert told[-2] == (
        "best by final return, seed by seed: fedprox, +4.25 (3.79 to 4.71) over pavg"
    )
    assert told[-1] == ("best by the mean over rounds, too: fedprox, +2.12 (1.9 to 2.35) over pavg")
    head = Page(report.build(folders[:8], tmp_path / "page.html").read_text()).text
    assert "seed by seed +4.25 (3.79 to 4.71) over pavg (mean and" in head


@pytest.mark.slow
def test_a_headline_says_what_both_measures_say(tmp_path: Path):
    """Equal in the end, and one was ahead all the way there."""
    folders = write_runs(tmp_path, {"pavg": [100.0, 101, 99], "fedprox": [101.0, 99, 100]})
    for folder in folders[3:]:
        log = folder / "metrics.jsonl"
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines[1:-1]:
            if "eval/return" in line:
                line["eval/return"] += 30
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert differences.winner(groups(folders), "eval/return") == ""
    said = "est by the mean over rounds: fedprox, +24 (21.8 to 26.2) over pavg"
    assert summary(groups(folders)).endswith("b" + said)
    head = Page(report.build(folders, tmp_path / "page.html").read_text()).text
    head = head.partition("Comparison")[0]
    assert "no winner by final return" in head
    assert "B" + said in head


@pytest.mark.slow
def test_one_seed_beside_several_is_not_compared(tmp_path: Path):
    """Also where it is the highest: nobody knows how far its other seeds would lie."""
    folders = write_runs(
        tmp_path, {"pavg": [50.0, 52, 51], "fedprox": [70.0, 71, 73], "scaffold": [99]}
    )
    there = groups(folders)
    assert differences.winner(there, "eval/return") == "fedprox"
    assert summary(there).splitlines()[-1] == "one seed, cannot be compared: scaffold"
    assert "not told apart" not in summary(there)
    head = Page(report.build(folders, tmp_path / "page.html").read_text()).text
    head = head.partition("Comparison")[0]
    assert "highest final return fedprox" in head
    assert "One seed, cannot be compared: scaffold with 99" in head
    # One group alone has several.
    head = Page(report.build(folders[2:], tmp_path / "few.html").read_text()).text
    assert "cannot be compared: scaffold" in head
    two = [*folders[:3], folders[-1]]
    head = Page(report.build(two, tmp_path / "two.html").read_text()).text
    assert "final return of pavg 51" in head
    assert summary(groups(two)).splitlines()[-1] == "one seed, cannot be compared: scaffold"


def test_an_interval_that_ends_near_0_shows_where(tmp_path: Path):
    quantile = 12.7062047  # of t with one degree of freedom
    values = 10.83 + np.array([-1, 1]) * 10.77 / quantile
    there = groups(write_runs(tmp_path, {"pavg": [50, 50], "fedprox": list(50 + values)}))
    ((name, seeds, mean, between, *_, told),) = differences.table(there, "eval/return").rows
    assert (name, seeds, mean, told) == ("fedprox − pavg", "2", "10.8", "yes")
    assert between == "0.06 to 21.6"


def test_means_over_rounds_are_compared_too(tmp_path: Path):
    """A run that rises in a straight line to its final value has half of it on the way."""
    there = groups(write_runs(tmp_path, {"pavg": [50, 60], "fedprox": [70, 82]}))
    (last,) = differences.differences(there, "eval/return")
    (mean,) = differences.differences(there, "eval/return", over_rounds)
    np.testing.assert_allclose(mean.values, last.values / 2)


@pytest.mark.slow
def test_what_is_compared_lies_beside_the_page(tmp_path: Path):
    folders = write_runs(tmp_path, {"pavg": [50, 60, 70, 80], "fedprox": [55, 66, 77, 88]})
    page = report.build(folders, tmp_path / "page.html")
    with (tmp_path / "page_plots" / "differences.csv").open() as file:
        final, over = csv.DictReader(file)
    assert (final["first"], final["second"], final["value"]) == ("fedprox", "pavg", "final")
    assert (float(final["mean"]), float(over["mean"])) == (pytest.approx(6.5), pytest.approx(3.25))
    assert final["told_apart"] == "True"
    assert float(final["low"]) > 0
    with (tmp_path / "page_plots" / "comparison.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["group"], row["value"], float(row["mean"])) for row in rows[:2]] == [
        ("pavg", "final", 65.0), ("pavg", "mean over rounds", pytest.approx(32.5)),
    ]  # fmt: skip
    text = Page(page.read_text()).text
    assert "Of the final values:" in text
    assert "Of the means over rounds:" in text
    assert "differences.csv" in text
    before = {file: file.read_bytes() for file in sorted((tmp_path / "page_plots").glob("*.csv"))}
    report.build(folders, tmp_path / "page.html")
    assert {file: file.read_bytes() for file in before} == before


@pytest.mark.slow
def test_other_seeds_and_single_ones_are_not_compared(tmp_path: Path):
    folders = write_runs(tmp_path, {"pavg": [50, 50]}) + write_runs(
        tmp_path, {"fedhapg-m": [90, 90]}, 5
    )
    assert differences.table(groups(folders), "eval/return") is None
    page = Page(report.build(folders, tmp_path / "page.html").read_text())
    assert "nothing is told apart" in page.text
    assert "no winner" in page.text


@pytest.mark.slow
def test_every_number_is_in_the_file_and_reads_back(tmp_path: Path):
    folders = write_runs(tmp_path, {"pavg": [50, 60]})
    report.build(folders, tmp_path / "page.html")
    with (tmp_path / "page_plots" / "numbers.csv").open() as file:
        rows = list(csv.DictReader(file))
    one = load(folders[1])
    mine = [row for row in rows if row["seed"] == "1"]
    assert len(mine) == sum(map(len, one.rounds.values()))
    for row in mine:
        assert float(row["value"]) == one.rounds[int(row["round"])][row["metric"]]
    svg = (tmp_path / "page_plots" / "eval_return.svg").read_text()
    assert svg.lstrip().startswith("<?xml")


def clients(run: Path, count: int, rounds: int = 4) -> None:
    """Client c has c + round, and takes part in every second round if its number is odd."""
    lines = [
        {"round": r, "client": c, "status": "ok", "train/return": float(c + r)}
        for r in range(1, rounds + 1)
        for c in range(count)
        if not (c % 2 and r % 2)
    ]
    (run / "clients.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.slow
def test_clients_have_a_panel_and_keep_their_last_value(tmp_path: Path):
    (folder,) = write_runs(tmp_path, {"pavg": [50]})
    clients(folder, 3)
    metric, rounds, table = client_values(load(folder))
    assert (metric, rounds.tolist()) == ("train/return", [1, 2, 3, 4])
    assert table[0].tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(table[1], [np.nan, 3, 3, 5])
    (panel,) = client_panels(groups([folder]))
    assert list(panel.lines) == ["client 0", "client 1", "client 2"]
    page = Page(report.build([folder]).read_text())
    assert "Clients" in page.text
    assert any("of clients" in (one["alt"] or "") for one in page.attributes("img"))


def test_many_clients_are_quantiles(tmp_path: Path):
    (folder,) = write_runs(tmp_path, {"pavg": [50]})
    clients(folder, 21)
    (panel,) = client_panels(groups([folder]))
    ends = {name: values[0, -1] for name, values in panel.lines.items()}
    assert ends == {
        "best": 24, "upper quarter": 19, "median": 14, "lower quarter": 9, "worst": 4,
    }  # fmt: skip


def test_runs_whose_clients_say_nothing_have_no_panel(tmp_path: Path):
    (folder,) = write_runs(tmp_path, {"pavg": [50]})
    assert client_panels(groups([folder])) == []
