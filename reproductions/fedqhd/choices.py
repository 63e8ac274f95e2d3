"""What was chosen where the paper is silent: the tries of every method, and each task's recipe."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrl.config.loading import as_dict, find_recipe, resolve
from fedrl.core.types import Json, Tables
from reproductions.fedqhd.plan import PRACTICE, Plan
from reproductions.fedqhd.results import Results
from reproductions.fedqhd.tuning import Progress, Trial
from reproductions.grid import recipe_of
from reproductions.pages import Row

OLDER = " ‡"
"""Marks rows that are not tuned by the rule yet: what is shown are their earlier tries."""


# Tuning


def tuning(results: Results) -> Json:
    """Rows of the table, and whose best try is not what the grid has chosen."""
    rows: list[Row] = []
    differ, ends, plan = list[str](), list[str](), results.plan
    for task, title in plan.tasks.items():
        for method, encoders in plan.tuned():
            name = f"{method}-{encoders}"
            at, before = results.tuned.get((task, name)), results.tried.get((task, name), ())
            row = f"{plan.methods[method].title}, {encoders}"
            if at is not None and (at.screened or at.full):
                rows.append([title, row, screened(at), finals(at)])
                if at.done and plan.chosen[task].get(name, {}) != at.best.settings:
                    differ.append(f"{title} {name}")
                ends += [f"{title} {name} ({key})" for key in at.ends if at.done]
            elif before:
                tried = [Trial(one["settings"], one["seeds"], one["return"]) for one in before]
                said = ", ".join(map(judged, tried))
                rows.append([title, row + OLDER, said, "–"])
    rule = plan.tables["tuning"]
    return {
        "rows": rows,
        "differ": ", ".join(differ),
        "ends": ", ".join(ends),
        "older": any(row[1] is not None and row[1].endswith(OLDER) for row in rows),
        "done": sum(at.done for at in results.tuned.values()),
        "all": len(plan.tasks) * len(list(plan.tuned())),
        "count": len(plan.tries(next(iter(plan.tasks)), "fedqhd", "shared")),
        "seeds": ", ".join(map(str, rule["seeds"])),
        **{key: rule[key] for key in ("screening", "finalists", "widenings")},
    }


def screened(at: Progress) -> str:
    return ", ".join(map(judged, at.screened))


def finals(at: Progress) -> str:
    """The best of them is bold once nothing is missing."""
    said = [f"**{judged(one)}**" if at.done and one == at.best else judged(one) for one in at.full]
    missing = sum(len(cell.seeds) for cell in at.missing)
    return ", ".join(said) + (f" (at most {missing} more runs to come)" if missing else "")


def judged(one: Trial) -> str:
    return f"{listed(one.settings)}: {one.value:.1f}" + (f" ({one.seeds} seeds)" * (one.seeds > 1))


def listed(settings: Tables) -> str:
    return " ".join(
        shown(value) if key == PRACTICE else f"{key} {shown(value)}"
        for key, value in settings.items()
    )


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
