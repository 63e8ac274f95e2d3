"""Small runs of language agents in shops: the model and the recipe that several tests share."""

from __future__ import annotations

from pathlib import Path

from fedrl.config.loading import resolve
from fedrl.config.schema import Config
from fedrl.envs.webshop.shop import Settings, WebShop
from fedrl.runs.warmstart import Settings as WarmStart
from fedrl.runs.warmstart import warmstart

SMALL = {"products": 60, "validation": 20, "public": 20, "max_steps": 4}


def shop_model(folder: Path, **world) -> Path:
    """A model that knows the words of the shop, and not much more."""
    how = WarmStart(tasks=20, steps=60, width=32, layers=1, batch=16, lr=1e-2, spread=0.05)
    return warmstart(WebShop(Settings(**(SMALL | world))), how, folder)


def shop_recipe(model: Path, out: Path, *flags: str, **more) -> Config:
    tables: dict = {
        "name": "test", "rounds": 1, "out": str(out),
        "federation": {"clients": 4},
        "algorithm": {
            "name": "fedagent", "model": str(model), "local_epochs": 1, "tasks": 2, "group": 2,
            "lr": 1e-3, "kl": 0.0, "answer_tokens": 12, "prompt_tokens": 160, "device": "cpu",
            "eval_split": "valid", "eval_tasks": 6,
        },
        "world": {"name": "webshop", **SMALL},
        "partition": {"size": 5},
    }  # fmt: skip
    for key, value in more.items():
        tables[key] = tables.get(key, {}) | value if isinstance(value, dict) else value
    return resolve(tables, flags)
