"""The planner: every term of the bound, its limits, and that it holds where the truth is known."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedrl.algorithms.fedagent.convergence import Plan, Problem, best_lr, bound
from fedrl.analysis import plan as planner
from fedrl.analysis import theorem_constants
from fedrl.cli import call
from fedrl.config.loading import resolve, to_toml
from fedrl.core.types import Job, Result, UserError
from fedrl.federation import round_loop
from fedrl.runs.run_dir import RunDir

PROBLEM = Problem(
    gradient=2.0, noise=1.0, heterogeneity=0.5, smoothness=4.0, pl=0.25, gap=3.0, clients=10
)
PLAN = Plan(cohort=2, steps=3, rounds=70)


# The terms


def test_terms_are_those_of_the_theorem() -> None:
    terms = bound(PROBLEM, PLAN)
    assert terms.transient == pytest.approx(4.0 / (0.25 * 70) * 3.0)
    assert terms.noise == pytest.approx(1 / (2 * 0.25) * (2.0**2 + 1.0**2) / 2)
    assert terms.sampling == pytest.approx(1 / (2 * 0.25) * 2 * (10 - 2) / (2 * 9) * 0.5**2)
    assert terms.drift == pytest.approx(1 / (2 * 0.25) * (3 - 1) ** 2 / (2 * 3**2) * 5.0)
    assert terms.total == pytest.approx(sum(terms))
    assert terms.floor == pytest.approx(terms.total - terms.transient)


def test_limits() -> None:
    assert bound(PROBLEM, replace(PLAN, cohort=10)).sampling == 0.0
    assert bound(PROBLEM, replace(PLAN, steps=1)).drift == 0.0
    assert bound(PROBLEM, replace(PLAN, rounds=10**12)).transient < 1e-8
    assert bound(replace(PROBLEM, heterogeneity=0.0), PLAN).sampling == 0.0
    alone = bound(replace(PROBLEM, clients=1), replace(PLAN, cohort=1))
    assert alone.sampling == 0.0  # nobody else to miss
    many = bound(PROBLEM, replace(PLAN, steps=10**6))
    assert many.drift == pytest.approx(5.0 / 2 / (2 * 0.25), rel=1e-5)


def test_the_theorems_step_is_the_default() -> None:
    full = 1 / (4.0 * 3)
    assert bound(PROBLEM, replace(PLAN, lr=full)) == pytest.approx(bound(PROBLEM, PLAN))
    half, whole = bound(PROBLEM, replace(PLAN, lr=full / 2)), bound(PROBLEM, PLAN)
    assert half.transient == pytest.approx(2 * whole.transient)
    assert half.noise == pytest.approx(whole.noise / 2)
    assert half.sampling == pytest.approx(whole.sampling / 2)
    assert half.drift == pytest.approx(whole.drift / 4)


positive = st.floats(0.05, 5.0)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Problem, Plan]:
    gradient, gap, smoothness = draw(positive), draw(positive), draw(positive)
    most = min(smoothness, gradient**2 / (2 * gap))
    clients = draw(st.integers(2, 40))
    problem = Problem(
        gradient, draw(positive), draw(positive), smoothness, draw(st.floats(0.01, 1.0)) * most,
        gap, clients,
    )  # fmt: skip
    plan = Plan(draw(st.integers(1, clients)), draw(st.integers(1, 20)), draw(st.integers(1, 300)))
    return problem, plan


@given(problems())
def test_more_clients_fewer_steps_and_more_rounds_never_hurt(case: tuple[Problem, Plan]) -> None:
    problem, plan = case
    here = bound(problem, plan)
    assert all(term >= 0 for term in here)
    longer = bound(problem, replace(plan, rounds=plan.rounds + 1))
    assert longer.transient < here.transient
    assert longer[1:] == here[1:]
    if plan.cohort < problem.clients:
        more = bound(problem, replace(plan, cohort=plan.cohort + 1))
        assert more.noise < here.noise
        assert more.sampling < here.sampling
        assert (more.transient, more.drift) == (here.transient, here.drift)
    further = bound(problem, replace(plan, steps=plan.steps + 1))
    assert further.drift > here.drift
    assert further[:3] == here[:3]
    other = bound(replace(problem, heterogeneity=problem.heterogeneity * 2), plan)
    assert other.sampling == pytest.approx(4 * here.sampling)
    assert (other.noise, other.drift) == (here.noise, here.drift)


@given(problems(), st.floats(0.01, 1.0))
def test_no_step_size_has_a_lower_bound_than_the_best(
    case: tuple[Problem, Plan], share: float
) -> None:
    problem, plan = case
    other = replace(plan, lr=share / (problem.smoothness * plan.steps))
    best = replace(plan, lr=best_lr(problem, plan))
    assert bound(problem, best).total <= bound(problem, other).total * (1 + 1e-9)


# A federation that can be solved: J_k(θ) = −a_k/2 (θ − c_k)², gradients with a coin's noise ±σ


def exact_gap(
    curvature: np.ndarray, centre: np.ndarray, noise: float, plan: Plan, lr: float, start: float
) -> float:
    """E[J(θ*) − J(θ̃)], by the first two moments of θ_t over all cohorts and coins."""
    clients = len(curvature)
    best = (curvature @ centre) / curvature.sum()
    kept = (1 - lr * curvature) ** plan.steps  # a client ends at kept θ + (1 − kept) c + noise
    spread = (lr * noise) ** 2 * sum((1 - lr * curvature) ** (2 * i) for i in range(plan.steps))
    cohorts = [list(c) for c in itertools.combinations(range(clients), plan.cohort)]
    a = np.array([kept[c].mean() for c in cohorts])
    b = np.array([((1 - kept) * centre)[c].mean() for c in cohorts])
    v = np.array([spread[c].sum() for c in cohorts]) / plan.cohort**2
    mean, square, gaps = start, start**2, []
    for _ in range(plan.rounds):
        gaps.append(curvature.mean() / 2 * (square - 2 * best * mean + best**2))
        square = (a**2).mean() * square + 2 * (a * b).mean() * mean + (b**2).mean() + v.mean()
        mean = a.mean() * mean + b.mean()
    return float(np.mean(gaps))


def constants(
    curvature: np.ndarray, centre: np.ndarray, noise: float, start: float
) -> Problem | None:
    """The theorem's constants on the interval that no iterate leaves; None if already optimal.

    A local step mixes θ with c_k ± σ/a_k, so everything stays between the outermost of those. Norms
    and spreads of gradients are convex in θ: their largest values lie at the ends.
    """
    ends = np.array([start, *(centre - noise / curvature), *(centre + noise / curvature)])
    gradients = curvature * (centre - np.array([[ends.min()], [ends.max()]]))
    best = (curvature @ centre) / curvature.sum()
    gap = curvature.mean() / 2 * (start - best) ** 2
    if gap < 1e-6:
        return None
    return Problem(
        gradient=float(np.abs(gradients).max()),
        noise=noise,
        heterogeneity=float(gradients.std(1).max()),
        smoothness=float(curvature.max()),
        pl=float(curvature.mean()),
        gap=float(gap),
        clients=len(curvature),
    )


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.1, 3.0), st.floats(-2.0, 2.0)), min_size=1, max_size=5),
    st.floats(0.0, 2.0),
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(1, 60),
    st.floats(0.02, 1.0),
    st.floats(-3.0, 3.0),
)
def test_the_bound_holds_where_the_truth_is_known(
    clients: list[tuple[float, float]], noise: float, cohort: int, steps: int, rounds: int,
    share: float, start: float,
) -> None:  # fmt: skip
    curvature, centre = np.array(clients).T
    assume(cohort <= len(clients))
    problem = constants(curvature, centre, noise, start)
    assume(problem is not None)
    assert problem is not None
    lr = share / (problem.smoothness * steps)
    plan = Plan(cohort, steps, rounds, lr)
    gap = exact_gap(curvature, centre, noise, plan, lr, start)
    assert gap <= bound(problem, plan).total * (1 + 1e-9)


def test_the_solution_is_what_a_simulation_gives() -> None:
    """`exact_gap` by drawing cohorts and coins: 4 standard errors of 40,000 runs."""
    rng = np.random.default_rng(0)
    curvature, centre, noise = np.array([0.5, 1.0, 2.0]), np.array([-1.0, 0.5, 1.5]), 0.7
    plan, lr, start, runs = Plan(2, 3, 6), 1 / 6.0, 2.0, 40_000
    best = (curvature @ centre) / curvature.sum()
    theta, gaps = np.full(runs, start), []
    for _ in range(plan.rounds):
        gaps.append(curvature.mean() / 2 * (theta - best) ** 2)
        cohort = rng.permuted(np.tile(np.arange(3), (runs, 1)), axis=1)[:, : plan.cohort]
        local = np.repeat(theta[:, None], plan.cohort, 1)
        for _ in range(plan.steps):
            coin = noise * rng.choice([-1.0, 1.0], local.shape)
            local = local + lr * (curvature[cohort] * (centre[cohort] - local) + coin)
        theta = local.mean(1)
    means = np.mean(gaps, axis=0)
    error = 4 * means.std() / math.sqrt(runs)
    expected = exact_gap(curvature, centre, noise, plan, lr, start)
    assert abs(means.mean() - expected) < error


def test_the_bound_is_of_use_with_many_clients() -> None:
    """Not only true: with enough clients per round it promises more than standing still."""
    curvature, centre = np.full(20, 1.0), np.linspace(-0.1, 0.1, 20)
    problem = constants(curvature, centre, 0.1, 2.0)
    assert problem is not None
    plan = Plan(20, 1, 200)
    assert exact_gap(curvature, centre, 0.1, plan, 1.0, 2.0) <= bound(problem, plan).total
    assert bound(problem, plan).total < problem.gap / 5


# What cannot be


@pytest.mark.parametrize(
    ("problem", "plan", "message"),
    [
        ({}, {"cohort": 11}, "--cohort is 11, but there are only 10 clients"),
        ({}, {"cohort": 0}, "--cohort is 0; it must be at least 1"),
        ({}, {"steps": 0}, "--steps is 0"),
        ({}, {"rounds": 0}, "--rounds is 0"),
        ({}, {"lr": 0.1}, r"--lr is 0.1; the theorem needs .* at most 1/\(L·steps\) = 0.08333"),
        ({}, {"lr": 0.0}, "--lr is 0; it must be above 0"),
        ({"gradient": 0.0}, {}, "--G is 0; it must be above 0"),
        ({"noise": -1.0}, {}, "--sigma is -1; it must not be negative"),
        ({"heterogeneity": math.nan}, {}, "--zeta is nan"),
        ({"pl": 5.0}, {}, "mu must not be above L"),
        ({"pl": 1.0}, {}, r"the PL condition allows at most G²/\(2·gap\) = 0.6667"),
        ({"clients": 0}, {"cohort": 1}, "--clients is 0"),
    ],
)
def test_impossible_values_are_one_line(problem: dict, plan: dict, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        bound(replace(PROBLEM, **problem), replace(PLAN, **plan))
    assert "\n" not in str(caught.value)


# The table and the advice


@given(problems(), st.sampled_from(["rollouts", "epochs"]))
def test_the_plans_of_a_table_cost_no_more_than_this_one(
    case: tuple[Problem, Plan], equal: planner.Equal
) -> None:
    problem, plan = case
    rows = planner.grid(problem, plan, equal)
    assert [row.plan for row in rows].count(plan) == 1
    for row in rows:
        work = row.plan.total if equal == "rollouts" else row.plan.steps * row.plan.rounds
        most = plan.total if equal == "rollouts" else plan.steps * plan.rounds
        unit = row.plan.steps * (row.plan.cohort if equal == "rollouts" else 1)
        assert most - unit < work <= most  # one round more would not be paid for
        assert row.terms == bound(problem, row.plan)


def test_advice_names_the_largest_part_and_what_doubling_buys() -> None:
    told = planner.PlanReport(PROBLEM, PLAN, "rollouts", ())
    lines = list(planner.advice(told))
    before = bound(PROBLEM, PLAN).total
    after = bound(PROBLEM, replace(PLAN, cohort=4)).total
    assert lines[0].startswith("The largest part is noise (60%")
    assert f"M = 4 instead of 2, twice the work: {before:.3g} → {after:.3g}" in lines[1]
    assert lines[2].startswith("τ = 1 instead of 3, 33% of the work: ")
    assert any("promises nothing" in line for line in lines)
    # Nobody is left to add, and one local step cannot be halved.
    everybody = planner.PlanReport(PROBLEM, Plan(10, 1, 70), "rollouts", ())
    assert not any(line.startswith(("M = ", "τ = ")) for line in planner.advice(everybody))


def test_the_bound_cannot_promise_progress_with_fewer_clients_than_said() -> None:
    """(1 + σ²/G²)·Lητ: up to there the noise term alone is the whole gap."""
    for share in (1.0, 0.5):
        problem = replace(PROBLEM, pl=PROBLEM.gradient**2 / (2 * PROBLEM.gap), noise=4.0)
        least = share * (1 + (problem.noise / problem.gradient) ** 2)
        lr = share / (problem.smoothness * 1)
        for cohort in range(1, problem.clients + 1):
            noise = bound(problem, Plan(cohort, 1, 70, lr)).noise
            assert (noise < problem.gap) == (cohort > least)


# Measuring


class Clients:
    """Gradients a_k (c_k − θ) + noise in two dimensions, with steps of 0.1."""

    initial_exchange = False
    reports = frozenset()
    curvature, lr = 0.5, 0.1

    def __init__(self, centres: np.ndarray, noise: float) -> None:
        self.centres, self.noise = centres, noise

    def broadcast(self, state: dict, round: int) -> dict:
        return {"theta": state["theta"]}

    def local(self, job: Job) -> Result:
        coin = np.random.default_rng(job.seed).normal(size=2) * self.noise / math.sqrt(2)
        slope = self.curvature * (self.centres[job.client] - job.broadcast["theta"]["w"]) + coin
        return Result(job.client, {"w": self.lr * slope, "u.w": np.full(2, 1e9)})


def points(clients: int, times: int, noise: float, seed: int = 0) -> tuple[list, np.ndarray]:
    centres = np.random.default_rng(5).normal(size=(40, 2))
    algorithm = Clients(centres, noise)
    chosen = list(range(40))[:clients]
    how = theorem_constants.Replay(clients, times, seed)
    snapshots = [
        round_loop.Snapshot(r, [{"theta": {"w": np.array(w)}}])
        for r, w in ((0, [3.0, 0.0]), (5, [1.0, 1.0]))
    ]
    found = [
        theorem_constants.replayed(algorithm, snapshot, chosen, how, 0.1, lambda: None)
        for snapshot in snapshots
    ]
    return found, centres


def test_without_noise_replays_give_the_exact_constants() -> None:
    (first, last), centres = points(40, 2, 0.0)
    slopes = 0.5 * (centres - np.array([3.0, 0.0]))
    assert first.noise == pytest.approx(0, abs=1e-12)
    assert first.squares == pytest.approx((slopes**2).sum(1).mean())
    assert first.spread == pytest.approx(slopes.var(0, ddof=1).sum())
    assert first.slope(40) == pytest.approx((slopes.mean(0) ** 2).sum())
    assert theorem_constants._smoothness([first, last], 7.0)[0] == pytest.approx(0.5)


@pytest.mark.slow
def test_noise_is_subtracted_from_what_it_adds_to() -> None:
    """Means over 300 measurements agree with the truth within 4 standard errors."""
    found = {"noise": [], "squares": [], "spread": [], "slope": []}
    for seed in range(300):
        (first, _), centres = points(10, 2, 3.0, seed)
        for name, values in found.items():
            value = getattr(first, name)
            values.append(value(10) if callable(value) else value)
    slopes = 0.5 * (centres[:10] - np.array([3.0, 0.0]))
    truth = {
        "noise": 9.0,
        "squares": (slopes**2).sum(1).mean(),
        "spread": slopes.var(0, ddof=1).sum(),
    }
    for name, value in truth.items():
        error = np.std(found[name]) / math.sqrt(300)
        assert abs(np.mean(found[name]) - value) < 4 * error, name


def test_a_rescaled_gradient_gets_the_unit_of_what_it_climbs() -> None:
    """J is quadratic, so that the trapezoid is exact; steps of gradients 50 times too long."""
    found, centres = points(40, 2, 0.0)
    gaps = [0.25 * ((centres - w) ** 2).sum(1).mean() for w in ([3.0, 0.0], [1.0, 1.0])]
    unit, note = theorem_constants.adam_unit(
        [theorem_constants.scaled(point, 50.0) for point in found], gaps
    )
    assert unit == pytest.approx(1 / 50)
    assert "0.02" in note
    again = theorem_constants.scaled(theorem_constants.scaled(found[0], 50.0), unit)
    assert again.spread == pytest.approx(found[0].spread)
    assert again.slope(40) == pytest.approx(found[0].slope(40))
    assert theorem_constants.adam_unit(found, gaps[::-1])[0] == 1.0  # J fell: nothing to scale by


def test_what_drowns_in_noise_is_said() -> None:
    (first, last), _ = points(2, 2, 1e4)
    drowned = theorem_constants.Point(first.theta, first.mean, [0.0, 0.0], [1.0, 1.0], 2)
    drowned = drowned._replace(mean={"w": np.zeros(2)})
    there = drowned._replace(theta=last.theta)
    found = {
        one.symbol: one
        for one in theorem_constants._estimates([drowned, there], [0.5, 0.5], 40, 8.0)
    }
    assert found["L"].value == 8.0
    assert found["ζ"].value == 0.0
    assert found["G"].value == pytest.approx(math.sqrt(0.5))
    assert all("drowned" in found[symbol].origin for symbol in "GζLμ")
    planner.problem_of([*found.values(), planner.Estimate("gap", 0.5, "")], 40)  # and possible


class Run(NamedTuple):
    path: Path
    played: list[int]  # clients whose local steps were replayed


@pytest.fixture
def still(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of two clients whose local steps move nothing, with an evaluation of a return."""
    played: list[int] = []

    class Still(Clients):
        def init(self, seed: int) -> dict:
            return {"theta": {"w": np.zeros(2)}}

        def local(self, job: Job) -> Result:
            played.append(job.client)
            return Result(job.client, {"w": np.zeros(2)})

    (tmp_path / "checkpoints").mkdir()
    recipe = {"name": "still", "rounds": 3, "federation": {"clients": 2},
              "algorithm": {"name": "pavg"}, "world": {"name": "cartpole"}}  # fmt: skip
    (tmp_path / "config.toml").write_text(to_toml(resolve(recipe)))
    (tmp_path / "metrics.jsonl").write_text('{"round": 0, "eval/return": 1.0}\n')
    RunDir(tmp_path).checkpoint(round_loop.Snapshot(3, [{"theta": {"w": np.zeros(2)}}]))
    monkeypatch.setattr(
        theorem_constants, "build_algorithm", lambda config: Still(np.zeros((2, 2)), 0.0)
    )
    return Run(tmp_path, played)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--gap 0", "--gap is 0; it must be finite and above 0"),
        ("--gap inf", "--gap is inf; it must be finite and above 0"),
        ("--gap 1 --mu nan", "--mu is nan; it must be finite and above 0"),
        ("--gap 1 --sigma -1", "--sigma is -1; it must be finite and not negative"),
        ("--gap 1 --rounds 0", "--rounds is 0; it must be at least 1"),
        ("--gap 1 --clients 0", "--clients is 0; it must be at least 1"),
        ("", "say how far from it the start is, --gap"),
    ],
)
def test_impossible_flags_are_found_before_the_replays(
    still: Run, flags: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["plan", str(still.path), *flags.split()]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert still.played == []


def test_a_run_that_learned_nothing_cannot_be_measured(still: Run) -> None:
    with pytest.raises(UserError, match=f"no local step of {still.path} moved the model"):
        theorem_constants.measure(
            still.path, theorem_constants.Replay(), {"gap": 1.0}, lambda text: None
        )
    assert len(still.played) == 8  # it was tried: two clients, two replays, two points


# The command


@pytest.mark.slow
def test_the_command_prints_a_table_and_draws(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = tmp_path / "plan.png"
    assert call(["plan", "--cohort", "4", "--mu", "0.2", "--plot", str(figure)]) == 0
    told = capsys.readouterr().out
    assert "← now" in told
    assert "lowest" in told
    assert "you" in told
    from matplotlib.image import imread

    assert imread(figure).shape[1] > 1000


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--cohort", "101"], "--cohort is 101, but there are only 100 clients"),
        (["--sigma", "-1"], "--sigma is -1; it must not be negative"),
        (["--plot", "x.gif"], "name a .png, .svg or .pdf file"),
        (["nowhere"], "nowhere does not exist"),
        (["--replays", "1", "nowhere"], "--replays must be at least 2"),
        (["--seed", "-1", "nowhere"], "--seed is -1"),
        (["--replays", "3"], "--replays is for measuring a run: name it"),
        (["--lr", "0.1"], "--lr is 0.1; the theorem needs a local step of at most"),
    ],
)
def test_mistakes_are_one_line(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["plan", *flags]) == 2
    out, error = capsys.readouterr()
    assert message in error
    assert error.count("\n") == 1
    assert not out  # no table before it


@pytest.mark.slow
def test_a_run_is_measured(fedrl, tmp_path) -> None:
    pytest.importorskip("numba", reason="tabular policy gradients need the extra classic")
    fedrl(
        "run", "momentum/random_mdp", "--rounds", "3", "--world.horizon", "20", "--out", "runs",
        "--algorithm.name", "pavg", "--algorithm.beta", "1.0",
    )  # fmt: skip
    [run] = tmp_path.glob("runs/*/pavg-*")
    asked = fedrl("plan", str(run), check=False)
    assert "the best return" in asked.stderr
    told = fedrl("plan", str(run), "--gap", "5", "--L", "50")
    assert "measured: over replays of the same client" in told.stdout
    assert "lower bounds" in told.stdout
    assert "AdamW" not in told.stdout
