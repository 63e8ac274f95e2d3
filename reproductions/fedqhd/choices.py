"""What was chosen where the paper is silent: the tries of every method, and each task's recipe."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedrl.config.loading import as_dict, find_recipe, resolve
from fedrl.core.types import Json, Tables
from fedrl.runs.grid import REPAIRED, short_hash
from reproductions.fedqhd.plan import Plan
from reproductions.fedqhd.results import Results, ended
from reproductions.grid import recipe_of
from reproductions.pages import Row


class Try(NamedTuple):
    settings: Tables
    seeds: int
    value: float  # the mean over seeds
    older: bool = False  # of a learner that computes other numbers now


Tried = list[Try]
OLDER = " ‡"
"""Marks tries of older learners."""


# Tuning


def tries_key(plan: Plan, task: str, name: str) -> tuple[str, str, str]:
    """Of the record that holds all tries of a learner, made when runs had no records."""
    digest = short_hash([plan.tries(task, name), dict(plan.tables["sizes"])])
    return "tuning", f"{task}-{name}-tries", digest


def tries(results: Results) -> dict[str, dict[str, Tried]]:
    """By task and learner, what was tried and what it returned, in the order of the tries.

    Where a learner's runs have no records, its tries are those of the record of all.
    """
    found: dict[str, dict[str, Tried]] = {}
    plan = results.plan
    for task in plan.tasks:
        for method, encoders in plan.learners():
            name = f"{method}-{encoders}"
            done = []
            for number, tried in enumerate(plan.tries(task, name)):
                ends = ended(results.parts["tuning"][f"{task}-{name}-{number}"])
                if ends:
                    done.append(Try(tried, len(ends), float(np.mean(list(ends.values())))))
            before = results.tried.get((task, name), ())
            if len(done) < len(before):
                older = repaired(task, plan.methods[method].algorithm)
                done = [Try(one["settings"], one["seeds"], one["return"], older) for one in before]
            if done:
                found.setdefault(task, {})[name] = done
    return found


def repaired(task: str, algorithm: str) -> bool:
    """Whether its targets are synced otherwise than then: not where the recipe says how."""
    return algorithm in REPAIRED and "sync_steps" not in recipe_of(f"fedqhd/{task}")["algorithm"]


def best(tried: Tried) -> Tables:
    """Of those with the most seeds."""
    return max(tried, key=lambda one: (one.seeds, one.value)).settings


def tuning(results: Results) -> Json:
    """Rows of the table, and whose best try is not what the grid has chosen."""
    rows: list[Row] = []
    differ, plan, done = [], results.plan, tries(results)
    for task, by in done.items():
        for name, tried in by.items():
            method, _, encoders = name.rpartition("-")
            if dict(plan.chosen[task].get(name, {})) != dict(best(tried)):
                differ.append(f"{plan.tasks[task]} {name}")
            said = ", ".join(
                f"**{judged(one)}**" if one.settings == best(tried) else judged(one)
                for one in tried
            )
            title, mark = plan.methods[method].title, OLDER if tried[0].older else ""
            rows.append([plan.tasks[task], f"{title}, {encoders}{mark}", said])
    counts = {task: len(plan.tries(task, "fedqhd-shared")) for task in plan.tasks}
    return {
        "rows": rows,
        "differ": ", ".join(differ),
        "older": " and ".join(
            plan.tasks[task]
            for task, by in done.items()
            if any(tried[0].older for tried in by.values())
        ),
        "counts": ", ".join(f"{count} on {plan.tasks[task]}" for task, count in counts.items()),
        "finals": ", ".join(plan.tasks[task] for task in plan.tables["finalists"]),
        "seed": plan.tables["tuning_seeds"]["all"][0],
    }


def judged(one: Try) -> str:
    return f"{listed(one.settings)}: {one.value:.1f}" + (f" ({one.seeds} seeds)" * (one.seeds > 1))


def listed(settings: Tables) -> str:
    return " ".join(f"{key} {shown(value)}" for key, value in settings.items())


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(shown(one) for one in value) or "–"
    return str(value)


# Choices


def choices(plan: Plan) -> Json:
    """Every task's settings as its recipe resolves, what they are, and the recipe's own reasons."""
    explained = plan.tables["explained"]
    flat = {task: resolved(task) for task in plan.tasks}
    return {
        "rows": [
            [f"`{key}`", *(shown(flat[task][key]) for task in plan.tasks), what]
            for key, what in explained.items()
        ],
        "said": [
            f"{title}, `{key}`: {why}"
            for task, title in plan.tasks.items()
            for key, why in reasons(find_recipe(f"fedqhd/{task}"), explained).items()
        ],
        "tuned": [
            f"{plan.tasks[task]}, {name}: {listed(settings)}"
            for task, by in plan.chosen.items()
            for name, settings in by.items()
        ],
    }


def resolved(task: str) -> Json:
    """The recipe's settings over fedrl's defaults, the world's own scaling where it says none."""
    from fedrl.envs.discrete.worlds import TASKS as WORLDS

    recipe = recipe_of(f"fedqhd/{task}")
    config = resolve({k: recipe[k] for k in ("algorithm", "world")})
    world = WORLDS[config.world.name]
    return as_dict(config.algorithm) | {
        "shift": config.world.shift or world.shift,
        "scale": config.world.scale or world.scale,
    }


def reasons(recipe: Path, explained: Mapping[str, str]) -> dict[str, str]:
    """By key that is explained, the comment that stands right above it."""
    found: dict[str, str] = {}
    above: list[str] = []
    for line in recipe.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            above.append(line.lstrip("# "))
            continue
        key = re.match(r"(\w+)\s*=", line)
        if key and above and key[1] in explained:
            found[key[1]] = " ".join(above)
        above = []
    return found
