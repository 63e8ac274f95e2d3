"""The page about clients that lie: cells, shares of the clean result, and computed verdicts."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("jax", reason="CartPole needs jax")

from support.result_pages import row

from fedrl.clients import attacks
from fedrl.config.loading import to_toml
from fedrl.runs.grid import COMPILED, RunCell, Trained, compiled_once, finish_all, finished, read
from fedrl.runs.read import Run
from reproductions.robustness import cells as plan
from reproductions.robustness import paper
from reproductions.robustness.shares import Board, _share, percent

START, CLEAN = 20.0, 100.0
Level = Callable[[str, str], float]


# Cells


@pytest.mark.parametrize("scale", ["smoke", "small", "full"])
def test_every_cell_is_a_run_that_can_begin(scale, tmp_path):
    """All settings are known, every rule has the clients that it needs, no two runs are one."""
    sizes = plan.SCALES[scale]
    planned = {part: plan.cells(sizes, part, tmp_path) for part in paper.PARTS}
    places = [
        (config.out, config.name)
        for cells in planned.values()
        for cell in cells
        for seed in cell.seeds
        for config in [cell.config(seed, tmp_path)]
    ]
    assert len(set(places)) == len(places)
    for cells in planned.values():
        assert len(cells) == len(sizes.rules) * (1 + len(sizes.attacks))


def test_published_runs_are_of_every_rule_and_every_attack():
    assert plan.SMALL.rules == plan.RULES
    assert set(plan.SMALL.attacks) == {
        "sign-flip", "scale", "noise", "same-value", "free-rider", "poison"
    }  # fmt: skip


@pytest.mark.parametrize("part", paper.PARTS)
def test_cells_differ_only_in_their_rule_and_attack(part, tmp_path):
    first, *others = (cell.config(0, tmp_path) for cell in plan.cells(plan.SMALL, part, tmp_path))
    assert (first.aggregate.name, first.attack) == ("mean", attacks.Settings())
    for other in others:
        same = replace(
            other, name=first.name, attack=first.attack,
            aggregate=replace(other.aggregate, name="mean"),
        )  # fmt: skip
        assert same == first


@pytest.mark.parametrize("part", paper.PARTS)
def test_a_fifth_of_the_clients_lies_in_every_round(part, tmp_path):
    for cell in plan.cells(plan.SMALL, part, tmp_path):
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
        found[name] = Trained(RunCell("cartpole", name, {"rounds": 5}, (0, 1)), runs)
    return Board(plan.CARTPOLE, found, ("mean", "median"), ("noise",))


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


def fake(cell: RunCell, folder: Path, metric: str, start: float, end: float) -> None:
    for seed in cell.seeds:
        config = cell.config(seed, folder)
        place = Path(config.out) / config.name / "fake-s0-000000"
        place.mkdir(parents=True)
        (place / "config.toml").write_text(to_toml(config), encoding="utf-8")
        meta = {"commit": "abc", "hardware": {"cpu": "CPU", "cores": 2}, "status": "finished"}
        (place / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
        lines = [{"round": 0, metric: start}, {"round": config.rounds, metric: end}]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (place / "metrics.jsonl").write_text(text, encoding="utf-8")


@pytest.fixture
def few(monkeypatch) -> plan.Scale:
    """The small scale with two seeds on CartPole: as many as a table needs."""
    carts = replace(plan.CARTPOLE, seeds=(0, 1))
    sizes = replace(plan.SMALL, worlds={**plan.SMALL.worlds, "cartpole": carts})
    monkeypatch.setitem(plan.SCALES, "small", sizes)
    return sizes


def fill(folder: Path, sizes: plan.Scale, part: str, level: Level) -> None:
    """Runs that end at a share of the clean result."""
    world = sizes.worlds[part]
    unit = 0.01 if world.metric == "eval/success" else 1.0
    for cell in plan.cells(sizes, part, folder):
        rule = next(r for r in sorted(plan.RULES, key=len)[::-1] if cell.name.startswith(f"{r}-"))
        end = CLEAN * level(rule, cell.name.removeprefix(f"{rule}-"))
        fake(cell, folder, world.metric, unit * START, unit * end)


def page_of(folder: Path) -> str:
    page = folder.parent / "page.md"
    results = paper.measure_all("small", (), folder, print, processes=0)
    paper.write_page(results, "small", page)
    return page.read_text(encoding="utf-8")


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


def test_the_page_says_yes_where_a_rule_keeps_the_line(few, tmp_path):
    fill(tmp_path / "small", few, "cartpole", lambda r, a: 1.0 if (r, a) == ("mean", "clean")
         else steady(r, a))  # fmt: skip
    text = page_of(tmp_path / "small")
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


def test_the_page_says_no_with_numbers(few, tmp_path):
    """Nobody holds against poison; and a result can be kept by having learned nothing."""
    for part in paper.PARTS:
        fill(tmp_path / "small", few, part, lambda r, a: {"clean": 1.0, "poison": 0.85}.get(a, 0.91)
             - 0.05 * (r == "median"))  # fmt: skip
    text = page_of(tmp_path / "small")
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


# Runs


@pytest.mark.slow
def test_the_smoke_scale_computes_both_worlds(tmp_path):
    pytest.importorskip("torch", reason="FedAgent needs the extra llm")
    folder, said = tmp_path / "smoke", list[str]()
    results = paper.measure_all("smoke", (), folder, said.append, processes=1)
    page = tmp_path / "page.md"
    paper.write_page(results, "smoke", page)
    text = page.read_text(encoding="utf-8")
    assert "## Missing" not in text
    for board in results.values():
        runs = [list(one.runs.values()) for one in board.found.values()]
        assert [len(one) for one in runs] == [1] * 4
    # A rule and a lie change what is learned; the tiny agents may win nothing to learn from.
    carts = results["cartpole"].found.values()
    assert len({one.runs[0].rounds[one.cell.rounds]["train/return"] for one in carts}) > 1
    again = list[str]()
    paper.measure_all("smoke", (), folder, again.append, processes=1)
    assert again == ["cartpole: 4 of 4 runs are there", "fedagent: 4 of 4 runs are there"]


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
    """What comes first is only asked for where a run is missing; time that is over is kept."""
    recipe = {"rounds": 2, "algorithm": {"name": "pavg", "beta": 1.0},
              "world": {"name": "random_mdp"}, "federation": {"clients": 2}}  # fmt: skip
    cell = RunCell("part", "one", recipe, (0,))
    said, asked = list[str](), list[int]()

    def first() -> tuple[()]:
        asked.append(1)
        return ()

    finish_all([cell], tmp_path, said.append, 1, 0.0, first)
    assert said == [
        "part: 0 of 1 runs are there",
        "part: 1 runs are missing; the same command goes on where it was",
    ]
    finish_all([cell], tmp_path, said.append, 1, None, first)
    assert finished(cell.config(0, tmp_path))
    assert max(read(tmp_path, [cell])["one"].runs[0].rounds) == 2
    finish_all([cell], tmp_path, said.append, 1, None, first)
    assert said[-1] == "part: 1 of 1 runs are there"
    assert len(asked) == 2
