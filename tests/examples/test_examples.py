"""Packages outside the tree, installed with pip and named in recipes: everywhere that ours are."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support import environments
from support.environments import EXAMPLES

pytest.importorskip("jax", reason="needs the extra classic")
pytestmark = [pytest.mark.slow, environments.needs_pip]

PACKAGES = ("fedcm", "gridworld", "geometric_median")
SMALL = ("--rounds", "3", "--federation.clients", "3", "--world.size", "3", "--world.horizon", "9")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment in which the three are installed."""
    folder = tmp_path_factory.mktemp("environment")
    found = environments.make(folder)
    for package in PACKAGES:
        environments.install(folder, package)
    return found


def fedrl(python: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), "-m", "fedrl", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


def metrics(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def only_run(folder: Path) -> Path:
    (found,) = folder.glob("runs/*/*/config.toml")
    return found.parent


@pytest.mark.parametrize("package", PACKAGES)
def test_its_own_tests_pass(python: Path, package: str, tmp_path: Path):
    environments.run_own_tests(python, package, tmp_path)


def test_the_list_names_their_packages(python: Path, tmp_path: Path):
    lines = fedrl(python, tmp_path, "list").stdout.splitlines()
    for name, package in (
        ("fedcm", "fedrl-fedcm 0.1.0"),
        ("windy-grid", "fedrl-gridworld 0.1.0"),
        ("geometric-median", "fedrl-geometric-median 0.1.0"),
    ):
        (line,) = [line for line in lines if re.match(rf"  {name}\s", line)]
        assert f"[{package}]" in line


def test_all_commands_know_them(python: Path, tmp_path: Path):
    """Run, kill, resume, evaluate, report; one that was killed ends as one that was not."""
    recipe = str(EXAMPLES / "fedcm" / "recipe.toml")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    long = (*SMALL, "--rounds", "40")
    done = fedrl(python, whole, "run", recipe, *long)
    assert done.returncode == 0, done.stderr
    process = subprocess.Popen(
        [str(python), "-m", "fedrl", "run", recipe, *long],
        cwd=killed, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    for _ in range(600):
        if any(killed.glob("runs/*/*/checkpoints/*")):
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(metrics(only_run(killed))) < 41
    done = fedrl(python, killed, "run", "--resume", str(only_run(killed)))
    assert done.returncode == 0, done.stderr
    assert metrics(only_run(killed)) == metrics(only_run(whole))
    config = (only_run(whole) / "config.toml").read_text()
    for package in ("fedrl-fedcm", "fedrl-gridworld", "fedrl-geometric-median"):
        assert f'"{package}:0.1.0:' in config
    for words in (("eval", "--episodes", "2"), ("report",)):
        done = fedrl(python, whole, words[0], str(only_run(whole)), *words[1:])
        assert done.returncode == 0, done.stderr
    assert list(whole.glob("runs/*/*/report.html"))


def test_workers_and_sweeps_know_them(python: Path, tmp_path: Path):
    recipe = EXAMPLES / "fedcm" / "recipe.toml"
    sweep = tmp_path / "both.toml"
    sweep.write_text(
        f'recipe = "{recipe}"\nseeds = [0]\n[runs]\n'
        'here = ""\nworkers = "--engine workers --workers 1"\n'
        'ours = "--algorithm.name pavg --aggregate.name mean"\n'
    )
    done = fedrl(python, tmp_path, "sweep", str(sweep), *SMALL, "--processes", "1")
    assert done.returncode == 0, done.stderr
    runs = {path.parent.parent.name.split("-")[0]: path.parent
            for path in tmp_path.glob("runs/*/**/config.toml")}  # fmt: skip
    assert metrics(runs["here"]) == metrics(runs["workers"])
    assert metrics(runs["here"]) != metrics(runs["ours"])


def test_without_the_package_one_line_says_so(tmp_path: Path):
    bare = environments.make(tmp_path / "bare")
    done = fedrl(bare, tmp_path, "run", str(EXAMPLES / "fedcm" / "recipe.toml"))
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) <= 2
    assert "'fedcm'" in done.stderr
    assert not (tmp_path / "runs").exists()
