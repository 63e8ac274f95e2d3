"""Small runs of language agents: the model, the recipe and the run that several tests share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedrl.config import schema as configs
from fedrl.config.build import build_algorithm
from fedrl.config.loading import resolve
from fedrl.envs.household.game import Game
from fedrl.envs.household.world import Household
from fedrl.envs.household.world import Settings as HouseholdSettings
from fedrl.runs import train as runs
from fedrl.runs.run_dir import RunDir, read_checkpoint
from fedrl.runs.warmstart import Settings, warmstart

WORLD = {
    "name": "household",
    "size": "tiny",
    "train": 60,
    "unseen": 12,
    "public": 40,
    "max_steps": 6,
}


def make_model(folder: Path) -> Path:
    """A model of little skill: its episodes differ, so that there is something to learn."""
    world = Household(HouseholdSettings(**{k: v for k, v in WORLD.items() if k != "name"}))
    how = Settings(tasks=40, steps=150, width=32, layers=1, batch=32, lr=1e-2, spread=0.02)
    return warmstart(world, how, folder)


def won_by_walking(game: Game) -> bool:
    """An easier goal, every third place: a model of no skill gets there now and then."""
    return game.place % 3 == 0 and game.place != game.layout.start


def recipe(model: Path, **more) -> configs.Config:
    data = {
        "name": "test",
        "rounds": 2,
        "federation": {"clients": 5, "cohort": 2},
        "algorithm": {
            "name": "fedagent", "model": str(model), "local_epochs": 1, "tasks": 3, "group": 2,
            "lr": 1e-3, "kl": 0.0, "answer_tokens": 6, "device": "cpu",
        },
        "world": dict(WORLD),
        "partition": {"size": 8},
    }  # fmt: skip
    for key, value in more.items():
        data[key] = data.get(key, {}) | value if isinstance(value, dict) else value
    return resolve(data)


def train(config: configs.Config, tmp_path: Path) -> Path:
    config = replace(config, out=str(tmp_path))
    algorithm = build_algorithm(config)
    directory = runs.start(config)
    runs.train(config, directory, algorithm)
    return directory.path


def last(path: Path):
    return read_checkpoint(RunDir(path).checkpoints()[0])[0]
