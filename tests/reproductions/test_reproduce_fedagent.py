"""FedAgent's reproduction: cells, what is read of them, verdicts, and runs that are killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedrl.api.papers import reproduce
from fedrl.config.loading import resolve, to_toml
from fedrl.core.number_format import duration
from fedrl.core.types import UserError
from fedrl.runs.grid import cost, digest
from fedrl.runs.process_pool import perform
from fedrl.runs.read import Run
from reproductions.fedagent.analysis import recorded
from reproductions.fedagent.claims import MARGIN, no_worse, points, the_same
from reproductions.fedagent.models import read_cells, tasks
from reproductions.fedagent.sections import planned
from reproductions.fedagent.statements import statements
from reproductions.fedagent.tables import PAPER
from reproductions.grid import SCALES, Cell
from reproductions.pages import MARK, Page
from reproductions.records import Store, of_run
from reproductions.results import Trained, curve, late_rounds, read_runs
from reproductions.study import FOLDER, Study, prepare, wanted, write_page
from reproductions.verdicts import FAILS, HOLDS, OPEN, above, mean_of, together

PUBLISHED = FOLDER.parent / "docs" / "results" / "fedagent" / "records"


def study_of(tmp_path: Path, scale: str = "small") -> Study:
    return prepare("fedagent", scale, tmp_path / scale, tmp_path / "records")


def fake(study: Study, cell: Cell, level: float, reach: int | None = None) -> None:
    """Records of a cell whose success rises from 0.3 to 0.3 + `level`, a little by seed."""
    last = cell.rounds if reach is None else reach
    kinds = PAPER["kinds"]["webshop" if "webshop" in cell.part else "household"]
    for seed in cell.seeds:
        rng = np.random.default_rng(seed)
        every = cell.resolved().eval_every
        at = [r for r in range(last + 1) if r % every == 0 or r == cell.rounds]
        rise = (level * (1 - np.exp(-3 * r / cell.rounds)) for r in at)
        success = [0.3 + up + 0.01 * seed + 0.005 * rng.standard_normal() for up in rise]
        names = ("success", "return", *(f"success_{kind}" for kind in kinds))
        trained = range(1, last + 1)
        of_clients = {str(r): [[int(rng.integers(100))], [0.4]] for r in trained}
        record = {
            "seeds": [seed],
            "rounds": last,
            "metrics": {f"eval/{name}": [at, success] for name in names}
            | {"env/episodes": [at, [128.0 * cell.epochs(r) for r in at]]},
            "totals": {"env/episodes": 128.0 * cell.epochs(last)},
            "clients": {"train/success": of_clients},
            "seconds": 3.0,
            "commit": "abc",
            "hardware": {"cpu": "CPU", "cores": 2},
        }
        name = f"{cell.name}-seed{seed}"
        study.place.store.write(cell.part, name, cell.digest(seed), record)


def fill(study: Study, **levels: float) -> None:
    aside = {*study.grid.tables["on_request"], *study.grid.tables["gone"]}
    for part, cells in study.grid.cells.items():
        for cell in cells if part not in aside else ():
            key = cell.name.split("-")[0] if cell.name.startswith("local") else cell.name
            fake(study, cell, levels.get(key.replace("-", "_"), 0.2))


def cells_of(tmp_path: Path, scale: str, part: str) -> list[Cell]:
    return list(read_cells(scale, tmp_path, "").cells[part])


# Cells


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
def test_every_cell_is_a_run_that_can_begin(scale, tmp_path):
    """All settings are known and possible, the names are folders, and no two runs are one."""
    parts = read_cells(scale, tmp_path, "").cells
    places = [
        (config.out, config.name)
        for cells in parts.values()
        for cell in cells
        for seed in cell.seeds
        for config in [cell.config(seed, tmp_path)]
    ]
    assert len(set(places)) == len(places)
    assert ("alfworld" in parts) == (scale == "full")
    assert ("main" in parts) == (scale != "full")


def test_both_views_come_from_one_run(tmp_path):
    """Centralized and Local are evaluated at FedAgent's round, and end with its rollouts."""
    for scale, part, count in (("small", "main", 4), ("small", "webshop", 4),
                               ("full", "alfworld", 3), ("full", "webshop_full", 3)):  # fmt: skip
        ours, *others = cells_of(tmp_path, scale, part)
        assert len(others) == count
        for other in others:
            assert other.epochs() == ours.epochs()
            assert ours.rounds % ours.resolved().eval_every == 0
            assert other.rounds == ours.clients_per_round * ours.rounds


@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_epochs_in_all_stay_the_same_when_epochs_per_round_change(tmp_path, scale):
    cells = {c.name: c for c in cells_of(tmp_path, scale, "decentralized")}
    usual = cells["clients-1"].rounds * cells["clients-1"].local_epochs
    for epochs in (1, 5):
        cell = cells[f"epochs-{epochs}"]
        assert cell.local_epochs == epochs
        assert abs(cell.rounds * epochs - usual) <= epochs / 2


def test_estimators_are_compared_with_the_one_that_is_used(tmp_path):
    for scale in ("smoke", "small"):
        usual = cells_of(tmp_path, scale, "main")[0].resolved().algorithm.estimator
        others = {cell.name for cell in cells_of(tmp_path, scale, "estimators")}
        assert {usual, *others} == {"grpo", "gigpo", "rloo"}


@pytest.mark.parametrize("scale", ["small", "full"])
def test_no_number_rests_on_one_evaluation(tmp_path, scale):
    """Nor on one from before the last fifth of its rounds; at equal local epochs, too."""
    grid = read_cells(scale, tmp_path, "")
    for part, cells in grid.cells.items():
        for cell in cells:
            every = cell.resolved().eval_every
            done = {r: {"eval/success": 0.5} for r in range(every, cell.rounds + 1, every)}
            run = Run(tmp_path, {}, {}, done, [], 0.0)
            for rounds in {
                cell.rounds,
                *([cells[0].rounds] if part in ("main", "webshop") else []),
            }:
                late = late_rounds(run, "eval/success", rounds, cell)
                assert len(late) >= 2, (part, cell.name, rounds)
                assert late[0] >= 0.8 * rounds


def test_what_is_worth_more_comes_first(tmp_path):
    study = prepare("fedagent", "full", tmp_path, tmp_path / "records")
    found = sorted(tasks(study, ["alfworld", "alfworld_settings"]), key=lambda task: -task.worth)
    names = [task.name for task in found]
    assert names[0] == "fedagent-seed0"
    assert set(names[1:5]) == {
        "fedagent-seed1", "centralized-seed0", "local-21-seed0", "local-42-seed0",
    }  # fmt: skip
    assert {name.partition("-seed")[0] for name in names[-3:]} == {"penalties", "lora", "ppo"}


def test_the_small_scale_fits_into_ten_hours_on_two_cores(tmp_path):
    grid = read_cells("small", tmp_path, "")
    epochs = sum(cost(c.config(s, tmp_path)) for part in wanted(grid, ()) for c in grid.cells[part]
                 for s in c.seeds if part not in grid.tables["gone"])  # fmt: skip
    assert 2.0 * epochs < 10 * 2 * 3600  # about 2 s for an epoch on one core


def test_a_run_is_known_by_what_its_numbers_depend_on(tmp_path):
    config = cells_of(tmp_path, "small", "main")[0].config(0, tmp_path)
    elsewhere = tmp_path / "elsewhere"
    moved = cells_of(elsewhere, "small", "main")[0].config(0, elsewhere)
    assert moved.algorithm.model != config.algorithm.model
    same = (moved, replace(config, rounds=99), replace(config, checkpoint_every=7))
    assert {digest(one) for one in same} == {digest(config)}
    others = (
        replace(config, seed=1),
        replace(config, eval_every=config.eval_every + 1),
        replace(config, algorithm=replace(config.algorithm, lr=1.0)),
        replace(config, algorithm=replace(config.algorithm, model="another.model")),
        replace(config, partition=replace(config.partition, labels="x/labels.json")),
    )
    assert len({digest(one) for one in (config, *others)}) == 1 + len(others)


# What runs begin with


def test_runs_begin_after_their_warm_start_and_labels(tmp_path):
    study = study_of(tmp_path)
    needs = {task.name: task.needs for task in tasks(study, ["heterogeneity", "webshop"])}
    (household,) = needs["coverage-mild-seed0"]
    (shop,) = needs["fedagent-seed0"]
    start, labels = needs["hardness-extreme-seed2"]
    assert start.name == household.name != shop.name
    assert labels.after == (start,)
    assert not any(need.there() for need in (household, shop, labels))
    Path(study.grid.cells["webshop"][0].recipe["algorithm"]["model"]).mkdir(parents=True)
    assert shop.there()
    assert not household.there()


def test_another_model_makes_other_warm_starts_of_the_full_scale_only(tmp_path):
    def models(scale: str, model: str) -> list[str]:
        cells = read_cells(scale, tmp_path, model).cells.values()
        return [Path(cell.recipe["algorithm"]["model"]).name for part in cells for cell in part]

    usual, same = models("full", ""), models("full", "elsewhere/SmolLM2-135M-Instruct")
    assert usual == same  # wherever its folder lies
    assert not set(usual) & set(models("full", "another"))
    assert models("small", "another") == models("small", "")


def test_what_no_code_computes_any_more_is_only_read(tmp_path):
    assert not tasks(study_of(tmp_path), ["optimizer_before"])
    asked = tasks(study_of(tmp_path), ["optimizer"])
    assert len(asked) == 25
    assert "optimizer" not in wanted(study_of(tmp_path).grid, ())  # but on request


@pytest.mark.slow
def test_every_published_record_is_found_by_a_cell(tmp_path):
    """Whatever changes a digest would leave records behind that nobody reads."""
    grids = [read_cells(scale, tmp_path, "") for scale in ("small", "full")]
    read = {
        run.path
        for grid in grids
        for cells in grid.cells.values()
        for one in read_runs(Store(PUBLISHED), cells).values()
        for run in one.runs.values()
    }
    assert len(read) >= 40
    assert read == set(PUBLISHED.rglob("*.json"))


# Reading


def test_a_number_is_the_mean_of_the_last_evaluations_of_runs_that_got_there(tmp_path):
    study = study_of(tmp_path)
    cell = replace(study.grid.cells["main"][0], seeds=(0, 1))
    fake(study, replace(cell, seeds=(0,)), 0.2)
    fake(study, replace(cell, seeds=(1,)), 0.2, reach=cell.rounds - 1)
    one = read_runs(study.place.store, [cell])["fedagent"]
    rounds = one.runs[0].rounds
    every = cell.resolved().eval_every
    before = cell.rounds - every
    late = [rounds[r]["eval/success"] for r in rounds if r >= 0.8 * cell.rounds and r % every == 0]
    expected = sum(late) / 3
    assert one.value("eval/success") == {0: pytest.approx(expected)}
    assert set(one.value("eval/success", before)) == {0, 1}
    # One evaluation: round 0 is no result of training.
    assert one.value("eval/success", every)[0] == rounds[every]["eval/success"]
    assert "seed 1 is at round" in one.missing()
    at, values = curve([one], "eval/success", cell.rounds)
    assert at[-1] == before  # where all seeds have been
    assert values.shape == (2, len(at))


def test_a_line_that_was_cut_short_is_no_round(tmp_path):
    cell = cells_of(tmp_path, "small", "main")[0]
    (tmp_path / "config.toml").write_text(to_toml(cell.config(0, tmp_path)))
    (tmp_path / "meta.json").write_text("{}")
    lines = [json.dumps({"round": r, "eval/success": 0.3}) for r in range(4)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines)[:-5])
    record = of_run(cell, 0, tmp_path, ("eval/success",), ())
    assert record["rounds"] == 2
    assert record["metrics"]["eval/success"][0] == [0, 1, 2]


# Verdicts


def test_rules():
    assert above((3.0, 2.0)) == HOLDS
    assert above((-3.0, 2.0)) == FAILS
    assert above((1.0, 2.0)) == OPEN
    assert no_worse.judge((-1.0, 2.0)) == HOLDS
    assert no_worse.judge((-9.0, 2.0)) == FAILS
    assert no_worse.judge((-4.0, 2.0)) == OPEN
    assert the_same.judge((1.0, 2.0)) == HOLDS
    assert the_same.judge((9.0, 2.0)) == FAILS
    assert the_same.judge((4.0, 2.0)) == OPEN
    assert MARGIN == 5
    for rule in (above, no_worse.judge, the_same.judge):  # one seed
        assert rule((50.0, float("nan"))) == OPEN
    assert together([HOLDS, OPEN]) == OPEN
    assert together([OPEN, FAILS]) == FAILS
    assert together([HOLDS, HOLDS]) == HOLDS


def test_differences_are_taken_seed_by_seed():
    """Seeds that differ a lot hide nothing where the difference is always the same."""
    ours, base = {0: 0.30, 1: 0.50, 2: 0.90}, {0: 0.20, 1: 0.40, 2: 0.80, 3: 0.0}
    assert points(ours, base) == pytest.approx((10.0, 0.0), abs=1e-9)
    assert points(ours, {7: 0.1}) is None
    assert mean_of([{0: 0.2, 1: 0.4}, {0: 0.4}]) == {0: pytest.approx(0.3)}


def page_of(study: Study, published: bool = False) -> str:
    page = study.place.store.folder.parent / "fedagent.md"
    page.parent.mkdir(exist_ok=True)
    write_page(study, page, published)
    return page.read_text(encoding="utf-8")


@pytest.fixture
def undrawn(monkeypatch):
    """Pages without their figures, which take most of the time."""
    monkeypatch.setattr(Page, "picture", lambda self, name, alt, draw: f"![{alt}]({name}.png)")


def rows(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"| {start}")]


@pytest.mark.slow
def test_the_page_says_what_the_numbers_say(tmp_path):
    study = study_of(tmp_path)
    fill(
        study, fedagent=0.3, centralized=0.3, local=0.1, epochs_5=0.1, epochs_1=0.3,
        preference_extreme=0.05,
    )  # fmt: skip
    text = page_of(study)
    for row in rows(text, "FedAgent is better than Local"):
        assert "**holds**" in row
    for row in rows(text, "FedAgent is no worse than Centralized"):
        assert "**holds**" in row
    assert "**does not hold**" in rows(text, "5 epochs per round")[0]
    assert "**does not hold**" in rows(text, "Preference heterogeneity")[0]
    assert "**holds**" in rows(text, "Hardness heterogeneity")[0]
    assert "## Missing" not in text
    assert MARK not in text
    assert "SmolLM2" in text  # the full scale is said to be missing
    for name in ("main", "main-clients", "decentralized", "heterogeneity", "webshop"):
        assert (tmp_path / "fedagent" / f"{name}.png").is_file()


@pytest.mark.slow
def test_where_nothing_was_learned_nothing_is_the_same(tmp_path, undrawn):
    names = ("fedagent", "centralized", "local", "preference_extreme", "preference_mild")
    study = study_of(tmp_path)
    fill(study, **dict.fromkeys(names, 0.0))
    text = page_of(study)
    assert all("nothing was learned" in row for row in rows(text, "FedAgent is no worse"))
    assert "nothing was learned" in rows(text, "Preference heterogeneity")[0]


@pytest.mark.slow
def test_who_is_below_the_warm_start_is_better_than_nobody(tmp_path, undrawn):
    """FedAgent keeps what it began with and Local loses some: federation has taught nothing."""
    study = study_of(tmp_path)
    fill(study, fedagent=0.0, centralized=0.3, local=-0.05)
    text = page_of(study)
    assert all("nothing was learned" in row for row in rows(text, "FedAgent is better than Local"))
    alone = [row for row in rows(text, "Local") if "±" in row and "(mean)" not in row]
    assert len(alone) == 2 * 4  # and no table further down says it again
    assert all(row.count("nothing was learned") == 2 and "better" not in row for row in alone)


@pytest.mark.slow
def test_every_comparison_stands_under_its_own_settings(tmp_path, undrawn):
    study = study_of(tmp_path)
    fill(study, fedagent=0.3, centralized=0.3, local=0.1)
    text = page_of(study)
    household, shop = (
        text.split(f"### {world}: FedAgent")[1].split("\n|")[0]
        for world in ("Generated household", "Generated WebShop")
    )
    assert "20 tasks each" in household
    assert "GRPO" in household
    assert "100 tasks each" in shop
    assert "AdamW 0.0003" in shop
    assert "at most 8 steps" in shop


@pytest.mark.slow
def test_a_page_of_a_few_runs_names_what_is_missing(tmp_path, undrawn):
    study = study_of(tmp_path)
    for cell in study.grid.cells["main"][:2]:
        fake(study, replace(cell, seeds=(0,)), 0.2)
    text = page_of(study)
    assert "- small, main, fedagent: seeds 1-9 not begun" in text
    assert "- small, main, local-21: seeds 0-9 not begun" in text
    assert "not measured" in rows(text, "FedAgent is better than Local")[0]
    assert "**undecided**" in rows(text, "FedAgent is no worse than Centralized")[0]
    empty = page_of(study_of(tmp_path / "nowhere"))
    assert "Not measured" in empty


@pytest.mark.slow
def test_one_page_has_both_scales(tmp_path, undrawn):
    """Whichever scale is asked for."""
    studies = [study_of(tmp_path, name) for name in ("small", "full")]
    for study in studies:
        fill(study, fedagent=0.3, centralized=0.3, local=0.1)
    for study in studies:
        text = page_of(study)
        assert "## Scale small" in text
        assert "## Scale full" in text
        judged = {row.split(" | ")[1]: row for row in rows(text, "FedAgent is better than Local")}
        assert "**holds**" in judged["Generated household, equal rollouts"]
        assert "**holds**" in judged["ALFWorld, equal local epochs"]


@pytest.mark.slow
def test_what_was_published_before_records_stands_in_for_what_has_none(tmp_path, undrawn):
    """No number of the earlier page is lost, and each is marked; a record replaces it."""
    said = tomllib.loads((FOLDER / "fedagent" / "published.toml").read_text(encoding="utf-8"))
    text = page_of(study_of(tmp_path), published=True)
    for table in said["tables"].values():
        for cells in table:
            assert all(f"| {cell} " in text for cell in cells)
    assert "**Withdrawn**: every comparison with Centralized" in text
    assert f"| withdrawn {MARK} | – |" in text
    assert f"on 300 public tasks.{MARK} 100 clients" in text
    assert "AdamW's moments" not in text.partition("**Withdrawn**")[2]  # there are no records
    study = study_of(tmp_path)
    fake(study, replace(study.grid.cells["main"][0], seeds=(0,)), 0.3)
    half = page_of(study, published=True)
    assert f"| FedAgent | 68.7 ± 0.7 {MARK} | – |" in half
    assert "- small, main, fedagent: seeds 1-9 not begun" in half
    fill(study, fedagent=0.3, centralized=0.3, local=0.1)
    again = page_of(study, published=True)
    small, _, full = again.partition("## Scale full")
    assert rows(small, "Local, mean")[0].count("better") == 2
    assert MARK not in "".join(rows(small, "Local, mean"))
    assert f"{MARK} |" in rows(full, "Local, mean")[0]


@pytest.mark.slow
def test_three_seeds_of_all_learners_replace_what_was_published_without_records(tmp_path, undrawn):
    """Of the same seeds for all; two are too few, and nobody's fourth counts alone."""
    study = study_of(tmp_path)
    for seeds in (2, 3):
        for order, cell in enumerate(study.grid.cells["main"]):
            level = 0.3 if cell.name == "fedagent" else 0.1
            fake(study, replace(cell, seeds=tuple(range(seeds + (order == 0)))), level)
        text = page_of(study, published=True)
        assert (f"| FedAgent | 68.7 ± 0.7 {MARK} | – |" in text) == (seeds == 2)
    now = text.partition("## Earlier runs without records")[0]
    assert re.search(r"\| FedAgent \| \d\d\.\d ± \d\.\d \| – \|", now)
    assert "20 rounds, 3 seeds (3 of 10 planned are recorded)." in text
    assert "- small, main, fedagent: seeds 4-9 not begun" in text


@pytest.mark.slow
def test_the_index_counts_the_seeds_that_reached_the_round_of_a_verdict(tmp_path):
    """A run that has just begun is no seed of a verdict at the end."""
    study = study_of(tmp_path)
    for cell in study.grid.cells["main"]:
        level = 0.3 if cell.name == "fedagent" else 0.1
        fake(study, replace(cell, seeds=(0, 1, 2)), level)
        fake(study, replace(cell, seeds=(3,)), level, reach=cell.rounds // 4)
    (found,) = (
        one for one in statements(study)
        if one.claim == "FedAgent is better than Local: Generated household, equal local epochs"
    )  # fmt: skip
    assert found.seeds == 3


@pytest.mark.slow
def test_the_published_page_counts_the_records_beside_it(tmp_path):
    """Records from elsewhere are no part of what is known until the page is written."""
    text = (PUBLISHED.parents[1] / "fedagent.md").read_text(encoding="utf-8")
    studies = [prepare("fedagent", name, tmp_path, PUBLISHED) for name in ("small", "full")]
    parts = {part: runs for study in studies for part, runs in study.runs().items()}
    assert recorded(parts) in re.sub(r"\s+", " ", text)


SETTLED = {"tuning", "optimizer", "optimizer_before", "alfworld_optimizer"}
"""Parts with all of their records; others get theirs one after the other."""


@pytest.mark.slow
def test_records_plans_and_earlier_numbers_stand_apart(tmp_path, undrawn):
    """A reader first sees what records say, then what is planned, and no mark before the end."""
    for part in SETTLED:
        shutil.copytree(PUBLISHED / part, tmp_path / "records" / part)
    text = page_of(study_of(tmp_path), published=True)
    heads = re.findall(r"^## (.*)$", text, re.M)
    assert heads[:2] == ["What is known today", "What is planned"]
    assert heads[-1] == "Earlier runs without records"
    now, _, earlier = text.partition("## Earlier runs without records")
    assert MARK not in now
    assert "withdrawn |" not in now
    assert earlier.lstrip().startswith("<details")
    assert earlier.rstrip().endswith("</details>")
    known = now.partition("## What is planned")[0]
    assert "of 500 planned runs have a record here" in known
    assert "| FedAgent, the demo | 71.8 ± 2.2 | 5 |" in known
    assert "Of 22 statements of the paper, 0 are judged by records" in known
    assert "18 only by earlier runs without records, 6 of them withdrawn" in known
    (main,) = rows(now, "main: Generated household")
    assert "| 50 of 50 | 6,000 |" in main
    assert "`fedrl reproduce fedagent --scale small --only main`" in main
    assert not rows(now, "optimizer: ")  # all of its records are there
    assert not rows(now, "optimizer_before: ")  # by code that is no more


@pytest.mark.slow
def test_what_was_published_of_baselines_never_stands_beside_fedagents_records(tmp_path, undrawn):
    """They are of other settings; nobody has measured these baselines yet."""
    study = study_of(tmp_path)
    fake(study, study.grid.cells["webshop"][0], 0.1)
    text = page_of(study, published=True)
    now, _, earlier = text.partition("## Earlier runs without records")
    chapter = now.partition("### Generated WebShop")[2].partition("\n## ")[0]
    assert MARK not in chapter
    for learner in ("Centralized", "Local 21", "Local, mean"):
        assert any("not measured" in row for row in rows(chapter, learner))
    assert "Generated WebShop" not in earlier
    assert "WebShop: FedAgent, Centralized, Local" in earlier  # the genuine one's
    (known,) = rows(now.partition("## What is planned")[0], "Generated WebShop")
    assert known.count("not measured") == 4  # both, in both views
    assert known.rstrip(" |").endswith("| 10")


@pytest.mark.slow
def test_a_section_comes_back_when_its_records_are_there(tmp_path, undrawn):
    study = study_of(tmp_path)
    fill(study, fedagent=0.3, centralized=0.3, local=0.1)
    text = page_of(study, published=True)
    now, _, earlier = text.partition("## Earlier runs without records")
    assert "### Generated household: FedAgent, Centralized, Local" in now
    assert "#### ALFWorld: FedAgent, Centralized, Local" in earlier
    claims = rows(now, "FedAgent is better than Local")
    assert sum("**holds**" in row for row in claims) == 4
    # Of the full scale's other view nobody has ever had a number.
    assert sum("not measured | not measured" in row for row in claims) == 2
    assert len(rows(earlier, "FedAgent is better than Local")) == 2
    assert not rows(now, "main: ")


def test_the_cost_of_a_plan_is_at_the_pace_of_what_is_recorded(tmp_path):
    study = study_of(tmp_path)
    cell = replace(study.grid.cells["main"][0], seeds=(0, 1, 2))
    run = Run(tmp_path, {}, {}, {0: {}, cell.rounds: {}}, [], 2.0 * cell.epochs())
    found = {"small": {"main": {"fedagent": Trained(cell, {0: run})}}}
    (row,) = rows(planned(found, ()), "main")
    assert f"| 2 of 3 | {2 * cell.epochs():,} | {duration(4.0 * cell.epochs())} |" in row
    assert planned(found, ["main"]) == ""
    nothing = {"small": {"main": {"fedagent": Trained(cell, {})}}}
    assert "| unknown |" in planned(nothing, ())


@pytest.mark.slow
def test_records_about_moments_are_a_section_of_their_own(tmp_path, undrawn):
    shutil.copytree(PUBLISHED, tmp_path / "records")
    text = page_of(study_of(tmp_path), published=True)
    section = text.partition("## AdamW's moments")[2]
    table = rows(section, "Centralized, the demo")[0].split(" | ")
    assert table[1:] == ["69.0 ± 3.3", "67.6 ± 4.0", "71.7 ± 4.2", "+4.2 ± 6.4 |"]
    assert rows(text, "local, kept | 0 | 0: 70.1, 4: 75.4")
    assert "2 of 40 runs had to try a round again" in text


def test_parts_of_another_scale_are_refused(tmp_path):
    with pytest.raises(UserError, match="--model is for the full scale"):
        reproduce("fedagent", "small", out=tmp_path, model="x")
    with pytest.raises(UserError, match="--only alfworld: the parts are tuning, main"):
        wanted(study_of(tmp_path).grid, ("alfworld",))


# Jobs that are stopped


def test_a_job_ends_when_its_time_is_over():
    before = signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGTERM)
    started = time.monotonic()
    outcome = perform(lambda: time.sleep(60), time.time() + 0.2)
    assert time.monotonic() - started < 30
    assert not outcome.finished
    assert not outcome.trouble
    assert (signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGTERM)) == before
    assert perform(lambda: None, time.time() + 60).finished
    assert not perform(pytest.fail, time.time() - 1).finished  # is not begun


def test_a_mistake_of_the_user_ends_one_job_only():
    def work() -> None:
        raise UserError("no folder\nmore")

    assert perform(work, None).trouble == "no folder"


@pytest.mark.slow
def test_options_of_another_paper_are_refused(fedrl):
    said = fedrl("reproduce", "momentum", "--model", "x", check=False)
    assert said.returncode == 2
    assert "--model is not for momentum, only for fedagent" in said.stderr
    said = fedrl("reproduce", "fedagent", "--minutes", "0", check=False)
    assert "--minutes must be above 0" in said.stderr


@pytest.mark.slow
def test_a_reproduction_that_is_killed_ends_with_the_same_numbers(fedrl, tmp_path):
    pytest.importorskip("torch", reason="FedAgent needs the extra llm")
    words = ["reproduce", "fedagent", "--scale", "smoke", "--only", "webshop"]
    whole = fedrl(*words, "--out", "whole")
    assert "0 of 8 cells have a record" in whole.stderr
    models = "fedagent/smoke/models"  # the warm start is the same: no need to make it again
    shutil.copytree(tmp_path / "whole" / models, tmp_path / "killed" / models)
    command = [sys.executable, "-m", "fedrl", *words, "--out", "killed", "--processes", "1"]
    killed = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert killed.stderr is not None
    while "2 of 8" not in killed.stderr.readline():
        assert killed.poll() is None
    begun = tmp_path / "killed/fedagent/smoke/runs"
    while len(list(begun.rglob("round-000001*"))) < 1:  # of the third: the first two are finished
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    time.sleep(1)  # its processes end with it
    again = fedrl(*words, "--out", "killed")
    assert "2 of 8 cells have a record" in again.stderr
    assert "8 of 8 cells have a record" in fedrl(*words, "--out", "killed").stderr
    logs = sorted((tmp_path / "whole").rglob("metrics.jsonl"))
    assert len(logs) == 8
    assert any(json.loads(line).get("train/gradient_norm", 0) > 0 for log in logs
               for line in log.read_text().splitlines())  # fmt: skip
    for log in logs:
        run = Path("killed") / log.relative_to(tmp_path / "whole").parent.parent
        (other,) = (tmp_path / run).glob("*/metrics.jsonl")
        assert other.read_bytes() == log.read_bytes()
    late = fedrl(*words, "--out", "late", "--minutes", "0.001")
    assert "8 of 8 cells are missing" in late.stderr


@pytest.mark.parametrize(
    ("method", "world", "kind", "before"),
    [
        ("fedagent", "household", "centralized", "50e7133b12c4"),
        ("fedagent", "household", "local", "abcd802c69da"),
        ("fedagent", "household", "federated", "8fc1e70c6f2c"),
        ("fedrlhf-text", "imdb", "centralized", "7a06d62cb13f"),
        ("fedrlhf", "movielens", "centralized", "3dd0aa9f3c75"),
        ("fedrlhf", "movielens", "independent", "63123aab9bea"),
    ],
)
def test_runs_whose_numbers_were_withdrawn_are_computed_anew(method, world, kind, before):
    """Else `reproduce --processes 0` writes the withdrawn verdicts again, from the old runs."""
    names = {"algorithm": {"name": method}, "world": {"name": world}}
    assert digest(resolve({**names, "federation": {"kind": kind}})) != before


@pytest.mark.parametrize(
    ("method", "world", "as_before"),
    [("fedrlhf", "movielens", "582e02be8c02"), ("fedrlhf-text", "imdb", "a995017f8d32")],
)
def test_runs_whose_numbers_stand_are_kept(method, world, as_before):
    assert digest(resolve({"algorithm": {"name": method}, "world": {"name": world}})) == (as_before)


@pytest.mark.slow
def test_a_page_counts_the_seeds_that_it_shows(tmp_path):
    study = study_of(tmp_path)
    ours = next(cell for cell in study.grid.cells["main"] if cell.name == "fedagent")
    fake(study, replace(ours, seeds=ours.seeds[:2]), 0.4)
    write_page(study, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    planned = len(ours.seeds)
    assert planned > 2
    assert f", 2 seeds (2 of {planned} planned are recorded)." in text
