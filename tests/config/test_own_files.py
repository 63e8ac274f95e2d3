"""A file of one's own and what lies beside it; classes that cannot be made; stale processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("jax", reason="needs the extra classic")

from support.packages import METHOD

import fedrl
from fedrl.config import parts
from fedrl.config.build import build_world
from fedrl.core.registry import fingerprint, missing_extra
from fedrl.core.source_code import neighbours
from fedrl.core.types import UserError

NEAR = "from doubling import factor\n" + METHOD
RECIPE = {"algorithm": {"name": "./mine.py:Doubled"}, "world": {"name": "random_mdp"}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A file that imports its neighbour, and this process as it was before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    before = {*sys.modules}
    (tmp_path / "mine.py").write_text(NEAR)
    (tmp_path / "doubling.py").write_text("factor = 2.0\n")
    yield tmp_path
    for name in {*sys.modules} - before:
        if name.startswith("fedrl_file_") or name in ("doubling", "fedrl_near"):
            del sys.modules[name]


def method_of(folder: Path) -> parts.Part:
    return parts.method(f"{folder}/mine.py:Doubled")


def test_what_lies_beside_a_file_is_found(folder: Path):
    """From anywhere, by the command too, which has no working folder on its path."""
    assert not {"", str(folder)} & {*sys.path}
    config = fedrl.configure(RECIPE)
    assert config.algorithm.factor == 2.0
    assert sys.path[-1] == str(folder)  # after what is installed


def test_a_run_knows_that_a_neighbour_has_changed(folder: Path):
    before = fingerprint(method_of(folder).entry)
    (folder / "strange.py").write_text("nobody = 'imports it'\n")
    assert fingerprint(method_of(folder).entry) == before
    (folder / "doubling.py").write_text("factor = 3.0\n")
    assert fingerprint(method_of(folder).entry) != before


def test_neighbours_are_found_through_neighbours_and_never_for_pythons_own(folder: Path):
    (folder / "doubling.py").write_text("def later():\n    import deep.inner, random\n")
    (folder / "random.py").write_text("")
    (folder / "deep").mkdir()
    (folder / "deep" / "__init__.py").write_text("from . import inner")
    (folder / "deep" / "inner.py").write_text("import doubling, absent")
    found = neighbours(folder / "mine.py")
    assert {name: [file.name for file in files] for name, files in found.items()} == {
        "doubling": ["doubling.py"],
        "deep": ["__init__.py", "inner.py"],
    }


def test_another_module_of_a_neighbours_name_is_refused(folder: Path):
    """Two folders with a helper of one name: the second would be trained with the first's."""
    method_of(folder)
    other = folder / "other"
    other.mkdir()
    (other / "mine.py").write_text(NEAR)
    (other / "doubling.py").write_text("factor = 9.0\n")
    with pytest.raises(UserError, match=r"mine.py imports doubling, which lies beside it, and got"):
        method_of(other)


def test_a_class_that_takes_other_arguments_is_one_line(folder: Path):
    (folder / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from fedrl.envs.simulated import EnvironmentWorld\n"
        "class World(EnvironmentWorld):\n"
        "    '''a world'''\n"
        "    @dataclass(frozen=True)\n"
        "    class Settings:\n"
        "        size: int = 3\n"
        "    def __init__(self, settings):\n"
        "        pass\n"
    )
    config = fedrl.configure({"world": {"name": "./mine.py:World"}, "algorithm": {"name": "pavg"}})
    with pytest.raises(UserError, match=r"is made with \(settings, clients, seed\): too many pos"):
        build_world(config)


@pytest.mark.slow
def test_a_process_that_is_older_than_the_package_is_told_so():
    """pip would answer that all is there: an editable package is found by new processes only."""
    error = ModuleNotFoundError("No module named 'pytest'", name="pytest")
    told = str(missing_extra(error, "algorithm.name = 'mine'", ""))
    assert told.startswith("algorithm.name = 'mine' needs pytest, installed but not to be found")
    assert "pip install" not in told
