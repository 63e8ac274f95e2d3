"""FedQHD's reproduction: cells, equal budgets, what is read of records, errors and verdicts."""

from __future__ import annotations

import dataclasses
import json
import threading
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="FedQHD needs the extra classic")

from support.records import write_run
from support.repository import DOCS
from support.result_pages import row

from fedrl.algorithms.qhd.q_learning import Practice, side_by_side
from fedrl.config import build as building
from fedrl.config.schema import Config
from fedrl.core.types import Job, Result, UserError
from reproductions import study as studies
from reproductions.fedqhd import choices, measuring
from reproductions.fedqhd import gap as fedqhd_gap
from reproductions.fedqhd import plan as plans
from reproductions.fedqhd.plan import Plan, read_plan
from reproductions.fedqhd.results import RETURN
from reproductions.grid import Cell
from reproductions.pages import MARK
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


@pytest.mark.parametrize("task", SMALL.tasks)
def test_all_methods_practise_alike(task):
    """Exploration, replay and how states are seen are the task's, not a method's; targets and
    losses are those of networks, or of linear learners."""
    found = configs_of(SMALL, task)
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


def test_what_a_recipe_says_reaches_those_that_it_is_about(monkeypatch):
    said = {
        "algorithm": {"name": "fedqhd", "lr": 0.7, "bandwidth": 0.3, "epsilon_decay": 0.9},
        "world": {"name": "cartpole-v1"},
    }
    monkeypatch.setattr(plans, "recipe_of", lambda name: said)
    chosen = {"cartpole": {"feddqn-shared": {"lr": 0.004}}}
    found = configs_of(replace(SMALL, chosen=chosen), "cartpole")
    assert {c.algorithm.epsilon_decay for c in found.values()} == {0.9}
    assert {n: c.algorithm.lr for n, c in found.items() if "features" in dir(c.algorithm)} == {
        n: 0.7 for n in LEARNERS if not n.startswith(("feddqn", "distill", "oracle-dqn"))
    }
    assert found["feddqn-shared"].algorithm.lr == 0.004
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
    usual = SMALL.table_cell("acrobot", "independent", "shared").config(0, tmp_path)
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
def test_every_learner_has_as_many_tries(task):
    count = 4 if task == "lunarlander" else 8
    for name in LEARNERS:
        tried = SMALL.tries(task, name)
        assert len(tried) == count + name.startswith("distill")
        assert len({json.dumps(one) for one in tried}) == len(tried)
    tuning = {seed for seeds in SMALL.tables["tuning_seeds"].values() for seed in seeds}
    assert not any(
        tuning & set(read_plan(scale).sizes.seeds) for scale in ("smoke", "small", "full")
    )
    assert set(SMALL.chosen[task]) <= set(LEARNERS)


def test_a_try_is_the_run_with_these_settings(tmp_path):
    for cell in SMALL.tuning():
        task, _, rest = cell.name.partition("-")
        name, _, number = rest.rpartition("-")
        assert cell.seeds[0] == 1000
        settings = cell.config(1000, tmp_path).algorithm
        for key, value in SMALL.tries(task, name)[int(number)].items():
            assert getattr(settings, key) == value


def test_the_settings_are_the_best_of_the_published_tries(tmp_path):
    study = prepare("fedqhd", "small", tmp_path, DOCS / "results/fedqhd/records")
    found = choices.tries(measuring.collect(study))
    assert list(found) == list(SMALL.tasks)
    assert all(set(by) == set(LEARNERS) for by in found.values())
    for task, by in found.items():
        for name, tried in by.items():
            assert SMALL.chosen[task][name] == choices.best(tried)


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
        metrics = {"eval/return": by_round, "train/return": trained, RETURN: trained}
        phases = {"clients": 6.0 * (last + 1), "broadcast": 0.0, "evaluate": 99.0}
        write_run(study.place.store, cell, seed, metrics, phases=phases)


def fill(study: Study, level: Callable[[str], float], parts: tuple[str, ...]) -> None:
    for part in parts:
        for cell in study.grid.cells[part]:
            fake(study, cell, level(cell.name))


def page_of(study: Study, folder: Path, published: bool = False) -> str:
    write_page(study, folder / "page.md", published)
    return (folder / "page.md").read_text(encoding="utf-8")


def test_the_page_says_what_the_numbers_say(tmp_path):
    def level(name: str) -> float:
        task, _, rest = name.partition("-")
        if rest.startswith(("fedqhd", "20", "5")):
            return 480.0 if task == "cartpole" else -250.0
        return 26.0 if rest == "independent-shared" else 100.0

    study = study_of("small", tmp_path)
    fill(study, level, ("table", "clients", "unsynced"))
    text = page_of(study, tmp_path)
    reached = row(text, "FedQHD reaches the paper's return")
    assert reached[1].startswith("**yes** (+1")
    assert reached[3].startswith("**no** (-14")
    better = row(text, "FedQHD is better than Independent QHD")
    assert better[1].startswith("**holds**")
    assert better[3].startswith("**does not hold**")
    assert row(text, "better than Truncate FedAvg-QHD")[1] == "the same"
    assert row(text, "better than FedAvg-DQN")[2] == "–"
    for claim in ("better than FedAvg-DQN", "better than Distillation FedDQN"):
        assert row(text, claim)[1].startswith("not judged (+380")  # 480 against 100
        assert row(text, claim)[3].startswith("**does not hold** (-350")  # behind even so
    assert row(text, "Independent QHD learns as little")[1].startswith("**yes**")
    assert row(text, "Independent QHD learns as little")[2].startswith("**no**")
    assert "**holds**" in row(text, "Figure 4: more clients are better, CartPole")[1]
    assert "not measured" in row(text, "Figure 1")[1]
    # The same runs: Truncate with a shared encoder, and Oracle DQN in both columns
    cells = [line for line in text.splitlines() if line.startswith("| Oracle DQN")]
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


def test_runs_that_found_nothing_are_named(tmp_path):
    study = study_of("small", tmp_path)
    cell = SMALL.table_cell("cartpole", "oracle-dqn", "shared")
    fake(study, replace(cell, seeds=(0, 1)), 500.0)
    assert "Stayed at nine steps" not in page_of(study, tmp_path)
    fake(study, replace(cell, seeds=(2,)), 7.0)
    text = " ".join(page_of(study, tmp_path).split())
    assert "first round on: Oracle DQN (shared) with seed 2." in text


def test_a_page_of_a_few_runs_names_what_is_missing(tmp_path):
    study = study_of("small", tmp_path)
    cell = SMALL.table_cell("cartpole", "fedqhd", "shared")
    fake(study, replace(cell, seeds=(0,)), 480.0)
    fake(study, replace(cell, seeds=(1,)), 480.0, reach=5)
    text = page_of(study, tmp_path)
    assert "- table, cartpole-fedqhd-shared: seed 1 is at round 5 of 12; seed 2 not begun" in text
    assert "(one seed)" in row(text, "FedQHD reaches the paper's return")[1]
    assert row(text, "FedQHD is better than Independent QHD")[1] == "not measured"
    assert "tuning," not in text  # nobody asked for it


def test_a_figure_of_runs_that_are_not_all_there(tmp_path):
    """Stopped half-way, some numbers of anchors have more seeds than others."""
    study = study_of("small", tmp_path)
    for place, cell in enumerate(SMALL.by_anchors()):
        fake(study, replace(cell, seeds=(0, 1, 2)[place % 2 :]), 300.0)
    assert "## Figure 3" in page_of(study, tmp_path)


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
    assert row(text, "FedQHD reaches the paper's return")[1].startswith("**yes**")


@pytest.mark.parametrize("chosen", [2, 3])
def test_the_tuning_is_judged_by_its_own_numbers(tmp_path, monkeypatch, chosen):
    """Which of the tries is best, and whether the table uses it."""
    study, tried = study_of("small", tmp_path), SMALL.tries("acrobot", "fedqhd-own")
    for cell in SMALL.tuning():
        if cell.name.startswith("acrobot-fedqhd-own-"):
            fake(study, cell, 300.0 if cell.name.endswith("-3") else 200.0)
    settings = dict({task: {} for task in SMALL.tasks}, acrobot={"fedqhd-own": tried[chosen]})
    monkeypatch.setattr(measuring, "read_plan", lambda _: replace(SMALL, chosen=settings))
    text = page_of(study, tmp_path)
    assert f"**{choices.listed(tried[3])}: " in text
    verdict = {2: "Table 1 does not use the best of these: Acrobot fedqhd-own.",
               3: "Table 1 uses the best of them throughout."}[chosen]  # fmt: skip
    assert verdict in " ".join(text.split())


def test_a_finalist_counts_by_the_mean_of_its_seeds(tmp_path):
    """The best single run of one seed does not win against settings that were tried with more."""
    name, study = "fedqhd-own", study_of("small", tmp_path)
    first, second, third = SMALL.tables["finalists"]["cartpole"][name]
    for cell in SMALL.tuning():
        if cell.name.startswith(f"cartpole-{name}-"):
            number = int(cell.name.rpartition("-")[2])
            level = {first: 200.0, second: 300.0, third: 250.0}.get(number, 499.0)
            fake(study, cell, level)
    tried = choices.tries(measuring.collect(study))["cartpole"][name]
    assert [one.seeds for one in tried] == [
        2 if n in (first, second, third) else 1 for n in range(8)
    ]
    assert choices.best(tried) == SMALL.tries("cartpole", name)[second]


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
    fake(study, SMALL.table_cell("cartpole", "independent", "shared"), 480.0)
    replaced = row(page_of(study, tmp_path, published=True), "Independent QHD |")
    assert replaced[1].startswith("481")
    assert replaced[1].endswith("(26.1)")
    assert replaced[2] == f"-91.8 ± 6.5 (-306.1) {MARK}"


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


def test_runs_are_kept_and_errors_follow_them(tmp_path):
    """Twice the same command: the second one only reads; Q* is taken from the Oracle's runs."""
    said: list[str] = []
    study = study_of("smoke", tmp_path)
    measure(study, ("anchors",), said.append, processes=1)
    sizes = read_plan("smoke").sizes
    runs = sum(len(cell.seeds) for cell in study.grid.cells["anchors"])
    errors = 2 * sizes.draws  # of random play and of the box
    kept = {path: path.read_bytes() for path in (tmp_path / "records").rglob("*.json")}
    assert len(kept) == runs + errors
    first = measuring.collect(study)
    assert len(first.errors["anchors"]) == errors
    said.clear()
    measure(study, ("anchors",), said.append, processes=1)
    assert said == [f"{runs + errors} of {runs + errors} cells have a record"]
    assert {path: path.read_bytes() for path in kept} == kept
    records = [json.loads(text) for text in kept.values()]
    assert {one["processes"] for one in records if "metrics" in one} == {1}


def test_a_pinned_process_takes_its_clients_one_after_the_other(monkeypatch):
    """Two runs on two cores would otherwise be four threads."""
    world = building.build_world(SMALL.table_cell("cartpole", "fedqhd", "shared").resolved())
    jobs = [Job(client, {}, None, 0) for client in range(4)]
    seen: list[int] = []

    def local(job: Job) -> Result:
        seen.append(threading.get_ident())
        return Result(job.client, {})

    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    assert [one.client for one in side_by_side(world, local, jobs)] == [0, 1, 2, 3]
    assert set(seen) == {threading.get_ident()}
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    seen.clear()
    assert [one.client for one in side_by_side(world, local, jobs)] == [0, 1, 2, 3]
    assert threading.get_ident() not in seen
