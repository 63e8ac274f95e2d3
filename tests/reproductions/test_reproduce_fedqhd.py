"""FedQHD's reproduction: cells, equal budgets, what is read of runs, errors and verdicts."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="FedQHD needs the extra classic")

from support.repository import DOCS
from support.result_pages import row

from fedrl.algorithms.qhd.q_learning import Practice, side_by_side
from fedrl.config import build as building
from fedrl.config import schema as configs
from fedrl.config.loading import to_toml
from fedrl.core.types import Job, Result, UserError
from fedrl.runs.grid import RunCell
from reproductions.fedqhd import cells as plan
from reproductions.fedqhd import choices, methods, numbers, paper
from reproductions.fedqhd import gap as fedqhd_gap

LEARNERS = [f"{method}-{encoders}" for method, encoders in methods.learners()]
STORED = DOCS / "results/fedqhd/tuning.json"


def configs_of(scale: plan.Scale, task: str) -> dict[str, configs.Config]:
    return {
        f"{method}-{encoders}": plan.table_cell(scale, task, method, encoders).config(0, Path())
        for method, encoders in methods.learners()
    }


# Cells


@pytest.mark.parametrize("scale", ["smoke", "small", "full"])
def test_every_cell_is_a_run_that_can_begin(scale, tmp_path):
    """All settings are known and possible, and no two runs of a part are one."""
    parts = plan.cells(plan.SCALES[scale])
    assert tuple(parts) == plan.PARTS
    for cells in parts.values():
        places = [
            (config.out, config.name)
            for cell in cells
            for seed in cell.seeds
            for config in [cell.config(seed, tmp_path)]
        ]
        assert len(set(places)) == len(places)


NETWORKS = ("feddqn", "distill", "oracle-dqn")
OWN = {"sync_steps", "sync_episodes", "double", "huber"}
"""A network's values run away with targets that a linear learner can follow: these are its own."""


@pytest.mark.parametrize("task", methods.TASKS)
def test_all_methods_practise_alike(task):
    """Exploration, replay and how states are seen are the task's, not a method's; targets and
    losses are those of networks, or of linear learners."""
    found = configs_of(plan.SMALL, task)
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
    monkeypatch.setattr(plan, "read_recipe", lambda task: said)
    monkeypatch.setattr(plan, "METHOD_SETTINGS", {"cartpole": {"feddqn-shared": {"lr": 0.004}}})
    found = configs_of(plan.SMALL, "cartpole")
    assert {c.algorithm.epsilon_decay for c in found.values()} == {0.9}
    assert {n: c.algorithm.lr for n, c in found.items() if "features" in dir(c.algorithm)} == {
        n: 0.7 for n in LEARNERS if not n.startswith(("feddqn", "distill", "oracle-dqn"))
    }
    assert found["feddqn-shared"].algorithm.lr == 0.004
    assert found["oracle-dqn-shared"].algorithm.lr < 0.01  # a network's own default
    assert found["fedqhd-own"].algorithm.bandwidth == 0.3


def test_what_the_rows_of_the_table_are():
    found = configs_of(plan.SMALL, "cartpole")
    kinds = {name: config.federation.kind for name, config in found.items()}
    assert [n for n, kind in kinds.items() if kind == "independent"] == [
        "independent-shared", "independent-own",
    ]  # fmt: skip
    assert kinds["oracle-dqn-shared"] == kinds["oracle-qhd-shared"] == "centralized"
    assert methods.learner("oracle-qhd", "own") == "oracle-qhd-shared"
    assert found["truncate-own"].algorithm.agree == "truncate"
    assert found["fedqhd-own"].algorithm.agree == "values"
    assert found["distill-shared"].algorithm.sizes == ()
    assert len(set(found["distill-own"].algorithm.sizes)) > 1
    assert methods.learner("truncate", "shared") == "fedqhd-shared"
    assert methods.learner("oracle-dqn", "own") == "oracle-dqn-shared"
    assert methods.learner("feddqn", "own") is None


def test_unsynced_targets_are_the_only_difference(tmp_path):
    usual = plan.table_cell(plan.SMALL, "acrobot", "independent", "shared").config(0, tmp_path)
    cells = {cell.name: cell for cell in plan.unsynced(plan.SMALL)}
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


@pytest.mark.parametrize("task", methods.TASKS)
def test_every_learner_has_as_many_tries(task):
    for name in LEARNERS:
        tried = methods.tries(task, name)
        assert len(tried) == methods.TRIES[task] + name.startswith("distill")
        assert len({json.dumps(one) for one in tried}) == len(tried)
    assert not any(methods.SEED in scale.seeds for scale in plan.SCALES.values())
    assert set(methods.METHOD_SETTINGS[task]) <= set(LEARNERS)


def test_a_try_is_the_run_with_these_settings(tmp_path):
    for cell in plan.tuning(plan.SMALL):
        task, _, rest = cell.name.partition("-")
        name, _, number = rest.rpartition("-")
        assert cell.seeds[0] == methods.SEED
        settings = cell.config(methods.SEED, tmp_path).algorithm
        for key, value in methods.tries(task, name)[int(number)].items():
            assert getattr(settings, key) == value


@pytest.mark.skipif(not STORED.is_file(), reason="no tuning was published yet")
def test_the_settings_are_the_best_of_the_published_tries():
    for record in json.loads(STORED.read_text(encoding="utf-8")):
        best = max(record["tries"], key=lambda one: (one["seeds"], one["return"]))["settings"]
        assert methods.METHOD_SETTINGS[record["task"]][record["learner"]] == best


# Runs that never were


def fake(cell: RunCell, folder: Path, level: float, reach: int | None = None) -> None:
    """Run folders of a cell whose return goes from 20 to `level`, a little by seed."""
    for seed in cell.seeds:
        config = cell.config(seed, folder)
        place = Path(config.out) / config.name / "fake-s0-000000"
        if place.is_dir():  # of another part
            continue
        place.mkdir(parents=True)
        (place / "config.toml").write_text(to_toml(config), encoding="utf-8")
        meta = {"commit": "abc", "hardware": {"cpu": "CPU", "cores": 2}, "processes": 2}
        (place / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
        rng = np.random.default_rng(seed)
        last = cell.rounds if reach is None else reach
        lines, timings = [], []
        for number in range(last + 1):
            value = 20 + (level - 20) * number / cell.rounds + seed + rng.random()
            line = {"round": number, "env/steps": 1.0, "env/episodes": 1.0}
            if number:
                line |= {"train/return": value, numbers.RETURN: value}
            lines.append(line | {"eval/return": value})
            timings.append({"round": number, "clients": 6.0, "broadcast": 0.0, "evaluate": 99.0})
        for name, rows in (("metrics.jsonl", lines), ("timings.jsonl", timings)):
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (place / name).write_text(text, encoding="utf-8")


def fill(folder: Path, level: Callable[[str], float], parts: tuple[str, ...]) -> None:
    for part in parts:
        for cell in plan.cells(plan.SMALL)[part]:
            fake(cell, folder, level(cell.name))


def page_of(folder: Path, say: Callable[[str], None] = print) -> str:
    page = folder.parent / "page.md"
    results = paper.measure_all("small", (), folder, say, processes=0)
    paper.write_page(results, "small", page)
    return page.read_text(encoding="utf-8")


def test_the_page_says_what_the_numbers_say(tmp_path):
    def level(name: str) -> float:
        task, _, rest = name.partition("-")
        if rest.startswith(("fedqhd", "20", "5")):
            return 480.0 if task == "cartpole" else -250.0
        return 26.0 if rest == "independent-shared" else 100.0

    fill(tmp_path / "small", level, ("table", "clients", "unsynced"))
    text = page_of(tmp_path / "small")
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
    cell = plan.table_cell(plan.SMALL, "cartpole", "oracle-dqn", "shared")
    fake(replace(cell, seeds=(0, 1)), tmp_path / "small", 500.0)
    assert "Stayed at nine steps" not in page_of(tmp_path / "small")
    fake(replace(cell, seeds=(2,)), tmp_path / "small", 7.0)
    assert "first round on: Oracle DQN (shared) with seed 2." in " ".join(
        page_of(tmp_path / "small").split()
    )


def test_a_page_of_a_few_runs_names_what_is_missing(tmp_path):
    cell = plan.table_cell(plan.SMALL, "cartpole", "fedqhd", "shared")
    fake(replace(cell, seeds=(0,)), tmp_path / "small", 480.0)
    fake(replace(cell, seeds=(1,)), tmp_path / "small", 480.0, reach=5)
    text = page_of(tmp_path / "small")
    assert "- table, cartpole-fedqhd-shared: seed 1 is at round 5 of 12; seed 2 not begun" in text
    assert "(one seed)" in row(text, "FedQHD reaches the paper's return")[1]
    assert row(text, "FedQHD is better than Independent QHD")[1] == "not measured"
    assert "tuning," not in text  # nobody asked for it


def test_a_figure_of_runs_that_are_not_all_there(tmp_path):
    """Stopped half-way, some numbers of anchors have more seeds than others."""
    for place, cell in enumerate(plan.anchors(plan.SMALL)):
        fake(replace(cell, seeds=(0, 1, 2)[place % 2 :]), tmp_path / "small", 300.0)
    assert "## Figure 3" in page_of(tmp_path / "small")


def test_what_there_is_at_the_papers_sizes_stands_beside_the_small_ones(tmp_path):
    fill(tmp_path / "small", lambda name: 300.0, ("table",))
    assert "at the paper's sizes" not in page_of(tmp_path / "small")
    fake(plan.table_cell(plan.FULL, "cartpole", "fedqhd", "shared"), tmp_path / "full", 480.0)
    text = page_of(tmp_path / "small").partition("## Table 1 at the paper's sizes")[2]
    assert row(text, "FedQHD")[1].startswith("481")
    assert row(text, "Independent QHD")[1].startswith("not measured")
    assert row(text, "FedQHD reaches the paper's return")[1].startswith("**yes**")


def test_the_tuning_is_judged_by_its_own_numbers(tmp_path, monkeypatch):
    """Which of the tries is best, and whether the table uses it."""
    tried = methods.tries("acrobot", "fedqhd-own")
    for cell in plan.tuning(plan.SMALL):
        if cell.name.startswith("acrobot-fedqhd-own-"):
            fake(cell, tmp_path / "small", 300.0 if cell.name.endswith("-3") else 200.0)
    none: dict = {task: {} for task in methods.TASKS}
    for chosen, verdict in (
        (tried[2], "Table 1 does not use the best of these: Acrobot fedqhd-own."),
        (tried[3], "Table 1 uses the best of them throughout."),
    ):
        settings = none | {"acrobot": {"fedqhd-own": chosen}}
        monkeypatch.setattr(methods, "METHOD_SETTINGS", settings)
        text = page_of(tmp_path / "small")
        assert f"**{choices.told(tried[3])}: " in text
        assert verdict in " ".join(text.split())
    (record,) = json.loads((tmp_path / "page" / "tuning.json").read_text(encoding="utf-8"))
    assert record["learner"] == "fedqhd-own"
    assert len(record["tries"]) == methods.TRIES["acrobot"]


def test_a_finalist_counts_by_the_mean_of_its_seeds(tmp_path):
    """The best single run of one seed does not win against settings that were tried with more."""
    name = "fedqhd-own"
    first, second, third = methods.FINALISTS["cartpole"][name]
    for cell in plan.tuning(plan.SMALL):
        if cell.name.startswith(f"cartpole-{name}-"):
            number = int(cell.name.rpartition("-")[2])
            level = {first: 200.0, second: 300.0, third: 250.0}.get(number, 499.0)
            fake(cell, tmp_path / "small", level)
    results = paper.measure_all("small", (), tmp_path / "small", print, processes=0)
    tried = choices.tries(results)["cartpole"][name]
    assert [one.seeds for one in tried] == [
        2 if n in (first, second, third) else 1 for n in range(8)
    ]
    assert choices.best(tried) == methods.tries("cartpole", name)[second]


def test_a_world_that_cannot_be_played_is_skipped_and_said(tmp_path, monkeypatch):
    build = building.build_world

    def without(config: configs.Config) -> object:
        if config.world.name == "lunarlander-v3":
            raise UserError('pip install "gymnasium[box2d]"')
        return build(config)

    monkeypatch.setattr(building, "build_world", without)
    wanted: list[RunCell] = []
    monkeypatch.setattr(paper, "_compute", lambda cells, *rest: wanted.extend(cells))
    said: list[str] = []
    results = paper.measure_all("smoke", ("table",), tmp_path / "smoke", said.append)
    assert said == ['LunarLander is skipped: pip install "gymnasium[box2d]"']
    assert {paper.task_of(cell) for cell in wanted} == {"cartpole", "acrobot", "mountaincar"}
    paper.write_page(results, "smoke", tmp_path / "page.md")
    assert '- LunarLander: pip install "gymnasium[box2d]"' in (tmp_path / "page.md").read_text()


# Errors


def smooth(config: configs.Config, states: np.ndarray) -> np.ndarray:
    """A value function that nobody has to learn."""
    return np.stack([np.cos(states.sum(1)), np.sin(states[:, 0] + 2 * states[:, 2])], 1)


def measurement(ridges: tuple[float, ...] = (1e-9,), **changes: object) -> fedqhd_gap.Measurement:
    learner = plan.compiled(plan.SMOKE, "dimension", 8, 8).config(0, Path())
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


def test_errors_are_kept_by_what_they_depend_on(tmp_path, monkeypatch):
    monkeypatch.setattr(fedqhd_gap, "reference_values", smooth)
    one = measurement()
    assert fedqhd_gap.read(one, tmp_path) is None
    fedqhd_gap.compute(one, tmp_path)
    assert fedqhd_gap.read(one, tmp_path) == fedqhd_gap.measure(one)
    settings = replace(one.learner.algorithm, bandwidth=0.123)
    retrained = replace(one.reference, name="another-run")
    for other in (
        replace(one, draw=1), replace(one, ridges=(1e-3,)), replace(one, source="box"),
        replace(one, reference=retrained),
        replace(one, learner=replace(one.learner, algorithm=settings)),
    ):  # fmt: skip
        assert fedqhd_gap.read(other, tmp_path) is None
    elsewhere = replace(one.learner, out="elsewhere", seed=5)
    assert fedqhd_gap.read(replace(one, learner=elsewhere), tmp_path) is not None


# Computing


def test_runs_are_kept_and_errors_follow_them(tmp_path):
    """Twice the same command: the second one only reads; Q* is taken from the Oracle's runs."""
    said: list[str] = []
    folder = tmp_path / "smoke"
    first = paper.measure_all("smoke", ("anchors",), folder, said.append, processes=1)
    logs = {path: path.read_bytes() for path in folder.rglob("metrics.jsonl")}
    count = sum(len(cell.seeds) for cell in plan.cells(plan.SMOKE)["anchors"])
    assert f"0 of {count} runs are there" in said
    assert len(logs) == count
    assert len(first.errors["anchors"]) == 2 * plan.SMOKE.draws  # of random play and of the box
    said.clear()
    again = paper.measure_all("smoke", ("anchors",), folder, said.append, processes=1)
    assert said == [f"{count} of {count} runs are there"]
    assert again.errors == first.errors
    assert {path: path.read_bytes() for path in folder.rglob("metrics.jsonl")} == logs
    meta = [json.loads(path.read_text()) for path in folder.rglob("meta.json")]
    assert {one["processes"] for one in meta} == {1}


def test_a_pinned_process_takes_its_clients_one_after_the_other(monkeypatch):
    """Two runs on two cores would otherwise be four threads."""
    world = building.build_world(paper.runs_config("cartpole"))
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
