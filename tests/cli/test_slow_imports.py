"""An import that takes long is told while it goes on; a quick one, and a mere look, are not."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from pathlib import Path

import pytest

from fedrl.cli import slow_imports

SLOW = """
import os, threading
while not os.path.exists({flag!r}):
    threading.Event().wait(0.01)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A large package of ours, imported by nobody yet."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(slow_imports.LARGE, "fedrl_test_large", "a large package")
    monkeypatch.setattr(slow_imports, "SECONDS", 0.01)
    monkeypatch.delitem(sys.modules, "fedrl_test_large", raising=False)
    return tmp_path / "fedrl_test_large.py"


def test_it_is_told_while_it_goes_on(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    flag, said = tmp_path / "said", []

    def hear(*words: str, **_: object) -> None:  # a moment after the first word the import ends
        said.extend(words)
        if len(said) == 1:
            threading.Timer(0.1, flag.touch).start()

    monkeypatch.setattr(slow_imports, "print", hear, raising=False)
    package.write_text(SLOW.format(flag=str(flag)))
    with slow_imports.told():
        for _ in range(3):  # whether it is there is asked first, and told of once
            importlib.util.find_spec("fedrl_test_large")
        importlib.import_module("fedrl_test_large")
    assert said == ["loading a large package …"]


def test_a_look_and_an_import_that_is_over_are_not_told(
    package: Path, capsys: pytest.CaptureFixture[str]
):
    package.write_text("")
    before = list(sys.meta_path)
    with slow_imports.told():
        assert importlib.util.find_spec("fedrl_test_large")
        slow_imports.say_if_loading("fedrl_test_large", set())
        importlib.import_module("fedrl_test_large")
        slow_imports.say_if_loading("fedrl_test_large", set())
    assert sys.meta_path == before
    assert capsys.readouterr().err == ""
