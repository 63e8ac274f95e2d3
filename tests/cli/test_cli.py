"""The command as a user calls it: runs, mistakes, faults, Ctrl-C, kill -9."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from support.children import python
from support.repository import DOCS

from fedrl.core.types import UserError
from fedrl.runs import train
from fedrl.runs.run_dir import RunDir, read_checkpoint

pytestmark = pytest.mark.slow

SMALL = ("momentum/random_mdp", "--rounds", "12", "--world.horizon", "20", "--out", "runs")


def only_run(folder: Path) -> Path:
    # A kill in the first moments may leave a folder that is no run yet.
    runs = [path.parent for path in folder.glob("runs/*/*/config.toml")]
    assert len(runs) == 1
    return runs[0]


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_help_is_quick_and_loads_nothing_heavy():
    code = (
        "import sys; from fedrl.cli import call; call(['--help']); "
        "heavy = {'jax', 'torch', 'numba', 'matplotlib'} & set(sys.modules); assert not heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_run_report_and_eval(fedrl, tmp_path):
    said = fedrl("run", *SMALL)
    run = only_run(tmp_path)
    assert str(run.relative_to(tmp_path)) in said.stdout
    assert {p.name for p in run.iterdir()} >= {
        "config.toml", "meta.json", "metrics.jsonl", "clients.jsonl", "timings.jsonl",
        "summary.json", "log.txt", "checkpoints",
    }  # fmt: skip
    metrics = lines(run / "metrics.jsonl")
    assert [m["round"] for m in metrics] == list(range(13))
    summary = json.loads((run / "summary.json").read_text())
    assert summary["eval/return"] == metrics[-1]["eval/return"]
    assert json.loads((run / "meta.json").read_text())["status"] == "finished"
    assert "report.html" in fedrl("report", str(run)).stdout
    assert "all 20 clients" in fedrl("eval", str(run)).stdout
    told = json.loads(fedrl("eval", str(run), "--json").stdout)
    assert told["round"] == 12
    config = tomllib.loads((run / "config.toml").read_text())
    assert (told["run"], told["run_seed"]) == (str(run), config["seed"])
    assert (told["method"], told["world"]) == ("fedsvrpg-m", "random_mdp")
    again = json.loads(fedrl("eval", str(run), "--json", "--seed", "7", "--episodes", "3").stdout)
    assert (again["seed"], again["episodes"]) == (7, 3)
    assert len(told["by_client"]) == 20
    assert [row["return"] for row in told["rows"]] == told["by_client"]
    assert told["rows"][19]["name"] == "19"
    assert told["rows"][19]["success"] is told["all"]["tasks"] is None
    assert told["mean"] == pytest.approx(sum(told["by_client"]) / 20)


@pytest.mark.parametrize("kind", ["centralized", "local", "independent"])
def test_other_federations_by_one_flag(fedrl, tmp_path, kind):
    fedrl("run", *SMALL, "--rounds", "2", "--federation.kind", kind, "--federation.clients", "3")
    last = lines(only_run(tmp_path) / "metrics.jsonl")[-1]
    assert last["cohort/size"] == {"centralized": 1, "local": 1, "independent": 3}[kind]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "momentum/cartpol"), "did you mean 'momentum/cartpole'"),
        (("run", "momentum/cartpole", "--algorithm.betta", "1"), "algorithm.beta"),
        (("run", "--rounds", "3"), "the recipe comes first"),
        (("run", "--resume", "."), "has no config.toml"),
        (("run", "--resume", "nowhere"), "does not exist"),
        (("run", "--resume"), "--resume needs the run's folder"),
        (("run", *SMALL, "--without-lost-lines"), "--resume RUN --without-lost-lines"),
        (("run", *SMALL, "--out", "/proc/nowhere"), "choose another folder with --out"),
        (("run", *SMALL, "--track", "wandbb"), 'did you mean "wandb"'),
        (("report", "."), "expected config.toml"),
        (("report",), "name at least one run"),
        (("eval", "."), "has no config.toml"),
        (("reprot",), "did you mean 'report'"),
        (("report", "--foo", "x"), "see `fedrl report --help`"),
        (("eval", ".", "--episodes", "x"), "invalid int value: 'x'"),
        (("eval", ".", "--seed", "-1"), "--seed is -1; it must not be negative"),
        (("eval", ".", "--seed", "-1", "--split", "unseen"), "--seed is -1"),
        (("reproduce", "momentm"), "invalid choice: 'momentm'"),
        (("reproduce", "momentum", "--only", "table3"), "the parts are"),
    ],
)
def test_mistakes_are_one_or_two_lines(fedrl, tmp_path, words, message):
    said = fedrl(*words, check=False)
    assert said.returncode == 2
    assert message in said.stderr
    assert len(said.stderr.strip().splitlines()) <= 2
    assert not list(tmp_path.glob("runs/*/*"))  # no empty run is left behind


def test_a_missing_extra_names_itself(fedrl, tmp_path):
    """Python that cannot import jax, as in an installation without the extra."""
    (tmp_path / "jax.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'jax'\", name='jax')"
    )
    env = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    said = fedrl("run", "momentum/cartpole", check=False, env=env)
    assert said.returncode == 2
    assert 'pip install "fedrl[classic]"' in said.stderr
    assert len(said.stderr.strip().splitlines()) == 1


def test_an_unwritable_folder(fedrl, tmp_path):
    (tmp_path / "runs").write_text("a file where the folder should be")
    said = fedrl("run", *SMALL, check=False)
    assert said.returncode == 2
    assert "cannot write to runs/momentum-random_mdp" in said.stderr


@pytest.mark.parametrize("kind", ["raise", "nan", "inf", "shape", "dtype"])
def test_faulty_clients_are_named(fedrl, tmp_path, kind):
    fedrl("run", *SMALL, "--rounds", "2", "--faults.clients", "3", "--faults.kind", kind)
    failed = [r for r in lines(only_run(tmp_path) / "clients.jsonl") if r["status"] == "failed"]
    assert [(r["round"], r["client"]) for r in failed] == [(0, 3), (1, 3), (2, 3)]
    assert all(r["reason"] for r in failed)


def test_reproduce_keeps_cells_and_writes_its_page(fedrl, tmp_path):
    words = ("reproduce", "momentum", "--scale", "smoke", "--only", "table2", "speedup")
    first = fedrl(*words)
    page = tmp_path / "runs/reproduce/momentum/smoke/momentum.md"
    assert "table2: beta=0.2,kappa=1.0 in" in first.stderr
    text = page.read_text()
    assert "## Table 2" in text
    assert "Not measured at this scale yet" in text  # the parts that were not asked for
    assert (page.with_suffix("") / "table2.png").is_file()
    again = fedrl(*words)
    assert " in " not in again.stderr  # nothing is computed twice
    assert page.read_text() == text


def test_a_page_without_records_names_the_option_for_them(fedrl, tmp_path):
    words = ("reproduce", "exposure", "--processes", "0", "--page", "elsewhere/page.md")
    said = fedrl(*words).stderr
    assert "0 records of the scale small under elsewhere/page/records" in said
    assert "--records" in said
    records = str(DOCS / "results" / "exposure" / "records")
    assert "0 records" not in fedrl(*words, "--records", records).stderr


def test_a_hung_client_is_stopped_and_named(fedrl, tmp_path):
    fedrl("run", *SMALL, "--rounds", "1", "--out", "warm")  # compiling is not the clients' time
    fedrl(
        "run", *SMALL, "--rounds", "1", "--engine", "workers", "--federation.clients", "4",
        "--algorithm.name", "pavg", "--algorithm.beta", "1.0", "--federation.deadline", "8",
        "--faults.clients", "2", "--faults.kind", "hang",
    )  # fmt: skip
    failed = [r for r in lines(only_run(tmp_path) / "clients.jsonl") if r["status"] == "failed"]
    assert [(r["client"], r["reason"]) for r in failed] == [
        (2, "no answer within the deadline of 8 s")
    ]


def test_below_the_quorum_the_run_stops_with_a_checkpoint(fedrl, tmp_path):
    faults = ("--faults.clients", "0,1,2", "--faults.kind", "nan", "--faults.rate", "0.7")
    few = ("--federation.clients", "4", "--federation.quorum", "0.75", "--federation.retries", "0")
    said = fedrl("run", *SMALL, *faults, *few, "--rounds", "60", "--algorithm.name", "pavg",
                 "--algorithm.beta", "1.0", check=False)  # fmt: skip
    assert said.returncode == 2
    error = [line for line in said.stderr.splitlines() if line.startswith("error:")]
    assert len(error) == 1
    assert "federation.quorum" in error[0]
    run = only_run(tmp_path)
    assert f"fedrl run --resume {run.relative_to(tmp_path)}" in said.stderr
    snapshot, _ = read_checkpoint(RunDir(run).checkpoints()[0])
    assert snapshot.round == lines(run / "metrics.jsonl")[-1]["round"]
    assert json.loads((run / "meta.json").read_text())["status"] == "stopped"


def test_a_folder_of_runs_is_not_resumed_but_they_are_named(tmp_path):
    for number in range(7):
        run = tmp_path / "runs" / "demo" / f"pg-s{number}"
        run.mkdir(parents=True)
        (run / "config.toml").touch()
        os.utime(run / "config.toml", (number, number))
    for folder in (tmp_path / "runs", tmp_path / "runs" / "demo"):
        with pytest.raises(UserError, match=r"name one of them.*pg-s6, .*pg-s2, and 2 more$"):
            train.resume(folder)


def test_resume_refuses_other_settings_and_extends_rounds(fedrl, tmp_path):
    fedrl("run", *SMALL, "--rounds", "3", "--algorithm.initial_trajectories", "5")
    run = str(only_run(tmp_path))
    said = fedrl("run", "--resume", run, "--algorithm.beta", "0.5", check=False)
    assert "a resumed run keeps what its numbers depend on" in said.stderr
    said = fedrl("run", "--resume", run, "--rounds", "2", check=False)
    assert "may only grow" in said.stderr
    for flag in ("--dry-run", "--help"):
        assert fedrl("run", "--resume", run, "--rounds", "9", flag, check=False).returncode == 2
    fedrl("run", "--resume", run, "--rounds", "6")
    assert [m["round"] for m in lines(Path(run) / "metrics.jsonl")] == list(range(7))
    fedrl("run", "--resume", run)  # remembers the six rounds, and has nothing left to do
    assert len(lines(Path(run) / "metrics.jsonl")) == 7


def test_a_run_stopped_by_its_quorum_can_be_rescued(fedrl, tmp_path):
    said = fedrl(
        "run", *SMALL, "--faults.clients", "0,1,2", "--federation.clients", "4", check=False
    )
    assert said.returncode == 2
    run = only_run(
        tmp_path
    )  # FedSVRPG-M's very first exchange failed: there is a checkpoint even so
    assert [p.name[:5] for p in RunDir(run).checkpoints()] == ["start"]
    failed = [r["client"] for r in lines(run / "clients.jsonl") if r["status"] == "failed"]
    assert failed == [0, 1, 2] * 3  # three attempts
    fedrl("run", "--resume", str(run), "--federation.quorum", "0.25")
    assert lines(run / "metrics.jsonl")[-1]["round"] == 12


def test_a_reader_that_leaves_does_not_stop_the_run(tmp_path):
    command = f"{sys.executable} -m fedrl run {' '.join(SMALL)} 2>&1 | head -1"
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True, capture_output=True)
    assert json.loads((only_run(tmp_path) / "meta.json").read_text())["status"] == "finished"


def test_what_cannot_be_planned_is_said_alone(fedrl):
    """No page of settings above the one line that matters."""
    words = ("run", "momentum/cartpole", "--world.name", "movielens", "--dry-run")
    done = fedrl(*words, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "movielens" in done.stderr


def test_a_run_without_any_output_ends_well(tmp_path):
    """As a daemon's: its standard output is closed."""
    command = f"{sys.executable} -m fedrl run {' '.join(SMALL)} >&-"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)


def test_worker_processes_give_the_same_bytes(fedrl, tmp_path):
    for engine in ("inprocess", "workers"):
        fedrl("run", *SMALL, "--rounds", "3", "--engine", engine, "--out", engine)
    one, two = (next(tmp_path.glob(f"{engine}/*/*")) for engine in ("inprocess", "workers"))
    for name in ("metrics.jsonl", "clients.jsonl", "summary.json"):
        assert (one / name).read_bytes() == (two / name).read_bytes()


def test_no_private_number_in_messages_logs_or_the_servers_state(fedrl, tmp_path):
    """The canary: rewards and transition probabilities are a client's own, to the last byte."""
    from fedrl.envs.control import random_mdp

    fedrl("run", *SMALL, "--rounds", "2", "--engine", "workers", "--workers", "1")
    world = random_mdp.World(random_mdp.Settings(kappa=1.0, horizon=20), 20, 0)
    private = [x.tobytes() for x in world.rewards.ravel()]
    private += [x.tobytes() for x in world.kernels[:3].ravel()]
    texts = [repr(float(x)).encode() for x in world.rewards.ravel()]
    for path in only_run(tmp_path).rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not [number for number in private + texts if number in data], path


def logged(tmp_path: Path) -> int:
    """Rounds in the run's log so far."""
    logs = list(tmp_path.glob("runs/*/*/metrics.jsonl"))
    return logs[0].read_bytes().count(b"\n") if logs else 0


def start(tmp_path: Path, *words: str, ignores: str = ""):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return python("-m", "fedrl", *words, ignores=ignores, cwd=tmp_path, **pipes)


@pytest.mark.parametrize(
    "stop, ignores", [(signal.SIGINT, ""), (signal.SIGTERM, "SIGINT,SIGHUP")], ids=["INT", "TERM"]
)
def test_control_c_loses_nothing(fedrl, tmp_path, stop, ignores):
    words = ("run", *SMALL, "--rounds", "100000")
    with start(tmp_path, *words, ignores=ignores) as process:
        while logged(tmp_path) <= 20:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(stop)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in said
    run = only_run(tmp_path)
    assert f"fedrl run --resume {run.relative_to(tmp_path)}".encode() in said
    snapshot, _ = read_checkpoint(RunDir(run).checkpoints()[0])
    assert lines(run / "metrics.jsonl")[-1]["round"] >= snapshot.round >= 20


@pytest.mark.parametrize("engine", ["inprocess", "workers"])
def test_killed_ten_times_a_run_ends_with_the_same_numbers(fedrl, tmp_path, engine):
    """kill -9 at ten random moments; then everything that lasts equals an undisturbed run."""
    rounds = 240 if engine == "inprocess" else 90
    recipe = (
        "momentum/random_mdp", "--rounds", str(rounds), "--world.horizon", "20", "--engine", engine,
        "--federation.cohort", "7", "--algorithm.server_optimizer", "adam",
    )  # fmt: skip
    fedrl("run", *recipe, "--out", "whole")
    whole = next(tmp_path.glob("whole/*/*"))
    draw = random.Random(0)
    # Two kills while it starts, eight soon after a random round was logged, none near the end.
    moments = [-1, *sorted(draw.sample(range(rounds - 60), 8)), -1]
    for moment in moments:
        begun = list(tmp_path.glob("runs/*/*/config.toml"))
        words = ("--resume", str(only_run(tmp_path))) if begun else (*recipe, "--out", "runs")
        with start(tmp_path, "run", *words) as process:
            while moment >= 0 and logged(tmp_path) <= moment:
                assert process.poll() is None, process.communicate()
                time.sleep(0.002)
            time.sleep(draw.uniform(0, 0.6 if moment < 0 else 0.01))
            assert process.poll() is None
            process.kill()
            process.communicate()
    killed = only_run(tmp_path)
    fedrl("run", "--resume", str(killed))
    for name in ("metrics.jsonl", "clients.jsonl", "summary.json"):
        assert (killed / name).read_text() == (whole / name).read_text(), name
    ends = [read_checkpoint(RunDir(run).checkpoints()[0])[0] for run in (whole, killed)]
    for a, b in zip(ends[0].states, ends[1].states):
        from support.same_runs import equal

        equal(a, b)
