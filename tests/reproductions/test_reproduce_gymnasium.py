"""The page about Gymnasium's environments: which seeds choose, which judge, and what it admits."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("jax", reason="policy gradients need jax")

from support.records import write_run
from support.result_pages import row

from reproductions.grid import Cell
from reproductions.gymnasium.analysis import TUNING, methods, tasks, trimmed
from reproductions.study import Study, prepare, write_page

PART = "acrobot"


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return prepare("gymnasium", "small", tmp_path / "runs", tmp_path / "records")


def cells_of(study: Study, method: str) -> list[Cell]:
    return [cell for cell in study.grid.cells[PART] if cell.labels["method"] == method]


def write(study: Study, cell: Cell, seed: int, last: float, before: float | None = None) -> None:
    """A run with its last two evaluations."""
    every = cell.resolved().eval_every
    returns = {0: -500.0, cell.rounds - every: last if before is None else before}
    returns[cell.rounds] = last
    steps = {number: 100.0 * number for number in returns}
    write_run(study.place.store, cell, seed, {"eval/return": returns, "env/steps": steps})


def tuned(study: Study, method: str, best: int) -> Cell:
    """All step sizes on the tuning seeds; the one at this place is the best."""
    cells = cells_of(study, method)
    for at, cell in enumerate(cells):
        for seed in range(TUNING):
            write(study, cell, seed, -100.0 - 50 * abs(at - best % len(cells)))
    return cells[best]


@pytest.mark.slow
def test_seeds_that_choose_are_not_reported(study: Study):
    cell = tuned(study, "pavg", 1)
    write(study, cell, 2, -80.0)
    found = methods(study, PART, study.runs()[PART])["pavg"]
    assert found.chosen() == cell.labels["lr"]
    assert found.result() == {2: -80.0}
    assert not found.edge()


@pytest.mark.parametrize("best", [0, -1])
def test_the_smallest_and_the_largest_step_size_are_an_edge(study: Study, best: int):
    tuned(study, "feddqn", best)
    assert methods(study, PART, study.runs()[PART])["feddqn"].edge()


def test_test_seeds_are_asked_for_once_all_step_sizes_were_tried(study: Study):
    def asked(cell: Cell) -> list[str]:
        names = [task.name for task in tasks(study, [PART])]
        return [name[-1] for name in names if name.startswith(f"{cell.name}-seed")]

    first, *others = cells_of(study, "pavg")
    for cell in others:
        for seed in range(TUNING):
            write(study, cell, seed, -200.0)
    assert asked(first) == asked(others[0]) == ["0", "1"]
    for seed in range(TUNING):
        write(study, first, seed, -100.0)
    assert asked(first) == ["0", "1", "2", "3", "4"]
    assert asked(others[0]) == ["0", "1"]
    (kept,) = [cell for cell in trimmed(study).grid.cells[PART] if cell.name == others[0].name]
    assert kept.seeds == (0, 1)


def test_the_page_says_where_one_evaluation_counts_and_where_more_may_be_had(study, tmp_path: Path):
    """Eight rounds have one evaluation in their last tenth, thirty have two."""
    for method, best in (("fedqhd", 2), ("pavg", -1)):
        cell = tuned(study, method, best)
        for seed in (2, 3, 4):
            write(study, cell, seed, -90.0, before=-110.0)
    page = tmp_path / "page.md"
    write_page(study, page)
    text = " ".join(page.read_text("utf-8").split())
    assert "Of FedQHD only the last evaluation counts" in text
    assert "the smallest or the largest one for PAvg: more may be had" in text
    lines = page.read_text("utf-8")
    acrobot = lines[lines.index("## Acrobot-v1") : lines.index("## Pendulum-v1")]
    assert row(acrobot, "FedQHD")[1].startswith("-90.0")
    assert row(acrobot, "PAvg")[1].startswith("-100.0")
