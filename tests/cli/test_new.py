"""`fedrl new`: packages that install, whose tests pass and whose recipes run as they are."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib

import pytest
from support import environments

from fedrl.api.packages import KINDS
from fedrl.cli import call
from fedrl.config.parts import TABLES

pytestmark = pytest.mark.slow

NAMES = {"method": "my-method", "world": "icy_hall", "rule": "nearest"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_is_written(kind, tmp_path, capsys):
    name = NAMES[kind]
    assert call(["new", kind, name, "--in", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert f"pip install -e {tmp_path / name} pytest" in said
    assert f"python -m pytest {tmp_path / name}" in said
    recipe = tomllib.loads((tmp_path / name / "recipe.toml").read_text())
    assert recipe["name"] == name  # the folder of its runs: two packages' do not mix
    module = name.replace("-", "_")
    found = {str(p.relative_to(tmp_path / name)) for p in (tmp_path / name).rglob("*.*")}
    assert found == {
        "README.md", "pyproject.toml", "recipe.toml", f"src/{module}/__init__.py",
        f"tests/test_{module}.py",
    }  # fmt: skip
    about = tomllib.loads((tmp_path / name / "pyproject.toml").read_text())
    ((key, place),) = about["project"]["entry-points"][
        f"fedrl.{TABLES[KINDS[kind].table].group}"
    ].items()
    assert (key, place.split(":")[0]) == (name, module)
    for file in (tmp_path / name).rglob("*.*"):
        text = file.read_text()
        assert "{{" not in text
        assert "&" not in text  # of an escape for HTML
        assert max(map(len, text.splitlines())) <= 100
        assert text.endswith("\n")


@environments.needs_pip
def test_each_is_green_at_once(tmp_path):
    """Installed with pip into one environment: its tests, its recipe, and its name in the list."""
    pytest.importorskip("jax", reason="needs the extra classic")
    python = environments.make(tmp_path / "environment")
    for kind, name in NAMES.items():
        assert call(["new", kind, name, "--in", str(tmp_path)]) == 0
        environments.install_from(tmp_path / "environment", tmp_path / name)

    def ran(*words):
        done = subprocess.run(
            [str(python), "-m", *words], cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    places = [str(tmp_path / name) for name in NAMES.values()]
    ran("pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, *places)
    listed = ran("fedrl", "list")
    assert all(f"[{name} 0.1.0]" in listed for name in NAMES.values())
    together = ["--algorithm.name", "my-method", "--aggregate.name", "nearest"]
    ran("fedrl", "run", "icy_hall/recipe.toml", "--rounds", "1", *together)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rule", "krum"], "there is a rule called 'krum' already"),
        (["world", "cartpole"], "there is a world called"),
        (["method", "numpy"], "Python has a module 'numpy' here already"),
        (["rule", "fedrl"], "Python has a module 'fedrl' here already"),
        (["rule", "class"], "cannot be a package's name"),
        (["rule", "My-Rule"], "cannot be a package's name"),
        (["rule", "../up"], "cannot be a package's name"),
        (["rule", "a:b"], "cannot be a package's name"),
        (["rule", "a--b"], "cannot be a package's name"),
        (["rule", "ünïcode"], "cannot be a package's name"),
        (["thing", "mine"], "KIND is 'thing'; choose from method, world, rule"),
        (["rule"], "the following arguments are required: NAME"),
    ],
)
def test_what_cannot_be_written_is_a_line_and_leaves_nothing(words, said, tmp_path, capsys):
    assert call(["new", *words, "--in", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "mine", raising=False)  # another test's
    assert call(["new", "rule", "mine", "--in", str(tmp_path)]) == 0
    mine = tmp_path / "mine" / "recipe.toml"
    mine.write_text("rounds = 3\n")
    assert call(["new", "world", "mine", "--in", str(tmp_path)]) == 2
    assert "is there already: choose another name" in capsys.readouterr().err
    assert mine.read_text() == "rounds = 3\n"
