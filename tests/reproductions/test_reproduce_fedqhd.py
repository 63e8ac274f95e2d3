"""FedQHD's reproduction: cells, equal budgets, what is read of records, errors and verdicts."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
import threading
import tomllib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba", reason="FedQHD needs the extra classic")

from support.records import write_run
from support.repository import DOCS
from support.result_pages import row

from fedrl.algorithms.qhd.q_learning import FederatedQLearner, Practice
from fedrl.config import build as building
from fedrl.config.schema import Config
from fedrl.core.types import Job, Result, UserError
from fedrl.runs.read import Run
from reproductions import study as studies
from reproductions import verdicts
from reproductions.fedqhd import choices, claims, measuring, theory, tuning
from reproductions.fedqhd import gap as fedqhd_gap
from reproductions.fedqhd import plan as plans
from reproductions.fedqhd.figure_claims import on_one_machine
from reproductions.fedqhd.plan import Plan, read_plan
from reproductions.fedqhd.results import RECENT, RETURN, Results
from reproductions.grid import Cell
from reproductions.pages import MARK
from reproductions.results import Trained
from reproductions.runner import Task
from reproductions.study import FOLDER, Study, measure, prepare, write_page

SMALL = read_plan("small")
LEARNERS = [f"{method}-{encoders}" for method, encoders in SMALL.learners()]


def study_of(scale: str, folder: Path) -> Study:
    return prepare("fedqhd", scale, folder / scale, folder / "records")


def configs_of(plan: Plan, task: str) -> dict[str, Config]:
    return {
        f"{method}-{encoders}": plan.table_cell(task, method, encoders).config(0, Path())
        for method, encoders in plan.learners()
    }


# Cells


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["smoke", "small", "full"])
def test_every_cell_is_a_run_that_can_begin(scale):
    """All settings are known and possible, and no two runs of a part are one."""
    parts = read_plan(scale).cells
    assert list(parts) == ["table", "unsynced", "clients", "dimension", "anchors", "tuning"]
    for cells in parts.values():
        digests = [(cell.part, cell.digest(seed)) for cell in cells for seed in cell.seeds]
        assert len(set(digests)) == len(digests)


NETWORKS = ("feddqn", "distill", "oracle-dqn")
OWN = {"sync_steps", "sync_episodes", "double", "huber"}
"""A network's values run away with targets that a linear learner can follow: these are its own."""


@pytest.mark.parametrize("practice", ["recipe", "zoo", "mixed"])
@pytest.mark.parametrize("task", SMALL.tasks)
def test_all_methods_practise_alike(task, practice):
    """Exploration, replay, updates and how states are seen are those of a practice, not a method's;
    targets and losses are those of networks, or of linear learners."""
    chosen = {task: {name: {"practice": practice} for name in LEARNERS}}
    found = {
        name: config
        for name, config in configs_of(replace(SMALL, chosen=chosen), task).items()
        if SMALL.methods[name.rpartition("-")[0]].space
    }
    keys = [one.name for one in dataclasses.fields(Practice) if one.name != "eval_episodes"]
    networks = {name for name in found if name.startswith(NETWORKS)}
    assert networks
    assert set(found) - networks

    def practised(names, keys):
        return {tuple(getattr(found[name].algorithm, key) for key in keys) for name in names}

    assert len(practised(found, [key for key in keys if key not in OWN])) == 1
    assert len(practised(networks, keys)) == 1
    assert len(practised(set(found) - networks, keys)) == 1
    assert len({c.world for c in found.values()}) == 1
    assert {(c.rounds, c.algorithm.episodes, c.federation.clients) for c in found.values()} == {
        (12, 50, 5)
    }


def test_the_zoos_practice_is_the_one_beside_which_our_dqn_was_measured():
    """`benchmarks/dqn_sb3.py` has the zoo's rows of two tasks, in Stable-Baselines3's words."""
    benchmarks = sys.path[:]
    sys.path.insert(0, str(DOCS.parent / "benchmarks"))
    try:
        rows = importlib.import_module("dqn_sb3").TASKS
    finally:
        sys.path[:] = benchmarks
    for task, zoo in rows.items():
        tried = [
            {**one} for one in SMALL.tries(task, "feddqn", "shared") if one["practice"] == "zoo"
        ]
        assert zoo.lr in {one["lr"] for one in tried}
        cell = SMALL.trial(task, "feddqn", "shared", {"practice": "zoo", "lr": zoo.lr})
        settings, world = cell.resolved().algorithm, cell.resolved().world
        assert (settings.batch, settings.replay) == (zoo.batch, zoo.buffer)
        assert (settings.train_every, settings.gradient_steps) == (
            zoo.train_freq, zoo.gradient_steps,
        )  # fmt: skip
        assert settings.sync_steps == zoo.target_update_interval
        assert settings.epsilon_steps == round(zoo.exploration_fraction * zoo.steps)
        assert settings.epsilon_floor == zoo.exploration_final
        assert (settings.gamma, settings.learning_starts) == (zoo.gamma, zoo.learning_starts)
        assert (settings.max_grad_norm, settings.double) == (zoo.max_grad_norm, False)
        assert set(world.scale) == {1.0}
        assert set(world.shift) == {0.0}


def test_rows_at_the_papers_settings():
    found = configs_of(SMALL, "mountaincar")
    for name in ("feddqn-paper-shared", "distill-paper-own", "oracle-dqn-paper-shared"):
        assert found[name].algorithm.lr == 0.01
        assert found[name].algorithm.hidden == (128, 128)
    ours, theirs = found["fedqhd-own"].algorithm, found["fedqhd-paper-own"].algorithm
    assert theirs == replace(ours, lr=0.01)
    assert ours.anchor_source == "rollouts"
    assert found["box-own"].algorithm.anchor_source == "box"


def test_what_a_recipe_says_reaches_those_that_it_is_about(monkeypatch):
    said = {
        "algorithm": {"name": "fedqhd", "lr": 0.7, "bandwidth": 0.3, "epsilon_decay": 0.9},
        "world": {"name": "cartpole-v1"},
    }
    monkeypatch.setattr(plans, "recipe_of", lambda name: said)
    chosen = {"cartpole": {"feddqn-shared": {"lr": 0.004}}}
    found = configs_of(replace(SMALL, chosen=chosen), "cartpole")
    assert {c.algorithm.epsilon_decay for c in found.values()} == {0.9}
    linear = {n: c.algorithm.lr for n, c in found.items() if "features" in dir(c.algorithm)}
    assert linear == {
        n: 0.01 if "paper" in n else 0.7
        for n in LEARNERS
        if not n.startswith(("feddqn", "distill", "oracle-dqn"))
    }
    assert found["feddqn-shared"].algorithm.lr == 0.004
    assert found["fedqhd-paper-own"].algorithm.lr == 0.01
    assert found["oracle-dqn-shared"].algorithm.lr < 0.01  # a network's own default
    assert found["fedqhd-own"].algorithm.bandwidth == 0.3


def test_what_the_rows_of_the_table_are():
    found = configs_of(SMALL, "cartpole")
    kinds = {name: config.federation.kind for name, config in found.items()}
    assert [n for n, kind in kinds.items() if kind == "independent"] == [
        "independent-shared", "independent-own",
    ]  # fmt: skip
    assert kinds["oracle-dqn-shared"] == kinds["oracle-qhd-shared"] == "centralized"
    assert SMALL.learner("oracle-qhd", "own") == "oracle-qhd-shared"
    assert found["truncate-own"].algorithm.agree == "truncate"
    assert found["fedqhd-own"].algorithm.agree == "values"
    assert found["distill-shared"].algorithm.sizes == ()
    assert len(set(found["distill-own"].algorithm.sizes)) > 1
    assert SMALL.learner("truncate", "shared") == "fedqhd-shared"
    assert SMALL.learner("oracle-dqn", "own") == "oracle-dqn-shared"
    assert SMALL.learner("feddqn", "own") is None


def test_unsynced_targets_are_the_only_difference(tmp_path):
    chosen = {"acrobot": {"independent-shared": SMALL.tables["figures"]["unsynced"]["acrobot"]
                          ["independent"]}}  # fmt: skip
    plan = replace(SMALL, chosen=chosen)
    usual = plan.table_cell("acrobot", "independent", "shared").config(0, tmp_path)
    cells = {cell.name: cell for cell in SMALL.unsynced()}
    never = cells["acrobot-independent"].config(0, tmp_path)
    assert usual.algorithm.sync_steps > 0
    back = replace(
        never.algorithm,
        sync_steps=usual.algorithm.sync_steps,
        sync_episodes=usual.algorithm.sync_episodes,
        eval_episodes=usual.algorithm.eval_episodes,
    )
    assert replace(never, algorithm=back, name="x", out="x") == replace(usual, name="x", out="x")
    assert never.algorithm.sync_steps == never.algorithm.sync_episodes == 0


# Tuning


@pytest.mark.parametrize("task", SMALL.tasks)
def test_every_row_has_as_many_tries(task):
    for method, encoders in SMALL.tuned():
        tried = SMALL.tries(task, method, encoders)
        assert len(tried) == 8
        assert len({json.dumps(one) for one in tried}) == 8
        assert {"recipe", "zoo"} < {one["practice"] for one in tried}
    tuning = set(SMALL.tables["tuning"]["seeds"])
    assert len(tuning) == 3
    assert not any(
        tuning & set(read_plan(scale).sizes.seeds) for scale in ("smoke", "small", "full")
    )
    assert set(SMALL.chosen[task]) <= set(LEARNERS)


@pytest.mark.slow
def test_a_try_is_the_run_with_these_settings(tmp_path):
    for task in SMALL.tasks:
        for learner in SMALL.tuned():
            for tried in SMALL.tries(task, *learner):
                few = SMALL.trial(task, *learner, tried, screening=True)
                assert (few.seeds, few.rounds) == ((2000,), 6)
                cell = SMALL.trial(task, *learner, tried)
                assert (cell.seeds, cell.rounds) == ((2000, 2001, 2002), 12)
                settings = cell.config(2000, tmp_path).algorithm
                for key, value in tried.items():
                    assert key == "practice" or getattr(settings, key) == value


@pytest.mark.slow
def test_what_is_chosen_is_the_best_of_the_published_tries(tmp_path):
    """By the rule; or, of a row that it has not come to yet, by its earlier tries."""
    study = prepare("fedqhd", "small", tmp_path, DOCS / "results/fedqhd/records")
    results = measuring.collect(study)
    for (task, name), at in results.tuned.items():
        chosen = SMALL.chosen[task][name]
        if at.done:
            assert chosen == at.best.settings
        elif name != "box-own":
            tried = [
                one
                for one in results.tried[task, name]
                if name != "fedqhd-own" or one["settings"]["anchor_source"] == "rollouts"
            ]
            best = max(tried, key=lambda one: (one["seeds"], one["return"]))  # fmt: skip
            assert chosen == best["settings"]


def values(study: Study, task: str, row: tuple[str, str], value: Callable[[Any], float]) -> None:
    """Records of whatever the rule asks for next, until it asks for nothing."""
    while missing := tuning.progress(SMALL, study.place.store, task, *row).missing:
        for cell in missing:
            settings = cell.resolved().algorithm
            for seed in cell.seeds:
                by_round = {number: value(settings) for number in range(1, cell.rounds + 1)}
                write_run(study.place.store, cell, seed, {RETURN: by_round})


def test_the_best_of_tries_lies_at_no_end(tmp_path):
    """The best step size is twice the largest of the space: the rule goes there, and further."""
    study, row = study_of("small", tmp_path), ("feddqn", "shared")
    best = 2 * max(one["lr"] for one in SMALL.tries("mountaincar", *row))

    def value(settings: Any) -> float:
        return -200 + 100 * (settings.gamma == 0.98) - abs(float(np.log2(settings.lr / best)))

    values(study, "mountaincar", row, value)
    found = tuning.progress(SMALL, study.place.store, "mountaincar", *row)
    assert found.done
    assert not found.ends
    assert found.widened == 2
    assert found.best.settings["lr"] == best
    assert found.best.seeds == 3
    assert len(found.screened) == 8
    assert len(found.full) == 3 + 2
    tried = [one.settings["lr"] for one in found.full if one.settings["lr"] > best / 2]
    assert tried == [best, 2 * best]


def test_a_best_that_runs_away_is_said_to_be_at_an_end(tmp_path):
    study, row = study_of("small", tmp_path), ("oracle-dqn", "shared")
    values(study, "mountaincar", row, lambda settings: settings.lr)
    found = tuning.progress(SMALL, study.place.store, "mountaincar", *row)
    assert found.done
    assert found.widened == SMALL.tables["tuning"]["widenings"]
    assert list(found.ends) == ["lr"]


def test_what_follows_a_row_that_is_tuned_is_its_cell_of_the_table(tmp_path):
    study, row = study_of("small", tmp_path), ("feddqn", "shared")
    tasks = measuring.of_row(study, SMALL, ("tuning", "table"), "mountaincar", *row)
    assert len(tasks) == 8
    assert all("+screening-seed2000" in one.name for one in tasks)
    values(study, "mountaincar", row, lambda settings: -settings.lr)
    best = tuning.progress(SMALL, study.place.store, "mountaincar", *row).best.settings
    (then,) = {one.then for one in tasks[:1]}
    assert then is not None
    following = [one for one in then() if one.part == "table"]
    assert [one.name for one in following] == [
        f"mountaincar-feddqn-shared-seed{seed}" for seed in range(10)
    ]
    chosen = {"mountaincar": {"feddqn-shared": best}}
    cell = replace(SMALL, chosen=chosen).table_cell("mountaincar", *row)
    assert [one.digest for one in following] == [cell.digest(seed) for seed in range(10)]
    assert measuring.of_row(study, SMALL, ("tuning",), "mountaincar", *row) == []


def test_what_is_of_most_worth_comes_first():
    worth = partial(measuring.worth, SMALL)
    network = worth("tuning", "mountaincar-feddqn-shared+zoo+lr_0.004-seed2000")
    lander = worth("tuning", "lunarlander-fedqhd-own+recipe-seed2000")
    paper = worth("table", "lunarlander-feddqn-paper-shared-seed9")
    assert network > worth("table", "mountaincar-feddqn-shared-seed9") > lander > paper > 0
    assert worth("anchors", "errors") > 0


# Runs that never were


def fake(study: Study, cell: Cell, level: float, reach: int | None = None) -> None:
    """Records of a cell whose return goes from 20 to `level`, a little by seed."""
    for seed in cell.seeds:
        rng = np.random.default_rng(seed)
        last = cell.rounds if reach is None else reach
        by_round = {
            number: 20 + (level - 20) * number / cell.rounds + seed + rng.random()
            for number in range(last + 1)
        }
        trained = {number: value for number, value in by_round.items() if number}
        metrics = {"eval/return": by_round, "train/return": trained}
        metrics |= {RETURN: trained, RECENT: trained}
        phases = {"clients": 6.0 * (last + 1), "broadcast": 0.0, "evaluate": 99.0}
        write_run(study.place.store, cell, seed, metrics, phases=phases)


def fill(study: Study, level: Callable[[str], float], parts: tuple[str, ...]) -> None:
    for part in parts:
        for cell in study.grid.cells[part]:
            fake(study, cell, level(cell.name))


def page_of(study: Study, folder: Path, published: bool = False) -> str:
    write_page(study, folder / "page.md", published)
    return (folder / "page.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_page_says_what_the_numbers_say(tmp_path):
    def level(name: str) -> float:
        task, _, rest = name.partition("-")
        if rest.startswith(("fedqhd", "20", "5")):
            return 480.0 if task == "cartpole" else -250.0
        return 21.5 if rest == "independent-shared" else 100.0

    study = study_of("small", tmp_path)
    fill(study, level, ("table", "clients", "unsynced"))
    text = page_of(study, tmp_path)
    reached = row(text, "FedQHD reaches the paper's return")
    assert reached[1].startswith("**holds** (+1")
    assert reached[2].startswith("**does not hold** (-14")
    better = row(text, "FedQHD is better than Independent QHD")
    assert better[1].startswith("not judged (+458")  # neither is tuned by the rule
    assert better[2].startswith("**does not hold**")
    # With one encoder truncation cuts nothing, and FedAvg cannot average networks of other sizes.
    shared, _, own = text.partition("## Table 1")[0].partition("Own encoders:\n")
    assert "better than Truncate FedAvg-QHD" not in shared
    assert "better than FedAvg-DQN" not in own
    for claim in ("better than FedAvg-DQN", "better than Distillation FedDQN"):
        assert row(text, f"{claim} |")[1].startswith("not judged (+380")  # 480 against 100
        assert row(text, f"{claim} |")[2].startswith("**does not hold** (-350")  # behind even so
        # At the paper's settings nothing is tuned
        assert row(text, f"{claim}, the paper's")[1].startswith("**holds** (+380")
    assert row(text, "Independent QHD learns as little")[1].startswith("**holds**")
    assert row(text, "Independent QHD learns as little")[2].startswith("**does not hold**")
    assert "**holds**" in row(text, "Figure 4: more clients are better, CartPole")[1]
    assert "not measured" in row(text, "Figure 1")[1]
    # The same runs: Truncate with a shared encoder, and Oracle DQN in both columns
    cells = [line for line in text.splitlines() if line.startswith("| Oracle DQN |")]
    ours = [[part.partition(" (")[0] for part in line.split(" | ")] for line in cells]
    assert ours[0] == ours[1]
    assert (
        row(text, "Truncate FedAvg-QHD")[1].split(" (")[0]
        == row(text, "FedQHD |")[1].split(" (")[0]
    )
    # Minutes: 12 rounds of 6 s, evaluations not counted; round 0 trains nobody
    minutes = [line for line in text.splitlines() if line.startswith("| FedQHD |")][2]
    assert " 1.30 ± 0.00 (7.8) " in minutes
    for name in ("curves-cartpole", "curves-lunarlander", "clients"):
        assert (tmp_path / "page" / f"{name}.png").is_file()
    assert "## Figure 3" in text


def test_minutes_are_the_processors_and_paired_with_minutes_of_the_same_kind():
    cell = read_plan("small").table_cell("cartpole", "fedqhd", "shared")

    def timed(**meta: object) -> Trained:
        about = {"hardware": "h", "processes": 2, "phases": {"clients": 120.0}, **meta}
        return Trained(cell, {0: Run(Path(), {}, about, {cell.rounds: {}}, [], 0.0)})

    clock, cpu = timed(), timed(cpu_phases={"broadcast": 6.0, "clients": 54.0})
    assert clock.minutes() == {0: 2.0}
    assert cpu.minutes() == {0: 1.0}
    assert on_one_machine(cpu, cpu) == ({0: 1.0}, {0: 1.0})
    assert on_one_machine(cpu, clock) == ({}, {})


def test_a_row_whose_runs_are_of_other_settings_than_its_best_is_not_judged():
    settings = dict(SMALL.chosen["cartpole"]["feddqn-shared"])
    own = dict(SMALL.chosen["cartpole"]["fedqhd-shared"])

    def fair(base: Any) -> bool:
        tuned = {
            ("cartpole", "feddqn-shared"): base,
            ("cartpole", "fedqhd-shared"): tuning.Progress((), [tuning.Trial(own, 3, 1.0)]),
        }
        results = Results(SMALL, {}, {}, {}, SMALL, {}, tuned, [])
        row = ("cartpole", "feddqn", "feddqn-shared", "fedqhd-shared")
        return claims.had_a_chance(results, *row)

    best = tuning.Trial(settings, 3, 300.0)
    other = tuning.Trial(settings | {"lr": 1e-5}, 3, 400.0)
    assert fair(tuning.Progress((), [best]))
    assert not fair(tuning.Progress((), [best, other]))  # tuned, but the runs are not of its best
    assert not fair(tuning.Progress([best]))


@pytest.mark.slow
def test_runs_that_found_nothing_are_named(tmp_path):
    study = study_of("small", tmp_path)
    cell = SMALL.table_cell("cartpole", "oracle-dqn", "shared")
    fake(study, replace(cell, seeds=(0, 1)), 500.0)
    assert "Stayed at nine steps" not in page_of(study, tmp_path)
    fake(study, replace(cell, seeds=(2,)), 7.0)
    text = " ".join(page_of(study, tmp_path).split())
    assert "first round on: Oracle DQN (shared) with seed 2." in text


@pytest.mark.slow
def test_a_page_of_a_few_runs_names_what_is_missing(tmp_path):
    study = study_of("small", tmp_path)
    cell = SMALL.table_cell("cartpole", "fedqhd", "shared")
    fake(study, replace(cell, seeds=(0,)), 480.0)
    fake(study, replace(cell, seeds=(1,)), 480.0, reach=5)
    text = page_of(study, tmp_path)
    said = "- table, cartpole-fedqhd-shared: seed 1 is at round 5 of 12; seeds 2-9 not begun"
    assert said in text
    assert "(one seed)" in row(text, "FedQHD reaches the paper's return")[1]
    assert row(text, "FedQHD is better than Independent QHD")[1] == "not measured"
    assert "tuning," not in text  # nobody asked for it


@pytest.mark.slow
def test_a_figure_of_runs_that_are_not_all_there(tmp_path):
    """Stopped half-way, some numbers of anchors have more seeds than others."""
    study = study_of("small", tmp_path)
    for place, cell in enumerate(SMALL.by_anchors()):
        fake(study, replace(cell, seeds=(0, 1, 2)[place % 2 :]), 300.0)
    assert "## Figure 3" in page_of(study, tmp_path)


@pytest.mark.slow
def test_what_there_is_at_the_papers_sizes_stands_beside_the_small_ones(tmp_path):
    study = study_of("small", tmp_path)
    cells = [c for c in study.grid.cells["table"] if not c.name.split("-")[1].endswith("dqn")]
    for cell in cells:  # networks have no size: their runs are those of the full scale, too
        if "distill" not in cell.name and "oracle-dqn" not in cell.name:
            fake(study, cell, 300.0)
    assert "at the paper's sizes" not in page_of(study, tmp_path)
    fake(study, read_plan("full").table_cell("cartpole", "fedqhd", "shared"), 480.0)
    text = page_of(study, tmp_path).partition("## Table 1 at the paper's sizes")[2]
    assert row(text, "FedQHD")[1].startswith("481")
    assert row(text, "Independent QHD")[1].startswith("not measured")
    assert row(text, "FedQHD reaches the paper's return")[1].startswith("**holds**")


@pytest.mark.slow
def test_the_page_says_whether_the_table_uses_the_best_of_the_tries(tmp_path, monkeypatch):
    study, row_ = study_of("small", tmp_path), ("fedqhd", "own")
    values(study, "acrobot", row_, lambda settings: -settings.bandwidth)
    best = tuning.progress(SMALL, study.place.store, "acrobot", *row_).best.settings
    assert "Table 1 does not use the best of these: Acrobot fedqhd-own." in " ".join(
        page_of(study, tmp_path).split()
    )
    chosen = {task: dict(by) for task, by in SMALL.chosen.items()}
    chosen["acrobot"]["fedqhd-own"] = best
    monkeypatch.setattr(measuring, "read_plan", lambda _: replace(SMALL, chosen=chosen))
    text = page_of(study, tmp_path)
    assert f"**{choices.listed(best)}: " in text
    assert "Table 1 uses the best of them throughout." in " ".join(text.split())


def test_a_row_that_explores_more_to_the_end_is_not_judged():
    """Returns of training are of what is played, random actions included."""
    cell = SMALL.table_cell("mountaincar", "fedqhd", "shared")
    settings = cell.recipe["algorithm"] | {"epsilon_floor": 0.07}
    other = replace(cell, recipe=cell.recipe | {"algorithm": settings})
    ours, base = claims.Trained(cell, {}), claims.Trained(other, {})
    assert claims.exploring(ours, ours) == ""
    assert claims.exploring(ours, base) == "; last ε 0.001 and 0.07"


@pytest.mark.parametrize(("level", "said"), [(250.0, True), (480.0, False)])
def test_a_network_below_what_is_published_of_it_is_named_beside_the_gain(level, said, monkeypatch):
    """What is better than it has shown little; one that does as well as published is no such."""
    monkeypatch.setattr(claims, "had_a_chance", lambda *row: True)
    levels = {"fedqhd": 550.0, "independent": 250.0, "feddqn": level}
    found = {}
    for method, mean in levels.items():
        cell = SMALL.table_cell("cartpole", method, "shared")
        timed = {"phases": {"clients": 6.0}}
        runs = {seed: Run(Path(), {}, timed, {cell.rounds: {RETURN: mean + seed}}, [], 0.0)
                for seed in range(3)}  # fmt: skip
        found[f"cartpole-{method}-shared"] = Trained(cell, runs)
    results = Results(SMALL, {}, {}, {}, SMALL, {}, {}, [])
    network = claims.better(results, found, SMALL, "feddqn")("cartpole", "shared", 0)
    assert ("; the baseline has 251.0 ± 2.5, the zoo's greedy DQN 500" in network) == said
    assert "zoo" not in claims.better(results, found, SMALL, "independent")("cartpole", "shared", 0)


def test_a_verdict_that_is_open_says_what_would_decide_it():
    """A margin above nothing, and the seeds that an interval of 4 takes to leave 0 out at 2."""
    assert claims.is_better((3.0, 1.0), 5.0) == verdicts.HOLDS
    assert claims.is_better((1.0, 3.0), 5.0) == verdicts.FAILS  # at most a gain that does not count
    assert claims.is_better((2.0, 4.0), 5.0) == verdicts.OPEN
    needed = verdicts.enough(4.0, 10, 2.0)
    assert needed == 33  # not 40: the quantile falls, too
    deviation = 4.0 * 10**0.5 / verdicts.quantile(10)
    halves = [verdicts.quantile(n) * deviation / n**0.5 for n in (needed - 1, needed)]
    assert halves[0] >= 2.0 > halves[1]
    cell = claims.Trained(SMALL.table_cell("cartpole", "fedqhd", "shared"), {})
    assert claims.said(verdicts.OPEN, (2.0, 4.0), 10, [cell]).endswith("4.0; 33 would decide)")
    # The margin may decide sooner than 0: a gain of at most 5
    said = claims.said(verdicts.OPEN, (1.0, 6.0), 3, [cell], 5.0)
    assert said == "**undecided** (+1.0 ± 6.0; 3 of 10 seeds; 4 would decide)"


@pytest.mark.slow
def test_a_world_that_cannot_be_played_is_skipped_and_said(tmp_path, monkeypatch):
    build = building.build_world

    def without(config: Config) -> object:
        if config.world.name == "lunarlander-v3":
            raise UserError('pip install "gymnasium[box2d]"')
        return build(config)

    monkeypatch.setattr(building, "build_world", without)
    wanted: list[Task] = []
    monkeypatch.setattr(studies, "run_missing", lambda tasks, *rest: wanted.extend(tasks))
    said: list[str] = []
    study = measure(study_of("smoke", tmp_path), ("table",), said.append, processes=1)
    assert said == ['lunarlander-v3 is skipped: pip install "gymnasium[box2d]"']
    assert {task.name.partition("-")[0] for task in wanted} == {
        "cartpole",
        "acrobot",
        "mountaincar",
    }
    assert '- LunarLander: pip install "gymnasium[box2d]"' in page_of(study, tmp_path)


@pytest.mark.slow
def test_what_was_published_before_records_stands_in_for_what_has_none(tmp_path):
    """No number of the earlier page is lost; a record replaces it."""
    study = study_of("small", tmp_path)
    text = page_of(study, tmp_path, published=True)
    said = tomllib.loads((FOLDER / "fedqhd" / "published.toml").read_text(encoding="utf-8"))
    for rows in said["tables"].values():
        for cells in rows:
            for cell in cells[2:]:
                assert f"| {cell} " in text
    assert row(text, "Independent QHD |")[1] == f"485.7 ± 35.8 (26.1) {MARK}"
    assert row(text, "FedQHD, anchors of the box (ours) |")[3] == f"114.6 ± 163.0 (101.5) {MARK}"
    fake(study, SMALL.table_cell("cartpole", "independent", "shared"), 480.0)
    replaced = row(page_of(study, tmp_path, published=True), "Independent QHD |")
    assert replaced[1].startswith("484.8")
    assert replaced[1].endswith("(26.1)")
    assert replaced[2] == f"-91.8 ± 6.5 (-306.1) {MARK}"


@pytest.mark.slow
def test_what_was_published_is_not_taken_for_a_row_that_was_tuned_anew(tmp_path):
    study = study_of("small", tmp_path)
    values(study, "lunarlander", ("fedqhd", "shared"), lambda settings: settings.lr)
    text = page_of(study, tmp_path, published=True)
    assert row(text, "FedQHD |")[3] == "not measured (224.1)"
    assert row(text, "Oracle QHD |")[3] == f"249.0 ± 17.4 (87.6) {MARK}"


# Errors


def smooth(config: Config, states: np.ndarray) -> np.ndarray:
    """A value function that nobody has to learn."""
    return np.stack([np.cos(states.sum(1)), np.sin(states[:, 0] + 2 * states[:, 2])], 1)


def measurement(ridges: tuple[float, ...] = (1e-9,), **changes: object) -> fedqhd_gap.Measurement:
    learner = read_plan("smoke").compiled("dimension", 8, 8).config(0, Path())
    one = fedqhd_gap.Measurement(
        "dimension", 0, "rollouts", ((8, 64),), ridges, 400, 50, learner, learner
    )
    return replace(one, **changes)  # type: ignore[arg-type]


def error(one: fedqhd_gap.Measurement) -> list[float]:
    return [float(np.mean(point["error"])) for point in fedqhd_gap.measure(one)]


def test_a_client_alone_with_anchors_enough_compiles_its_own_oracle(monkeypatch):
    """Corollary 1: with one encoder, m ≥ D and λ → 0 there is no gap; others bring one."""
    monkeypatch.setattr(fedqhd_gap, "reference_values", smooth)
    learner = measurement().learner
    alone = replace(learner, federation=replace(learner.federation, clients=1))
    (gap,) = error(measurement(learner=alone))
    (blind,) = error(measurement(learner=alone, points=((8, 4),)))
    (several,) = error(measurement())
    assert gap < 1e-3
    assert blind > 10 * gap
    assert several > 10 * gap


def test_what_anchors_do_not_see_ends_where_they_are_as_many_as_features(monkeypatch):
    monkeypatch.setattr(fedqhd_gap, "reference_values", smooth)
    points = ((16, 8), (16, 15), (16, 16), (16, 64))
    found = fedqhd_gap.measure(measurement(source="box", points=points))
    unseen = [min(point["alone"]) for point in found]
    assert unseen[1] > 1e-3
    assert max(found[2]["alone"]) < 1e-5
    assert all(max(point["seen"]) <= min(point["anchors"], 16) for point in found)


def test_a_ridge_pulls_the_compiled_away_from_the_oracle(monkeypatch):
    monkeypatch.setattr(fedqhd_gap, "reference_values", smooth)
    learner = measurement().learner
    alone = replace(learner, federation=replace(learner.federation, clients=1))
    little, much = error(measurement(learner=alone, ridges=(1e-6, 1.0)))
    assert much > 10 * little


def test_errors_are_kept_by_what_they_depend_on(monkeypatch):
    monkeypatch.setattr(fedqhd_gap, "reference_values", smooth)
    one = measurement()
    kept, found = fedqhd_gap.averaged(one), fedqhd_gap.measure(one)
    assert [point["error"] for point in kept] == pytest.approx(error(one), rel=1e-5)
    assert [point["ridge"] for point in kept] == [point["ridge"] for point in found]
    settings = replace(one.learner.algorithm, bandwidth=0.123)
    retrained = replace(one.reference, name="another-run")
    for other in (
        replace(one, draw=1), replace(one, ridges=(1e-3,)), replace(one, source="box"),
        replace(one, reference=retrained),
        replace(one, learner=replace(one.learner, algorithm=settings)),
    ):  # fmt: skip
        assert other.digest != one.digest
    elsewhere = replace(one.learner, out="elsewhere", seed=5)
    assert replace(one, learner=elsewhere).digest == one.digest


# Computing


@pytest.mark.slow
def test_runs_are_kept_and_errors_follow_them(tmp_path):
    """Twice the same command: the second one only reads; Q* is taken from the Oracle's runs."""
    said: list[str] = []
    study = study_of("smoke", tmp_path)
    measure(study, ("anchors",), said.append, processes=1)
    sizes = read_plan("smoke").sizes
    runs = sum(len(cell.seeds) for cell in study.grid.cells["anchors"])
    errors = 2 * sizes.draws  # of random play and of the box
    theorems = len(list(theory.draws(sizes.draws)))
    kept = {path: path.read_bytes() for path in (tmp_path / "records").rglob("*.json")}
    assert len(kept) == runs + errors + theorems
    first = measuring.collect(study)
    assert len(first.errors["anchors"]) == errors
    assert len(first.theorems) == theorems
    said.clear()
    measure(study, ("anchors",), said.append, processes=1)
    assert said == [f"{len(kept)} of {len(kept)} cells have a record"]
    assert {path: path.read_bytes() for path in kept} == kept
    records = [json.loads(text) for text in kept.values()]
    assert {one["processes"] for one in records if "metrics" in one} == {1}


def test_a_pinned_process_takes_its_clients_one_after_the_other(monkeypatch):
    """Two runs on two cores would otherwise be four threads."""
    world = building.build_world(SMALL.table_cell("cartpole", "fedqhd", "shared").resolved())
    jobs = [Job(client, {}, None, 0) for client in range(4)]
    seen: list[int] = []

    class Playing(FederatedQLearner):
        def local(self, job: Job) -> Result:
            seen.append(threading.get_ident())
            return Result(job.client, {})

    method = Playing(Practice(), world, [[client] for client in range(4)])
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    assert [one.client for one in method.local_many(jobs)] == [0, 1, 2, 3]
    assert set(seen) == {threading.get_ident()}
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    seen.clear()
    assert [one.client for one in method.local_many(jobs)] == [0, 1, 2, 3]
    assert threading.get_ident() not in seen
