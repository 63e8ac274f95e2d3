"""Sweeps: variants of a recipe side by side, resumable, and one page about them."""

from __future__ import annotations

import io
import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from fedrl.api import complete
from fedrl.cli import call
from fedrl.config.loading import find_recipe, recipes_folder, resolve
from fedrl.core.types import UserError
from fedrl.runs import sweep as sweeps
from fedrl.runs.grid import digest, reached
from fedrl.runs.read import runs_in

SWEEP = """
recipe = "momentum/random_mdp"
seeds = [0, 1]
[runs]
plain = "--algorithm.name pavg"
momentum = "--algorithm.beta 0.2"
"""
QUICK = ["--rounds", "2", "--world.horizon", "20", "--federation.clients", "3"]


@pytest.fixture
def sweep(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(SWEEP)
    return path


@pytest.mark.slow
def test_a_sweep_trains_every_variant_and_seed_once(sweep, tmp_path, capsys):
    flags = ["sweep", str(sweep), "--out", str(tmp_path / "out"), "--processes", "2", *QUICK]
    assert call(flags) == 0
    page = tmp_path / "out" / "report.html"
    said = capsys.readouterr().out
    assert f"report: {page}" in said
    assert [line.split()[0] for line in said.splitlines()[1:3]] == ["plain", "momentum"]
    text = page.read_text()
    assert "momentum/random_mdp: two" in text
    assert "pavg" in text
    assert "fedsvrpg-m" in text
    page.unlink()
    assert call(["report", str(tmp_path / "out")]) == 0
    assert f"report: {page}" in capsys.readouterr().out
    assert "<h1>out</h1>" in page.read_text()
    logs = sorted((tmp_path / "out").rglob("metrics.jsonl"))
    assert len(logs) == 4
    before = {log: log.stat().st_mtime_ns for log in logs}
    assert call(flags) == 0  # all is there: nothing is computed again
    assert {log: log.stat().st_mtime_ns for log in logs} == before


@pytest.mark.slow
def test_a_sweep_equals_the_runs_by_hand(sweep, tmp_path):
    found = sweeps.read(str(sweep))
    sweeps.run(found, complete, QUICK, tmp_path / "out", 1, None)
    by_hand = tmp_path / "hand"
    assert call(["run", "momentum/random_mdp", "--algorithm.name", "pavg", "--seed", "1", "--out",
                 str(by_hand), *QUICK]) == 0  # fmt: skip
    (log,) = by_hand.rglob("metrics.jsonl")
    (ours,) = (tmp_path / "out").glob("runs/plain-seed1.*/*/metrics.jsonl")
    assert ours.read_bytes() == log.read_bytes()


@pytest.mark.slow
def test_time_that_is_over_leaves_the_rest_for_later(sweep, tmp_path, capsys):
    out = ["--out", str(tmp_path / "out"), *QUICK]
    assert call(["sweep", str(sweep), "--minutes", "0", *out]) == 0
    assert "the same command goes on" in capsys.readouterr().out
    assert call(["sweep", str(sweep), *out]) == 0
    assert "goes on" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("recipe = 3", "name the recipe"),
        ('recipe = "momentum/cartpole"', "[runs] gives the flags"),
        ('recipe = "momentum/cartpole"\nrun = 1', "unknown key 'run'"),
        ('recipe = "momentum/cartpole"\nseeds = [-1]\n[runs]\na = ""', "seeds is [-1]"),
        ('recipe = "momentum/cartpole"\n[runs]\na = "--roundz 3"', "variant 'a': unknown key"),
        ("recipe =", "not valid TOML"),
        ('recipe = "momentum/cartpole"\nseeds = 3\n[runs]\na = ""', "seeds is 3"),
        ('recipe = "momentum/cartpole"\nseeds = "0..4"\n[runs]\na = ""', "write them like 0-9"),
        ('recipe = "momentum/cartpole"\n[runs]', "[runs] gives the flags"),
        ('recipe = "momentum/cartpole"\n[runs]\na = "--rounds \'3"', "variant 'a'"),
        ('recipe = "momentum/cartpole"\n[runs]\n"../a" = ""', "names a folder"),
        (
            'recipe = "momentum/cartpole"\n[runs]\nlr-0.001 = "--algorithm.lr 0.001"',
            "variant 'lr-0' holds a table, not flags: a name with a dot needs quotes: "
            '"lr-0.001" = …',
        ),
        ('recipe = "momentum/cartpole"\n[runs]\nv1.2.3 = ""', 'needs quotes: "v1.2.3" = …'),
        ('recipe = "momentum/cartpole"\n[runs.a]\nalgorithmm = 3', "unknown key algorithmm"),
    ],
)
def test_mistakes_are_one_line(tmp_path, text, words):
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        sweeps.read(str(path)).cells([])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_sweep_names_the_nearest():
    with pytest.raises(UserError, match="fedagent/baselines"):
        sweeps.read("fedagent/baseline")


def test_a_misspelt_file_names_the_one_beside_it(sweep):
    with pytest.raises(UserError, match=r"did you mean '.*two\.toml'\?"):
        sweeps.read(str(sweep.with_name("tow.toml")))


@pytest.mark.slow
def test_a_flag_that_is_forgotten_begins_no_second_grid(sweep, tmp_path, capsys):
    def swept(*flags: str) -> int:
        out = ["--out", str(tmp_path / "out"), "--processes", "1"]
        return call(["sweep", str(sweep), "--seeds", "0-0", *out, *QUICK, *flags])

    assert swept("--world.kappa", "0.5") == 0
    runs = sorted(tmp_path.rglob("metrics.jsonl"))
    capsys.readouterr()
    assert swept() == 2
    told = capsys.readouterr().err
    assert f"2 runs with other settings lie in {tmp_path / 'out'} (world.kappa 0.5, here" in told
    assert "the same sweep and flags; to begin others, another --out" in told
    assert sorted(tmp_path.rglob("metrics.jsonl")) == runs
    sweep.write_text(SWEEP + 'more = "--algorithm.beta 0.9"\n')
    assert swept("--world.kappa", "0.5") == 0  # a variant more is no other grid


def test_of_a_variant_whose_code_has_changed_the_newest_run_counts(tmp_path, caplog):
    for code, day in (("a" * 12, "2026-01-02"), ("b" * 12, "2026-01-01")):
        run = tmp_path / "runs" / f"mine-seed0.{code}" / "pavg-s0"
        run.mkdir(parents=True)
        (run / "config.toml").touch()
        (run / "meta.json").write_text(json.dumps({"started": day}))
    (found,) = runs_in(tmp_path)
    assert found.parent.name == f"mine-seed0.{'a' * 12}"
    assert "left out 1 older run" in caplog.text


@pytest.mark.parametrize("name", sweeps.sweeps())
def test_sweeps_that_come_with_fedrl_resolve(name):
    sweep = sweeps.read(name)
    cells = sweep.cells([])
    assert len({json.dumps(cell.recipe, sort_keys=True) for cell in cells}) == len(cells)
    for cell in cells:
        assert reached(cell.config(0, recipes_folder() / "nowhere")) == -1


def test_sweeps_say_what_the_recipes_comments_say():
    """The baselines by hand and in the sweep are the same runs."""
    text = find_recipe("fedagent/demo").read_text()
    shown = [line for line in text.splitlines() if "fedrl run" in line]
    own = sweeps.read("fedagent/baselines").variants.values()
    assert {tuple(shlex.split(line)[4:]) for line in shown} == {
        tuple(shlex.split(flags)) for flags in own if flags
    }


def test_a_runs_hash_is_of_what_differs_from_the_defaults():
    plain = resolve({"algorithm": {"name": "fedagent", "model": "a/m"}})
    same = resolve({"algorithm": {"name": "fedagent", "model": "b/m", "group": 8}})
    other = resolve({"algorithm": {"name": "fedagent", "model": "a/m", "group": 4}})
    assert digest(plain) == digest(same) != digest(other)


def test_another_model_in_the_same_place_is_another_run(tmp_path):
    """A remade warm start or label file must not show the old runs."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    path = tmp_path / "one.toml"
    path.write_text(f"recipe = 'fedagent/demo'\n[runs]\na = '--algorithm.model {model}'\n")

    def name(*flags: str) -> str:
        (cell,) = sweeps.read(str(path)).cells(flags)
        return cell.config(0, tmp_path).name

    first = name()
    assert name() == first
    assert name("--rounds", "3") != first  # the page shows whole runs
    (model / "model.safetensors").write_bytes(b"1")
    second = name()
    (model / "model.safetensors").write_bytes(b"2")
    assert len({first, second, name()}) == 3


def test_a_recipe_and_a_sweep_are_not_taken_for_each_other(sweep, capsys):
    assert call(["sweep", "momentum/cartpole"]) == 2
    assert "is a recipe: fedrl run momentum/cartpole --seeds 0-2" in capsys.readouterr().err
    assert call(["run", str(sweep)]) == 2
    assert "this is a sweep, of several runs: fedrl sweep FILE" in capsys.readouterr().err


def test_what_is_said_between_runs_does_not_begin_anew_at_the_end(sweep, tmp_path, monkeypatch):
    """A look after the last run has ended has nothing to tell."""
    said: list[str] = []
    config = sweeps.read(str(sweep)).cells([])[0].config(0, tmp_path)
    console = sweeps.Console(file=io.StringIO())
    monkeypatch.setattr(sweeps, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(sweeps, "PLAIN_SECONDS", 0.0)
    monkeypatch.setattr(sweeps.Watch, "say", lambda _, line: said.append(line))

    def look(standing: tuple[int, str]) -> list[str]:
        said.clear()
        watch = sweeps.Watch({"a": config}, console)
        monkeypatch.setattr(sweeps, "standing", lambda _: standing)
        looks = iter([False, True])
        monkeypatch.setattr(watch._over, "wait", lambda _: next(looks))
        watch._look_on()
        return list(said)

    assert look((-1, "")) == ["starting"]
    assert look((1, "round 1")) == ["a: round 1"]
    assert look((config.rounds, "round 9")) == []


def test_seeds_may_be_ranges(tmp_path):
    path = tmp_path / "ranges.toml"
    path.write_text('recipe = "momentum/cartpole"\nseeds = "0-2,7"\n[runs]\na = ""\n')
    assert sweeps.read(path).seeds == (0, 1, 2, 7)
    assert sweeps.read(path).with_seeds("3-5").seeds == (3, 4, 5)
    tables = {"recipe": "momentum/cartpole", "seeds": "1-2", "runs": {"a": ""}}
    assert sweeps.read(tables).seeds == (1, 2)


@pytest.mark.parametrize("flag", ["--seed", "--name=x"])
def test_flags_that_a_sweep_sets_itself_are_refused(sweep, flag, capsys):
    assert call(["sweep", str(sweep), flag, "7"]) == 2
    assert "--seeds" in capsys.readouterr().err


def test_a_model_that_is_not_there_is_said_before_anything_runs(tmp_path, capsys):
    pytest.importorskip("torch", reason="language agents need the extra llm")
    flags = ["--algorithm.model", "./nowhere", "--out", str(tmp_path / "out")]
    assert call(["sweep", "fedagent/baselines", *flags]) == 2
    assert "./nowhere" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_worlds_that_must_be_told_more_have_digests_too(tmp_path):
    """A server of OpenEnv, an environment of verifiers: neither has a default that would do."""
    agent = {"algorithm": {"name": "fedagent", "model": "models/tiny"}}
    worlds = (
        {"name": "openenv", "url": "http://127.0.0.1:8000"},
        {"name": "openenv", "url": "http://127.0.0.1:8000", "train": 70},
        {"name": "openenv", "url": "http://127.0.0.1:8001"},
        {"name": "verifiers", "environment": "wordle"},
        {"name": "verifiers", "environment": "wordle", "arguments": ["n=3"]},
    )
    found = [digest(resolve(agent | {"world": world})) for world in worlds]
    assert len(set(found)) == len(worlds)
    usual = digest(resolve(agent | {"world": worlds[0] | {"train": 1000}}))
    assert usual == found[0], "a default that is said is no other run"


def test_where_there_is_no_terminal_only_runs_under_way_are_told(monkeypatch):
    """A line of all that ever ended grows with the sweep, and tells nothing new."""
    from io import StringIO
    from types import SimpleNamespace

    from rich.console import Console

    monkeypatch.setattr(sweeps, "LOOK", 0.01)
    monkeypatch.setattr(sweeps, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(sweeps, "PLAIN_SECONDS", 0.0)
    where = {"done": (9, "round 9 of 9"), "going": (4, "round 4 of 9"), "later": (-1, "")}
    runs = {name: SimpleNamespace(rounds=9, name=name) for name in where}
    monkeypatch.setattr(sweeps, "standing", lambda config: where[config.name])
    said = StringIO()
    with sweeps.Watch(runs, Console(file=said, force_terminal=False)):
        while "\n" not in said.getvalue():
            pass
    assert set(said.getvalue().splitlines()) == {"going: round 4 of 9"}


def test_a_run_that_has_begun_and_has_no_round_yet_is_starting(tmp_path):
    """Compiling takes longer than some runs: who looks on shall see that something goes on."""
    config = replace(resolve({"world": {"name": "random_mdp"}}), out=str(tmp_path), name="a")
    assert sweeps.standing(config) == (-1, "")
    folder = tmp_path / "a" / "pavg-s0-1"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("rounds = 3\n")
    assert sweeps.standing(config) == (-1, "starting: loading, compiling")
    assert sweeps.FIRST_SECONDS < sweeps.PLAIN_SECONDS


def test_a_note_of_several_variants_and_seeds_is_said_once():
    sweep = sweeps.read({"recipe": "momentum/cartpole", "seeds": "0-2", "runs": {
        "a": "--algorithm.name pavg", "b": "--algorithm.name pavg --rounds 3", "c": "",
    }})  # fmt: skip
    runs = {
        f"{cell.name}, seed {seed}": cell.config(seed, Path("out"))
        for cell in sweep.cells([])
        for seed in sweep.seeds
    }
    ((line, variants),) = sweeps._notes(runs).items()
    assert line.startswith("pavg runs with the recipe's lr")
    assert variants == ["a", "b"]


def test_a_dry_run_prints_the_commands_that_its_runs_are(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tables = """recipe = "momentum/cartpole"
seeds = "0-2"
[runs]
flags = "--algorithm.name pavg"
[runs.tables]
rounds = 9
[runs.tables.algorithm]
standardize = true
"""
    Path("x.toml").write_text(tables)
    assert call(["sweep", "x.toml", "--dry-run", "--seeds", "4,5", "--rounds", "7"]) == 0
    first, second, last = capsys.readouterr().out.splitlines()
    head = "fedrl run momentum/cartpole"
    assert first == f"flags: {head} --algorithm.name pavg --rounds 7 --seeds 4,5"
    assert second == (
        f"tables: {head} --rounds 9 --algorithm.standardize true --rounds 7 --seeds 4,5"
    )
    assert last.startswith("# 4 runs")
    assert [path.name for path in tmp_path.iterdir()] == ["x.toml"]
    for line in (first, second):
        assert call([*shlex.split(line.partition(": fedrl ")[2]), "--dry-run"]) == 0
    assert call(["sweep", "x.toml", "--dry-run", "--algorithm.nothing", "1"]) == 2
