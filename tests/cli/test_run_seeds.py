"""`fedrl run RECIPE --seeds 0-2`: a run for each, as if each had been typed alone."""

from __future__ import annotations

import pytest
from support.small_runs import SMALL

from fedrl.cli import call
from fedrl.core.types import UserError
from fedrl.runs.progress import Progress

pytestmark = pytest.mark.slow
SHORT = (*SMALL, "--rounds", "2")


def test_a_run_per_seed_with_the_numbers_that_it_has_alone(tmp_path, capsys):
    together, alone = tmp_path / "together", tmp_path / "alone"
    assert call([*SHORT, "--seeds", "0,2-3", "--out", str(together)]) == 0
    said = capsys.readouterr().out
    runs = sorted(path.parent for path in together.glob("*/*/config.toml"))
    assert [run.name.split("-")[-2] for run in runs] == ["s0", "s2", "s3"]
    assert "all of them: fedrl report" in said.splitlines()[-1]
    assert all(str(run) in said.splitlines()[-1] for run in runs)
    assert call([*SHORT, "--seed", "3", "--out", str(alone)]) == 0
    assert "all of them" not in capsys.readouterr().out
    (run,) = (path.parent for path in alone.glob("*/*/config.toml"))
    assert (run / "metrics.jsonl").read_bytes() == (runs[-1] / "metrics.jsonl").read_bytes()


def test_a_stopped_one_says_how_all_go_on(tmp_path, monkeypatch, capsys):
    def stop(_, done):
        raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "round_done", stop)
    assert call([*SHORT, "--seeds", "0-2", "--out", str(tmp_path)]) == 130
    said = capsys.readouterr().err
    assert "go on with: fedrl run --resume" in said
    assert "the seeds after it: fedrl run momentum/random_mdp" in said
    assert said.rstrip().endswith("--seeds 1,2")
    assert len([*tmp_path.glob("*/*")]) == 1


@pytest.mark.parametrize(
    ("cure", "then"),
    [
        ("run it with --privacy.clip 1 --privacy.secure true (secure)", "start a new run with"),
        ("needs --federation.quorum 1 (least_clients)", ", and these flags"),
        ("unless its owner says so (allow, or --allow algorithm.model)", "go on with: fedrl run"),
    ],
)
def test_flags_that_a_resumed_run_refuses_are_of_a_new_one(
    cure: str, then: str, tmp_path, monkeypatch, capsys
):
    def refused(_, done):
        raise UserError(f"round 1: privacy.secure: {cure}")

    monkeypatch.setattr(Progress, "round_done", refused)
    assert call([*SHORT, "--out", str(tmp_path)]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert then in last
    assert ("--resume" in last) == ("start" not in then)
    assert ("these flags" in last) == ("--allow" not in cure)


def test_a_dry_run_counts_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call([*SHORT, "--seeds", "4-6", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "\nseed = 4\n" in said
    assert "# 3 runs like this" in said
    assert not [*tmp_path.iterdir()]


def test_seeds_where_a_run_has_one_are_one_line(tmp_path, capsys):
    recipe = tmp_path / "mine.toml"
    recipe.write_text('seeds = [0, 1]\n[algorithm]\nname = "pavg"\n[world]\nname = "random_mdp"\n')
    assert call(["run", str(recipe)]) == 2
    assert "a run has one, seed; several runs: fedrl run RECIPE --seeds 0-9" in (
        capsys.readouterr().err
    )


def test_a_note_is_said_once_and_not_for_every_seed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call([*SHORT, "--algorithm.name", "pavg", "--seeds", "0-2"]) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert notes
    assert len(notes) == len(set(notes))


def test_a_recipes_help_tells_of_seeds_and_of_resuming(capsys):
    assert call(["run", "momentum/random_mdp", "--help"]) == 0
    usage = capsys.readouterr().out.partition("\n\n")[0]
    assert "--seeds 0-9" in usage
    assert "fedrl run --resume RUN" in usage
