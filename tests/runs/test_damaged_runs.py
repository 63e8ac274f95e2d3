"""Damaged run folders: nothing starts over, nothing is lost, and it is one clear line."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save
from support.small_runs import ROUNDS, SMALL, STOPPED, make_runs

from fedrl import api
from fedrl.cli import call
from fedrl.config import build
from fedrl.core.types import UserError
from fedrl.runs.checkpoint import pack
from fedrl.runs.run_dir import RunDir, read_checkpoint

EMPTY = {"round": 5, "states": 0, "totals": {}, "scalars": {}, "stacked": []}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    return make_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def half(runs, tmp_path) -> Path:
    return shutil.copytree(runs["half"], tmp_path / "half")


def resume(run: Path, capfd, *flags: str) -> tuple[int, str]:
    code = call(["run", "--resume", str(run), *flags])
    said = capfd.readouterr().err
    assert "Traceback" not in said
    return code, said


def refused(run: Path, capfd, *words: str) -> str:
    """The one line that a command says; no file is changed by it."""
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert call([*words] or ["run", "--resume", str(run)]) == 2
    said = capfd.readouterr().err
    assert "Traceback" not in said
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    (line,) = said.strip().splitlines()
    assert line.startswith("error: ")
    return line


def same_metrics(run: Path, runs: dict[str, Path]) -> bool:
    return (run / "metrics.jsonl").read_bytes() == (runs["whole"] / "metrics.jsonl").read_bytes()


def rounds(path: Path) -> list[int]:
    return [json.loads(line)["round"] for line in path.read_text().splitlines()]


def short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


# Logs that lost lines


@pytest.mark.slow
@pytest.mark.parametrize("log", ["timings.jsonl", "clients.jsonl"])
def test_a_log_that_nothing_depends_on_may_be_gone(half, runs, log, capfd):
    """It was taken for a damaged checkpoint: the run went back, then to the very start."""
    (half / log).unlink()
    for _ in range(2):
        code, said = resume(half, capfd)
        assert code == 0
    assert "round 0/" not in said
    assert same_metrics(half, runs)
    assert rounds(half / log)[0] == STOPPED + 1
    assert not list(half.rglob("*.damaged"))


@pytest.mark.slow
def test_a_run_whose_timings_are_gone_goes_on_where_it_was(half, capfd, monkeypatch):
    (half / "timings.jsonl").unlink()
    began = []
    load = RunDir.load
    monkeypatch.setattr(RunDir, "load", lambda self: began.append(load(self)) or began[-1])
    assert resume(half, capfd)[0] == 0
    assert began[0].round == STOPPED


@pytest.mark.slow
def test_lines_that_cannot_be_read_are_kept_beside_the_log(half, runs, capfd):
    log = half / "clients.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    damaged = b"".join([lines[0], b"\xff" + lines[1], *lines[2:]])
    log.write_bytes(damaged)
    code, said = resume(half, capfd)
    assert code == 0
    assert "clients.jsonl has" in said
    assert (half / "clients.jsonl.damaged").read_bytes() == damaged
    whole = (runs["whole"] / "clients.jsonl").read_bytes().splitlines(keepends=True)
    assert log.read_bytes() == b"".join([whole[0], *whole[2:]])
    assert call(["report", str(half)]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["gone", "short", "flipped", "another digit", "of another run"])
def test_metrics_that_are_not_the_runs_are_refused_until_one_says_go_on(half, runs, damage, capfd):
    log = half / "metrics.jsonl"
    data = bytearray(log.read_bytes())
    if damage == "gone":
        log.unlink()
    elif damage == "short":
        log.write_bytes(data[: len(data) // 2])
    elif damage == "flipped":
        data[30] ^= 0x80
        log.write_bytes(data)
    elif damage == "another digit":  # still JSON, and a number that nobody measured
        at = re.search(rb'"eval/return": \d\.\d', bytes(data)).end() - 1
        data[at] = ord("9") if data[at] != ord("9") else ord("8")
        log.write_bytes(data)
    else:
        shutil.copy(runs["other"] / "metrics.jsonl", log)
    for _ in range(2):
        assert "metrics.jsonl has" in refused(half, capfd)
    code, _ = resume(half, capfd, "--without-lost-lines")
    assert code == 0
    whole = (runs["whole"] / "metrics.jsonl").read_bytes().splitlines()
    assert log.read_bytes().splitlines()[-(ROUNDS - STOPPED) :] == whole[-(ROUNDS - STOPPED) :]
    assert resume(half, capfd)[0] == 0  # said once, it is settled
    assert call(["report", str(half)]) == 0


# Checkpoints that are gone or none


def test_a_run_never_starts_over_where_its_logs_are(half, capfd):
    for path in (half / "checkpoints").iterdir():
        path.unlink()
    for _ in range(2):
        line = refused(half, capfd)
        assert "no checkpoint of its rounds that can be read" in line
        assert f"fedrl run {half}/config.toml" in line


def test_a_run_never_starts_over_where_damaged_checkpoints_are(half, capfd):
    for path in (half / "checkpoints").iterdir():
        path.write_bytes(b"x")
    for log in half.glob("*.jsonl"):
        log.write_bytes(b"")
    for _ in range(2):
        assert "no checkpoint of its rounds that can be read" in refused(half, capfd)


def test_the_very_first_checkpoint_is_no_place_to_go_back_to(half, runs, tmp_path, capfd):
    """With later rounds in the log, going on from it would be starting over."""
    early = tmp_path / "early"
    call([*SMALL, "--rounds", "1", "--seed", "0", "--out", str(early)])
    (start,) = early.glob("*/*/checkpoints/start.*")
    for path in (half / "checkpoints").iterdir():
        path.unlink()
    shutil.copy(start, half / "checkpoints")
    capfd.readouterr()
    assert "no checkpoint of its rounds" in refused(half, capfd)


def test_the_line_that_a_refused_run_names_begins_a_new_one(half, runs, tmp_path, capfd):
    for path in (half / "checkpoints").iterdir():
        path.unlink()
    assert call(["run", str(half / "config.toml"), "--out", str(tmp_path / "new")]) == 0
    (new,) = (tmp_path / "new").glob("*/*")
    assert same_metrics(new, runs)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no safetensors at all",
        save({"x": np.ones(2)}),
        save({"x": np.ones(2)}, {"fedrl": "{"}),
        save({}, {"fedrl": '{"round": 5}'}),
        save({}, {"fedrl": '{"round": 5, "states": "a", "totals": {}, "scalars": {}}'}),
        save({}, {"fedrl": "[" * 99_999}),
        save({}, {"fedrl": json.dumps(EMPTY | {"digests": ["a"]})}),
        save({}, {"fedrl": json.dumps(EMPTY | {"settings": "a"})}),
    ],
    ids=[
        "empty",
        "no safetensors",
        "no header",
        "no JSON",
        "no states",
        "a text of states",
        "too deep",
        "a list of hashes",
        "a text of settings",
    ],
)
def test_a_checkpoint_that_cannot_be_parsed_though_its_hash_fits(half, runs, data, capfd):
    name = f"round-000005.{short_hash(data)}.safetensors"
    (half / "checkpoints" / name).write_bytes(data)
    assert call(["eval", str(half), "--episodes", "1"]) == 0
    code, said = resume(half, capfd)
    assert code == 0
    assert "cannot be read" in said
    assert same_metrics(half, runs)
    assert (half / "checkpoints" / f"{name}.damaged").read_bytes() == data


def test_what_was_set_aside_once_is_kept_the_second_time(half, runs, capfd):
    newest = RunDir(half).checkpoints()[0]
    place = newest.with_name(f"{newest.name}.damaged")
    place.write_bytes(b"of an earlier time")
    newest.write_bytes(b"damaged now")
    assert resume(half, capfd)[0] == 0
    assert same_metrics(half, runs)
    assert place.read_bytes() == b"of an earlier time"
    assert newest.with_name(f"{newest.name}.damaged2").read_bytes() == b"damaged now"


# Folders and links in a file's place


def put_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def put_link(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("nowhere")


@pytest.mark.parametrize("put", [put_folder, put_link])
@pytest.mark.parametrize(
    "name",
    ["metrics.jsonl", "clients.jsonl", "timings.jsonl", "log.txt", "meta.json", "summary.json",
     "config.toml", ".lock"],
)  # fmt: skip
def test_a_folder_or_a_dangling_link_in_the_place_of_a_file(half, put, name, capfd):
    put(half / name)
    line = refused(half, capfd)
    assert name in line


@pytest.mark.parametrize("put", [put_folder, put_link])
@pytest.mark.parametrize("which", [0, -1])
def test_a_folder_or_a_dangling_link_in_the_place_of_a_checkpoint(half, runs, put, which, capfd):
    path = RunDir(half).checkpoints()[which]
    put(path)
    assert call(["eval", str(half), "--episodes", "1"]) == 0
    assert resume(half, capfd)[0] == 0
    assert same_metrics(half, runs)


def test_a_file_in_the_place_of_the_checkpoints(half, capfd):
    shutil.rmtree(half / "checkpoints")
    (half / "checkpoints").write_text("x")
    assert "checkpoints is no folder" in refused(half, capfd)


# Meta and settings


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [b"\xff\xfe", b"[]", b'{"seconds": "long"}', b"", b"[" * 9999],
    ids=["no text", "a list", "seconds in words", "empty", "deep"],
)
def test_a_damaged_meta_file_does_not_stop_a_run(half, runs, data, capfd):
    (half / "meta.json").write_bytes(data)
    code = call(["report", str(half)])
    assert code in (0, 2)
    assert capfd.readouterr().err.count("\n") <= 1
    assert resume(half, capfd)[0] == 0
    assert same_metrics(half, runs)
    assert json.loads((half / "meta.json").read_text())["status"] == "finished"
    if data and data != b'{"seconds": "long"}':
        assert (half / "meta.json.damaged").read_bytes() == data


def test_settings_that_are_not_the_runs_own_are_refused(half, runs, capfd):
    """One that was changed by hand gave numbers of two runs in one file."""
    config = half / "config.toml"
    mine = config.read_text()
    config.write_text(mine.replace("seed = 0", "seed = 1"))
    assert "seed is 1, and 0 in the run's checkpoint" in refused(half, capfd)
    assert "seed is 1" in refused(half, capfd, "eval", str(half))
    config.write_text(mine.replace("rounds = 6", "rounds = 7"))  # that may grow
    assert resume(half, capfd)[0] == 0
    assert rounds(half / "metrics.jsonl")[-1] == 7


def test_a_resumed_run_that_is_refused_keeps_its_settings(half, runs, capfd, monkeypatch):
    """`--rounds 9` was written down although nothing had begun."""
    before = (half / "config.toml").read_text()
    from fedrl.core.types import UserError

    def fails(config):
        raise UserError("no such world any more")

    with monkeypatch.context() as patch:
        patch.setattr(api, "build_algorithm", fails)
        assert resume(half, capfd, "--rounds", "9")[0] == 2
    assert (half / "config.toml").read_text() == before
    assert json.loads((half / "meta.json").read_text())["status"] == "stopped"
    assert resume(half, capfd)[0] == 0
    assert same_metrics(half, runs)


def test_checkpoints_of_older_versions_still_resume(half, runs, capfd):
    """Those know only the lengths of the logs."""
    for path in RunDir(half).checkpoints():
        snapshot, notes = read_checkpoint(path)
        path.unlink()
        data = pack(snapshot, {"lengths": notes["lengths"]})
        name = f"{path.name.split('.')[0]}.{short_hash(data)}.safetensors"
        (path.parent / name).write_bytes(data)
    log = half / "metrics.jsonl"
    data = log.read_bytes()
    log.write_bytes(data.replace(b'"round": 1,', b'"round": 1\xff', 1))
    assert "metrics.jsonl has lines that cannot be read" in refused(half, capfd)
    log.write_bytes(data)
    assert resume(half, capfd)[0] == 0
    assert same_metrics(half, runs)


# Names with odd bytes

ODD = {
    "surrogates": "runs\udcff",
    "NUL": "runs\0x",
    "too long": "x" * 5000,
    "too long in parts": "/".join(["x" * 200] * 40),
}


@pytest.mark.parametrize("out", ODD.values(), ids=ODD.keys())
def test_a_folder_that_cannot_be_is_one_line(tmp_path, monkeypatch, out, capfd):
    monkeypatch.chdir(tmp_path)
    assert call([*SMALL, "--rounds", "1", "--out", out]) == 2
    said = capfd.readouterr().err
    assert "Traceback" not in said
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert not list(tmp_path.rglob("config.toml"))


@pytest.mark.slow
@pytest.mark.parametrize("out", ["a\nb", "a b", "ä", "del\x7f", 'quo"te\\', "-"])
def test_a_folder_with_an_odd_name_is_a_folder(tmp_path, monkeypatch, out, capfd):
    monkeypatch.chdir(tmp_path)
    assert call([*SMALL, "--rounds", "1", f"--out={out}"]) == 0
    (run,) = (tmp_path / out).glob("*/*")
    assert resume(run, capfd, "--rounds", "2")[0] == 0
    assert call(["report", str(run)]) == 0


@pytest.mark.parametrize("words", [("report",), ("eval",), ("run", "--resume"), ("run",)])
@pytest.mark.parametrize("name", ["x" * 5000, "nowhere\udcff"])
def test_a_run_whose_name_cannot_be_is_one_line(words, name, capfd):
    assert call([*words, name]) == 2
    said = capfd.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1


@pytest.mark.slow
def test_a_run_in_a_folder_with_odd_bytes_is_reported_and_resumed(half, runs, tmp_path, capfd):
    odd = tmp_path / "caf\udce9"
    half.rename(odd)
    assert resume(odd, capfd)[0] == 0
    assert same_metrics(odd, runs)
    assert call(["report", str(odd)]) == 0


# No folder before everything is there


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--algorithm.model", "models/none"), "`fedrl warmstart`"),
        (("--algorithm.model", "./none"), "`fedrl warmstart`"),
        (("--algorithm.model", "{model}", "--algorithm.device", "cuda"), "PyTorch sees no GPU"),
        (("--algorithm.model", "{model}", "--algorithm.rollouts", "vllm"), "vllm"),
    ],
)
def test_what_a_language_agent_lacks_is_said_before_there_is_a_folder(
    flags, message, tmp_path, monkeypatch, capfd
):
    pytest.importorskip("torch")
    from support.agent_runs import make_model

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    if "{model}" in flags:
        make_model(tmp_path / "model")
        flags = tuple(str(tmp_path / "model") if word == "{model}" else word for word in flags)
    capfd.readouterr()
    assert call(["run", "fedagent/demo", *flags]) == 2
    said = capfd.readouterr().err
    assert message in said
    # A busy machine is told what it waits for, too.
    assert len([line for line in said.splitlines() if not line.startswith("loading ")]) == 1
    assert not (tmp_path / "runs").exists()


def test_no_folder_is_left_by_a_disk_that_is_full(tmp_path, monkeypatch, capfd):
    from fedrl.runs import run_dir

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_dir, "write_atomically", full)
    assert call([*SMALL, "--out", str(tmp_path / "runs")]) == 2
    assert "No space left on device" in capfd.readouterr().err
    assert not list((tmp_path / "runs").glob("*/*"))


def test_a_log_that_may_not_be_written_is_named_before_anything_is(half, monkeypatch, capfd):
    locked = half / "timings.jsonl"
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, how: path != locked and allowed(path, how))
    assert str(locked) in refused(half, capfd)


def test_a_disk_that_fills_up_in_the_log_for_people_says_how_to_go_on(
    tmp_path, monkeypatch, runs, capfd
):
    """log.txt is written last: the round is saved by then."""

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(RunDir, "_opener", full)
        assert call([*SMALL, "--rounds", str(ROUNDS), "--out", str(tmp_path / "runs")]) == 2
    (run,) = (tmp_path / "runs").glob("*/*")
    assert f"go on with: fedrl run --resume {run}" in capfd.readouterr().err
    assert resume(run, capfd)[0] == 0
    assert same_metrics(run, runs)


@pytest.mark.parametrize("stopped", [1, 4, ROUNDS])
def test_control_c_between_a_rounds_lines_and_its_checkpoint(
    tmp_path, monkeypatch, runs, stopped, capfd
):
    """The checkpoint that is then written is of the round before, and so is its end of the logs."""
    log = RunDir.log

    def stop(self, done):
        log(self, done)
        if done.round == stopped:
            raise KeyboardInterrupt

    words = [*SMALL, "--rounds", str(ROUNDS), "--checkpoint_every", "4"]
    with monkeypatch.context() as patch:
        patch.setattr(RunDir, "log", stop)
        assert call([*words, "--out", str(tmp_path / "runs")]) == 130
    (run,) = (tmp_path / "runs").glob("*/*")
    assert resume(run, capfd)[0] == 0
    assert same_metrics(run, runs)


def test_a_run_reached_by_a_link_keeps_its_name_on_flower(half, tmp_path, monkeypatch):
    """Nodes file their clients' states under it."""
    from fedrl.engines.flower import driver
    from fedrl.runs import train as runs_

    told = []

    def stop(config, name, *_):
        told.append(name)
        raise UserError("not today")

    link = tmp_path / "link"
    link.symlink_to(half)
    config, directory = runs_.resume(link, [])
    monkeypatch.setattr(driver, "open_engine", stop)
    monkeypatch.setattr(runs_.coordinator, "connected", lambda config: "")
    flown = replace(config, engine="flower", connection="x")
    with pytest.raises(UserError, match="not today"):
        runs_.train(flown, directory, build.build_algorithm(config))
    assert told == [half.name]


def test_what_is_no_folder_is_said_to_be_none(half, tmp_path, capfd):
    assert "is no folder" in refused(half, capfd, "eval", str(half / "metrics.jsonl"))
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for words in (["report"], ["eval"], ["run", "--resume"]):
        assert str(loop) in refused(half, capfd, *words, str(loop))


def test_two_processes_never_share_a_damaged_run(half):
    """A refusal gives the lock back."""
    (half / "metrics.jsonl").unlink()
    assert call(["run", "--resume", str(half)]) == 2
    code = "import sys, pathlib; from fedrl.runs.run_dir import RunDir; "
    code += "RunDir.open(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(half)], check=True)
