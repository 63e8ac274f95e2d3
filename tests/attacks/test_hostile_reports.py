"""Numbers that a client reports and that are lies: they spoil no total, no record and no report."""

from __future__ import annotations

import functools
import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.liars import NAMES
from support.rounds import play
from support.toy import Toy

from fedrl.aggregation import mean as aggregate
from fedrl.clients.wrapped_algorithm import Wrapped
from fedrl.config.build import build_algorithm
from fedrl.config.loading import resolve
from fedrl.core.types import Job, Result
from fedrl.report import page as report
from fedrl.runs import train as runs

CLIENTS = 7
LIAR = 2
RECIPE: dict[str, Any] = {
    "name": "lied-to",
    "rounds": 3,
    "algorithm": {"name": "fedsvrpg-m", "local_steps": 2, "initial_trajectories": 3},
    "world": {"name": "random_mdp", "horizon": 20},
    "federation": {"clients": CLIENTS},
}
ROBUST = [name for name in NAMES if name not in ("mean", "weighted")]


class Lying(Wrapped):
    """One client, honest but for one number."""

    def __init__(self, algorithm: Any, name: str, value: float) -> None:
        super().__init__(algorithm)
        self.name, self.value = name, value

    def local(self, job: Job) -> Result:
        result = self.algorithm.local(job)
        if job.client != LIAR:
            return result
        return replace(result, metrics=result.metrics | {self.name: self.value})


def trained(tmp_path: Path, rule: str, lie: tuple[str, float] | None = None) -> Path:
    flags = ("--aggregate.name", rule, "--aggregate.byzantine", "1", "--out", str(tmp_path))
    settings = resolve(RECIPE, flags)
    algorithm = build_algorithm(settings)
    directory = runs.start(settings)
    runs.train(settings, directory, algorithm if lie is None else Lying(algorithm, *lie))
    return directory.path


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[dict[str, Any]]]:
    """The metrics of a run without a liar, by its rule."""

    @functools.cache
    def metrics(rule: str) -> list[dict[str, Any]]:
        return rows(trained(tmp_path_factory.mktemp("honest"), rule), "metrics.jsonl")

    return metrics


def rows(run: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "lie",
    [
        ("env/steps", 1e308),
        ("env/steps", -5.0),
        ("env/steps", 0.5),
        ("env/steps", 10**400),
        ("env/steps", 2.0 * (2 * 20) + 21),  # one more than its settings allow
        ("train/return", 1e300),
        ("train/return", -(10**400)),
        ("train/weight_clipped", 7.0),
    ],
    ids=lambda lie: f"{lie[0]} {str(lie[1])[:6]}",
)
def test_a_number_out_of_its_range_costs_its_sender_the_update(
    lie: Any, honest: Callable[[str], list[dict[str, Any]]], tmp_path: Path
):
    run = trained(tmp_path, "median", lie)
    told = rows(run, "metrics.jsonl")
    assert all(math.isfinite(value) for row in told for value in row.values())
    # As if the liar were not there.
    assert told[-1]["env/steps"] * CLIENTS == honest("median")[-1]["env/steps"] * (CLIENTS - 1)
    failed = [r for r in rows(run, "clients.jsonl") if r["status"] == "failed"]
    assert {r["client"] for r in failed} == {LIAR}
    assert all(lie[0] in r["reason"] for r in failed)
    assert "Infinity" not in report.build([run], tmp_path / "page.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("rule", ROBUST)
@pytest.mark.parametrize(
    "lie", [("env/steps", 0.0), ("train/return", 1e30), ("train/return", -1e9)]
)
def test_a_lie_within_its_range_moves_no_metric_under_a_robust_rule(
    rule: str, lie: Any, honest: Callable[[str], list[dict[str, Any]]], tmp_path: Path
):
    run = trained(tmp_path, rule, lie)
    told = rows(run, "metrics.jsonl")
    assert [row["env/steps"] for row in told] == [row["env/steps"] for row in honest(rule)]
    for number, (row, other) in enumerate(zip(told, honest(rule), strict=True)):
        sent = [
            r["train/return"]
            for r in rows(run, "clients.jsonl")
            if r["round"] == number and r["client"] != LIAR
        ]
        assert min(sent) <= row["train/return"] <= max(sent)
        assert row["eval/return"] == other["eval/return"]


def test_the_mean_stays_the_mean():
    store = play(Toy(), mean=aggregate.mean)
    clients = [r for r in store.rounds[-1].clients if r["status"] == "ok"]
    assert store.rounds[-1].metrics["train/seen"] == np.mean([r["train/seen"] for r in clients])
    assert store.rounds[1].metrics["env/steps"] == 7.0 * len(clients)


def test_a_name_that_few_report_is_nobodys():
    from fedrl.federation.update_check import combined

    results = [Result(c, {}, metrics={"env/steps": 3.0}) for c in range(5)]
    results[0] = Result(0, {}, metrics={"env/steps": 9.0, "train/best": 1e9, "env/more": 5.0})
    totals = {"env/steps": 1.0}
    assert combined(results, totals, robust=True) == {}
    assert totals == {"env/steps": 16.0}
    assert combined(results, totals) == {"train/best": 1e9}
    assert totals == {"env/steps": 37.0, "env/more": 5.0}


@pytest.mark.parametrize(("clients", "silent"), [(3, 1), (4, 2), (5, 3), (6, 3)])
def test_of_two_that_report_one_would_decide(clients: int, silent: int):
    """Honest clients may have measured nothing; one liar is then half of those who speak."""
    from fedrl.federation.update_check import combined

    told = {"train/rank": 0.5, "env/answers": 2.0}
    results = [Result(c, {}, metrics={} if c < silent else told) for c in range(clients)]
    results[-1] = Result(clients - 1, {}, metrics={"train/rank": 3e38, "env/answers": 2.0**40})
    totals: dict[str, float] = {}
    assert combined(results, totals, robust=True) == {}
    assert totals == {}
    both = [Result(c, {}, metrics=told) for c in range(2)]  # all that there are
    assert combined(both, totals, robust=True) == {"train/rank": 0.5}


@pytest.mark.parametrize(
    ("name", "lie"),
    [("env/samples", 33.0), ("env/tokens", 32.0 * 8 + 1), ("train/sentiment", 1.5)],
)
def test_writers_report_no_more_than_they_can_write(name: str, lie: float):
    from fedrl.core.update_refusal import misreported, ranges

    settings = {"name": "fedrlhf-text", "batches": 2, "batch": 16, "answer_tokens": 8,
                "eval_prompts": 4}  # fmt: skip
    data = {"algorithm": settings, "world": {"name": "imdb", "reviews": 40}}
    allowed = ranges(build_algorithm(resolve(data)))
    assert misreported({name: lie}, allowed)
    assert not misreported({"env/samples": 32.0, "env/tokens": 256.0, "train/reward": 1.0}, allowed)


def test_no_weight_makes_a_mean_infinite():
    class Heavy(Toy):
        def local(self, job: Job) -> Result:
            return replace(super().local(job), weight=1.5e308 if job.client < 2 else 1.0)

    store = play(Heavy(), mean=aggregate.weighted, rounds=2)
    failed = {r["client"] for r in store.rounds[-1].clients if r["status"] == "failed"}
    assert failed == {0, 1}


VALUES = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0**40, 2.0**41, 1e38, -1e38, 1e39, 1e300, 1.7e308, 5e-324]
ODD = [math.nan, math.inf, -math.inf, 10**30, -(10**400), True, None, "7", [1], 1j, np.float64(3)]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("robust_metrics", [False, True])
def test_whatever_is_reported_totals_stay_numbers(seed: int, robust_metrics: bool):
    """Random reports of all clients but one in all rounds."""
    rng = random.Random(seed)

    class Random(Toy):
        reports = frozenset({"train/seen", "env/steps", "env/more"})

        def local(self, job: Job) -> Result:
            result = super().local(job)
            if job.client == 0:
                return result
            names = rng.sample(sorted(self.reports), rng.randrange(4))
            metrics = {name: rng.choice([*VALUES, *VALUES, *ODD]) for name in names}
            return replace(result, metrics=metrics)

    how = {"more": {"robust_metrics": True}} if robust_metrics else {}
    store = play(Random(), rounds=30, quorum=0.0, **how)
    before = 0.0
    for done in store.rounds:
        assert all(math.isfinite(value) for value in done.metrics.values())
        steps = done.metrics.get("env/steps", 0.0)
        assert steps >= before
        assert steps == int(steps)
        before = steps


@pytest.mark.parametrize("family", ["fedsvrpg-m", "fedqhd", "feddqn", "distill-dqn", "fedrlhf"])
def test_ranges_are_of_what_is_reported(family: str):
    from fedrl.core.update_refusal import ranges

    world = {"fedsvrpg-m": "random_mdp", "fedrlhf": "movielens"}.get(family, "cartpole-v1")
    data = {"algorithm": {"name": family}, "world": {"name": world}}
    algorithm: Any = build_algorithm(resolve(data))
    assert set(algorithm.ranges) <= set(algorithm.reports) == set(ranges(algorithm))
    assert all(r.low < r.high for r in ranges(algorithm).values())
