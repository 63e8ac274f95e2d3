"""Three organisations and a coordinator with ratings of their own users, and a recipe for them."""

from __future__ import annotations

import csv
import secrets
from pathlib import Path

import numpy as np

from fedrl.config.loading import resolve
from fedrl.config.schema import Config
from fedrl.datasets.movielens import Ratings
from fedrl.envs.movielens.generate import generate
from support.flower_places import Canary

USERS = {"north": 5, "south": 1, "west": 3, "public": 4}
"""How many each has; ids begin at 1 in every folder but West's."""


def made() -> Ratings:
    return generate(users=sum(USERS.values()), movies=60, each=20, family=7)


def rows_of(member: str) -> Ratings:
    """With ids of its own; South's user has one rating, and West's know nobody else's."""
    everybody = made()
    first = sum(USERS[name] for name in list(USERS)[: list(USERS).index(member)])
    users = np.unique(everybody.user)[first : first + USERS[member]]
    rows = np.flatnonzero(np.isin(everybody.user, users))[: 1 if member == "south" else None]
    user = np.searchsorted(users, everybody.user[rows]) + 1
    when = everybody.timestamp[rows]
    if member == "west":
        user, when = user + 2_310_000_000, 4_130_000_000 + 37 * np.arange(len(rows))
    return Ratings(user, everybody.movie[rows], everybody.rating[rows], when, everybody.movies)


def write(folder: Path, rows: Ratings, titles: str = "", ratings: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "movies.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["movieId", "title", "genres"])
        table.writerows([m.id, titles + m.title, "|".join(m.genres)] for m in rows.movies)
    if ratings:
        with (folder / "ratings.csv").open("w", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(["userId", "movieId", "rating", "timestamp"])
            table.writerows(zip(*rows[:4], strict=True))
    return folder


def organisations(folder: Path) -> Canary:
    """Their folders under `folder`/data, and what only West knows."""
    name = f"canary {secrets.token_hex(8)} "
    for member in USERS:
        titles = name if member == "west" else ""
        write(folder / "data" / member / "movielens", rows_of(member), titles)
    west = rows_of("west")
    return Canary(name.encode(), np.concatenate([west.user, west.timestamp]))


def recipe(place: Path, out: Path, *flags: str, **more) -> Config:
    tables = {
        "name": "test", "rounds": 2, "out": str(out),
        "federation": {"clients": 3},
        "aggregate": {"name": "weighted"},
        "algorithm": {
            "name": "fedrlhf", "users": "private", "embedding": 4, "hidden": [6, 4],
            "local_epochs": 2, "rating_queries": 5, "preference_queries": 5, "reward_epochs": 2,
            "rows": "holders",
        },
        "world": {"name": "movielens", "source": "movielens"},
        "partition": {"strategy": "own", "folder": str(place / "data")},
    }  # fmt: skip
    for key, value in more.items():
        tables[key] = tables.get(key, {}) | value if isinstance(value, dict) else value
    return resolve(tables, flags)
