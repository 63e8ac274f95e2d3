"""The door: `fedrl.run`, `resume`, `load`, `sweep`, as a script or a notebook uses them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest

import fedrl
from fedrl.api import Round

RECIPE = "momentum/random_mdp"
SMALL = {"rounds": 6, "federation": {"clients": 3}, "world": {"states": 4, "actions": 2}}


def trained(out: Path, **settings) -> fedrl.Run:
    return fedrl.run(RECIPE, out=str(out), **(SMALL | settings))


def numbers(run: fedrl.Run) -> bytes:
    return (run.path / "metrics.jsonl").read_bytes()


@pytest.mark.slow
def test_the_ten_lines_of_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd):
    """Run, stop by a callback, resume, load, a table, a plot, a page; and nothing is printed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    seen: list[int] = []

    def enough(done: Round) -> bool:
        seen.append(done.round)
        return done.metrics["env/steps"] < 1e9 and done.round < 3

    run = fedrl.run(RECIPE, seed=3, algorithm={"beta": 0.2}, callbacks=[enough], **SMALL)
    assert (run.status, run.round, seen) == ("stopped", 3, [0, 1, 2, 3])
    run = fedrl.resume(run.path)
    assert (run.status, run.round) == ("finished", 6)
    runs = fedrl.load("runs/*/*")
    assert [found.path for found in runs] == [run.path]
    assert list(run.metrics.index) == list(range(7))
    assert set(run.clients["client"]) == {0, 1, 2}
    plt.close("all")  # pandas draws into what another test left open
    axes = run.metrics["eval/return"].plot()
    assert len(axes.lines[0].get_xdata()) == 7
    page = runs.report("page.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")
    out, err = capfd.readouterr()
    assert out == err == ""


@pytest.mark.slow
def test_a_stopped_and_resumed_run_has_the_numbers_of_one_that_was_not(tmp_path: Path):
    whole = trained(tmp_path / "whole")
    half = trained(tmp_path / "half", callbacks=[lambda done: done.round < 2])
    assert fedrl.resume(half.path).round == 6
    assert numbers(half) == numbers(whole)
    longer = fedrl.resume(half.path, rounds=8)
    assert longer.round == 8
    assert numbers(longer).startswith(numbers(whole))
    assert json.loads((half.path / "meta.json").read_text())["begun_for_rounds"] == 6
    fedrl.resume(half.path, rounds=9)
    assert json.loads((half.path / "meta.json").read_text())["begun_for_rounds"] == 6  # not 8
    assert "begun_for_rounds" not in json.loads((whole.path / "meta.json").read_text())


@pytest.mark.slow
def test_settings_are_the_flags_of_the_command_line(tmp_path: Path, monkeypatch):
    from fedrl.cli import call

    monkeypatch.chdir(tmp_path)
    run = fedrl.run(RECIPE, out="door", algorithm={"name": "pavg", "local_steps": 3}, **SMALL)
    flags = "--algorithm.name pavg --algorithm.local_steps 3 --rounds 6 --federation.clients 3"
    flags += " --world.states 4 --world.actions 2 --out line"
    assert call(["run", RECIPE, *flags.split()]) == 0
    (line,) = fedrl.load("line/*/*")
    assert numbers(line) == numbers(run)
    assert {**line.config, "out": "door"} == run.config
    tables = run.config | {"out": "again"}
    assert numbers(fedrl.run(tables)) == numbers(run)


@pytest.mark.slow
def test_two_runs_in_one_process_do_not_disturb_each_other(tmp_path: Path):
    """One after the other, one inside a callback of the other, and in two threads."""
    alone = {seed: numbers(trained(tmp_path / f"alone{seed}", seed=seed)) for seed in (0, 1)}

    def second(done: Round) -> None:
        if done.round == 2:
            inside.append(trained(tmp_path / "inside", seed=1))

    inside: list[fedrl.Run] = []
    outside = trained(tmp_path / "outside", seed=0, callbacks=[second])
    assert (numbers(outside), numbers(inside[0])) == (alone[0], alone[1])
    beside: dict[int, fedrl.Run] = {}
    threads = [
        threading.Thread(
            target=lambda s=seed: beside.update({s: trained(tmp_path / f"b{s}", seed=s)})
        )
        for seed in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {seed: numbers(run) for seed, run in beside.items()} == alone


def test_mistakes_are_exceptions_with_the_line_of_the_command_line(tmp_path: Path):
    with pytest.raises(fedrl.UserError, match=r"unknown key algorithm\.betta; did you mean"):
        fedrl.run(RECIPE, algorithm={"betta": 0.2})
    with pytest.raises(fedrl.UserError, match="rounds is '9'; it must be a whole number"):
        fedrl.run(RECIPE, rounds="9")
    with pytest.raises(fedrl.UserError, match=r"no recipe 'momentum/cartpol'; did you mean"):
        fedrl.run("momentum/cartpol")
    for name in ("./poles.toml", "poles.toml"):
        with pytest.raises(fedrl.UserError, match=rf"there is no file {name} in .*was started"):
            fedrl.run(name)
        with pytest.raises(fedrl.UserError, match=rf"there is no file {name} in .*was started"):
            fedrl.sweep(name)
    (tmp_path / "recipe" / "run").mkdir(parents=True)
    (tmp_path / "recipe" / "run" / "config.toml").touch()
    with pytest.raises(
        fedrl.UserError, match=r"is no run but holds some: name them as '.*recipe/\*'"
    ):
        _ = fedrl.Run(tmp_path / "recipe").rounds
    with pytest.raises(fedrl.UserError, match=r"names no algorithm: add \[algorithm\] name"):
        fedrl.run({"world": {"name": "random_mdp"}})
    with pytest.raises(fedrl.UserError, match=r"no such place.* does not exist"):
        fedrl.load(tmp_path / "no such place")
    run = trained(tmp_path)
    with pytest.raises(fedrl.UserError, match=r"algorithm\.beta: a resumed run keeps"):
        fedrl.resume(run.path, algorithm={"beta": 0.5})
    assert fedrl.load([run.path])[0].status == "finished"


def test_a_callback_that_fails_stops_the_run_and_loses_nothing(tmp_path: Path):
    def fails(done: Round) -> None:
        if done.round == 4:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        trained(tmp_path, callbacks=[fails])
    (run,) = fedrl.load(str(tmp_path / "*" / "*"))
    assert (run.status, run.round) == ("stopped", 4)
    assert numbers(fedrl.resume(run.path)) == numbers(trained(tmp_path / "whole"))


def test_every_callback_hears_of_the_round_that_ends_the_run(tmp_path: Path):
    heard: list[int] = []
    run = trained(tmp_path, callbacks=[lambda done: False, lambda done: heard.append(done.round)])
    assert (run.round, heard) == (0, [0])


@pytest.mark.slow
def test_evaluation_of_one_model_and_of_one_per_client(tmp_path: Path):
    shared = trained(tmp_path / "a").evaluate(episodes=1)
    assert (shared.round, shared.measure, shared.own) == (6, "mean return", None)
    assert shared.by_client.shape == (3,)
    assert shared.mean == pytest.approx(shared.by_client.mean())
    alone = trained(tmp_path / "b", federation={"clients": 3, "kind": "independent"})
    assert alone.evaluate(episodes=1).own.shape == (3,)


@pytest.mark.slow
def test_a_sweep_from_python(tmp_path: Path):
    plan = {"recipe": RECIPE, "seeds": [0, 1], "runs": {"plain": "", "far": "--algorithm.beta 0.9"}}
    runs = fedrl.sweep(plan, out=tmp_path, processes=2, **(SMALL | {"rounds": 2}))
    assert runs.whole
    assert len(runs) == 4
    table = runs.metrics
    assert sorted(set(zip(table["algorithm"], table["seed"]))) == [
        ("fedsvrpg-m", 0), ("fedsvrpg-m", 1)
    ]  # fmt: skip
    assert len(table) == 4 * 3
    assert list(table.columns[:4]) == ["run", "seed", "algorithm", "group"]
    assert dict.fromkeys(table["group"]) == {"plain": None, "far": None}
    found = runs.compare()
    assert set(found.groups["group"]) == {"plain", "far"}
    (last,) = found.differences[found.differences["value"] == "final"].itertuples()
    ends = table[table["round"] == 2].pivot(index="seed", columns="group", values=last.metric)
    assert last.mean == pytest.approx((ends[last.first] - ends[last.second]).mean())
    with pytest.raises(fedrl.UserError, match="did you mean 'eval/return'"):
        runs.compare("eval/retrun")
    for place in (tmp_path, tmp_path / "runs", tmp_path / "runs" / "*"):
        assert {run.path for run in fedrl.load(place)} == {run.path for run in runs}
    one = fedrl.load(tmp_path / "runs" / "far-seed1*")
    assert [run.config["seed"] for run in one] == [1]
    again = fedrl.sweep(plan, out=tmp_path, seeds=[1], **(SMALL | {"rounds": 2}))
    assert {run.path for run in again} < {run.path for run in runs}


QUICK = """
import sys, fedrl
heavy = {"numpy", "jax", "torch", "numba", "pandas", "matplotlib", "rich", "gymnasium", "flwr"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
assert {"run", "resume", "load", "sweep"} <= set(dir(fedrl))
try:
    fedrl.runn
except AttributeError as error:
    print(error)
"""
WITHOUT = """
import sys
sys.modules["pandas"] = None
import fedrl
run = fedrl.load(sys.argv[1])[0]
print(sorted(run.rounds), len(run.rounds[0]) > 3)
try:
    run.metrics
except fedrl.UserError as error:
    print(error)
"""


def python(code: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_fedrl_loads_nothing_heavy():
    assert python(QUICK) == "module 'fedrl' has no attribute 'runn'\n"


@pytest.mark.slow
def test_without_pandas_there_are_rounds_and_a_line(tmp_path: Path):
    run = trained(tmp_path, rounds=1)
    rounds, line = python(WITHOUT, str(run.path)).splitlines()
    assert rounds == "[0, 1] True"
    assert line.startswith('tables need the package pandas: pip install "fedrl[notebook]"')


@pytest.mark.slow
def test_progress_is_shown_where_it_is_asked_for(tmp_path: Path, capfd):
    trained(tmp_path / "quiet")
    assert capfd.readouterr() == ("", "")
    trained(tmp_path / "shown", progress=True)
    assert "round 6/6" in capfd.readouterr().err


@pytest.mark.slow
def test_what_goes_wrong_in_a_quiet_run_is_a_warning(tmp_path: Path, caplog):
    trained(
        tmp_path,
        federation={"clients": 3, "quorum": 1.0, "retries": 30},
        faults={"clients": (0, 1), "kind": "raise", "rate": 0.5},
    )
    records = [record for record in caplog.records if record.name == "fedrl"]
    assert records
    assert all("updates usable" in record.getMessage() for record in records)


def test_the_configuration_is_that_of_the_folder(tmp_path: Path):
    run = trained(tmp_path, algorithm={"beta": 0.4})
    assert run.config["algorithm"]["beta"] == 0.4
    assert json.loads((run.path / "meta.json").read_text())["status"] == run.status == "finished"


def test_settings_count_for_a_configuration_too(tmp_path: Path):
    config = fedrl.configure(RECIPE, out=tmp_path, **SMALL)
    run = fedrl.run(config, rounds=1, seed=4, flags=["--algorithm.beta", "0.3"])
    assert (run.round, run.config["seed"], run.config["algorithm"]["beta"]) == (1, 4, 0.3)
    assert fedrl.run(config).config == {**run.config, "rounds": 6, "seed": 0} | {
        "algorithm": run.config["algorithm"] | {"beta": config.algorithm.beta}
    }


def test_settings_may_be_paths_and_numbers_of_numpy(tmp_path: Path):
    import numpy as np

    run = fedrl.run(RECIPE, out=tmp_path, **(SMALL | {"rounds": np.int64(1)}), seed=np.arange(3)[2])
    assert run.path.is_relative_to(tmp_path)
    assert (run.config["rounds"], run.config["seed"]) == (1, 2)
    assert fedrl.resume(run.path, rounds=np.int64(2)).round == 2


def test_a_recipe_may_leave_its_names_to_the_settings():
    tables = {"algorithm": {"lr": 0.1}, "world": {"states": 4}}
    config = fedrl.configure(tables, algorithm={"name": "pavg"}, world={"name": "random_mdp"})
    assert (config.algorithm.name, config.algorithm.lr, config.world.states) == ("pavg", 0.1, 4)
    assert "name" not in tables["algorithm"]


def test_a_table_that_is_none_is_refused():
    with pytest.raises(fedrl.UserError, match=r"algorithm must be a table"):
        fedrl.configure(RECIPE, algorithm="pavg")
    with pytest.raises(fedrl.UserError, match="unknown key federatoin; did you mean 'federation'"):
        fedrl.configure(RECIPE, federatoin={})


@pytest.mark.parametrize("damage", [b"[[[", b"\xff", None])
def test_a_damaged_configuration_is_a_line(tmp_path: Path, damage: bytes | None):
    run = trained(tmp_path, rounds=1)
    place = run.path / "config.toml"
    place.unlink() if damage is None else place.write_bytes(damage)
    for look in (lambda: fedrl.Run(run.path).config, run.report):
        with pytest.raises(fedrl.UserError, match=r"config\.toml"):
            look()
    with pytest.raises(fedrl.UserError, match="does not exist"):
        _ = fedrl.Run(tmp_path / "nowhere").clients


def test_a_run_that_is_named_is_never_left_out(tmp_path: Path):
    for seed in (0, 1):
        trained(tmp_path, rounds=1, seed=seed)
    pattern = str(tmp_path / "*" / "*")
    (tmp_path / "momentum-random_mdp" / "page.html").touch()
    assert len(fedrl.load(pattern)) == 2
    with pytest.raises(fedrl.UserError, match="mistyped does not exist"):
        fedrl.load([tmp_path / "mistyped", pattern])
    with pytest.raises(fedrl.UserError, match=r"no run is called .*x\*"):
        fedrl.load(tmp_path / "x*")
    with pytest.raises(fedrl.UserError, match="name at least one run"):
        fedrl.load([])
    odd = trained(tmp_path / "[odd]", rounds=1)
    assert fedrl.load(odd.path)[0].round == 1


def test_what_fails_before_the_first_round_leaves_no_lock(tmp_path: Path):
    folders: list[Path] = []

    def started(path: Path) -> None:
        folders.append(path)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as kept:
        trained(tmp_path / "a", started=started)
    assert kept.tb is not None  # its frames hold the folder
    assert fedrl.Run(folders[0]).status == "stopped"
    assert fedrl.resume(folders[0]).round == 6
    with pytest.raises(TypeError):
        trained(tmp_path / "b", callbacks=print)
    assert not (tmp_path / "b").exists()


@pytest.mark.slow
def test_a_quiet_sweep_warns_of_what_fails(tmp_path: Path, caplog):
    plan = {"recipe": RECIPE, "runs": {"lost": "--faults.clients 0,1,2 --faults.kind raise"}}
    runs = fedrl.sweep(plan, out=tmp_path, processes=1, **(SMALL | {"rounds": 2}))
    assert not runs.whole
    (line,) = [record.getMessage() for record in caplog.records if record.name == "fedrl"]
    assert line.startswith("lost: round ")
    assert "gave a usable update" in line


def test_a_sweep_names_its_runs_itself(tmp_path: Path):
    plan = {"recipe": RECIPE, "runs": {"plain": ""}}
    for settings in ({"seed": 3}, {"name": "mine"}, {"flags": ["--seed", "3"]}):
        with pytest.raises(fedrl.UserError, match="a sweep names its runs itself"):
            fedrl.sweep(plan, out=tmp_path, **settings)
    with pytest.raises(fedrl.UserError, match="seeds is empty"):
        fedrl.sweep(plan, out=tmp_path, seeds=[])


UNGUARDED = """
import fedrl
fedrl.run("momentum/random_mdp", rounds=1, engine="workers", workers=1, federation={"clients": 2})
"""


UNGUARDED_SWEEP = """
import fedrl
fedrl.sweep({"recipe": "momentum/random_mdp", "runs": {"a": ""}}, rounds=1, processes=1)
"""


@pytest.mark.slow
def test_a_sweep_without_a_guard_says_so_last(tmp_path: Path):
    """Its processes die before they begin, which is no want of memory."""
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED_SWEEP)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1
    assert 'trains without if __name__ == "__main__":' in done.stderr.splitlines()[-1]
    assert "out of memory" not in done.stderr


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_so_and_begins_one_run(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1
    assert 'trains under if __name__ == "__main__":' in done.stderr
    assert len(list(tmp_path.glob("runs/*/*"))) == 1


@pytest.mark.slow
def test_a_sweep_of_settings_with_a_name(tmp_path: Path, monkeypatch):
    """Variants as dicts are the runs of variants as flags: nothing is computed again."""
    monkeypatch.chdir(tmp_path)
    flags = {"plain": "", "far": "--algorithm.beta 0.9 --world.states 5"}
    tables = {"plain": {}, "far": {"algorithm": {"beta": 0.9}, "world": {"states": 5}}}
    small = {"rounds": 2, "federation": {"clients": 3}}
    runs = fedrl.sweep({"recipe": RECIPE, "name": "v1.2", "runs": flags}, processes=1, **small)
    assert runs.place == Path("runs/v1.2")
    before = {run.path: (run.path / "metrics.jsonl").stat().st_mtime_ns for run in runs}
    again = fedrl.sweep({"recipe": RECIPE, "name": "v1.2", "runs": tables}, processes=1, **small)
    assert {run.path: (run.path / "metrics.jsonl").stat().st_mtime_ns for run in again} == before
    for name in ("", "a/b", 3):
        with pytest.raises(fedrl.UserError, match="the sweep's name is"):
            fedrl.sweep({"recipe": RECIPE, "name": name, "runs": flags})


def test_a_dry_run_says_what_the_command_line_says(capsys):
    from fedrl.cli import call

    found = fedrl.dry_run(RECIPE, **SMALL)
    assert found.config.rounds == 6
    assert found.lines[0] == "a client sends 8 numbers: logits"
    flags = "--rounds 6 --federation.clients 3 --world.states 4 --world.actions 2 --dry-run"
    assert call(["run", RECIPE, *flags.split()]) == 0
    said = capsys.readouterr().out
    settings, _, needs = said.partition(" what a run needs ")
    assert needs.partition("\n")[2] == "".join(f"# {line}\n" for line in found.lines)
    assert found.toml in settings
    assert tomllib.loads(said) == tomllib.loads(found.toml)


def test_what_the_layers_have_to_say_is_printed_by_the_command_line_alone(
    tmp_path: Path, capfd, caplog
):
    """A note for people, and a warning, which a program hears from the logger `fedrl`."""
    from fedrl.cli import call

    recipe = tmp_path / "own.toml"
    recipe.write_text(
        '[algorithm]\nname = "fedqhd"\nencoders = "own"\n[world]\nname = "cartpole-v1"\n'
    )
    fedrl.configure(recipe, algorithm={"name": "feddqn"})
    assert capfd.readouterr() == ("", "")
    assert call(["run", str(recipe), "--algorithm.name", "feddqn", "--dry-run"]) == 0
    note = capfd.readouterr().err
    assert note.startswith("note: algorithm.name is feddqn, which has no encoders")
    run = trained(tmp_path, rounds=2)
    (run.path / "checkpoints").joinpath(f"round-000009.{'0' * 16}.safetensors").write_bytes(b"x")
    caplog.clear()
    run.evaluate(episodes=1)
    (said,) = [record.getMessage() for record in caplog.records if record.name == "fedrl"]
    assert said.endswith("is damaged; taking the one before it")


def test_every_command_is_a_call():
    """`fedrl COMMAND` is parsed, called and printed: none of them has work of its own."""
    from fedrl.cli import COMMANDS

    calls = {
        "run": "run", "sweep": "sweep", "list": "catalogue", "reproduce": "reproduce",
        "play": "play_world", "partition": "partition_tasks", "parity": "parity",
        "data": "fetch_data", "warmstart": "warm_start", "plan": "plan", "gap": "gap",
        "feedback": "answer_queries", "flower": "flower", "new": "new_package",
        "joining": "joining", "doctor": "doctor", "watch": "watch", "verify": "verify",
    }  # fmt: skip
    same = ("report", "label", "export", "record", "serve")
    of_runs = {"eval": "evaluate", **{name: name for name in same}}
    of_the_shell = {"completion"}
    assert {*calls, *of_runs, *of_the_shell} == set(COMMANDS)
    assert all(name in fedrl.__all__ and getattr(fedrl, name) for name in calls.values())
    assert all(callable(getattr(fedrl.Run, name)) for name in of_runs.values())


@pytest.mark.slow
def test_a_partition_a_plan_and_their_pictures(tmp_path: Path):
    world = {"name": "household", "size": "tiny"}
    found = fedrl.partition_tasks(world, 3, strategy="preference", size=5, omega=0.9)
    assert [len(share) for share in found.shares] == [5, 5, 5]
    assert found.measures.clients == 3
    assert fedrl.partition_tasks(world, 3, size=5, omega=0.9).notes == [
        "omega is not read by strategy uniform"
    ]
    planned = fedrl.plan(clients=40, cohort=4, noise=2.0)
    assert (planned.plan.cohort, planned.problem.clients, planned.problem.noise) == (4, 40, 2.0)
    for name, report in (("a.png", found), ("b.png", planned)):
        assert fedrl.draw(report, tmp_path / name).read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(fedrl.UserError, match=r"unknown key world\.sise; did you mean 'size'"):
        fedrl.partition_tasks({"name": "household", "sise": "tiny"})
    with pytest.raises(fedrl.UserError, match="omega is '1'; it must be a number"):
        fedrl.partition_tasks(world, omega="1")


@pytest.mark.slow
def test_a_run_without_a_round_adds_no_rows_and_is_left_out_of_the_page(tmp_path: Path, caplog):
    pytest.importorskip("pandas", reason="tables need the extra notebook")
    whole = trained(tmp_path)
    (tmp_path / "mine.py").write_text("def rule(updates):\n    return None\n")
    with pytest.raises(fedrl.UserError, match="returned a NoneType"):
        trained(tmp_path, aggregate={"name": f"{tmp_path}/mine.py:rule"})
    runs = fedrl.load(f"{tmp_path}/*/*")
    assert [run.round for run in runs].count(-1) == 1
    assert set(runs.metrics["run"]) == {str(whole.path)}
    page = runs.report(tmp_path / "page.html")
    assert "has no metrics yet" in page.read_text()
    assert "left out" in caplog.text


def test_an_attack_that_a_method_cannot_show_leaves_no_folder(tmp_path: Path, monkeypatch):
    from fedrl.algorithms.policy_gradient import PolicyGradient

    monkeypatch.delattr(PolicyGradient, "poisoned")
    with pytest.raises(fedrl.UserError, match=r'"poison", which Momentum cannot show'):
        trained(tmp_path, attack={"kind": "poison", "share": 0.5})
    assert not list(tmp_path.iterdir())
