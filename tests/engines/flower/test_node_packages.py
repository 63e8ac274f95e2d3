"""Code of others on a node: installed, allowed by its owner, and the same as the driver's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("jax", reason="needs the extra classic")

from support.packages import METHOD, install

from fedrl.config.build import packages
from fedrl.config.loading import resolve, to_toml
from fedrl.core.types import UserError
from fedrl.engines.flower.node import Refused
from fedrl.engines.flower.node_recipes import build, configuration

NAME = "fedrl-doubled"


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a driver sends that has the package."""
    monkeypatch.syspath_prepend(install(tmp_path / "site", NAME, METHOD))
    tables = {
        "algorithm": {"name": "fedrl_doubled:Doubled"},
        "world": {"name": "random_mdp"},
        "federation": {"clients": 2},
    }
    config = resolve(tables)
    sent = to_toml(resolve(tables | {"packages": list(packages(config))}))
    yield sent
    sys.modules.pop("fedrl_doubled", None)


def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine, without the driver's packages."""
    sys.modules.pop("fedrl_doubled", None)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(tmp_path / "site")])


def test_an_allowed_package_of_the_same_code_is_built(recipe: str, tmp_path: Path):
    assert configuration(recipe, (), {NAME}).algorithm.factor == 2.0
    algorithm = build(recipe, str(tmp_path), "", (), False, frozenset({NAME}))
    assert type(algorithm).__name__ == "Doubled"


def test_a_package_that_is_not_allowed_is_not_imported(recipe: str):
    sys.modules.pop("fedrl_doubled")
    line = r"the run needs fedrl-doubled 0.1, which this node's owner has not allowed \(--allow-p"
    with pytest.raises(Refused, match=line):
        configuration(recipe, ())
    # A driver that does not say which packages it has gets no further.
    silent = "\n".join(x for x in recipe.splitlines() if "fedrl-doubled:" not in x)
    silent = silent.replace("packages = [\n]", "packages = []")
    with pytest.raises(UserError, match="has not allowed"):
        configuration(silent, ())
    assert "fedrl_doubled" not in sys.modules


def test_a_package_that_is_missing_is_named(recipe: str, tmp_path: Path, monkeypatch):
    elsewhere(tmp_path, monkeypatch)
    with pytest.raises(Refused, match=r"needs fedrl-doubled 0.1, which is not installed on this"):
        configuration(recipe, (), {NAME})


def test_another_version_is_named(recipe: str, tmp_path: Path, monkeypatch):
    elsewhere(tmp_path, monkeypatch)
    monkeypatch.syspath_prepend(install(tmp_path / "other", NAME, METHOD, version="0.2"))
    with pytest.raises(Refused, match=r"the run has fedrl-doubled 0.1, and this node 0.2"):
        configuration(recipe, (), {NAME})


def test_other_code_under_the_same_version_is_refused(recipe: str, tmp_path: Path, monkeypatch):
    elsewhere(tmp_path, monkeypatch)
    monkeypatch.syspath_prepend(install(tmp_path / "other", NAME, METHOD + "\n# changed\n"))
    with pytest.raises(Refused, match="other code under the same version"):
        configuration(recipe, (), {NAME})


@pytest.mark.parametrize("name", ["./mine.py:Doubled", "/tmp/mine.py:Doubled"])
def test_a_file_is_never_opened(name: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("raise SystemExit('imported')")
    with pytest.raises(UserError, match="a node takes installed packages only"):
        configuration(f'[algorithm]\nname = "{name}"', (), {NAME})


@pytest.mark.parametrize("said", ['["../x:1:2"]', '["a b:1:2"]', '["x"]', '[["x"]]', "[1]", '"x"'])
def test_packages_that_are_none_are_refused(said: str):
    with pytest.raises((Refused, UserError)):
        configuration(f"packages = {said}", (), {NAME})
