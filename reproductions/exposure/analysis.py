"""The page about what a model gives away: two attacks, four views, with and without noise.

This is no paper's: the attacks are Carlini et al.'s, the models and the noise are fedrl's own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from fedrl.api import warm_start
from fedrl.core.types import Json, Tables
from fedrl.privacy import accounting
from fedrl.runs.grid import short_hash
from fedrl.runs.warmstart import Settings as Imitation
from reproductions.exposure import digits
from reproductions.exposure.attacks import chance_exposure
from reproductions.exposure.found import ALARMS, Found, read
from reproductions.exposure.watching import VIEWS
from reproductions.grid import Cell, Grid, read_grid
from reproductions.pages import Page
from reproductions.records import rounded
from reproductions.runner import Need, Task, record_values, run_name
from reproductions.study import Study
from reproductions.verdicts import number

HERE = Path(__file__).parent
AGENTS = "agents"
DIGITS = 4
"""Of a statistic in a record: there are thousands."""
TARGET = 8.0
"""An ε that a reader may have in mind."""
IN_WORDS = {
    "update": "one update of a client",
    "updates": "all updates of a client",
    "mean": "one round's mean",
    "model": "the final model",
}


def cells(scale: str, folder: Path, model: str) -> Grid:
    """The grid; a cell's records also depend on what is asked about."""
    grid = read_grid(HERE / "grid.toml", scale)
    marked = {
        part: [replace(cell, mark=mark(grid, part)) for cell in found]
        for part, found in grid.cells.items()
    }
    return replace(grid, cells=marked)


def mark(grid: Grid, part: str) -> str:
    asked = [dict(grid.tables["probe"][part])]
    return short_hash(asked + ([dict(grid.tables["imitation"])] if part == AGENTS else []))


def tasks(study: Study, parts: Sequence[str]) -> list[Task]:
    """A record for every run."""
    found = []
    for part in parts:
        needs = (model_need(study.grid, study.place.runs),) if part == AGENTS else ()
        for cell in study.grid.cells[part]:
            for seed in cell.seeds:
                key = (part, run_name(cell, seed), cell.digest(seed))
                how = study.grid.tables["probe"][part]
                model = str(model_path(study.grid, study.place.runs))
                work = partial(measure, cell, seed, how, model)
                made = partial(record_values, work, *key, study.place.store)
                # All rows of one seed before the next: what there is can be compared at any time.
                found.append(Task(*key, made, cost=cell.weight, needs=needs, worth=-float(seed)))
    return found


def measure(cell: Cell, seed: int, how: Tables, model: str) -> Json:
    """One run and what is seen of it."""
    config = cell.resolved(seed)
    if cell.part == AGENTS:
        from reproductions.exposure import agents

        config = replace(config, algorithm=replace(config.algorithm, model=model))
        found = agents.measure(config, how)
    else:
        from reproductions.exposure import ratings

        found = ratings.measure(config, how)
    return dict(rounded(found, DIGITS))


# The model that agents start from


def model_path(grid: Grid, folder: Path) -> Path:
    return folder / "models" / f"digits.{mark(grid, AGENTS)}"


def model_need(grid: Grid, folder: Path) -> Need:
    path = model_path(grid, folder)
    return Need("warm start of digits", path.is_dir, partial(imitate, grid, path))


def imitate(grid: Grid, path: Path) -> None:
    """Right answers to public problems."""
    how = grid.tables["probe"][AGENTS]
    sizes = {"public": int(how["public"]), "test": int(how["test"]), "train": 1}
    with tempfile.TemporaryDirectory() as folder:
        data = digits.write(Path(folder), sizes)
        world = {"name": "prompts", "source": str(data), "answer": "answer",
                 "reward": ["exact_match"]}  # fmt: skip
        settings = Imitation(**grid.tables["imitation"])
        said = {key: getattr(settings, key) for key in grid.tables["imitation"]}
        warm_start(world, path, progress=False, **said)


# The page


def write(study: Study, page: Page, path: Path) -> None:
    shown = {part: read(study, part) for part in study.grid.cells}
    parts = [section(study, page, part, found) for part, found in shown.items()]
    missing = [f"{part}, {one.cell.name}: {line}" for part, found in shown.items()
               for one in found if (line := one.missing())]  # fmt: skip
    page.write(path, study=study, parts=parts, missing=missing, alarms=f"{ALARMS:.0%}",
               in_words=IN_WORDS)  # fmt: skip


def section(study: Study, page: Page, part: str, found: Sequence[Found]) -> Json:
    """What the template shows of a part."""
    first, how = found[0].cell, study.grid.tables["probe"][part]
    resolved = first.resolved()
    alternatives = 10**digits.LENGTH if part == AGENTS else 2 ** int(how["secret_movies"])
    head = ("", "ε", *(IN_WORDS[view] for view in VIEWS))
    return {
        "part": part,
        "title": study.grid.tables["titles"][part],
        "config": resolved,
        "probe": how,
        "seeds": len(first.seeds),
        "alternatives": alternatives,
        "bits": f"{np.log2(alternatives):.2f}",
        "chance": f"{chance_exposure(alternatives):.2f}",
        "utility": page.table(
            f"{part}_utility",
            ("", "z", "ε", *how["utility"], "numbers", "length of an update", "clients for ε = 8"),
            [utility_row(one, how["utility"]) for one in found],
        ),
        "auc": page.table(
            f"{part}_auc", head,
            [[one.name, one.epsilon_text, *(number(one.auc(v), 3) for v in VIEWS)]
             for one in found],
        ),
        "plain": page.table(
            f"{part}_plain", head,
            [[one.name, one.epsilon_text, *(number(one.plain_auc(v), 3) for v in VIEWS)]
             for one in found],
        ) if part == AGENTS else "",
        "hits": page.table(
            f"{part}_hits", (*head, "most that ε allows"),
            [[one.name, one.epsilon_text, *(number(one.hits(v), 3) for v in VIEWS), one.most()]
             for one in found],
        ),
        "exposure": page.table(
            f"{part}_exposure", (*head, "control, final model"),
            [[one.name, one.epsilon_text, *(number(one.bits(v), 2) for v in VIEWS),
              number(one.bits("model", "controls"), 2)] for one in found],
        ),
    }  # fmt: skip


def utility_row(one: Found, metrics: Sequence[str]) -> list[str | None]:
    noise = one.cell.resolved().privacy.noise
    return [
        one.name,
        f"{noise:g}" if noise else "–",
        one.epsilon_text,
        *(number(one.utility(metric), 3) for metric in metrics),
        one.numbers,
        one.length,
        clients_needed(one.cell),
    ]


def clients_needed(cell: Cell) -> str:
    """So many make ε = 8 of the same noise on the mean: it has z C / N there."""
    config = cell.resolved()
    s, rounds = config.privacy, config.rounds
    if not s.noise:
        return "–"
    delta = s.delta or accounting.default_delta(config.federation.clients)
    needed = noise_for(TARGET, rounds, delta)
    if s.where == "local":  # of everybody's own noise the mean has 1/√N
        return f"{config.federation.clients * (needed / s.noise) ** 2:,.0f}"
    return f"{config.federation.clients * needed / s.noise:,.0f}"


def noise_for(epsilon: float, exchanges: int, delta: float) -> float:
    """The z with this ε, by bisection: ε falls with z."""
    low, high = 1e-3, 1e6
    for _ in range(60):
        middle = (low * high) ** 0.5
        if accounting.full_view(middle, exchanges, delta) > epsilon:
            low = middle
        else:
            high = middle
    return high
