"""Another user's files in the current folder: no process that fedrl starts executes them.

Python looks for modules in the current folder first when it is started with `-c` or `-m`, which is
how child processes are. So whoever can write there, in a shared folder or a download, could have
his `org.py` or `numpy.py` executed by the next run.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fedrl.runs import sweep as sweeps

NAMES = (
    "org", "numpy", "multiprocessing", "pickle", "json", "ctypes", "fedrl", "flwr", "jax", "httpx",
    "typing_extensions", "runpy", "socket", "concurrent", "safetensors", "uvicorn",
)  # fmt: skip
TRAP = """
import os
with open({caught!r}, "a") as file:
    file.write(__name__ + "\\n")
"""
SMALL = ("--rounds", "1", "--world.horizon", "10", "--federation.clients", "2")
FEDRL = """
import sys
from fedrl.cli import call
if __name__ == "__main__":
    sys.exit(call(sys.argv[1:]))
"""
CELLS = """
from fedrl.api.papers import find_reproductions
find_reproductions()
from reproductions.grid import Cell, Grid
from reproductions.records import Store
from reproductions.results import read_seeds
from reproductions.runner import Place, run_missing, tasks_of
from pathlib import Path
if __name__ == "__main__":
    recipe = {"algorithm": {"name": "pavg", "local_steps": 1}, "federation": {"clients": 2},
              "world": {"name": "random_mdp", "horizon": 10}, "rounds": 1}
    cells = [Cell("part", f"cell{i}", recipe, (i,), together=True) for i in range(2)]
    place = Place(Path("runs"), Store(Path("records")))
    run_missing(tasks_of(cells, Grid({}, {}), place), place, print, 2)
    assert len(read_seeds(place.store, cells)) == 2
"""


class Trapped:
    """A folder full of modules that tell when they are executed, and a command to run in it."""

    def __init__(self, folder: Path) -> None:
        self.here, self.caught = folder / "shared", folder / "caught"
        self.home = folder / "home"
        for path in (self.here, self.home):
            path.mkdir()
        for name in NAMES:
            (self.here / f"{name}.py").write_text(TRAP.format(caught=str(self.caught)))

    def call(self, program: str, *words: str) -> None:
        """A script elsewhere, as the command `fedrl` is: its folder is on the path, not ours."""
        script = self.home / "program"
        script.write_text(textwrap.dedent(program))
        done = subprocess.run(
            [sys.executable, str(script), *words],
            cwd=self.here, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        self.check()
        assert done.returncode == 0, done.stderr

    def check(self) -> None:
        assert not self.caught.exists(), f"executed: {self.caught.read_text().split()}"


@pytest.fixture
def trapped(tmp_path: Path) -> Trapped:
    return Trapped(tmp_path)


def test_the_traps_work(trapped: Trapped):
    subprocess.run([sys.executable, "-c", "import org"], cwd=trapped.here, check=True)
    assert trapped.caught.read_text().split() == ["org"]


@pytest.mark.slow
def test_worker_processes(trapped: Trapped):
    words = ("--engine", "workers", "--workers", "2", *SMALL)
    trapped.call(FEDRL, "run", "momentum/random_mdp", *words)


@pytest.mark.slow
def test_pools_of_sweeps(trapped: Trapped):
    sweep = trapped.home / "two.toml"
    sweep.write_text('recipe = "momentum/random_mdp"\nseeds = [0, 1]\n[runs]\nplain = ""\n')
    assert sweeps.read(str(sweep))
    trapped.call(FEDRL, "sweep", str(sweep), "--processes", "2", "--out", "swept", *SMALL)


@pytest.mark.slow
def test_pools_of_reproductions(trapped: Trapped):
    trapped.call(CELLS)


GRANDCHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import org'])"


@pytest.mark.parametrize("words", [("-m", "fedrl", "flower", "--help"), ("-c", GRANDCHILD)])
def test_parts_of_a_federation(trapped: Trapped, words, monkeypatch: pytest.MonkeyPatch):
    """A module by `-m`, a program by `-c`, and whatever they start in their turn."""
    pytest.importorskip("flwr", reason="needs the extra flower")
    from fedrl.engines.flower import child_processes

    monkeypatch.chdir(trapped.here)
    process = child_processes.start(words, trapped.home / "flwr", trapped.home / "log")
    process.wait(120)
    trapped.check()


@pytest.mark.machines
@pytest.mark.xdist_group("flower machines")
def test_a_federation_of_real_processes(trapped: Trapped):
    """`fedrl flower up` and a run on it, started in the folder."""
    pytest.importorskip("flwr", reason="needs the extra flower")
    program = """
    import sys
    from pathlib import Path
    from fedrl.cli import call
    from fedrl.engines.flower.local_federation import LocalFederation
    if __name__ == "__main__":
        with LocalFederation(Path("up").resolve(), 2, name="traps"):
            words = ["--engine", "flower", "--connection", "traps"]
            sys.exit(call(["run", "momentum/random_mdp", *words, *sys.argv[1:]]))
    """
    trapped.call(program, *SMALL)
    records = next(trapped.here.rglob("clients.jsonl")).read_text()
    assert "failed" not in records
