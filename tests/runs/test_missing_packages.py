"""What a run needs and lacks is a line before there is a folder, whatever package it is."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

RUN = """
import importlib.abc, sys
blocked, recipe, method, out = sys.argv[1:]

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
import fedrl

try:
    fedrl.run(recipe, rounds=1, out=out, federation={"clients": 2}, algorithm={"name": method})
except fedrl.UserError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("package", "recipe", "method", "extra"),
    [
        ("scipy", "fedqhd/cartpole", "feddqn", "classic"),  # numba's products are its BLAS
        ("scipy", "fedrlhf/movielens", "fedrlhf", "classic"),
        ("jax", "momentum/cartpole", "pavg", "classic"),
        ("mujoco", "momentum/halfcheetah", "pavg", "mujoco"),
    ],
)
def test_a_package_that_is_missing_is_said_before_there_is_a_folder(
    package, recipe, method, extra, tmp_path
):
    pytest.importorskip(package, reason="what is not installed cannot be taken away")
    command = [sys.executable, "-c", RUN, package, recipe, method, str(tmp_path / "runs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f'needs the package {package}: pip install "fedrl[{extra}]"' in done.stdout
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("id", ["LunarLander-v3", "BipedalWalker-v3"])
def test_box2d_is_named_by_its_extra(id, tmp_path):
    pytest.importorskip("gymnasium")
    program = RUN.replace('algorithm={"name": method}', f'world={{"id": "{id}"}}')
    command = [
        sys.executable,
        "-c",
        program,
        "Box2D",
        "gymnasium/cartpole",
        "",
        str(tmp_path / "x"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert f"world.id = '{id}' needs another package" in done.stdout, done.stderr[-2000:]
    assert 'pip install "fedrl[box2d]"' in done.stdout
    assert not (tmp_path / "x").exists()
