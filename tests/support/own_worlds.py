"""Households and shops of organisations' own, as the files that ALFWorld and WebShop have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from fedrl.config.loading import resolve
from fedrl.config.schema import Config
from fedrl.envs.household.export import write_game
from fedrl.envs.household.generate import generate as generate_problem
from fedrl.envs.household.problem import FOLDERS, Problem
from fedrl.envs.webshop.generate import generate as generate_products
from fedrl.envs.webshop.product import Product

GAMES = {
    "north": {"train": 5, "valid_unseen": 1},
    "south": {"train": 1},
    "west": {"train": 3, "valid_unseen": 2},
    "public": {"valid_unseen": 4},
}
"""By split; South holds nothing out, and the coordinator has nothing to train on."""
KINDS = {"north": "pick", "south": "pick", "west": "look", "public": "pick"}
"""West has a type of task that nobody else has."""
PRODUCTS = {"north": 40, "south": 12, "west": 24, "public": 30}


def problems_of(member: str, split: str, canary: str = "") -> list[Problem]:
    first = 100 * list(GAMES).index(member) + 10 * ("train", "valid_unseen").index(split)
    made = [
        generate_problem(0, first + k, "tiny", KINDS[member]) for k in range(GAMES[member][split])
    ]
    if member == "west" and canary:
        made = [replace(problem, task=f"{problem.task} {canary}") for problem in made]
    return made


def write_games(folder: Path, split: str, problems: Sequence[Problem]) -> None:
    names = {kind: name for name, kind in FOLDERS.items()}
    for number, problem in enumerate(problems):
        goal = problem.goal
        task = f"{names[goal.kind]}-{goal.object}-None-{goal.target}-{number + 1}"
        write_game(problem, folder / "json_2.1.1" / split / task / f"trial_{number}/game.tw-pddl")


def households(folder: Path, members: Iterable[str] = GAMES, canary: str = "") -> Path:
    for member in members:
        for split in GAMES[member]:
            problems = problems_of(member, split, canary)
            write_games(folder / "data" / member / "games", split, problems)
    return folder


def products_of(member: str, canary: str = "") -> list[Product]:
    made = list(generate_products(PRODUCTS[member], 10 + list(PRODUCTS).index(member)))
    if member == "west" and canary:
        made = [replace(p, title=f"{p.title} {canary}") for p in made]
    return made


def write_catalogue(folder: Path, products: Sequence[Product]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    records = [
        {
            "asin": p.asin, "name": p.title, "full_description": p.description,
            "small_description": list(p.bullets), "pricing": list(p.pricing),
            "customization_options": {
                name: [{"value": value} for value in values] for name, values in p.options.items()
            },
            "category": p.category, "query": p.query, "product_category": p.path,
        }
        for p in products
    ]  # fmt: skip
    instructions = {
        p.asin: {
            "attributes": list(p.attributes), "instruction": p.instruction,
            "instruction_attributes": list(p.instruction_attributes),
        }
        for p in products
    }  # fmt: skip
    (folder / "items_shuffle.json").write_text(json.dumps(records))
    (folder / "items_ins_v2.json").write_text(json.dumps(instructions))


def shops(folder: Path, members: Iterable[str] = PRODUCTS, canary: str = "") -> Path:
    for member in members:
        write_catalogue(folder / "data" / member / "shop", products_of(member, canary))
    return folder


WORLDS = {
    "household": {"name": "household", "source": "games", "max_steps": 3},
    "webshop": {"name": "webshop", "source": "shop", "max_steps": 2, "validation": 3},
}
WRITES = {"household": households, "webshop": shops}
SPLITS = {"household": "unseen", "webshop": "valid"}


def recipe(kind: str, place: Path, model: Path, out: Path, *flags: str, **more) -> Config:
    tables = {
        "name": "test", "rounds": 2, "out": str(out),
        "federation": {"clients": 3},
        "algorithm": {
            "name": "fedagent", "model": str(model), "local_epochs": 1, "tasks": 2, "group": 2,
            "lr": 1e-3, "kl": 0.0, "answer_tokens": 5, "prompt_tokens": 200, "device": "cpu",
            "eval_split": SPLITS[kind],
        },
        "world": WORLDS[kind],
        "partition": {"strategy": "own", "folder": str(place / "data")},
    }  # fmt: skip
    for key, value in more.items():
        tables[key] = tables.get(key, {}) | value if isinstance(value, dict) else value
    return resolve(tables, flags)
