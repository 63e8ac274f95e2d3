"""Packages of others on Flower: nodes in environments of their own, with TLS and keys."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support import environments
from support.environments import EXAMPLES

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("jax", reason="needs the extra classic")

from support.flower_runs import records

from fedrl.engines.flower.local_federation import LocalFederation

pytestmark = [pytest.mark.slow, pytest.mark.machines, environments.needs_pip]

ALLOWED = ("fedrl-fedcm", "fedrl-gridworld")
LACKS, OTHER, WHOLE = 3, 4, 5
"""Client 3 has no package, client 4 another version; this many have all that there is."""


def program(folder: Path) -> tuple[str, str]:
    """A node that runs in the environment of its client."""
    code = f"""
import os, sys
client = sys.argv[sys.argv.index("--client") + 1]
python = "{folder}/client-" + client + "/bin/python"
os.execv(python, [python, "-P", "-m", "fedrl", "flower", "node", *sys.argv[1:]])
"""
    return "-c", code


def test_nodes_in_other_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Who lacks the package, or has another version, is told in one line; the round goes on."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for client in range(WHOLE):
        folder = tmp_path / f"client-{client}"
        environments.make(folder)
        if client != LACKS:
            environments.install(folder, "gridworld")
            environments.install(folder, "fedcm", "0.2.0" if client == OTHER else "")
    driver = tmp_path / "driver"
    python = environments.make(driver)
    for package in ("fedcm", "gridworld"):
        environments.install(driver, package)
    with LocalFederation(
        tmp_path / "federation", WHOLE, name="examples", program=program(tmp_path), poll=0.5,
        packages=ALLOWED,
    ):  # fmt: skip
        words = [
            "run", str(EXAMPLES / "fedcm" / "recipe.toml"), "--engine", "flower", "--connection",
            "examples", "--federation.clients", str(WHOLE), "--rounds", "2", "--aggregate.name",
            "mean", "--world.size", "3", "--world.horizon", "9", "--out", str(tmp_path / "runs"),
        ]  # fmt: skip
        done = subprocess.run(
            [str(python), "-m", "fedrl", *words], capture_output=True, text=True, timeout=240
        )
    assert done.returncode == 0, done.stderr
    (run,) = [path.parent for path in (tmp_path / "runs").glob("*/*/config.toml")]
    lines = {(r["round"], r["client"]): r for r in records(run)}
    for round in (1, 2):
        for client in range(WHOLE):
            status = "failed" if client in (LACKS, OTHER) else "ok"
            assert lines[round, client]["status"] == status
        assert (
            "the run needs fedrl-fedcm 0.1.0, fedrl-gridworld 0.1.0, which are not installed on "
            "this node" in lines[round, LACKS]["reason"]
        )
        assert "has fedrl-fedcm 0.1.0, and this node 0.2.0" in lines[round, OTHER]["reason"]
