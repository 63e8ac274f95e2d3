"""Golden metrics: every recipe at smoke scale gives the numbers that it gave before.

A change that should not move numbers proves it here. One that should, regenerates the file with
`python tests/test_golden.py` and says why in its commit.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from fedrl.experiment import config as configs
from fedrl.experiment import run as runs

GOLDEN = Path(__file__).parent / "golden.json"
SMOKE = {
    "momentum/random_mdp": ("--rounds", "2", "--world.horizon", "30"),
    "momentum/cartpole": ("--rounds", "3", "--world.horizon", "40"),
    "momentum/halfcheetah": ("--rounds", "2", "--world.horizon", "10", "--eval_every", "1"),
    "momentum/walker": ("--rounds", "2", "--world.horizon", "10", "--eval_every", "1"),
}


def measured(recipe: str, out: str) -> list[dict]:
    path = configs.find_recipe(recipe)
    config = configs.resolve(configs.read_recipe(path), [*SMOKE[recipe], "--out", out])
    directory = runs.start(config)
    runs.train(config, directory, runs.build_algorithm(config))
    return [json.loads(line) for line in (directory.path / "metrics.jsonl").open()]


def test_every_recipe_has_golden_numbers():
    folder = configs.recipes_folder()
    recipes = {str(p.relative_to(folder).with_suffix("")) for p in folder.glob("*/*.toml")}
    assert recipes == set(SMOKE) == set(json.loads(GOLDEN.read_text()))


@pytest.mark.parametrize("recipe", SMOKE)
def test_golden(recipe, tmp_path):
    if "random" not in recipe:
        pytest.importorskip("mujoco" if "cart" not in recipe else "jax", reason="extra missing")
    found = measured(recipe, str(tmp_path))
    expected = json.loads(GOLDEN.read_text())[recipe]
    assert len(found) == len(expected)
    for now, before in zip(found, expected):
        assert now == pytest.approx(before, rel=1e-3, abs=1e-5)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        numbers = {recipe: measured(recipe, folder) for recipe in SMOKE}
    GOLDEN.write_text(json.dumps(numbers, indent=1) + "\n")
