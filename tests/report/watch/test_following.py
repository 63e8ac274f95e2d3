"""Runs are read while they are written: every whole line once, and anew where a log was cut."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from support.watched_runs import Written, an_episode

from fedrl.report import run_labels
from fedrl.report.watch.episode_log import EpisodeLog
from fedrl.report.watch.following import Followed, about_all, find_runs, folder_ids


def test_what_is_new_is_told_once(tmp_path: Path):
    written = Written(tmp_path / "a")
    run = Followed(tmp_path / "a")
    run.read()
    assert run.news(-1, 0, 0)["rounds"] == [0]
    written.round(failed=3)
    written.round()
    run.read()
    news = run.news(0, 1, 0)
    assert news["rounds"] == [1, 2]
    assert news["metrics"]["eval/success"] == [0.2, 0.1 + 0.2]
    assert news["clients"][3] == [1, 3, "NaN"]
    assert len(news["clients"]) == 10
    run.read()
    assert run.news(0, 3, 10) == {
        "edition": 0, "since": 3, "rounds": [], "metrics": {}, "lines": 10, "clients": [],
    }  # fmt: skip


def test_the_time_left_does_not_count_what_was_compiled(tmp_path: Path):
    written = Written(tmp_path / "a", rounds=8)
    written.at = 1
    written.add("metrics.jsonl", {"round": 1, "eval/success": 0.2})
    first = {"round": 1, "clients": 62.0, "evaluate": 1.0, "compile": {"clients": 60.0}}
    written.add("timings.jsonl", first)
    run = Followed(tmp_path / "a")
    run.read()
    assert run.about()["left"] == 7 * 3.0


def test_half_a_line_waits_for_its_end_and_a_broken_one_is_left_out(tmp_path: Path):
    written = Written(tmp_path / "a")
    log = tmp_path / "a" / "metrics.jsonl"
    whole = json.dumps({"round": 1, "eval/success": 0.5})
    log.open("a").write("{broken\n[1]\n" + whole[:10])
    run = Followed(tmp_path / "a")
    run.read()
    assert run.rounds == [0]
    log.open("a").write(whole[10:] + "\n")
    run.read()
    assert run.rounds == [0, 1]
    written.add("metrics.jsonl", {"round": 2, "x": float("nan"), "y": True, "z": 1})
    run.read()
    written.add("metrics.jsonl", {"round": 3, "x": -float("inf")})
    run.read()
    assert run.metrics[-2:] == [{"x": "nan", "z": 1.0}, {"x": "-inf"}]
    assert json.loads(json.dumps(run.news(0, 2, 0)["metrics"])) == {
        "x": ["nan", "-inf"], "z": [1.0, None],
    }  # fmt: skip


def test_a_run_that_was_resumed_from_an_earlier_round_is_read_anew(tmp_path: Path):
    written = Written(tmp_path / "a")
    for _ in range(4):
        written.round()
    run = Followed(tmp_path / "a")
    run.read()
    log = tmp_path / "a" / "metrics.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:3]))  # back to round 2
    run.read()
    news = run.news(0, 5, 20)
    assert news["edition"] == 1
    assert news["rounds"] == [0, 1, 2]
    assert news["since"] == news["lines"] == 0
    assert len(news["clients"]) == 20


def test_what_a_line_of_the_list_says(tmp_path: Path):
    written = Written(tmp_path / "a", rounds=8)
    written.round()
    written.round()
    run = Followed(tmp_path / "a")
    run.read()
    about = run.about()
    assert (about["round"], about["rounds"], about["status"]) == (2, 8, "running")
    run.settings |= {
        "algorithm.name": "/home/me/spring.py:Spring",
        "world.name": "mine.worlds:Hill",
    }
    assert (run.about()["method"], run.about()["world"]) == ("Spring", "Hill")
    assert about["left"] == 6 * 3.0
    old = time.time() - 3600
    for log in ("metrics.jsonl", "clients.jsonl", "timings.jsonl"):
        os.utime(tmp_path / "a" / log, (old, old))
    assert run.about()["status"] == "silent"
    assert run.about()["left"] is None
    written.status("finished")
    assert run.about()["status"] == "finished"


def test_curves_of_clients(tmp_path: Path):
    written = Written(tmp_path / "a", clients=3)
    written.round(failed=1)
    written.round()
    run = Followed(tmp_path / "a")
    run.read()
    assert run.client_metrics() == ["train/success"]
    assert run.of_clients("train/success") == {
        "0": [[1, 2], [0.2, 0.2]], "1": [[2], [0.2]], "2": [[1, 2], [0.2, 0.2]],
    }  # fmt: skip
    assert run.of_clients("nothing") == {}


def test_what_tells_of_learning_is_offered_before_what_was_counted(tmp_path: Path):
    written = Written(tmp_path / "a")
    line = {"round": 1, "client": 0, "status": "ok", "env/steps": 9, "train/return": 1.0, "a": 2}
    written.add("clients.jsonl", line)
    run = Followed(tmp_path / "a")
    run.read()
    assert run.client_metrics() == ["train/return", "a", "env/steps"]
    for _ in range(60):
        written.round()  # what was told long ago is offered still
    run.read()
    assert "env/steps" in run.client_metrics()


def test_runs_are_found_below_a_folder_the_newest_first(tmp_path: Path):
    for name in ("x/one", "x/deep/er/two"):
        Written(tmp_path / name)
    (tmp_path / "x" / "no").mkdir()
    (tmp_path / "x" / "no" / "config.toml").touch()  # a recipe, not a run
    os.utime(tmp_path / "x" / "one" / "config.toml", (1, 1))
    found = find_runs([tmp_path / "x"])
    assert found == [tmp_path / "x" / "deep" / "er" / "two", tmp_path / "x" / "one"]
    assert find_runs([tmp_path / "x" / "one"]) == [tmp_path / "x" / "one"]
    assert find_runs([tmp_path / "nowhere"]) == []
    of_a_sweep = tmp_path / "x" / "poles" / "runs" / "pavg-seed0.0123456789ab" / "pavg-s0-f00d"
    Written(of_a_sweep)
    assert of_a_sweep in find_runs([tmp_path / "x"])


def test_a_folder_that_goes_away_during_a_look_hides_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("a/one", "b/two"):
        Written(tmp_path / name)
    scan = os.scandir

    def deleting(path):
        if str(path).endswith("one"):
            shutil.rmtree(path, ignore_errors=True)
        return scan(path)

    monkeypatch.setattr(os, "scandir", deleting)
    assert tmp_path / "b" / "two" in find_runs([tmp_path / "a", tmp_path / "b"])


# Episodes


def test_rounds_of_episodes_are_told_once_and_their_texts_are_read_when_asked_for(tmp_path: Path):
    written = Written(tmp_path / "a")
    log = EpisodeLog(tmp_path / "a" / "episodes.jsonl")
    log.read()
    assert log.news(-1, {}) == {"anew": True, "rounds": []}  # no file yet
    assert log.news(log.edition, {}) is None
    written.episodes(True, False)
    written.round()
    written.episodes(True, True)
    log.read()
    assert log.news(log.edition, {}) == {"anew": False, "rounds": [[0, 1, 2], [1, 2, 2]]}
    assert log.news(log.edition, {0: (1, 2)}) == {"anew": False, "rounds": [[1, 2, 2]]}
    assert log.news(log.edition, log.counts()) is None
    shown = log.shown(1)
    assert [one["task"] for one in shown] == ["task-0", "task-1"]
    assert all("You see what is there in round 1." in one["html"] for one in shown)
    assert log.shown(7) == []


def test_half_an_episode_waits_for_its_end_and_what_is_none_is_left_out(tmp_path: Path):
    written = Written(tmp_path / "a")
    path = tmp_path / "a" / "episodes.jsonl"
    whole = json.dumps(an_episode(0, "é", True), ensure_ascii=False).encode() + b"\n"
    path.write_bytes(b"{broken\n[1]\n" + b'{"round": "1"}\n{"round": 1}\n' + whole[:50])
    log = EpisodeLog(path)
    log.read()
    assert log.counts() == {}
    path.open("ab").write(whole[50:])
    log.read()
    assert log.counts() == {0: (1, 1)}
    wrong = an_episode(0, "x", True) | {"steps": [{"said": None}]}
    written.add("episodes.jsonl", wrong, an_episode(0, "y", False))
    log.read()
    assert log.counts() == {0: (1, 2)}
    assert [one["task"] for one in log.shown(0)] == ["é", "y"]


def test_episodes_that_were_cut_back_are_told_anew(tmp_path: Path):
    written = Written(tmp_path / "a")
    path = tmp_path / "a" / "episodes.jsonl"
    for _ in range(3):
        written.episodes(True)
        written.round()
    log = EpisodeLog(path)
    log.read()
    told = log.counts()
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    assert log.shown(2) == []  # asked for before the next look
    before = log.edition
    log.read()
    assert log.news(before, told) == {"anew": True, "rounds": [[0, 1, 1]]}
    path.unlink()
    assert log.shown(0) == []


def test_what_an_episode_says_is_text(tmp_path: Path):
    """Observations are foreign text, and a model may say anything."""
    written = Written(tmp_path / "a")
    bad = '<script>alert(1)</script><img src=x onerror="alert(2)">'
    step = {"said": f"<think>{bad}</think>{bad}", "command": bad, "valid": False, "saw": bad * 20}
    steps = [step, step | {"said": bad, "command": ""}]
    one = an_episode(0, bad, False, kind=bad, goal=f"find {bad}", begin=bad) | {"steps": steps}
    written.add("episodes.jsonl", one)
    log = EpisodeLog(tmp_path / "a" / "episodes.jsonl")
    log.read()
    (shown,) = log.shown(0)
    assert "<script" not in shown["html"]
    assert "<img" not in shown["html"]
    assert shown["html"].count("&lt;script&gt;") > 6  # goal, kind, begin, thought, command, …


def test_a_long_run_is_kept_by_its_places_not_by_its_texts(tmp_path: Path):
    written = Written(tmp_path / "a")
    for written.at in range(300):
        written.episodes(True, False, begin="x" * 5000)
    log = EpisodeLog(tmp_path / "a" / "episodes.jsonl")
    log.read()
    assert len(log.counts()) == 300
    assert len(repr(vars(log))) < 100_000
    assert len(json.dumps(log.news(-1, {}))) < 10_000


def test_a_stopped_run_says_why(tmp_path: Path):
    written = Written(tmp_path / "pg-s0-abc123")
    log = tmp_path / "pg-s0-abc123" / "log.txt"
    written.status("stopped")
    run = Followed(tmp_path / "pg-s0-abc123")
    run.read()
    assert run.about()["why"] == ""
    log.write_text("2026-01-01 10:00:00 stopped: OSError no room\nTraceback\n")
    assert run.about()["why"] == "OSError no room"
    with log.open("a") as file:
        file.write("2026-01-01 10:09:00 stopped: KeyboardInterrupt \n")
    assert run.about()["why"] == ""


def test_runs_that_are_called_alike_are_told_apart(tmp_path: Path):
    settings = {"a-111111": "lr = 0.1\n", "a-222222": "lr = 0.2\n", "b-333333": "lr = 0.2\n"}
    for name, words in settings.items():
        Written(tmp_path / name, settings=words)
    Written(tmp_path / "c-444444", seed=1, settings="lr = 0.3\n")
    runs = [Followed(tmp_path / name) for name in (*settings, "c-444444")]
    for run in runs:
        run.read()
    apart = [line["apart"] for line in about_all(runs)]
    assert apart == ["lr=0.1", "lr=0.2, 222222", "lr=0.2, 333333", ""]
    assert [line["apart"] for line in about_all(runs[1:3])] == ["222222", "333333"]


def test_folders_have_the_shortest_name_that_no_other_has():
    paths = [Path(text) for text in (
        "/runs/demo/pg-s0-f00d", "/runs/copy/pg-s0-f00d", "/runs/demo/pg-s1-beef",
        "/runs/demo/mine-1", "/runs/demo/yours-1", "/runs/a",
    )]  # fmt: skip
    assert folder_ids(paths) == [
        "demo/pg-s0-f00d", "copy/pg-s0-f00d", "beef", "mine-1", "yours-1", "a",
    ]  # fmt: skip


def test_a_copied_run_is_told_from_its_original(tmp_path: Path):
    for place in ("demo", "copy"):
        Written(tmp_path / place / "pg-s0-f00d")
    runs = [Followed(tmp_path / place / "pg-s0-f00d") for place in ("demo", "copy")]
    for run in runs:
        run.read()
    assert [line["apart"] for line in about_all(runs)] == ["demo/pg-s0-f00d", "copy/pg-s0-f00d"]


def test_many_runs_that_are_called_alike_are_compared_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Once for each of 200 runs took the server nine seconds, every second."""
    compared, differing = [], run_labels.differing
    monkeypatch.setattr(
        run_labels, "differing", lambda dicts: compared.append(len(dicts)) or differing(dicts)
    )
    for name in "abc":
        Written(tmp_path / name)
    Written(tmp_path / "d", seed=1)
    runs = [Followed(tmp_path / name) for name in "abcd"]
    for run in runs:
        run.read()
    about_all(runs)
    assert compared == [3, 1]


def test_a_path_that_is_no_text_can_be_asked_for():
    run = Followed(Path(os.fsdecode(b"/runs/\xff")))
    assert run.address == run.about()["path"] == "/runs/?"


def test_a_run_of_a_sweep_is_called_by_its_variant(tmp_path: Path):
    Written(tmp_path / "a")
    config = tmp_path / "a" / "config.toml"
    config.write_text(config.read_text().replace('"demo"', '"pavg-0.004-seed0.0123456789ab"'))
    run = Followed(tmp_path / "a")
    run.read()
    assert run.about()["name"] == "pavg-0.004"
