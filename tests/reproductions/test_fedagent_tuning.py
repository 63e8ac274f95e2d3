"""Step sizes are chosen by the tuning seeds' means, once all of them are there."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip(
    "torch", reason="FedAgent's grid reads settings of language agents (fedrl[llm])"
)

from fedrl.runs.read import Run
from reproductions.fedagent.models import read_cells
from reproductions.fedagent.tuning import at_an_end, by_learner, chosen
from reproductions.records import Store
from reproductions.results import Trained, read_runs
from reproductions.study import FOLDER

PUBLISHED = FOLDER.parent / "docs" / "results" / "fedagent" / "records"


@pytest.fixture
def cells(tmp_path):
    return read_cells("small", tmp_path, "").cells


def trained(cell, success):
    by_seed = {
        seed: {0: {"eval/success": 0.1}, cell.rounds: {"eval/success": end}}
        for seed, end in zip(cell.seeds, success)
    }
    runs = {seed: Run(Path(), {}, {}, rounds, [], 0.0) for seed, rounds in by_seed.items()}
    return Trained(cell, runs)


def test_tuning_seeds_are_no_test_seeds(cells):
    tuned = {seed for cell in cells["tuning"] for seed in cell.seeds}
    tested = {s for part in ("main", "drift") for cell in cells[part] for s in cell.seeds}
    assert not tuned & tested


def test_all_learners_have_equal_budgets(cells):
    tried = by_learner({cell.name: Trained(cell, {}) for cell in cells["tuning"]})
    assert list(tried) == ["fedagent", "centralized", "local-21"]
    assert len({tuple(by_rate) for by_rate in tried.values()}) == 1
    assert len({(c.epochs(), c.seeds) for c in cells["tuning"]}) == 1


def test_the_best_mean_is_chosen_and_an_end_is_told(cells):
    ours = [cell for cell in cells["tuning"] if cell.labels["learner"] == "fedagent"]
    means = [0.05, 0.2, 0.3, 0.6, 0.5, 0.1]
    tried = {c.labels["lr"]: trained(c, [m, m + 0.1, m - 0.1]) for c, m in zip(ours, means)}
    assert chosen(tried) == "0.0005"
    assert not at_an_end(tried)
    first = ours[0]
    assert at_an_end(tried | {first.labels["lr"]: trained(first, [0.9] * 3)})
    assert chosen(tried | {first.labels["lr"]: trained(first, [0.9])}) is None, "two are missing"


def test_the_chosen_step_sizes_are_those_that_the_records_choose(tmp_path):
    """As far as a learner's tuning is complete; the other Locals take client 21's."""
    grid = read_cells("small", tmp_path, "")
    said = grid.tables["chosen"]
    found = by_learner(read_runs(Store(PUBLISHED), grid.cells["tuning"]))
    for learner, tried in found.items():
        if (best := chosen(tried)) is not None:
            assert said[learner.partition("-")[0]] == float(best)
    for part in said["parts"]:
        for cell in grid.cells[part]:
            kind = cell.recipe["federation"].get("kind", "fedagent")
            assert cell.recipe["algorithm"]["lr"] == said[kind]
