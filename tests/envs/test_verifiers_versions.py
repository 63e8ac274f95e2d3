"""Versions of verifiers that cannot be played are one line, before any environment is imported."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from fedrl.core.types import UserError
from fedrl.envs.verifiers.world import Settings, load_environment

CODE = """
import verifiers as vf


class Game(vf.MultiTurnEnv):
    pass


def load_environment():
    return Game()
"""


@pytest.fixture
def game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """An environment of the classic interface, beside a package that has another one."""
    other = ModuleType("verifiers")
    other.__version__ = "0.4.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "verifiers", other)
    (tmp_path / "game.py").write_text(CODE)
    return Settings(environment=f"{tmp_path / 'game.py'}:load_environment")


def test_another_interface_is_named_with_the_version_and_what_to_do(game: Settings):
    with pytest.raises(UserError, match=r"verifiers 0\.4\.0 has another interface") as found:
        load_environment(game)
    assert 'pip install "fedrl[verifiers]"' in str(found.value)
    assert "\n" not in str(found.value)


def test_what_is_no_environment_is_said(game: Settings, monkeypatch: pytest.MonkeyPatch):
    for name in ("Environment", "MultiTurnEnv"):
        monkeypatch.setattr(sys.modules["verifiers"], name, type(name, (), {}), raising=False)
    with pytest.raises(UserError, match="gives no Environment of verifiers"):
        load_environment(game)
