"""Where ε counts on nobody knowing who was asked, other users of the machine read no cohorts."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from fedrl.cli import call

METHOD = ("run", "momentum/random_mdp", "--algorithm.name", "pavg", "--algorithm.beta", "1.0",
          "--world.horizon", "5", "--rounds", "2", "--federation.cohort", "3",
          "--faults.clients", "0,1,2,3", "--privacy.clip", "1",
          "--federation.quorum", "0.3")  # fmt: skip
# A cohort that nobody can foresee may have two who fail: one of three is enough for a round.
SECRET = ("--privacy.noise", "4")
KNOWN = {
    "none": (),
    "seeded": (*SECRET, "--privacy.seeded", "true"),
    "local": (*SECRET, "--privacy.where", "local"),
}


@pytest.fixture(autouse=True)
def usual_permissions():
    before = os.umask(0o022)
    yield
    os.umask(before)


def trained(out: Path, *flags: str) -> Path:
    assert call([*METHOD, *flags, "--out", str(out)]) == 0
    (run,) = out.glob("*/*")
    return run


def open_to_others(run: Path) -> set[str]:
    """The names of what another user could read, the folder itself included."""
    return {path.name for path in (run, *run.rglob("*")) if path.stat().st_mode & 0o077}


def test_cohorts_that_are_secret_are_their_owners_to_read(tmp_path):
    run = trained(tmp_path / "out", *SECRET)
    assert "clients.jsonl" in os.listdir(run)
    assert stat.S_IMODE(run.stat().st_mode) == 0o700
    # Files, too: a copy of the folder, or of a file, stays private.
    assert open_to_others(run) <= {".lock"}
    assert call(["run", "--resume", str(run), "--rounds", "3"]) == 0
    assert open_to_others(run) <= {".lock"}


@pytest.mark.parametrize("flags", KNOWN.values(), ids=KNOWN.keys())
def test_other_runs_are_as_readable_as_ever(tmp_path, flags):
    run = trained(tmp_path / "out", *flags)
    assert {run.name, "clients.jsonl", "log.txt", "metrics.jsonl"} <= open_to_others(run)


@pytest.mark.slow
def test_a_page_about_secret_cohorts_is_private_wherever_it_lies(tmp_path):
    """Its table of failures names clients and rounds."""
    one = trained(tmp_path / "one", *SECRET)
    two = trained(tmp_path / "two", *SECRET, "--seed", "1")
    page = tmp_path / "page.html"
    page.write_text("an older page, open to all")
    assert call(["report", str(one), str(two), "--out", str(page)]) == 0
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert call(["report", str(one)]) == 0
    assert stat.S_IMODE((one / "report.html").stat().st_mode) == 0o600


def test_a_run_of_an_older_version_is_closed_when_it_goes_on(tmp_path):
    run = trained(tmp_path / "out", *SECRET)
    for path in (run, *run.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert call(["run", "--resume", str(run), "--rounds", "3"]) == 0
    assert open_to_others(run) <= {"checkpoints"}  # in a folder that nobody else enters


def test_a_half_written_secret_does_not_stay_open(tmp_path):
    """A half that a kill left behind is written over, and keeps no permissions of its own."""
    from fedrl.core.atomic_files import write_atomically

    half = tmp_path / ".cohorts.key.part"
    half.write_bytes(b"")
    half.chmod(0o666)
    write_atomically(tmp_path / "cohorts.key", b"1f", 0o600)
    assert stat.S_IMODE((tmp_path / "cohorts.key").stat().st_mode) == 0o600


def test_a_planted_link_is_not_written_through(tmp_path):
    from fedrl.core.atomic_files import write_atomically

    target = tmp_path / "elsewhere"
    (tmp_path / ".cohorts.key.part").symlink_to(target)
    with pytest.raises(OSError, match="cohorts"):
        write_atomically(tmp_path / "cohorts.key", b"1f", 0o600)
    assert not target.exists()


def test_a_lost_key_or_ledger_is_one_line(tmp_path, capfd):
    run = trained(tmp_path / "out", *SECRET)
    for name in ("cohorts.key", "exchanges.txt"):
        for place, put in (("folder", Path.mkdir), ("link", lambda p: p.symlink_to("nowhere"))):
            copy = shutil.copytree(run, tmp_path / f"{name}-{place}")
            (copy / name).unlink()
            put(copy / name)
            capfd.readouterr()
            assert call(["run", "--resume", str(copy), "--rounds", "3"]) == 2
            said = capfd.readouterr().err
            assert name in said
            assert "Traceback" not in said
            assert [line for line in said.splitlines() if line.startswith("error:")]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("exchanges.txt", b"x"),
        ("exchanges.txt", b"1"),
        ("exchanges.txt", None),
        ("cohorts.key", b"zz"),
    ],
)
def test_a_run_that_forgot_what_it_has_told_is_refused_as_it_is(tmp_path, capfd, name, data):
    """A count that is too small makes ε too small; nothing of the folder is changed."""
    run = trained(tmp_path / "out", *SECRET)
    (run / name).unlink()
    if data is not None:
        (run / name).write_bytes(data)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    capfd.readouterr()
    assert call(["run", "--resume", str(run), "--rounds", "3"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert name in line
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
