"""Runs that broke or have only begun: they are named, and no part of a comparison."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.pages import Page, write_run

import fedrl
from fedrl.report import differences
from fedrl.report import page as report
from fedrl.report.panels import other_panels
from fedrl.report.run_groups import group_runs, no_result, summary_row, with_results
from fedrl.runs.read import load

ERROR = "QuorumLost round 1: only 0 of 5 clients gave a usable update"


def methods(folder: Path) -> list[Path]:
    finals = {"pavg": [50.0, 51], "fedprox": [80.0, 82]}
    return [
        write_run(folder / f"{name}-{s}", seed=s, algorithm=f'name = "{name}"', final=final)
        for name, values in finals.items()
        for s, final in enumerate(values)
    ]


def broken(folder: Path, why: str = ERROR, done: int = 0, seed: int = 2) -> Path:
    failures = tuple((1, client, "timeout") for client in range(5))
    run = write_run(folder, seed=seed, done=done, status="stopped", failures=failures)
    (run / "log.txt").write_text(f"2026-01-01 10:00:00 stopped: {why}\nTraceback …\n")
    return run


def test_a_run_that_broke_is_no_result_and_one_that_was_stopped_is(tmp_path: Path):
    assert ERROR in no_result(load(broken(tmp_path / "a", done=4)))
    assert no_result(load(broken(tmp_path / "b", "KeyboardInterrupt", done=4))) == ""
    assert "without an evaluation" in no_result(load(broken(tmp_path / "c", "KeyboardInterrupt")))
    assert "without an evaluation" in no_result(
        load(write_run(tmp_path / "d", done=1, status="running"))
    )
    assert no_result(load(write_run(tmp_path / "e", done=2, status="running"))) == ""


def test_the_terminal_leaves_it_out_of_table_and_verdict_and_says_so(tmp_path: Path):
    folders = [*methods(tmp_path / "runs"), broken(tmp_path / "pavg-2")]
    told = fedrl.Runs(map(fedrl.Run, folders)).summary()
    assert "best by final return, seed by seed: fedprox, +" in told
    assert f"left out: pavg-2 stopped on an error at round 0 of 10: {ERROR}" in told
    (row,) = [line for line in told.splitlines() if line.startswith("pavg")]
    assert row.split()[-1] == "2"  # seeds


def test_a_run_that_broke_before_its_first_line_says_why(tmp_path: Path):
    run = broken(tmp_path / "a")
    (run / "metrics.jsonl").write_text("")
    with pytest.raises(fedrl.UserError, match="no metrics yet: it stopped on an error: QuorumLost"):
        load(run)


def test_the_terminal_marks_what_goes_on(tmp_path: Path):
    going = write_run(tmp_path / "x", done=4, status="running")
    told = fedrl.Runs([fedrl.Run(going)]).summary()
    assert "unfinished: x is at round 4 of 10 (running, or killed: fedrl run --resume" in told


def test_a_killed_seed_beside_finished_ones_turns_no_verdict_around(tmp_path: Path):
    """It would show the others of its group as they were when it was killed."""
    there = methods(tmp_path / "runs")
    killed = write_run(
        tmp_path / "x", seed=9, algorithm='name = "fedprox"', final=81, done=2, status="running"
    )
    told = fedrl.Runs(map(fedrl.Run, [*there, killed])).summary()
    assert "best by final return, seed by seed: fedprox, +" in told
    assert "left out: x is at round 2 of 10, beside finished seeds of the same" in told
    whole = group_runs([load(folder) for folder in (*there, killed)])
    assert differences.winner(whole, "eval/return") == "fedprox"


def test_groups_that_end_apart_are_compared_where_both_have_been(tmp_path: Path):
    """pavg is at 50 in the end, fedprox, which is better all the way, at 16 in round 2."""
    short = [
        write_run(tmp_path / f"s{s}", seed=s, algorithm='name = "fedprox"', final=final, done=2,
                  status="running")
        for s, final in enumerate([80.0, 82])
    ]  # fmt: skip
    there = group_runs([load(folder) for folder in (*methods(tmp_path / "runs")[:2], *short)])
    (found,) = differences.differences(there, "eval/return")
    assert (found.first, found.round) == ("pavg", 2)
    assert found.values.tolist() == pytest.approx([-6.0, -6.2])
    assert differences.winner(there, "eval/return") == ""
    told = fedrl.Runs(fedrl.Run(run.path) for group in there for run in group.runs).summary()
    assert (
        "no winner by final return: pavg ends highest, and where both have been fedprox is" in told
    )
    assert "where both have been fedprox is better: +3.05 (" in told
    assert "better: +6.1 (" in " ".join(told.split())
    page = fedrl.Runs(fedrl.Run(run.path) for group in there for run in group.runs).report(
        tmp_path / "page.html"
    )
    assert "is behind fedprox where both have been" in page.read_text(encoding="utf-8")
    assert "over pavg at round 2" in told


def test_the_terminal_warns_as_the_page_does(tmp_path: Path):
    longer = [
        write_run(tmp_path / f"l{s}", seed=s, algorithm='name = "fedprox"', rounds=20, done=20)
        for s in (0, 1)
    ]
    told = fedrl.Runs(map(fedrl.Run, [*methods(tmp_path / "runs")[:2], *longer])).summary()
    assert "These runs differ in more than the method: rounds." in told


def test_tables_of_pandas_leave_it_out(tmp_path: Path):
    pytest.importorskip("pandas")
    runs = fedrl.Runs(map(fedrl.Run, [*methods(tmp_path / "runs"), broken(tmp_path / "pavg-2")]))
    assert set(runs.compare().groups["round"]) == {10}
    assert len(set(runs.metrics["run"])) == 5


def test_where_none_has_a_result_there_is_no_verdict(tmp_path: Path):
    runs = [load(broken(tmp_path / "a")), load(broken(tmp_path / "b", seed=3))]
    kept, lines = with_results(runs)
    assert (kept, lines) == (runs, [])
    groups = group_runs(kept)
    assert differences.rivals(groups, "eval/return") == []
    assert "no result, stopped" in fedrl.Runs(fedrl.Run(run.path) for run in runs).summary()


def test_a_seed_that_is_there_twice_counts_once(tmp_path: Path):
    """Two seeds 60 apart have an interval wider than any return; with each of them three times it
    would be narrow enough to decide."""
    folders = [
        write_run(tmp_path / f"{seed}-{copy}", seed=seed, final=final)
        for seed, final in ((0, 0.0), (1, 60.0))
        for copy in range(3)
    ]
    for folder in folders:
        meta = json.loads((folder / "meta.json").read_text())
        begun = {"started": f"2026-01-0{9 - int(folder.name[-1])}T00:00:00Z"}
        (folder / "meta.json").write_text(json.dumps(meta | begun))
    runs = [load(folder) for folder in folders]
    kept, lines = with_results(runs)
    assert [run.path.name for run in kept] == ["0-0", "1-0"]  # the ones that began last
    assert lines[0] == (
        "0-1 has seed 0 of the same settings as 0-0, so it is no further seed"
    )  # fmt: skip
    assert len(lines) == 4
    (group,) = group_runs(kept)
    row = summary_row(group, "eval/return")
    assert (row["final return"], row["seeds"]) == ("30 ± 381", "2: 0, 1")
    # Of one that is finished and one that is not, the finished one; another setting is another run.
    late = write_run(tmp_path / "late", done=4, status="running")
    other = write_run(tmp_path / "other", algorithm='name = "pavg"\nlr = 0.5')
    kept, _ = with_results([runs[1], load(late), load(other)])
    assert [run.path.name for run in kept] == ["0-1", "other"]


def test_failures_of_the_round_that_broke_are_no_flat_line(tmp_path: Path):
    """Its records are there and its metrics are not."""
    groups = group_runs([load(broken(tmp_path / "a"))])
    assert "cohort/failed_so_far" not in other_panels(groups, "eval/return")
    groups = group_runs([load(broken(tmp_path / "b", done=1))])
    (panel,) = other_panels(groups, "eval/return")["cohort/failed_so_far"]
    assert panel.lines["pavg"].tolist() == [[0, 5]]


@pytest.mark.slow
def test_the_page_leaves_it_out_and_says_so(tmp_path: Path):
    other = write_run(tmp_path / "other", algorithm='name = "scaffold"', done=0, status="stopped")
    folders = [*methods(tmp_path / "runs"), broken(tmp_path / "pavg-2"), other]
    page = Page(report.build(folders, tmp_path / "page.html").read_text())
    assert "highest final return fedprox" in page.text
    assert f"Left out: pavg-2 stopped on an error at round 0 of 10: {ERROR}." in page.text
    assert "Left out: other is at round 0 of 10 without an evaluation" in page.text
    alone = Page(report.build([folders[-2]]).read_text())
    assert f"It stopped on an error: {ERROR}." in alone.text
    none = Page(report.build(folders[-2:], tmp_path / "none.html").read_text())
    assert "no run has a result yet that could be compared" in none.text
    assert "told apart from" not in none.text.partition("Comparison")[0]


def test_a_run_and_its_longer_twin_are_one(tmp_path: Path):
    """The same settings with more rounds, and the same numbers as far as both went."""
    short = [write_run(tmp_path / f"s{s}", seed=s, final=50.0 + s) for s in (0, 1)]
    long = [
        write_run(tmp_path / f"l{s}", seed=s, rounds=20, done=20, final=100.0 + 2 * s)
        for s in (0, 1)
    ]
    kept, left = with_results([load(folder) for folder in (*short, *long)])
    assert [run.path.name for run in kept] == ["l0", "l1"]
    assert left[0] == "s0 is the first 10 rounds of l0, number for number, and nothing beside it"
    kept, _ = with_results([load(folder) for folder in (*short, long[0])])
    assert len(kept) == 3  # a seed has none: the shorter group stays whole
    other = write_run(tmp_path / "o", rounds=20, done=20, final=99.0)
    assert len(with_results([load(short[0]), load(other)])[0]) == 2
