"""At the end of a run its engineer is told what waits for whom, and by which command."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.feedback_pages import live_run, rate, running
from support.small_runs import SMALL

from fedrl.cli import call
from fedrl.feedback import effect
from fedrl.feedback.effect import Effect
from fedrl.feedback.store import Folder, client_folder
from fedrl.feedback.waiting import waiting_line

RUN = Path("runs/one")


def asked(private: Path, client: int, *names: str) -> Folder:
    folder = Folder(client_folder(private, client))
    folder.ask([rate(name) for name in names])
    return folder


def line(private: Path) -> str:
    return waiting_line(RUN, private, range(4))


def test_what_waits_for_one_and_for_several(tmp_path: Path):
    assert line(tmp_path) == ""
    two = asked(tmp_path, 2, "a")
    where = "fedrl feedback runs/one --client"
    assert (
        line(tmp_path)
        == f"1 question waits for one person: {where} 2; learned from 0 answers so far"
    )
    asked(tmp_path, 1, "a", "b", "c")
    assert line(tmp_path).startswith(f"up to 3 questions wait for each of 2 people: {where} 1; ")
    two.answer("a", 1.0)
    assert line(tmp_path).startswith(f"3 questions wait for one person: {where} 1; ")


def test_learned_is_what_rounds_have_heard_not_what_was_said(tmp_path: Path):
    folder = asked(tmp_path, 0, "a", "b")
    folder.answer("a", 1.0)
    assert line(tmp_path).endswith("learned from 0 answers so far")
    effect.write(folder, Effect("films", 1, (), ()), folder.given())
    folder.answer("b", 1.0)
    assert line(tmp_path) == "no questions wait; learned from 1 answer so far"


@pytest.mark.parametrize("way", ["forget_all", "undo"])
def test_after_a_deletion_it_says_what_stands_now(tmp_path: Path, way: str):
    """The model has learned from what is gone: "from 0 so far" would be wrong."""
    folder = asked(tmp_path, 0, "a", "b")
    folder.answer("a", 1.0)
    effect.write(folder, Effect("films", 1, (), ()), folder.given())
    getattr(folder, way)()
    assert line(tmp_path).endswith("; 0 answers stand now")
    effect.write(folder, Effect("films", 0, (), ()), folder.given())
    assert line(tmp_path).endswith("; 0 answers stand now")
    folder.answer("b", 1.0)
    assert line(tmp_path).endswith("; 1 answer stands now")


def test_people_with_names_are_served_by_their_names(tmp_path: Path):
    folder = asked(tmp_path, 0, "a", "b")
    folder.of("anna").answer("a", 1.0)
    folder.of("ben")
    assert line(tmp_path).startswith(
        "up to 2 questions wait for each of 2 people: "
        "fedrl feedback runs/one --client 0 --people anna,ben; "
    )


def test_who_is_left_out_and_has_said_nothing_is_not_counted(tmp_path: Path):
    """A name that was mistyped once would be asked for ever."""
    folder = asked(tmp_path, 0, "a", "b")
    with running(folder, 0, people=["annaben", "eve"]):
        folder.of("eve").answer("a", 1.0)
    assert "each of 2 people: fedrl feedback runs/one --client 0 --people annaben,eve" in line(
        tmp_path
    )
    with running(folder, 0, people=["anna"]):
        pass
    assert line(tmp_path).startswith(
        "up to 2 questions wait for each of 2 people: "
        "fedrl feedback runs/one --client 0 --people anna,eve; "
    )
    with running(folder, 0):
        pass
    assert line(tmp_path).startswith("1 question waits for one person: ")
    assert "--people eve" in line(tmp_path)


@pytest.mark.slow
def test_a_live_run_ends_with_it_and_others_do_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run, folder = live_run(tmp_path, "fedrlhf/movielens")
    *_, look, last = capsys.readouterr().out.splitlines()
    assert look.startswith("finished round 1; look at it: ")
    count = len(folder.pending())
    assert last == (
        f"{count} questions wait for each of 2 people: fedrl feedback {run} --client 0; "
        "learned from 0 answers so far"
    )
    for query in folder.pending()[:3]:
        folder.answer(query.id, 1.0)
    assert call(["run", "--resume", str(run), "--rounds", "2"]) == 0
    assert capsys.readouterr().out.endswith("; learned from 3 answers so far\n")
    (folder.path / "effect.json").write_text("{")
    assert call(["run", "--resume", str(run), "--rounds", "2"]) == 0  # the run is done all the same
    assert "effect.json is damaged" in capsys.readouterr().err
    assert call([*SMALL, "--out", str(tmp_path / "other")]) == 0
    assert "look at it" in capsys.readouterr().out.splitlines()[-1]
