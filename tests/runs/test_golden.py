"""Golden metrics: every recipe at smoke scale gives the numbers that it gave before.

A change that should not move numbers proves it here. One that should, regenerates the file with
`python tests/runs/test_golden.py` and says why in its commit.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # where it is a command

from support.agent_runs import won_by_walking
from support.prompt_files import write_rows
from support.repository import TESTS

from fedrl.config import schema as configs
from fedrl.config.build import build_algorithm, build_world
from fedrl.config.loading import find_recipe, read_recipe, recipes_folder, resolve
from fedrl.envs.client_worlds import described
from fedrl.envs.household.game import Game
from fedrl.envs.prompts import builtin_rewards
from fedrl.runs import train as runs

pytestmark = pytest.mark.slow

GOLDEN = TESTS / "golden.json"
AGENT = (
    "--rounds", "2", "--eval_every", "1", "--algorithm.tasks", "3", "--algorithm.group", "3",
    "--algorithm.local_epochs", "1", "--algorithm.answer_tokens", "16", "--algorithm.prompt_tokens",
    "160", "--algorithm.eval_tasks", "6", "--algorithm.device", "cpu", "--world.max_steps", "4",
    "--partition.size", "4",
)  # fmt: skip
HOME = (*AGENT, "--world.source", "generated", "--world.size", "tiny", "--world.train", "60")
SHOP = (*AGENT, "--world.source", "generated", "--world.products", "60", "--world.validation", "20",
        "--world.public", "20")  # fmt: skip
PROMPTS = (*AGENT[:-4], "--partition.size", "4", "--world.public", "0.3")
QHD = (
    "--rounds", "2", "--eval_every", "1", "--algorithm.episodes", "3", "--algorithm.features", "96",
    "--algorithm.eval_episodes", "3",
)  # fmt: skip
RATINGS = (
    "--rounds", "2", "--federation.clients", "3", "--world.users", "30", "--world.movies", "60",
    "--world.ratings", "30", "--world.least", "10", "--algorithm.rating_queries", "8",
    "--algorithm.preference_queries", "8",
)  # fmt: skip
REVIEWS = (
    "--rounds", "2", "--world.reviews", "40", "--world.public", "200", "--algorithm.batches", "2",
    "--algorithm.batch", "6", "--algorithm.answer_tokens", "8", "--algorithm.eval_prompts", "4",
    "--algorithm.device", "cpu",
)  # fmt: skip
CLASSIC = ("--rounds", "2", "--eval_every", "1", "--world.horizon", "40")
SMOKE = {
    "classics/fednova": CLASSIC,
    "classics/fedpg_br": CLASSIC,
    "classics/fedprox": CLASSIC,
    "classics/scaffold": CLASSIC,
    "classics/qavg": ("--rounds", "3", "--algorithm.samples", "2"),
    "fedagent/demo": HOME,
    "fedagent/household": HOME,
    "fedagent/household_lora": HOME,
    "fedagent/household_7b_lora": HOME,
    "fedagent/webshop": SHOP,
    "fedagent/webshop_lora": SHOP,
    "fedagent/webshop_7b_lora": SHOP,
    "fedagent/webshop_small": SHOP,
    "fedagent/webshop_variants": (*SHOP, "--federation.clients", "8", "--algorithm.eval_own", "1"),
    "fedqhd/acrobot": (*QHD, "--algorithm.encoders", "own", "--algorithm.sizes", "32,96"),
    "fedqhd/cartpole": QHD,
    "fedqhd/lunarlander": QHD,
    "fedqhd/mountaincar": QHD,
    "fedrlhf/imdb": REVIEWS,
    "fedrlhf/movielens": RATINGS,
    "fedrlhf/movielens_paper": RATINGS,
    "gymnasium/acrobot": (*QHD, "--world.horizon", "60"),
    "gymnasium/cartpole": ("--rounds", "2", "--world.horizon", "40", "--eval_every", "1"),
    "gymnasium/halfcheetah": ("--rounds", "2", "--world.horizon", "10", "--eval_every", "1"),
    "gymnasium/pendulum": ("--rounds", "2", "--world.horizon", "10", "--eval_every", "1"),
    "prompts/organisations": (*PROMPTS, "--world.answer", "answer"),
    "prompts/sort_digits": PROMPTS,
    "momentum/random_mdp": ("--rounds", "2", "--world.horizon", "30"),
    "momentum/cartpole": ("--rounds", "3", "--world.horizon", "40"),
    "momentum/halfcheetah": ("--rounds", "2", "--world.horizon", "10", "--eval_every", "1"),
    "momentum/walker": ("--rounds", "2", "--world.horizon", "10", "--eval_every", "1"),
}


NEEDS = {"classics": "jax", "fedagent": "torch", "prompts": "torch", "imdb": "torch",
         "webshop": "rapidfuzz", "fedqhd": "numba", "movielens": "numba", "lunarlander": "Box2D",
         "momentum/cartpole": "jax", "halfcheetah": "mujoco", "walker": "mujoco",
         "gymnasium/": "gymnasium", "gymnasium/acrobot": "numba", "gymnasium/cartpole": "jax",
         "gymnasium/pendulum": "jax"}  # fmt: skip


def hardly_trained(config: configs.Config, folder: Path) -> Path:
    """A model that knows the words of the recipe's world, and not much more.

    Of twenty short sums it would know everything after 150 steps, and what it does not know would
    then follow from the last bits of its numbers, which other processors have otherwise.
    """
    from fedrl.runs.warmstart import Settings, warmstart

    how = Settings(
        tasks=20, steps=15 if config.world.name == "prompts" else 150, lr=1e-2, width=32,
        layers=1, batch=32, spread=0.02,
        format=config.algorithm.format, thinking=config.algorithm.thinking,
    )  # fmt: skip
    return warmstart(described(build_world(config).world), how, folder)


def even(completions: Sequence[str], answer: Sequence[object], **columns: object) -> list[float]:
    """1 for an even number of characters."""
    return [float(len(builtin_rewards.text_of(said)) % 2 == 0) for said in completions]


def measured(recipe: str, out: str) -> list[dict]:
    path = find_recipe(recipe)
    flags = [*SMOKE[recipe], "--out", out]
    if recipe == "prompts/organisations":
        for name in ("north", "south", "west", "public"):
            write_rows(Path(out) / "data" / name / "tasks" / "train.jsonl")
        flags += ["--partition.folder", str(Path(out) / "data")]
    elif recipe.startswith("prompts/"):
        flags += ["--world.source", str(write_rows(Path(out) / "sums.jsonl"))]
    config = resolve(read_recipe(path), flags)
    if recipe.startswith(("fedagent/", "prompts/")):
        model = hardly_trained(config, Path(out) / "models" / recipe)
        config = replace(config, algorithm=replace(config.algorithm, model=str(model)))
    if recipe == "fedrlhf/imdb":
        from support.review_runs import make_model

        model = make_model(Path(out) / "models" / recipe)
        config = replace(config, algorithm=replace(config.algorithm, model=str(model)))
    directory = runs.start(config)
    # Easier goals, so that a model of no skill has something to learn from.
    with (
        patch.object(Game, "_goal_holds", won_by_walking),
        patch.object(builtin_rewards, "exact_match", even),
    ):
        runs.train(config, directory, build_algorithm(config))
    return [json.loads(line) for line in (directory.path / "metrics.jsonl").open()]


def test_every_recipe_has_golden_numbers():
    folder = recipes_folder()
    recipes = {str(p.relative_to(folder).with_suffix("")) for p in folder.glob("*/*.toml")}
    assert recipes == set(SMOKE) == set(json.loads(GOLDEN.read_text()))


@pytest.mark.parametrize("recipe", SMOKE)
def test_golden(recipe, tmp_path):
    for part, package in NEEDS.items():
        if part in recipe:
            pytest.importorskip(package, reason=f"{recipe} needs {package}")
    found = measured(recipe, str(tmp_path))
    expected = json.loads(GOLDEN.read_text())[recipe]
    assert len(found) == len(expected)
    for now, before in zip(found, expected):
        assert now == pytest.approx(before, rel=1e-3, abs=1e-5)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        anew = {recipe: measured(recipe, folder) for recipe in sys.argv[1:] or SMOKE}
    known = json.loads(GOLDEN.read_text())
    numbers = {recipe: anew.get(recipe, known.get(recipe)) for recipe in SMOKE}
    GOLDEN.write_text(json.dumps(numbers, indent=1) + "\n")
