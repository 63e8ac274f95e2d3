"""FedAgent's reproduction: cells, what is read of them, verdicts, and runs that are killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedrl.config.loading import resolve, to_toml
from fedrl.core.types import UserError
from fedrl.runs.grid import RunCell, cost, curve, digest, read
from fedrl.runs.process_pool import perform
from reproductions.fedagent import cells as plan
from reproductions.fedagent import numbers
from reproductions.fedagent.paper import measure_all, write_page

KINDS = ("pick", "look", "clean", "heat", "cool", "pick_two")


def fake(cell: RunCell, folder: Path, level: float, reach: int | None = None) -> None:
    """Run folders of a cell whose success rises from 0.3 to 0.3 + `level`, a little by seed."""
    for seed in cell.seeds:
        config = cell.config(seed, folder)
        place = Path(config.out) / config.name / "fedagent-s0-000000"
        place.mkdir(parents=True)
        (place / "config.toml").write_text(to_toml(config))
        meta = {"commit": "abc", "hardware": {"cpu": "CPU", "cores": 2}, "seconds": 3.0}
        (place / "meta.json").write_text(json.dumps(meta))
        rng = np.random.default_rng(seed)
        last = cell.rounds if reach is None else reach
        metrics, clients = [], []
        for number in range(last + 1):
            line = {"round": number, "env/episodes": 128.0 * cell.epochs(number)}
            if number % config.eval_every == 0 or number == cell.rounds:
                rise = level * (1 - np.exp(-3 * number / cell.rounds))
                success = 0.3 + rise + 0.01 * seed + 0.005 * rng.standard_normal()
                line |= {"eval/success": success, "eval/return": success}
                line |= {f"eval/success_{kind}": success for kind in KINDS}
            metrics.append(line)
            clients += [
                {"round": number, "client": int(rng.integers(100)), "train/success": 0.4}
                for _ in range(cell.clients_per_round if number else 0)
            ]
        for name, lines in (("metrics.jsonl", metrics), ("clients.jsonl", clients)):
            (place / name).write_text("".join(json.dumps(one) + "\n" for one in lines))


def fill(folder: Path, scale: str = "small", **levels: float) -> plan.Parts:
    parts = plan.cells(scale, plan.SCALES[scale], folder)
    for cells in parts.values():
        for cell in cells:
            key = cell.name.split("-")[0] if cell.name.startswith("local") else cell.name
            fake(cell, folder, levels.get(key.replace("-", "_"), 0.2))
    return parts


# Cells


@pytest.mark.parametrize("scale", ["smoke", "small", "full"])
def test_every_cell_is_a_run_that_can_begin(scale, tmp_path):
    """All settings are known and possible, the names are folders, and no two runs are one."""
    parts = plan.cells(scale, plan.SCALES[scale], tmp_path)
    places = [
        (config.out, config.name)
        for cells in parts.values()
        for cell in cells
        for seed in cell.seeds
        for config in [cell.config(seed, tmp_path)]
    ]
    assert len(set(places)) == len(places)
    assert tuple(parts) == plan.PARTS[scale]


def test_both_views_come_from_one_run(tmp_path):
    """Centralized and Local are evaluated at FedAgent's round, and end with its rollouts."""
    scale = plan.SMALL
    for part in ("main", "webshop"):
        ours, *others = plan.cells("small", scale, tmp_path)[part]
        for other in others:
            assert other.epochs() == ours.epochs()
            assert ours.rounds % scale.eval_every == 0
            assert other.rounds == plan.COHORT * ours.rounds


def test_epochs_in_all_stay_the_same_when_epochs_per_round_change(tmp_path):
    cells = {c.name: c for c in plan.decentralized(plan.SMALL, tmp_path)}
    usual = plan.SMALL.side_rounds * plan.LOCAL_EPOCHS
    for epochs in plan.EPOCHS:
        cell = cells[f"epochs-{epochs}"]
        assert abs(cell.rounds * cell.local_epochs - usual) <= epochs / 2


def test_the_small_scale_fits_into_two_hours_on_two_cores(tmp_path):
    parts = plan.cells("small", plan.SMALL, tmp_path)
    epochs = sum(cost(c.config(s, tmp_path)) for cells in parts.values() for c in cells
                 for s in c.seeds)  # fmt: skip
    assert 2.0 * epochs < 2 * 2 * 3600  # about 2 s for an epoch on one core


def test_a_run_is_known_by_what_its_numbers_depend_on(tmp_path):
    cell = plan.cells("small", plan.SMALL, tmp_path)["main"][0]
    config = cell.config(0, tmp_path)
    elsewhere = tmp_path / "elsewhere"
    moved = plan.cells("small", plan.SMALL, elsewhere)["main"][0].config(0, elsewhere)
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


# Reading


def test_a_number_is_the_mean_of_the_last_evaluations_of_runs_that_got_there(tmp_path):
    cell = replace(plan.cells("small", plan.SMALL, tmp_path)["main"][0], seeds=(0, 1))
    fake(replace(cell, seeds=(0,)), tmp_path, 0.2)
    fake(replace(cell, seeds=(1,)), tmp_path, 0.2, reach=cell.rounds - 1)
    one = read(tmp_path, [cell])["fedagent"]
    rounds = one.runs[0].rounds
    last, before = cell.rounds, cell.rounds - plan.SMALL.eval_every
    expected = (rounds[last]["eval/success"] + rounds[before]["eval/success"]) / 2
    assert one.value("eval/success") == {0: pytest.approx(expected)}
    assert set(one.value("eval/success", before)) == {0, 1}
    first = plan.SMALL.eval_every  # one evaluation: round 0 is no result of training
    assert one.value("eval/success", first)[0] == rounds[first]["eval/success"]
    assert "seed 1 is at round" in one.missing()
    at, values = curve([one], "eval/success", cell.rounds)
    assert at[-1] == before  # where all seeds have been
    assert values.shape == (2, len(at))


def test_a_line_that_was_cut_short_is_no_round(tmp_path):
    cell = replace(plan.cells("small", plan.SMALL, tmp_path)["main"][0], seeds=(0,))
    fake(cell, tmp_path, 0.2, reach=3)
    log = next(tmp_path.rglob("metrics.jsonl"))
    log.write_text(log.read_text()[:-5])
    assert max(read(tmp_path, [cell])["fedagent"].runs[0].rounds) == 2


# Verdicts


def test_rules():
    assert numbers.above((3.0, 2.0)) == numbers.HOLDS
    assert numbers.above((-3.0, 2.0)) == numbers.FAILS
    assert numbers.above((1.0, 2.0)) == numbers.OPEN
    assert numbers.not_below((-1.0, 2.0)) == numbers.HOLDS
    assert numbers.not_below((-9.0, 2.0)) == numbers.FAILS
    assert numbers.not_below((-4.0, 2.0)) == numbers.OPEN
    assert numbers.alike((1.0, 2.0)) == numbers.HOLDS
    assert numbers.alike((9.0, 2.0)) == numbers.FAILS
    assert numbers.alike((4.0, 2.0)) == numbers.OPEN
    for rule in (numbers.above, numbers.not_below, numbers.alike):  # one seed
        assert rule((50.0, float("nan"))) == numbers.OPEN
    assert numbers.together([numbers.HOLDS, numbers.OPEN]) == numbers.OPEN
    assert numbers.together([numbers.OPEN, numbers.FAILS]) == numbers.FAILS
    assert numbers.together([numbers.HOLDS, numbers.HOLDS]) == numbers.HOLDS


def test_differences_are_taken_seed_by_seed():
    """Seeds that differ a lot hide nothing where the difference is always the same."""
    ours, base = {0: 0.30, 1: 0.50, 2: 0.90}, {0: 0.20, 1: 0.40, 2: 0.80, 3: 0.0}
    assert numbers.gap(ours, base) == pytest.approx((10.0, 0.0), abs=1e-9)
    assert numbers.gap(ours, {7: 0.1}) is None
    assert numbers.mean_of([{0: 0.2, 1: 0.4}, {0: 0.4}]) == {0: pytest.approx(0.3)}


def page_of(tmp_path: Path, scale: str = "small") -> str:
    folder = tmp_path / scale
    page = tmp_path / "fedagent.md"
    write_page(measure_all(scale, (), folder, print, processes=0), scale, page)
    return page.read_text(encoding="utf-8")


def rows(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"| {start}")]


def test_the_page_says_what_the_numbers_say(tmp_path):
    fill(
        tmp_path / "small", fedagent=0.3, centralized=0.3, local=0.1, epochs_5=0.1, epochs_1=0.3,
        preference_extreme=0.05,
    )  # fmt: skip
    text = page_of(tmp_path)
    for row in rows(text, "FedAgent is better than Local"):
        assert "**holds**" in row
    for row in rows(text, "FedAgent is no worse than Centralized"):
        assert "**holds**" in row
    assert "**does not hold**" in rows(text, "5 epochs per round")[0]
    assert "**does not hold**" in rows(text, "Preference heterogeneity")[0]
    assert "**holds**" in rows(text, "Hardness heterogeneity")[0]
    assert "## Missing" not in text
    assert "SmolLM2" in text  # the full scale is said to be missing
    for name in ("main", "main-clients", "decentralized", "heterogeneity", "webshop"):
        assert (tmp_path / "fedagent" / f"{name}.png").is_file()


def test_where_nothing_was_learned_nothing_is_the_same(tmp_path):
    names = ("fedagent", "centralized", "local", "preference_extreme", "preference_mild")
    fill(tmp_path / "small", **dict.fromkeys(names, 0.0))
    text = page_of(tmp_path)
    assert all("nothing was learned" in row for row in rows(text, "FedAgent is no worse"))
    assert "nothing was learned" in rows(text, "Preference heterogeneity")[0]


def test_who_is_below_the_warm_start_is_better_than_nobody(tmp_path):
    """FedAgent keeps what it began with and Local loses some: federation has taught nothing."""
    fill(tmp_path / "small", fedagent=0.0, centralized=0.3, local=-0.05)
    text = page_of(tmp_path)
    assert all("nothing was learned" in row for row in rows(text, "FedAgent is better than Local"))
    alone = [row for row in rows(text, "Local") if "±" in row and "(mean)" not in row]
    assert len(alone) == 2 * 4  # and no table further down says it again
    assert all(row.count("nothing was learned") == 2 and "better" not in row for row in alone)


def test_every_comparison_stands_under_its_own_settings(tmp_path):
    fill(tmp_path / "small", fedagent=0.3, centralized=0.3, local=0.1)
    text = page_of(tmp_path)
    household, shop = (
        text.split(f"### {world}: FedAgent")[1].split("\n|")[0]
        for world in ("Generated household", "Generated WebShop")
    )
    assert "20 tasks each" in household
    assert "GRPO" in household
    assert "100 tasks each" in shop
    assert "RLOO" in shop


def test_a_page_of_a_few_runs_names_what_is_missing(tmp_path):
    cells = plan.cells("small", plan.SMALL, tmp_path / "small")["main"]
    for cell in cells[:2]:
        fake(replace(cell, seeds=(0,)), tmp_path / "small", 0.2)
    text = page_of(tmp_path)
    assert "- small, main, fedagent: seed 1, 2 not begun" in text
    assert "- small, main, local-21: seed 0, 1, 2 not begun" in text
    assert "not measured" in rows(text, "FedAgent is better than Local")[0]
    assert "**undecided**" in rows(text, "FedAgent is no worse than Centralized")[0]
    (tmp_path / "nowhere").mkdir()
    empty = page_of(tmp_path / "nowhere")
    assert "Not measured" in empty


def test_one_page_has_both_scales(tmp_path):
    """Whichever scale is asked for; the full one has one seed, which decides nothing."""
    for name in ("small", "full"):
        fill(tmp_path / name, name, fedagent=0.3, centralized=0.3, local=0.1)
    for name in ("small", "full"):
        text = page_of(tmp_path, name)
        assert "## Scale small" in text
        assert "## Scale full" in text
        judged = {row.split(" | ")[1]: row for row in rows(text, "FedAgent is better than Local")}
        assert "**holds**" in judged["Generated household, equal rollouts"]
        assert "**undecided** | +" in judged["ALFWorld, equal local epochs"]
        assert "(one seed)" in judged["ALFWorld, equal local epochs"]


def test_parts_of_another_scale_are_refused(tmp_path):
    with pytest.raises(UserError, match="--model is for the full scale"):
        measure_all("small", (), tmp_path / "small", print, processes=0, model="x")
    with pytest.raises(UserError, match="the parts of the scale small are main"):
        measure_all("small", ("alfworld",), tmp_path / "small", print, processes=0)


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


def test_options_of_another_paper_are_refused(fedrl):
    said = fedrl("reproduce", "momentum", "--minutes", "3", check=False)
    assert said.returncode == 2
    assert "--minutes is not for momentum, only for fedagent" in said.stderr
    said = fedrl("reproduce", "fedagent", "--minutes", "0", check=False)
    assert "--minutes must be above 0" in said.stderr


@pytest.mark.slow
def test_a_reproduction_that_is_killed_ends_with_the_same_numbers(fedrl, tmp_path):
    pytest.importorskip("torch", reason="FedAgent needs the extra llm")
    words = ["reproduce", "fedagent", "--scale", "smoke", "--only", "webshop"]
    whole = fedrl(*words, "--out", "whole")
    assert "0 of 8 runs are there" in whole.stderr
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
    assert "2 of 8 runs are there" in again.stderr
    assert "8 of 8 runs are there" in fedrl(*words, "--out", "killed").stderr
    logs = sorted((tmp_path / "whole").rglob("metrics.jsonl"))
    assert len(logs) == 8
    assert any(json.loads(line).get("train/gradient_norm", 0) > 0 for log in logs
               for line in log.read_text().splitlines())  # fmt: skip
    for log in logs:
        run = Path("killed") / log.relative_to(tmp_path / "whole").parent.parent
        (other,) = (tmp_path / run).glob("*/metrics.jsonl")
        assert other.read_bytes() == log.read_bytes()
    late = fedrl(*words, "--out", "late", "--minutes", "0.001")
    assert "8 of 8 runs are missing" in late.stderr


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
