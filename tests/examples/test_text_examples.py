"""Text worlds and reward functions outside the tree, installed with pip and named in recipes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support import environments
from support.environments import EXAMPLES

pytest.importorskip("torch", reason="needs the extra llm")
pytestmark = [pytest.mark.slow, environments.needs_pip]

PACKAGES = ("word_game", "sort_digits")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment in which they are installed."""
    folder = tmp_path_factory.mktemp("environment")
    found = environments.make(folder)
    for package in PACKAGES:
        environments.install(folder, package)
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_its_own_tests_pass(python: Path, package: str, tmp_path: Path):
    environments.run_own_tests(python, package, tmp_path)


def test_recipes_name_them_by_their_entry_points(python: Path, tmp_path: Path):
    def fedrl(*words: str) -> str:
        done = subprocess.run(
            [str(python), "-m", "fedrl", *words],
            cwd=tmp_path, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    subprocess.run(
        [str(python), "-m", "fedrl_sort_digits", "data/sort_digits"], cwd=tmp_path, check=True
    )
    small = ("--tasks", "40", "--steps", "5", "--width", "32", "--layers", "1")
    digits = ("--world.source", "data/sort_digits", "--world.reward", "right-order")
    fedrl("warmstart", "prompts", "--out", "models/sort_digits", *small, *digits,
          "--world.answer", "answer")  # fmt: skip
    fedrl("warmstart", "word-game", "--out", "models/word-game", *small)
    short = ("--rounds", "1", "--algorithm.tasks", "2", "--algorithm.eval-tasks", "4",
             "--algorithm.device", "cpu")  # fmt: skip
    runs = {
        "word_game": (str(EXAMPLES / "word_game" / "recipe.toml"),),
        "sort_digits": ("prompts/sort_digits", "--world.reward", "right-order,right-places"),
    }
    for package, words in runs.items():
        fedrl("run", *words, "--name", package, *short)
        (config,) = tmp_path.glob(f"runs/{package}/*/config.toml")
        assert f'"fedrl-{package.replace("_", "-")}:0.1.0:' in config.read_text()
    assert "4 with 9 tasks each" in fedrl("partition", "word-game", "--clients", "4", "--size", "9")
