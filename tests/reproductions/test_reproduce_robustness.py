"""The page about clients that lie: cells, shares of the clean result, and computed verdicts."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("jax", reason="CartPole needs jax")

from support.records import write_run
from support.result_pages import row

from fedrl.clients import attacks
from fedrl.core.types import UserError
from fedrl.runs.grid import COMPILED, compiled_once
from fedrl.runs.read import Run
from reproductions.grid import Cell, Grid
from reproductions.pages import MARK
from reproductions.records import Store
from reproductions.results import Trained, read_runs
from reproductions.robustness.analysis import boards
from reproductions.robustness.shares import Board, _share, percent
from reproductions.runner import Need, Place, Task, levels, record_values, run_missing, tasks_of
from reproductions.study import FOLDER, Study, measure, prepare, write_page

PARTS = ("cartpole", "fedagent")
RULES = ("mean", "median", "trimmed", "krum", "multi-krum", "bulyan", "norm-bound")

START, CLEAN = 20.0, 100.0
Level = Callable[[str, str], float]


# Cells


def study_of(scale: str, folder: Path) -> Study:
    return prepare("robustness", scale, folder / scale, folder / "records")


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["smoke", "small", "full"])
def test_every_cell_is_a_run_that_can_begin(scale, tmp_path):
    """All settings are known, every rule has the clients that it needs, no two runs are one."""
    planned = study_of(scale, tmp_path).grid.cells
    places = [
        (cell.part, cell.name, seed, cell.digest(seed))
        for cells in planned.values()
        for cell in cells
        for seed in cell.seeds
    ]
    assert len({(part, digest) for part, _, _, digest in places}) == len(places)
    rules, columns = (2, 2) if scale == "smoke" else (7, 7)
    assert [len(cells) for cells in planned.values()] == [rules * columns] * 2


@pytest.mark.slow
def test_published_runs_are_of_every_rule_and_every_attack(tmp_path):
    for board in boards(study_of("full", tmp_path)).values():
        assert tuple(board.rules) == RULES
        assert set(board.attacks) == set(attacks.ATTACKS.builtin) == {
            "sign-flip", "scale", "noise", "same-value", "free-rider", "poison"
        }  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_cells_differ_only_in_their_rule_and_attack(part, tmp_path):
    cells = study_of("small", tmp_path).grid.cells[part]
    first, *others = (cell.config(0, tmp_path) for cell in cells)
    assert (first.aggregate.name, first.attack) == ("mean", attacks.Settings())
    for other in others:
        same = replace(
            other, name=first.name, attack=first.attack,
            aggregate=replace(other.aggregate, name="mean"),
        )  # fmt: skip
        assert same == first


@pytest.mark.parametrize("part", PARTS)
def test_a_fifth_of_the_clients_lies_in_every_round(part, tmp_path):
    for cell in study_of("small", tmp_path).grid.cells[part]:
        config = cell.config(0, tmp_path)
        liars = attacks.byzantine_clients(config.attack, config.federation.clients, 0)
        assert len(liars) == (0 if cell.name.endswith("-clean") else 3)
        assert config.federation.clients_per_round == config.federation.clients == 15


# Shares


def board_of(results: Mapping[str, Mapping[int, float]], start: float = START) -> Board:
    """A board whose cells end with these results by seed."""
    found = {}
    for name, by_seed in results.items():
        runs = {
            seed: Run(Path(), {}, {}, {0: {"eval/return": start}, 5: {"eval/return": end}}, [], 0.0)
            for seed, end in by_seed.items()
        }
        found[name] = Trained(Cell("cartpole", name, {"rounds": 5}, (0, 1)), runs)
    return Board("CartPole", "eval/return", found, ("mean", "median"), ("noise",))


def test_shares_are_of_the_means_over_common_seeds():
    board = board_of({
        "mean-clean": {0: 100.0, 1: 60.0}, "mean-noise": {0: 30.0, 1: 10.0},
        "median-clean": {0: 100.0, 1: 60.0}, "median-noise": {0: 90.0},
    })  # fmt: skip
    assert board.kept("mean", "noise") == pytest.approx(40 / 160)
    assert board.gained("mean", "noise") == pytest.approx(0.0)
    assert board.kept("median", "noise") == pytest.approx(0.9)  # of seed 0 alone
    assert board.gained("median", "noise") == pytest.approx(70 / 80)
    assert board.worst("mean", "noise") == pytest.approx(10 / 60)
    assert board.holding("noise") == ["median"]
    assert board.always() == ["median"]
    assert board.best("noise") == "median"


def test_what_is_missing_keeps_nothing():
    board = board_of({
        "mean-clean": {0: 100.0}, "mean-noise": {0: 99.0},
        "median-clean": {}, "median-noise": {},
    })  # fmt: skip
    assert board.kept("median", "noise") != board.kept("median", "noise")
    assert board.holding("noise") == ["mean"]
    assert board.best("noise") is None


def test_a_share_below_the_line_is_not_shown_as_the_line():
    assert [percent(share) for share in (0.8999, 0.9, 0.29, -0.001)] == [89, 90, 29, -1]


# Runs that never were


@pytest.fixture
def few(tmp_path) -> Study:
    """The small scale with two seeds on CartPole: as many as a table needs."""
    study = study_of("small", tmp_path)
    carts = [replace(cell, seeds=(0, 1)) for cell in study.grid.cells["cartpole"]]
    return replace(study, grid=replace(study.grid, cells={**study.grid.cells, "cartpole": carts}))


def fill(study: Study, part: str, level: Level) -> None:
    """Runs that end at a share of the clean result."""
    metric = study.grid.tables["worlds"][part]["metric"]
    unit = 0.01 if metric == "eval/success" else 1.0
    for cell in study.grid.cells[part]:
        end = CLEAN * level(cell.labels["rule"], cell.labels["attack"])
        for seed in cell.seeds:
            by_round = {0: unit * START, cell.rounds: unit * end}
            write_run(study.place.store, cell, seed, {metric: by_round})


def page_of(study: Study, folder: Path, published: bool = False) -> str:
    write_page(study, folder / "page.md", published)
    return (folder / "page.md").read_text(encoding="utf-8")


def part_of(text: str, title: str) -> str:
    """From a heading to the next."""
    start = text.index(f"## {title}")
    end = text.find("\n## ", start)
    return text[start : end if end > 0 else None]


def steady(rule: str, attack: str) -> float:
    """The mean breaks under what is large, the median never, krum learns nothing."""
    if rule == "krum":
        return 0.2
    return 0.1 if rule == "mean" and attack in ("sign-flip", "noise") else 0.95


@pytest.mark.slow
def test_the_page_says_yes_where_a_rule_keeps_the_line(few, tmp_path):
    fill(few, "cartpole", lambda r, a: 1.0 if (r, a) == ("mean", "clean")
         else steady(r, a))  # fmt: skip
    text = page_of(few, tmp_path)
    told = part_of(text, "Does a rule keep 90% for every attack?")
    flat = " ".join(told.split())
    holding = ("median", "trimmed", "multi-krum", "bulyan", "norm-bound")
    every = "; ".join(f"{rule} 95% (93%), worst seed 95%" for rule in holding)
    yes = "Yes: for each of the 6 attacks a rule does; for all of them, at worst:"
    assert f"{yes} {every}." in flat
    assert "The mean itself keeps it against scale, same-value, free-rider, poison." in flat
    assert "Below 90% even where nobody lies: krum 20% (0%)." in flat
    flipped = row(told, "sign-flip")
    assert flipped[1] == "10% (-13%)"
    assert flipped[2] == "median: 95% (93%), worst seed 95%"
    assert flipped[3] == ", ".join(holding)
    assert row(told, "scale")[3] == f"mean, {', '.join(holding)}"
    table = part_of(text, "CartPole")
    assert row(table, "mean")[1:4] == ["**100.0 ± 0.0**", "10.0 ± 0.0", "**95.0 ± 0.0**"]
    assert row(table, "krum")[1] == "20.0 ± 0.0"
    assert (tmp_path / "page" / "cartpole.png").is_file()
    assert "## FedAgent's demo\n\nNot measured at this scale yet." in text
    assert "fedagent, mean-clean: seed 0 not begun" in text


@pytest.mark.slow
def test_the_page_says_no_with_numbers(few, tmp_path):
    """Nobody holds against poison; and a result can be kept by having learned nothing."""
    for part in PARTS:
        fill(few, part, lambda r, a: {"clean": 1.0, "poison": 0.85}.get(a, 0.91)
             - 0.05 * (r == "median"))  # fmt: skip
    text = page_of(few, tmp_path)
    told = part_of(text, "Does a rule keep 90% for every attack?")
    flat = " ".join(told.split())
    assert flat.count("No: no rule does against poison (trimmed 85% (81%)).") == 2
    assert row(told, "poison")[3] == "**none**"
    agents = part_of(text, "FedAgent's demo")
    assert row(agents, "median")[2] == "86.0"  # one seed: no interval
    assert "## Missing" not in text
    assert "One seed has no interval (FedAgent's demo)" in " ".join(text.split())


def test_of_nothing_no_share_is_kept():
    assert math.isnan(_share({0: 0.0}, {0: 0.0}, {}))
    assert math.isnan(_share({0: 5.0}, {0: 3.0}, {0: 3.0}))


@pytest.mark.slow
def test_what_was_published_before_records_stands_in_for_what_has_none(tmp_path):
    """No number of the earlier page is lost; a world with all its records has none of them."""
    study = study_of("full", tmp_path)
    text = page_of(study, tmp_path, published=True)
    said = tomllib.loads((FOLDER / "robustness" / "published.toml").read_text(encoding="utf-8"))
    for rows in said["tables"].values():
        for cells in rows:
            for cell in cells[1:]:
                assert f"| {cell} {MARK} |" in text
    for answer in (said["text"][part] for part in PARTS):
        assert answer in " ".join(text.split())
    fill(study, "cartpole", lambda rule, attack: 1.0)
    text = page_of(study, tmp_path, published=True)
    assert MARK not in part_of(text, "CartPole")
    assert MARK in part_of(text, "FedAgent's demo")
    assert row(part_of(text, "CartPole"), "krum")[3] == "**100.0 ± 0.0**"


# Runs


@pytest.mark.slow
def test_the_smoke_scale_computes_both_worlds(tmp_path):
    pytest.importorskip("torch", reason="FedAgent needs the extra llm")
    study, said = study_of("smoke", tmp_path), list[str]()
    measure(study, (), said.append, processes=1)
    text = page_of(study, tmp_path)
    assert "## Missing" not in text
    found = study.runs()
    for part in PARTS:
        assert [len(one.runs) for one in found[part].values()] == [1] * 4
    # A rule and a lie change what is learned; the tiny agents may win nothing to learn from.
    carts = found["cartpole"].values()
    assert len({one.runs[0].rounds[one.cell.rounds]["train/return"] for one in carts}) > 1
    again = list[str]()
    measure(study, (), again.append, processes=1)
    assert again == ["8 of 8 cells have a record"]


def test_compiled_functions_are_kept_where_runs_are_unless_somebody_says_where(
    tmp_path, monkeypatch
):
    monkeypatch.delenv(COMPILED, raising=False)
    with compiled_once(tmp_path):
        assert os.environ[COMPILED] == str(tmp_path / "compiled")
    assert COMPILED not in os.environ
    monkeypatch.setenv(COMPILED, "mine")
    with compiled_once(tmp_path):
        assert os.environ[COMPILED] == "mine"
    assert os.environ[COMPILED] == "mine"


@pytest.mark.slow
def test_runs_wait_for_what_they_start_from_and_stop_in_time(tmp_path):
    """What comes first is only made where a run is missing; time that is over is kept."""
    recipe = {"rounds": 2, "algorithm": {"name": "pavg", "beta": 1.0},
              "world": {"name": "random_mdp"}, "federation": {"clients": 2}}  # fmt: skip
    cell = Cell("part", "one", recipe, (0,))
    place, said = Place(tmp_path, Store(tmp_path / "records")), list[str]()
    model = tmp_path / "model"
    need = Need("model", model.is_dir, model.mkdir)
    grid = Grid({"keep": ["eval/return"]}, {"part": [cell]})
    tasks = tasks_of([cell], grid, place, lambda config: (need,))
    run_missing(tasks, place, said.append, 1, minutes=1e-9)
    assert said == [
        "0 of 1 cells have a record",
        "1 of 1 cells are missing; the same command goes on where it was",
    ]
    assert not model.is_dir()
    run_missing(tasks, place, said.append, 1)
    assert model.is_dir()
    assert max(read_runs(place.store, [cell])["one"].runs[0].rounds) == 2
    model.rmdir()
    run_missing(tasks, place, said.append, 1)
    assert said[-1] == "1 of 1 cells have a record"
    assert not model.is_dir()


def test_only_cells_of_the_names_that_are_asked_for_are_computed(tmp_path):
    """Those that follow from what was computed, too."""
    place, said = Place(tmp_path, Store(tmp_path / "records")), list[str]()

    def task(name: str, *then: Task) -> Task:
        work = partial(record_values, int, "part", name, "0", place.store)
        return Task("part", name, "0", work, then=lambda: then)

    tasks = [task("one-seed0", task("one-seed1"), task("three-seed0")), task("two-seed0")]
    with pytest.raises(
        UserError,
        match=r"--cells four\*: of what can be computed now none is called so; there are one-seed0",
    ):
        run_missing(tasks, place, said.append, 1, patterns=("four*",))
    run_missing(tasks, place, said.append, 1, patterns=("one-*",))
    names = {path.name.partition("-0.")[0] for path in (tmp_path / "records" / "part").iterdir()}
    assert names == {"one-seed0", "one-seed1"}
    assert said[0] == "0 of 1 cells have a record"


def test_needs_are_made_in_an_order_in_which_they_can_be(tmp_path):
    made = Need("made", tmp_path.is_dir, print)
    labels = Need("labels", tmp_path.is_dir, print, (made,))
    tasks = [Task("part", str(n), "", print, needs=needs) for n, needs in
             enumerate([(labels,), (made,), ()])]  # fmt: skip
    assert [[need.name for need in level] for level in levels(tasks)] == [["made"], ["labels"]]
