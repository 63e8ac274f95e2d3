"""The page about clients that lie: a table and two maps per world, and computed verdicts.

This is no paper's: the rules and the attacks are fedrl's own, described in docs/robustness.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from fedrl.config.schema import Config
from fedrl.core.number_format import is_share
from fedrl.core.types import Json
from fedrl.runs.read import flatten
from fedrl.runs.warmstart import Settings as Imitation
from reproductions.grid import Grid, changed, read_grid
from reproductions.pages import Page, Row
from reproductions.robustness import figures
from reproductions.robustness.shares import CLEAN, LINE, Board, percent
from reproductions.runner import Need, Task, playable, tasks_of
from reproductions.study import Study
from reproductions.verdicts import BySeed, number, values
from reproductions.warm_starts import WarmStart, need

HERE = Path(__file__).parent
AGENTS = "fedagent"
"""The part whose runs start from a model."""


def cells(scale: str, folder: Path, model: str) -> Grid:
    """The grid; runs of language agents start from a model under `folder`."""
    grid = read_grid(HERE / "grid.toml", scale)
    start = str(warm_start(grid).path(folder))
    agents = [
        replace(cell, recipe=changed(cell.recipe, {"algorithm.model": start}))
        for cell in grid.cells[AGENTS]
    ]
    return replace(grid, cells={**grid.cells, AGENTS: agents})


def warm_start(grid: Grid) -> WarmStart:
    return WarmStart(grid.cells[AGENTS][0].recipe["world"], Imitation(**grid.tables["imitation"]))


def tasks(study: Study, parts: Sequence[str]) -> list[Task]:
    def needs(config: Config) -> tuple[Need, ...]:
        agents = config.algorithm.name == "fedagent"
        return (need(warm_start(study.grid), study.place.runs),) if agents else ()

    wanted = [cell for part in parts for cell in study.grid.cells[part]]
    return tasks_of(playable(wanted, study.absent), study.grid, study.place, needs)


def boards(study: Study) -> dict[str, Board]:
    found, worlds = study.runs(), study.grid.tables["worlds"]
    return {
        part: Board(
            worlds[part]["title"],
            worlds[part]["metric"],
            found[part],
            list(dict.fromkeys(cell.labels["rule"] for cell in planned)),
            [a for a in dict.fromkeys(cell.labels["attack"] for cell in planned) if a != CLEAN],
        )
        for part, planned in study.grid.cells.items()
    }


def write(study: Study, page: Page, path: Path) -> None:
    shown = boards(study)
    worlds = [world(study, page, part, board) for part, board in shown.items()]
    single = [
        board.title
        for part, board in shown.items()
        if len(study.grid.cells[part][0].seeds) == 1 and board.result("mean")
    ]
    page.write(
        path,
        study=study,
        missing=left_out(shown, page),
        line=f"{LINE:.0%}",
        worlds=worlds,
        single=", ".join(single),
    )


def left_out(shown: Mapping[str, Board], page: Page) -> list[str]:
    """Runs that are not there, or not to their end; a published page lists only how many."""
    if page.published:
        return []
    return [
        f"{part}, {one.cell.name}: {line}"
        for part, board in shown.items()
        for one in board.found.values()
        if (line := one.missing())
    ]


# A world


def world(study: Study, page: Page, part: str, board: Board) -> Json:
    """What the template shows of it."""
    columns = (CLEAN, *board.attacks)
    results, shares = (
        [[rule, *(strong(board, rule, a, told(board, rule, a)) for a in columns)]
         for rule in board.rules]
        for told in (result, kept)
    )  # fmt: skip
    unit = "success on unseen tasks, %" if is_share(board.metric) else "return"
    head = ["nobody lies", *board.attacks]
    alt = f"{board.title}: share of the clean result and of its gain that every rule keeps"
    config = flatten(study.grid.cells[part][0].recipe)
    resolved = study.grid.cells[part][0].resolved()
    verdicts = (board.title, "the mean keeps", "the best of the others keeps", f"keep {LINE:.0%}")
    return {
        "title": board.title,
        "recipe": study.grid.tables["worlds"][part]["recipe"],
        "method": config["algorithm.name"],
        "shown": page.shows(board.result("mean")),
        "agents": part == AGENTS,
        "config": resolved,
        "seeds": study.grid.cells[part][0].seeds,
        "start": page.text(f"{part}_start", shown_number(board, board.start())),
        "clean": page.text(f"{part}_clean", shown_number(board, board.result("mean"))),
        "answer": page.text(part, in_words(board) if board.whole else None),
        "verdicts": page.table(
            f"{part}_verdicts", verdicts, [verdict_row(board, a) for a in board.attacks]
        ),
        "results": page.table(part, [unit, *head], results),
        "shares": page.table(f"{part}_kept", ["kept (of the gain)", *head], shares),
        "picture": page.picture(part, alt, partial(figures.maps, board) if board.whole else None)
        if page.shows(board.result("mean"))
        else "",
    }


def result(board: Board, rule: str, attack: str) -> str | None:
    return shown_number(board, board.result(rule, attack))


def shown_number(board: Board, by_seed: BySeed) -> str | None:
    return number(values(by_seed, 100 if is_share(board.metric) else 1), 1)


def strong(board: Board, rule: str, attack: str, text: str | None) -> str | None:
    return f"**{text}**" if text and board.kept(rule, attack) >= LINE else text


def kept(board: Board, rule: str, attack: str) -> str | None:
    """`98% (96%)`: of the result, and of the gain."""
    share, gain = board.kept(rule, attack), board.gained(rule, attack)
    if not np.isfinite(share):
        return None
    of_gain = f"{percent(gain)}%" if np.isfinite(gain) else "no gain to keep"
    return f"{percent(share)}% ({of_gain})"


def worst(board: Board, rule: str, attack: str) -> str:
    least = board.worst(rule, attack)
    several = len(board.result(rule, attack)) > 1 and np.isfinite(least)
    return f", worst seed {percent(least)}%" if several else ""


# Verdicts


def in_words(board: Board) -> str:
    """The answer for one world, with numbers where it is no."""
    failed = [attack for attack in board.attacks if not board.holding(attack)]
    told = []
    for attack in failed:
        best = board.best(attack)
        share = "nothing was measured" if best is None else f"{best} {kept(board, best, attack)}"
        told.append(f"{attack} ({share})")
    if told:
        answer = f"No: no rule does against {', '.join(told)}."
    else:
        always = "; ".join(at_worst(board, rule) for rule in board.always())
        single = f"for all of them, at worst: {always}" if always else "no single one for all"
        answer = f"Yes: for each of the {len(board.attacks)} attacks a rule does; {single}."
    harmless = [attack for attack in board.attacks if "mean" in board.holding(attack)]
    plain = f"The mean itself keeps it against {', '.join(harmless) or 'none'}."
    return f"{answer} {plain} {priced(board)}"


def at_worst(board: Board, rule: str) -> str:
    """What a rule keeps under the attack that hurts it most."""
    attack = min(board.attacks, key=lambda one: board.kept(rule, one))
    return f"{rule} {kept(board, rule, attack)}{worst(board, rule, attack)}"


def priced(board: Board) -> str:
    """What a rule costs where nobody lies."""
    dear = [r for r in board.rules if r != "mean" and not board.kept(r, CLEAN) >= LINE]
    if not dear:
        return f"Where nobody lies, every rule keeps {LINE:.0%}, too."
    told = ", ".join(f"{rule} {kept(board, rule, CLEAN)}" for rule in dear)
    return f"Below {LINE:.0%} even where nobody lies: {told}."


def verdict_row(board: Board, attack: str) -> Row:
    """Of the attack's column; only where every rule was measured."""
    best = board.best(attack)
    if best is None or not all(board.result(rule, attack) for rule in board.rules):
        return [attack, kept(board, "mean", attack), None, None]
    return [
        attack,
        kept(board, "mean", attack),
        f"{best}: {kept(board, best, attack)}{worst(board, best, attack)}",
        ", ".join(board.holding(attack)) or "**none**",
    ]
