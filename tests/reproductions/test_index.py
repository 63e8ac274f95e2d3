"""The index of results: a page's sentences as statements, with the records behind them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from xml.etree import ElementTree

import pytest
from support.repository import DOCS

from reproductions import index, pages, verdict_bars, verdicts
from reproductions.pages import NOT_MEASURED
from reproductions.statements import (
    NOT_JUDGED,
    Health,
    Statement,
    findings,
    judged,
    seeds_of,
    tally,
)
from reproductions.verdicts import FAILS, HOLDS, OPEN

RECORD = {
    "seeds": [0],
    "date": "2026-01-02T00:00:00Z",
    "commit": "0123456789",
    "hardware": {"cpu": "a CPU", "cores": 2},
}
OTHER = {
    "seeds": {"first": 1, "count": 3},
    "date": "2026-01-03T00:00:00Z",
    "commit": "abcdefabcd+",
    "hardware": {"cpu": "B"},
}


@pytest.mark.parametrize(
    ("text", "verdict", "found"),
    [
        ("**holds** (+1.0 ± 0.5)", HOLDS, "+1.0 ± 0.5"),
        ("**holds** (a) and (b)", HOLDS, "(a) and (b)"),
        ("**does not hold**: 3", FAILS, "3"),
        ("a: **holds**, 1; b: **undecided**, 2", OPEN, "a: **holds**, 1; b: **undecided**, 2"),
        ("a: **undecided**; b: **does not hold**", FAILS, "a: **undecided**; b: **does not hold**"),
        ("not judged (+1.0 ± 2.0)", NOT_JUDGED, "+1.0 ± 2.0"),
        ("not measured", NOT_MEASURED, "not measured"),
        (None, NOT_MEASURED, "–"),
    ],
)  # fmt: skip
def test_a_sentence_is_judged_by_its_bold_words(text, verdict, found):
    one = judged("Table 1", "a claim", text, [RECORD])
    assert (one.verdict, one.found) == (verdict, found)
    assert bool(one.records) == (verdict != NOT_MEASURED)


def test_seeds_are_counted_once_over_all_records():
    assert seeds_of([RECORD, RECORD, OTHER]) == 4
    assert seeds_of([]) == 0


def test_a_row_names_commits_and_machines_and_nothing_is_left_out():
    said = Statement("Figure 1", "it rises", HOLDS, "+1", 4, [RECORD, RECORD, OTHER])
    ours = dataclasses.replace(said, where="Figure 9", claim="why", ours=True)
    waits = dataclasses.replace(said, claim="it is better", verdict=NOT_JUDGED)
    absent = [Statement("Figure 1", f"it falls: {name}", NOT_MEASURED, "–", 0, []) for name in "AB"]
    health = Health("DQN", "CartPole", "499", "500", "a zoo", [RECORD])
    paper = index.Indexed("fedqhd", "A paper: of ours", ["Table 1", "Figure 1"], "6e93e24557", "",
                          ("small",), [ours, said, waits, *absent], [health])  # fmt: skip
    letters = index.lettered([paper])
    assert letters == {"a CPU, 2 cores": "A", "B, ? cores": "B"}
    table = index.table(paper, letters)
    row = "| Figure 1 | it rises | **holds** | +1 | 4 | 0123456, A; abcdefa+, B |"
    judged, unjudged, unmeasured = table.split("<details")
    assert judged.splitlines()[2:] == [
        row, row.replace("Figure 1", "Figure 9").replace("it rises", "*why*"), "",
    ]  # fmt: skip
    assert "1 not judged" in unjudged
    assert "| it is better | **not judged** |" in unjudged
    assert "3 not measured" in unmeasured
    assert "| Figure 1 | it falls | A; B |" in unmeasured
    assert "| Table 1 | – | – |" in unmeasured
    count = index.counted([paper]).splitlines()[-1]
    assert count == "| [A paper: of ours](#a-paper-of-ours) | 1 | 0 | 0 | 1 | 3 |"  # not ours
    healthy = index.healthy([paper], letters)
    assert "| fedqhd | DQN | CartPole | 499 | 500 | a zoo | 0123456, A |" in healthy


def test_readings_of_one_finding_are_counted_once():
    """By place; rows that stand alone are one each, whatever they are called."""
    alone = Statement("Table 3", "it is high", FAILS, "1", 4, [RECORD])
    read = [dataclasses.replace(alone, claim=f"levels, {at}", finding="levels") for at in "ABC"]
    other = dataclasses.replace(read[0], where="Figure 1", verdict=HOLDS)
    rows = [alone, alone, *read, other, dataclasses.replace(read[0], verdict=OPEN)]
    assert findings(rows) == 4
    assert tally(rows) == "1 holds, 5 do not hold (3 findings), 1 undecided"
    paper = index.Indexed("fedqhd", "A", [], "", "", ("small",), rows, [])
    said = " ".join(index.introduced(paper).split())
    assert "readings of one finding: 1 holds, 5 do not hold (3 findings)" in said
    apart = dataclasses.replace(paper, statements=[alone, other])
    assert "readings" not in index.introduced(apart)


def test_the_picture_has_a_part_for_every_verdict_with_its_number():
    papers = [
        ("A & B", Counter({HOLDS: 3, FAILS: 1})),
        ("C", Counter({NOT_MEASURED: 200, OPEN: 1})),
    ]
    drawn = ElementTree.fromstring(verdict_bars.drawn(papers))
    space = "{http://www.w3.org/2000/svg}"
    told = [one.text for one in drawn.iter(f"{space}title")]
    assert told == ["3 holds", "1 does not hold", "1 undecided", "200 not measured"]
    words = [one.text for one in drawn.iter(f"{space}text")]
    assert "A & B" in words
    assert "201 statements" in words
    assert "200" in words
    assert words.count("1") == 1


def test_a_table_shows_first_what_was_measured():
    table = pages.markdown_table(["a", "b"], [["1", "not measured"], ["2", "**holds**"]])
    shown, below = pages.measured_first(table, 1).split("<details")
    assert "| 2 | **holds** |" in shown
    assert "| 1 |" not in shown
    assert "1 not measured" in below
    assert "| 1 | not measured |" in below
    assert pages.measured_first(table, 0) == table


def test_rows_and_columns_without_a_number_are_a_sentence():
    nothing = ["not measured", "not measured", "–"]
    rows = [["a", "1", "not measured", "–"], ["b", *nothing], ["c", *nothing]]
    table = pages.markdown_table(["", "x", "y", "z"], rows)
    shown, told = pages.measured_rows(table).split("\n\n")
    assert shown == pages.markdown_table(["", "x", "z"], [["a", "1", "–"]])
    assert told == "Not measured: b, c; of the other rows y."
    rows = [["p", "a", "1"], ["p", "b", "not measured"], ["q", "a", "not measured"]]
    shown, told = pages.measured_rows(pages.markdown_table("123", rows), 2).split("\n\n")
    assert "| p | a | 1 |" in shown
    assert told == "Not measured: p: b; q: a."
    whole = pages.markdown_table("12", [["a", "1"]])
    assert pages.measured_rows(whole) == whole
    assert (
        pages.measured_rows(pages.markdown_table("12", [["a", "not measured"]]))
        == "Not measured: a."
    )


def test_the_mark_of_a_folded_commit_is_explained_beside_it():
    assert pages.fold_note("rules (abc)") == "rules (abc)"
    assert pages.fold_note("rules (abc ‡)").endswith("how.md)).")


@pytest.mark.slow
def test_every_statement_of_fedqhd_that_is_judged_has_records_with_a_commit():
    pytest.importorskip("numba", reason="FedQHD needs the extra classic")
    paper = index.read("fedqhd", DOCS / "results")
    assert not index.silent(paper)
    assert len(paper.statements) > 60
    for one in paper.statements:
        assert (one.verdict == NOT_MEASURED) == (not one.records)
        assert all(record["commit"] for record in one.records)
    assert len({(one.where, one.claim) for one in paper.statements}) == len(paper.statements)


def test_the_seeds_that_would_decide_depend_on_what_is_asked():
    """A mean near the margin takes many to be within it, whatever its distance from 0 is."""
    half = verdicts.quantile(20) * 1.0684 / 20**0.5  # ± 0.5 of 20 seeds
    assert half == pytest.approx(0.5, abs=1e-3)
    open_ = verdicts.alike((0.8, half), 1.0)
    assert open_ == OPEN
    said = verdicts.in_words(open_, (0.8, half), 20, 20, margin=1.0, within=True)
    needed = int(said.split("; ")[1].split()[0])
    deviation = half * 20**0.5 / verdicts.quantile(20)
    assert verdicts.quantile(needed) * deviation / needed**0.5 < 0.2
    assert verdicts.quantile(needed - 1) * deviation / (needed - 1) ** 0.5 >= 0.2
    assert "; 21 would decide" in verdicts.in_words(OPEN, (0.8, half), 20, 20, margin=1.0)


def test_a_mean_on_the_line_names_no_number_of_seeds():
    said = verdicts.in_words(OPEN, (0.0004, 0.01), 5, 5, each=70.0, digits=3)
    far = "so near the line that 100 times these seeds would not decide"
    assert said == f"**undecided** (+0.000 ± 0.010; {far})"
    assert "would decide, " in verdicts.in_words(OPEN, (0.004, 0.01), 5, 5, each=70.0, digits=3)


def test_a_rule_that_is_younger_than_the_runs_is_marked():
    said = Statement("Figure 1", "it rises", HOLDS, "+1", 4, [RECORD, OTHER])
    letters = {"a CPU, 2 cores": "A", "B, ? cores": "B"}
    assert index.row(said, letters, "2026-01-01T23:59:59Z")[2] == "**holds**"
    assert index.row(said, letters, "2026-01-02T12:00:00Z")[2] == "**holds** ◦"
    anew = dataclasses.replace(said, afterwards=True)
    assert index.row(anew, letters, "2026-01-01T23:59:59Z")[2] == "**holds** ◦"
    waits = dataclasses.replace(said, verdict=NOT_JUDGED)
    assert index.row(waits, letters, "2027")[2] == "**not judged**"
