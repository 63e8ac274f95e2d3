"""What was chosen where the paper is silent: the tries of every method, and each task's recipe."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedrl.config.loading import as_dict, find_recipe, resolve
from reproductions.fedqhd import cells as plan
from reproductions.fedqhd import methods, numbers
from reproductions.fedqhd.methods import METHODS, TASKS
from reproductions.fedqhd.numbers import prose
from reproductions.fedqhd.results import Results
from reproductions.markdown import missing, table


class Try(NamedTuple):
    settings: dict[str, Any]
    seeds: int
    value: float  # the mean over seeds


Tried = list[Try]

CHOSEN = {
    "bandwidth": "σ0: how far apart states are that tell nothing about each other",
    "lr": "η; TD errors are summed over the batch and features have a norm of about 0.7, so that "
    "one transition's update corrects η/2 of its error, and η · batch / 2 if all of a batch are "
    "one state and action; the paper's 0.01 is a small step",
    "batch": "transitions per update",
    "gradient_steps": "updates per environment step",
    "sync_steps": "steps between two syncs of the target; 0 is never by steps",
    "sync_episodes": "episodes between two syncs; 0 is never by episodes",
    "epsilon_decay": "ε starts at 1 and is multiplied by this after every episode",
    "epsilon_floor": "down to this (the paper's)",
    "gamma": "γ (the paper's)",
    "replay": "transitions remembered (the paper's)",
    "anchors": "m (the paper's)",
    "ridge": "λ of the compilation",
    "bandwidth_spread": "own σ_i lie within this share of σ0 (the paper's)",
    "shift": "subtracted from a state before features see it",
    "scale": "what a state is divided by then: about what an episode can reach",
}
"""Settings of the recipes that the page shows, and what they are."""


# Tuning


def tries(results: Results) -> dict[str, dict[str, Tried]]:
    """By task and learner, what was tried and what it returned, in the order of the tries."""
    found: dict[str, dict[str, Tried]] = {}
    scale = plan.SCALES[results.tuned_at]
    for task in TASKS:
        for method, encoders in methods.learners():
            name = f"{method}-{encoders}"
            for number, tried in enumerate(methods.tries(task, name)[: scale.tries or None]):
                one = results.parts["tuning"].get(f"{task}-{name}-{number}")
                if values := [*numbers.last(one).values()]:
                    done = Try(tried, len(values), float(np.mean(values)))
                    found.setdefault(task, {}).setdefault(name, []).append(done)
    return found


def best(tried: Tried) -> dict[str, Any]:
    """Of those with the most seeds."""
    return max(tried, key=lambda one: (one.seeds, one.value)).settings


def records(results: Results) -> list[dict[str, Any]]:
    """The stored table of the tuning; only where every try of a learner is there."""
    most = plan.SCALES[results.tuned_at].tries or None
    return [
        {"task": task, "learner": name, "scale": results.tuned_at,
         "tries": [{"settings": s, "seeds": seeds, "return": v} for s, seeds, v in tried]}
        for task, by in tries(results).items()
        for name, tried in by.items()
        if len(tried) == len(methods.tries(task, name)[:most])
    ]  # fmt: skip


def tuning(results: Results) -> str:
    title = "Tuning"
    found = tries(results)
    if not found:
        return missing(title)
    rows, differ = [], []
    for task, by in found.items():
        for name, tried in by.items():
            method, _, encoders = name.rpartition("-")
            chosen = dict(methods.METHOD_SETTINGS[task].get(name, {}))
            if chosen != best(tried):
                differ.append(f"{TASKS[task]} {name}")
            said = ", ".join(
                f"**{judged(one)}**" if one.settings == best(tried) else judged(one)
                for one in tried
            )
            rows.append([TASKS[task], f"{METHODS[method].title}, {encoders}", said])
    verdict = (
        "Table 1 uses the best of them throughout."
        if not differ
        else "Table 1 does not use the best of these: " + ", ".join(differ) + "."
    )
    counts = ", ".join(f"{count} on {TASKS[task]}" for task, count in methods.TRIES.items())
    finals = ", ".join(TASKS[task] for task, by in methods.FINALISTS.items() if by)
    text = f"""As many settings for every method: {counts}, and one more for Distillation; one seed
        ({methods.SEED}, which is reported nowhere), at the scale {results.tuned_at}; the score is
        Table 1's own, the best is bold. On {finals} the best three were tried with another
        seed and the best mean counts, for some learners ended with the shortest episodes with one
        seed and not with the next. What all methods share
        (target sync, ε, scaling of states, updates per step) comes from the task's recipe. The
        constants `METHOD_SETTINGS` hold what was chosen. {verdict}"""
    head = ("task", "method", "settings: return")
    return "\n\n".join([f"## {title}", prose(text), table(head, rows)])


def judged(one: Try) -> str:
    return f"{told(one.settings)}: {one.value:.1f}" + (f" ({one.seeds} seeds)" * (one.seeds > 1))


def told(settings: Mapping[str, Any]) -> str:
    return " ".join(f"{key} {shown(value)}" for key, value in settings.items())


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(shown(one) for one in value) or "–"
    return str(value)


# Choices


def choices(results: Results) -> str:
    """Every task's settings as its recipe resolves, what they are, and the recipe's own reasons."""
    flat = {task: resolved(task) for task in TASKS}
    rows = []
    for key, what in CHOSEN.items():
        values = [shown(flat[task][key]) for task in TASKS]
        rows.append([f"`{key}`", *values, what])
    said = []
    for task, title in TASKS.items():
        for key, why in reasons(find_recipe(f"fedqhd/{task}")).items():
            said.append(f"- {title}, `{key}`: {why}")
    tuned = [
        f"- {TASKS[task]}, {name}: {told(settings)}"
        for task, by in methods.METHOD_SETTINGS.items()
        for name, settings in by.items()
    ]
    pieces = [
        "## What was chosen, and why",
        prose(
            """The paper names γ, the replay, ε's ends, η = 0.01, D, m, N, the rounds and the
            networks' layers. The rest is chosen per task, in `recipes/fedqhd`, for all methods
            alike as far as they have it:"""
        ),
        table(["", *TASKS.values(), "what it is"], rows),
    ]
    if said:
        pieces += ["Of this the recipes say:", "\n".join(said)]
    if tuned:
        pieces += ["Instead of that, after tuning (see above):", "\n".join(tuned)]
    return "\n\n".join(pieces)


def resolved(task: str) -> dict[str, Any]:
    """The recipe's settings over fedrl's defaults, the world's own scaling where it says none."""
    from fedrl.envs.discrete.worlds import TASKS as WORLDS

    recipe = plan.read_recipe(task)
    config = resolve({k: recipe[k] for k in ("algorithm", "world")})
    world = WORLDS[config.world.name]
    settings = as_dict(config.algorithm)
    return settings | {
        "shift": config.world.shift or world.shift,
        "scale": config.world.scale or world.scale,
    }


def reasons(recipe: Path) -> dict[str, str]:
    """By key, the comment that stands right above it."""
    found: dict[str, str] = {}
    above: list[str] = []
    for line in recipe.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            above.append(line.lstrip("# "))
            continue
        key = re.match(r"(\w+)\s*=", line)
        if key and above and key[1] in CHOSEN:
            found[key[1]] = " ".join(above)
        above = []
    return found
