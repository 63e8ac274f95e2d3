"""A hook that is misspelt is never asked, so somebody has to say so."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

pytest.importorskip("jax", reason="needs the extra classic")

from fedrl.config import parts

METHOD = '''
from fedrl.algorithms.policy_gradient import PolicyGradient


class Mine(PolicyGradient):
    """One's own."""

    def direction(self, now):
        return now.gradient()

    def {name}(self, *arguments):
        return self.steps_used()

    def steps_used(self):
        return 1
'''
WORLD = '''
from dataclasses import dataclass
from fedrl.envs.simulated import EnvironmentWorld


class Mine(EnvironmentWorld):
    """One's own."""

    @dataclass(frozen=True)
    class Settings:
        # Fields along a side.
        size: int = 5

    def environment(self, client):
        return None

    def {name}(self, client):
        return None
'''


def said_of(source: str, table: str, folder: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    file = folder / "mine.py"
    file.write_text(source)
    with caplog.at_level(logging.INFO, logger="fedrl"):
        for _ in range(2):  # said once
            parts.find(table, f"{file}:Mine")
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("step_partail", "step_partial"),
        ("sever_step", "step"),
        ("server_step", "step"),
        ("server_tensor", "server_tensors"),
        ("finnish", "finish"),
        ("warmup", "warm_up"),
    ],
)
def test_a_misspelt_hook_of_a_method_is_named(name, meant, tmp_path, caplog):
    (line,) = said_of(METHOD.format(name=name), "algorithm", tmp_path, caplog)
    assert line.startswith("note: algorithm.name = ")
    assert f"has a method {name}, which nothing calls: did you mean {meant}?" in line


@pytest.mark.parametrize("name", ["step", "step_partial", "clip_loss", "_finnish", "plot"])
def test_hooks_and_helpers_are_no_mistakes(name, tmp_path, caplog):
    """`steps_used` is near nothing, and called; what is private is the class's own."""
    assert said_of(METHOD.format(name=name), "algorithm", tmp_path, caplog) == []


def test_a_name_that_the_class_calls_itself_is_its_own(tmp_path, caplog):
    source = METHOD.format(name="step").replace("steps_used", "steps")
    assert said_of(source, "algorithm", tmp_path, caplog) == []
    called = METHOD.format(name="step").replace("return self.steps_used()", "return 1")
    (line,) = said_of(called.replace("steps_used", "steps"), "algorithm", other(tmp_path), caplog)
    assert "did you mean step?" in line


def other(folder: Path) -> Path:
    made = folder / "other"
    made.mkdir()
    return made


def test_a_misspelt_hook_of_a_world_is_named(tmp_path, caplog):
    (line,) = said_of(WORLD.format(name="renderd"), "world", tmp_path, caplog)
    assert "world.name" in line
    assert line.endswith("did you mean rendered?")
