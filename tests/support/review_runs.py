"""Small runs of models that write reviews: the model, the recipe and the run that tests share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedrl.config import schema as configs
from fedrl.config.build import build_algorithm
from fedrl.config.loading import resolve
from fedrl.envs.imdb.world import Settings as WorldSettings
from fedrl.envs.imdb.world import World
from fedrl.runs import train as runs
from fedrl.runs.warmstart_reviews import Settings, warmstart

WORLD = {"name": "imdb", "reviews": 40, "public": 200}


def make_model(folder: Path, steps: int = 60) -> Path:
    """A model that knows the words of generated reviews, and a little of their order."""
    world = World(WorldSettings(**WORLD), 0, 0)
    return warmstart(world, Settings(steps=steps, width=32, layers=1, batch=16, lr=1e-2), folder)


def recipe(model: Path | str, **more) -> configs.Config:
    data = {
        "name": "test",
        "rounds": 2,
        "federation": {"clients": 3},
        "algorithm": {
            "name": "fedrlhf-text", "model": str(model), "batches": 2, "batch": 4, "lr": 1e-3,
            "minibatch": 4, "answer_tokens": 8, "queries": 4, "device": "cpu",
        },
        "world": dict(WORLD),
    }  # fmt: skip
    for key, value in more.items():
        data[key] = data.get(key, {}) | value if isinstance(value, dict) else value
    return resolve(data)


def train(config: configs.Config, tmp_path: Path) -> Path:
    config = replace(config, out=str(tmp_path))
    directory = runs.start(config)
    runs.train(config, directory, build_algorithm(config))
    return directory.path
