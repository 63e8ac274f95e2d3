"""The momentum page: verdicts by the rules, tuning that settles, the constants of the theory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("jax", reason="the momentum methods need jax")

from support.repository import DOCS
from support.result_pages import row

from fedrl.envs.control import random_mdp
from reproductions.grid import SCALES, read_grid
from reproductions.momentum import claims, theorems
from reproductions.momentum.analysis import Analysis, statements
from reproductions.momentum.claims import together_told
from reproductions.momentum.judging import (
    RULES,
    below,
    better,
    is_better,
    less_variance,
    log_ratio,
    slope_of,
    slope_of_means,
    some,
)
from reproductions.momentum.parts import METHODS, Part, Separate
from reproductions.momentum.table2 import CHOSEN
from reproductions.momentum.theorems import Theorems, reached, resampled_slope
from reproductions.momentum.theory import Constants, exact_variance, measured_constants
from reproductions.momentum.tuning import Tuning, best, tasks, worth
from reproductions.pages import MARK, Page
from reproductions.records import Store, as_run, of_seeds
from reproductions.results import Trained
from reproductions.statements import NOT_JUDGED, WORDS, Statement, verdict_of
from reproductions.study import FOLDER, prepare, wanted, write_page
from reproductions.verdicts import FAILS, HOLDS, OPEN, number, slope, verdict

MOMENTUM = FOLDER / "momentum"


def test_verdicts_are_paired():
    base = np.array([1.0, 5.0, 9.0, 13.0])  # seeds differ far more than methods do
    assert verdict(base + 0.5 + 0.01 * np.arange(4), base).startswith("better (+0.5")
    assert verdict(base - 0.5 - 0.01 * np.arange(4), base).startswith("worse (-0.5")
    assert verdict(base + np.array([1, -1, 1, -1]), base).startswith("undecided")
    assert verdict(np.array([2.0]), np.array([1.0])) == "+1.00 (one seed)"
    assert verdict(None, base) is None


def test_numbers_carry_their_interval():
    assert number(np.array([1.0, 1.0, 1.0])) == "1.000 ± 0.000"
    assert number(np.array([1.0])) == "1.000"
    assert number(None) is None


def test_the_bound_falls_with_agents_and_rounds():
    constants = Constants(horizon=20, gamma=0.9, variance=4.0, weight_variance=0.1, gap=5.0)
    bounds = [constants.bound(n, 8, 40) for n in (1, 2, 4)]
    assert bounds == sorted(bounds, reverse=True)
    noise = [b - constants.smoothness * 5.0 / 40 for b in bounds]
    assert noise[0] / noise[1] == pytest.approx(2 ** (2 / 3))


def test_smoothness_is_the_largest_of_the_lemmas():
    """L = H R_max (M + H G²)/(1-γ) with G² = 2, M = 1/2, and L̃_1 above it."""
    constants = Constants(horizon=3, gamma=0.5, variance=1.0, weight_variance=0.0, gap=1.0)
    smooth = 3 * (0.5 + 3 * 2) / 0.5
    bound, lipschitz, weight = 3 * math.sqrt(2) / 0.5, 3 * 0.5 / 0.5, 3 * (2 * 3 * 2 + 0.5)
    first = math.sqrt(smooth**2 + 24 * weight * bound**2 + 6 * lipschitz**2)
    assert constants.smoothness == pytest.approx(first)


def test_hessian_smoothness_is_theorem_6_5s():
    """L̂² = 2L² + 4L̃_4², L̃_4² = (H²G⁴ + M²)/(1-γ)⁴."""
    constants = Constants(horizon=3, gamma=0.5, variance=1.0, weight_variance=0.0, gap=1.0)
    smooth, fourth = 3 * (0.5 + 3 * 2) / 0.5, (9 * 4 + 0.25) * 16
    assert constants.hessian_smoothness == pytest.approx(math.sqrt(2 * smooth**2 + 4 * fourth))


@pytest.mark.parametrize("method", ["fedsvrpg-m", "fedhapg-m"])
def test_parameters_are_those_of_the_theorems(method):
    """Theorems C.4 and D.4 with the constants written out, and every condition met."""
    known = Constants(2, 0.1, variance=0.5, weight_variance=0.0, gap=0.2, first=0.01)
    smooth, n, k, r = known.of(method), 4, 2, 1600
    found = known.prescribed(n, k, r, method)
    beta = (n * k * smooth**2 * 0.2**2 / (0.5**2 * r**2)) ** (1 / 3)
    assert found.beta == pytest.approx(beta)
    most = math.sqrt(beta * n * k / (162 if method == "fedsvrpg-m" else 72)) / smooth
    first = smooth if method == "fedhapg-m" else 2 * (0.5 + 2 * 2) / 0.9  # C.4 has L there, not L̄
    assert found.server_lr == pytest.approx(min(1 / (24 * first), most))
    reach = found.lr * k * smooth
    assert reach**2 <= smooth * 0.2 / (0.01 * found.server_lr * smooth * r) * (1 + 1e-9)
    assert reach**2 <= beta / n * (1 + 1e-9)
    assert reach**4 <= beta / (n * k) * (1 + 1e-9)
    assert found.initial_trajectories == math.ceil(k / (r * beta**2))
    assert known.prescribed(n, k, 1, method).beta == 1.0


def test_the_gradients_variance_is_that_of_sampled_trajectories():
    """By enumeration and by Monte Carlo; its mean is the exact gradient."""
    settings = random_mdp.Settings(states=2, actions=2, horizon=2, gamma=0.5, kappa=1.0)
    world = random_mdp.World(settings, 1, 3)
    policy = np.array([[0.7, 0.3], [0.2, 0.8]])
    kernel = world.kernels[0]
    exact = exact_variance(policy, kernel, world.rewards, world.initial, 0.5, 2)
    rng, draws = np.random.default_rng(0), []
    for _ in range(4000):
        s, path = rng.choice(2, p=world.initial), []
        for _ in range(2):
            a = rng.choice(2, p=policy[s])
            path.append((s, a))
            s = rng.choice(2, p=kernel[s, a])
        paid = [0.5**t * world.rewards[pair] for t, pair in enumerate(path)]
        g = np.zeros((2, 2))
        for t, (s, a) in enumerate(path):
            g[s] += sum(paid[t:]) * (np.eye(2)[a] - policy[s])
        draws.append(g)
    true = random_mdp.gradient(policy, kernel, world.rewards, world.initial, 0.5, "softmax", 2)
    squares = ((np.array(draws) - true) ** 2).sum((-2, -1))
    error = squares.std() / math.sqrt(len(squares))
    assert abs(squares.mean() - exact) < 5 * error


def test_constants_are_the_worlds_own():
    settings = random_mdp.Settings(states=2, actions=2, horizon=2, gamma=0.1, kappa=1.0)
    found = measured_constants(settings, 2, 3, 0.05)
    gaps = []
    for seed in range(3):
        world = random_mdp.World(settings, 2, seed)
        known = (world.kernels, world.rewards, world.initial, 0.1)
        uniform = random_mdp.performance(np.full((2, 2), 0.5), *known).mean()
        gaps.append(random_mdp.upper_bound(*known) - uniform)
    assert found.gap == pytest.approx(np.mean(gaps))
    assert found.variance > 0
    assert found.first > 0


# Rules


def test_a_gain_below_the_margin_is_none():
    assert is_better((2.0, 1.0), 4.0) == HOLDS
    assert is_better((1.0, 2.0), 4.0) == FAILS
    assert is_better((1.0, 4.0), 4.0) == OPEN
    assert is_better((-9.0, 1.0), 4.0) == FAILS
    assert is_better((1.0, float("nan")), 4.0) == OPEN


def test_deviations_are_compared_by_a_ratio():
    ours, base = np.array([[1.0, 2, 3, 4]]), np.array([[10.0, 20, 30, 40]])
    assert np.exp(log_ratio(ours, base)) == pytest.approx(0.1)


def test_slopes_have_intervals():
    x = np.array([1.0, 2, 4, 8])
    assert slope_of(x, 3 / x) == pytest.approx(-1)
    mean, half = slope_of_means(x, 3 / x, np.zeros(4))
    assert (mean, half) == (pytest.approx(-1), 0.0)
    assert slope_of_means(x, 3 / x, 0.3 / x)[1] == pytest.approx(0.1 / math.sqrt(5) / math.log(2))
    seeds = np.random.default_rng(0).uniform(1, 2, 20)
    told = resampled_slope(x, seeds / x[:, None] ** 0.5)
    assert told[0] == pytest.approx(-0.5)
    assert told[1] < 1e-9  # seeds differ, their slopes do not
    assert [below(told, bound) for bound in (-0.4, -0.6)] == [HOLDS, FAILS]


def test_rounds_to_a_target_follow_a_power_law():
    rounds = np.array([100, 400, 1600])
    norms = np.stack([8 / rounds**0.5, 4 / rounds**0.5])
    np.testing.assert_allclose(reached(rounds, norms, 0.2), [1600, 400])
    np.testing.assert_allclose(reached(rounds, norms, 0.1), [6400, 1600])  # beyond the last


def test_what_was_not_reached_decides_nothing():
    """An interval over seeds says nothing of a power law beyond the last round that was played."""

    class Known(Theorems):
        sizes, rounds = np.array([1, 2, 4]), np.array([100, 400, 1600])

        def norms(self):
            return np.repeat((8 / self.sizes[:, None] / self.rounds**0.5)[..., None], 5, -1)

        def cell(self, clients, rounds):
            recipe = {"algorithm": {"local_steps": 2}}
            return SimpleNamespace(
                band=lambda name: (None, self.part), cell=SimpleNamespace(recipe=recipe)
            )

    there, beyond = (Known([2 * target], "fedsvrpg-m").complexity() for target in (0.2001, 0.1))
    assert there.startswith(f"**{HOLDS}** (slope -2.00")
    assert beyond.startswith(
        f"**{OPEN}**: not every N came to ε = 0.1000 in the 3,200 trajectories"
    )
    assert "12,800 for N = 1" in beyond
    assert "extrapolated, not measured" in beyond
    never = Known([2e-9], "fedsvrpg-m").complexity()
    assert "no N came to" in never
    assert "more than 10¹² for N = 1" in never


class KnownTheorems(Theorems):
    """Of three numbers of agents; `part` is mean ‖∇J‖² by agents, at θ_0 it is 1."""

    sizes, rounds = np.array([1, 2, 4]), np.array([1600])
    right = 1.0

    def norms(self):
        return np.repeat(np.array(self.part)[:, None, None], 5, -1)

    def cell(self, clients, rounds):
        mean = self.part[list(self.sizes).index(clients)]
        recipe = {"algorithm": {"local_steps": 2}}
        return SimpleNamespace(
            band=lambda name: (None, [1.0]), cell=SimpleNamespace(recipe=recipe),
            summary=lambda name, of, over: {"mean": mean, "half": 0.1}[over],
        )  # fmt: skip


def test_an_upper_bound_is_not_refuted_by_what_falls_more_slowly():
    norms = [0.4, 0.4 / 2**0.8, 0.4 / 4**0.8]
    assert KnownTheorems(norms, "fedsvrpg-m").speed_up().startswith(f"**{HOLDS}** (slope -0.80")
    slow = KnownTheorems([0.4, 0.38, 0.36], "fedsvrpg-m").speed_up()
    assert verdict_of(slow) == NOT_JUDGED
    assert slow.endswith("an upper bound is not refuted by what falls more slowly")
    for first, who in ((0.99, "not every N"), (0.999, "no N")):
        still = [first, *(norms[1:] if who == "not every N" else [0.9, 0.8])]
        said = KnownTheorems(still, "fedsvrpg-m").speed_up()
        assert verdict_of(said) == NOT_JUDGED
        assert said.endswith(f"{who} came to half of what it is at θ_0, 1.0000")


def test_a_bound_without_its_constant_cannot_be_refuted(monkeypatch):
    monkeypatch.setattr(
        theorems, "constants", lambda cell: SimpleNamespace(bound=lambda *at: KnownTheorems.right)
    )
    assert KnownTheorems([0.4, 0.3, 0.2], "fedsvrpg-m").bound().startswith(f"**{HOLDS}**")
    said = KnownTheorems([6.0, 3.0, 0.5], "fedsvrpg-m").bound()
    assert verdict_of(said) == NOT_JUDGED
    assert "0.50 to 6.00 of the bound" in said
    assert "above it in 2 of 3 cells; with a constant of 6.1" in said


def test_nothing_is_judged_of_both_methods_where_one_is_not():
    told = {"A": f"**{HOLDS}** (1)", "B": f"{NOT_JUDGED} (2)"}
    assert verdict_of(together_told(told)) == NOT_JUDGED
    assert together_told(told) == "not judged: A: (1); B: (2)"
    assert verdict_of(together_told({"A": f"**{HOLDS}** (1)"})) == HOLDS
    assert together_told(told | {"B": None}) is None


def test_slope_of_a_power_law():
    x = np.array([1.0, 2, 4, 8])
    assert slope(x, 3 / x) == pytest.approx(-1)


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
def test_cells_of_a_scale_have_names_and_settings_of_their_own(scale):
    for part, cells in read_grid(MOMENTUM / "grid.toml", scale).cells.items():
        assert len({cell.name for cell in cells}) == len(cells), part
        assert len({cell.digest(0) for cell in cells}) == len(cells), part


def test_tuning_prefers_the_best_and_never_a_diverged_run():
    assert best({"0.1": float("nan"), "0.2": 3.0, "0.3": 5.0, "0.4": float("nan")}) == "0.3"


def test_tuning_seeds_are_reported_nowhere():
    for part, cells in read_grid(MOMENTUM / "grid.toml", "full").cells.items():
        tuned = part.startswith(("tune_", "tuning_", "lambda_"))
        assert all((min(cell.seeds) >= 10_000) == tuned for cell in cells), part


def test_parts_are_asked_for_by_their_names_or_their_tasks():
    grid = read_grid(MOMENTUM / "grid.toml", "smoke")
    assert wanted(grid, ("table2",)) == ["table2"]
    assert wanted(grid, ("walker2d",)) == [part for part in grid.cells if "_walker2d" in part]
    every = set(wanted(grid, ()))
    assert set(grid.cells) - every == set(grid.tables["on_request"])


# A page of records that never were


ROWS = ("ours", "base")


def rows(ours: tuple[float, float], base: tuple[float, float]) -> SimpleNamespace:
    """Two rows of 20 seeds that go from a level to another, which is the mean over the run, too."""
    noise = 0.1 * np.random.default_rng(0).standard_normal((2, 20))
    ends = {name: np.array(levels[1] + some) for name, levels, some in
            zip(ROWS, (ours, base), noise)}  # fmt: skip
    starts = {name: levels[0] for name, levels in zip(ROWS, (ours, base))}
    found = {name: SimpleNamespace(
        seconds=1.0, finals=lambda: range(20),
        band=lambda name=name: (None, np.array([starts[name]]), np.array([0.1])),
    ) for name in ROWS}  # fmt: skip
    return SimpleNamespace(
        found=found, get=found.get, final=ends.get, area=ends.get,
        pair=lambda a, b, over="final": (ends[a], ends[b]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "base", "word"),
    [
        ((22.0, 9.0), (22.0, 9.0), NOT_JUDGED),  # both fell
        ((22.0, 12.0), (22.0, 9.0), NOT_JUDGED),  # that one fell less is no achievement
        ((22.0, 9.0), (22.0, 12.0), NOT_JUDGED),  # nor is that one fell more a refutation
        ((22.0, 22.0), (22.0, 22.0), NOT_JUDGED),
        ((22.0, 9.0), (22.0, 22.0), FAILS),  # the other kept its level
        ((22.0, 9.0), (22.0, 60.0), FAILS),
        ((22.0, 60.0), (22.0, 60.0), FAILS),
        ((22.0, 60.0), (22.0, 9.0), HOLDS),
    ],
)
def test_nothing_is_better_where_nobody_learned(ours, base, word):
    part = rows(ours, base)
    assert verdict_of(better(part, *ROWS, 4.0, 20)) == word
    assert verdict_of(some(part, {"β": "ours"}, "base", 4.0, 20, "area")) == word
    learned = NOT_JUDGED in less_variance(part, {"β": ROWS}, 20)
    assert learned == (max(ours[1], base[1]) < 60)


def test_the_levels_of_those_who_learned_nothing_are_told():
    said = better(rows((22.0, 9.0), (22.0, 9.0)), *ROWS, 4.0, 20)
    assert said.endswith("learned anything, 22.0 at the beginning, 9.0 and 9.0 over the run")


def fake(study, part: str, level) -> None:
    """Records of a part whose returns go from 1 to `level(cell)`, a little by seed, with the steps
    that tuning found so far."""
    for cell in Tuning(study).settled().grid.cells[part]:
        ends = level(cell) + 0.1 * np.arange(len(cell.seeds))
        fake_cell(study, cell, ends)


def fake_cell(study, cell, ends) -> None:
    at, store = np.arange(3), study.place.store
    returns = 1 + (ends[:, None] - 1) * at / 2
    if not cell.together:
        for seed, line in zip(cell.seeds, returns):
            rounds = [0, cell.rounds - 1, cell.rounds] if cell.rounds > 1 else [0, 1, 1]
            store.write(cell.part, f"{cell.name}-seed{seed}", cell.digest(seed), {
                "seeds": [seed], "rounds": cell.rounds, "seconds": 2.0, "commit": "c",
                "metrics": {"eval/return": [rounds, list(line)]}, "totals": {"env/steps": 9},
            })  # fmt: skip
        return
    weights = np.full((len(cell.seeds), 2), 0.5)
    curves = {"eval/return": returns, "eval/grad_norm_sq": returns, "env/steps": returns,
              "eval/direction_error": returns, "train/weight_mean": weights,
              "train/weight_clipped": weights, "train/weight_var": weights}  # fmt: skip
    rounds = {name: at if values.shape[1] == 3 else at[1:] for name, values in curves.items()}
    store.write(cell.part, cell.name, cell.digest(0), of_seeds(cell, curves, rounds, 2.0))


def claim(text: str, words: str) -> list[str]:
    """The row of the claims that says this: where, what, verdict, found, seeds."""
    line = next(line for line in text.splitlines() if line.startswith("| ") and words in line)
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.slow
def test_the_page_says_what_the_records_say(tmp_path):
    study = prepare("momentum", "smoke", tmp_path, tmp_path / "records")
    fake(study, "table2", lambda cell: 8.0 if "beta=0.2" in cell.name else 7.0)
    fake(study, "figure1_cartpole", lambda cell: {"pavg": 50.0}.get(cell.name, 40.0))
    page = tmp_path / "page.md"
    write_page(study, page)
    text = page.read_text(encoding="utf-8")
    told = claim(text, "a small β beats β = 1")
    assert told[2:4] == [f"**{NOT_JUDGED}**", f"(β = 0.2 is +1.00 above, ± 0.00 at most), {CHOSEN}"]
    assert claim(text, "flat in κ, Bernoulli kernels")[2] == "not measured"
    learner = row(text, "FedSVRPG-M β=0.2")
    assert learner[5] == "worse (-10.0 ± 0.0)"
    assert learner[7:9] == ["0.50", "50%"]
    assert "## Figure 2: the number of agents\n\nNot measured at this scale yet." in text
    assert (tmp_path / "page" / "table2.png").is_file()
    assert MARK not in text
    assert "- figure2: 4 of 4 records are missing" in text
    assert "At the scale smoke nothing is counted" in text
    assert "rows about claims of the paper" not in text


@pytest.mark.slow
def test_every_part_has_a_section_and_every_figure_is_drawn(tmp_path):
    study = prepare("momentum", "smoke", tmp_path, tmp_path / "records")
    for part in study.grid.cells:
        fake(study, part, lambda cell: 5.0)
    write_page(study, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "Not measured" not in text
    drawn = {path.stem for path in (tmp_path / "page").glob("*.png")}
    assert drawn == {"table2", "speedup", "equal_step", "figure2", "figure1_cartpole",
                     "figure1_halfcheetah", "figure1_walker2d", "best_cartpole", "best_mdp",
                     "long_halfcheetah", "long_walker2d"}  # fmt: skip
    assert "records are missing" not in text


@pytest.fixture(scope="module")
def published() -> dict[str, Statement]:
    """What the published records say, by claim."""
    study = prepare("momentum", "full", Path("runs"), DOCS / "results" / "momentum" / "records")
    return {f"{one.where}: {one.claim}": one for one in statements(study)}


def verdicts_of(published: Mapping[str, Statement], words: str) -> list[str]:
    return [one.verdict for name, one in published.items() if words in name]


@pytest.mark.slow
def test_a_winner_at_an_end_of_what_was_tried_judges_nothing(published):
    """On random MDPs FedSVRPG-M's best η and λ are; on CartPole nobody's is."""
    assert set(verdicts_of(published, "random MDPs: ")) == {NOT_JUDGED}
    fedpg = next(one for name, one in published.items() if "MDPs" in name and "FedPG-BR" in name)
    assert fedpg.found.endswith("tried: η and λ of FedSVRPG-M β=0.2, η of FedPG-BR")
    assert NOT_JUDGED not in verdicts_of(published, "Section 7: CartPole: ")


@pytest.mark.slow
def test_steps_that_were_tuned_for_something_else_judge_nothing(published):
    assert set(verdicts_of(published, "CartPole, clients ")) == {NOT_JUDGED}
    assert len(verdicts_of(published, "CartPole, clients ")) == 9
    assert verdicts_of(published, "(steps as tuned for N = 5)") == [NOT_JUDGED] * 2
    assert verdicts_of(published, "Section 5.1: the variance reduction itself") == [NOT_JUDGED]


@pytest.mark.slow
def test_cells_that_settings_were_chosen_by_are_no_evidence(tmp_path):
    """Neither for what agrees with the paper nor against what does not; of other kernels each is
    judged for itself."""
    study = prepare("momentum", "full", tmp_path, tmp_path / "records")
    fake(study, "table2", lambda cell: 8.0 - ("kappa=1.0" in cell.name))
    fake(study, "kernels",
         lambda cell: 8.0 - ("bernoulli" in cell.name and "kappa=1.0" in cell.name))  # fmt: skip
    said = {one.claim: one for one in statements(study) if one.where == "Table 2"}
    for words in ("a small β beats β = 1, at every κ", "the levels of its thirty cells",
                  "flat in κ, uniform kernels"):  # fmt: skip
        assert said[words].verdict == NOT_JUDGED
        assert said[words].found.endswith(CHOSEN)
    assert said["flat in κ, Bernoulli kernels"].verdict == FAILS
    assert said["flat in κ, orthogonal kernels"].verdict == HOLDS
    kernels = {record["part"] for record in said["flat in κ, orthogonal kernels"].records}
    assert kernels <= {"kernels"}


@pytest.mark.slow
def test_a_gain_at_the_papers_own_steps_is_told_with_what_is_left_of_it(tmp_path):
    """In every reading of these steps; a method that gains in one loses in another."""
    study = prepare("momentum", "full", tmp_path, tmp_path / "records")
    gains = {"fedsvrpg-m beta=0.5": 9.0, "fedsvrpg-m beta=0.8": 2.0}
    fake(study, "release", lambda cell: 50.0 + 2 * gains.get(cell.labels["learner"], 0.0))
    fake(study, "paper_steps", lambda cell: 50.0 - 20 * (cell.labels["learner"] != "pavg"))
    said = [one for one in statements(study) if "at the paper's own steps, one" in one.claim]
    assert {one.afterwards for one in said} == {True}
    assert {(one.where, one.finding) for one in said} == {
        ("Figure 1", f"{name}, own steps") for name in METHODS.values()
    }
    released = [one for one in said if one.claim.endswith("(as the authors' release computes)")]
    assert [one.verdict for one in released] == [HOLDS, FAILS]
    assert [one.verdict for one in said if one not in released] == [FAILS] * 4
    assert "; below the margin of 4: β = 0.2, β = 0.8; at the end β = 0.2: " in released[0].found
    assert "β = 0.5: +18.0 ± 0.0" in released[0].found


@pytest.mark.slow
def test_a_gain_over_the_run_is_shown_beside_the_end(tmp_path):
    study = prepare("momentum", "full", tmp_path, tmp_path / "records")
    fake(study, "release", lambda cell: 50.0 + 10 * (cell.labels["learner"] != "pavg"))
    page = Page.of(MOMENTUM, tmp_path / "page.md", published=False)
    table = Analysis(study, page).comparisons.paper_steps["rows"]
    assert row(table, "steps")[2:6] == [
        "mean over the run", "against PAvg", "at the end", "against PAvg",
    ]  # fmt: skip
    ours = row(table, "as the release computes | FedHAPG-M β=0.8")
    assert ours[3].startswith("better (+7.5")
    assert ours[5].startswith("better (+10.0")


@pytest.mark.slow
def test_deviations_are_judged_where_both_methods_have_the_same_step(tmp_path, monkeypatch):
    """The same returns everywhere: with tuned steps that differ they are told, and not judged."""
    monkeypatch.setattr(claims, "fair", lambda tuning, part, cells, text: text)
    study = prepare("momentum", "full", tmp_path, tmp_path / "records")
    noise = np.random.default_rng(0).standard_normal(24)
    for part in ("figure1_cartpole", "equal_step", "release"):
        for cell in study.grid.cells[part]:
            narrow = 1.0 if cell.labels["learner"].startswith("fedhapg") else 5.0
            fake_cell(study, cell, 50 + narrow * noise[: len(cell.seeds)])
    said = [one for one in statements(study) if "CartPole: FedHAPG-M has less" in one.claim]
    assert [one.verdict for one in said] == [NOT_JUDGED, HOLDS, HOLDS]
    assert said[0].found.startswith("(β = 0.2: ratio 0.20")
    assert "the two have different steps" in said[0].found
    assert "records `equal_step`" in said[1].claim
    assert len({one.finding for one in said}) == 1


@pytest.mark.slow
def test_the_pages_summary_is_what_the_rows_say(published):
    tuned = [one.verdict for name, one in published.items() if name.startswith("Figure 1: CartPole")
             and "beats PAvg" in name and "own steps" not in name]  # fmt: skip
    assert set(tuned) == {FAILS}
    own = {name: one for name, one in published.items() if "own steps, one for all" in name}
    assert {one.verdict for name, one in own.items() if "release" in name} == {HOLDS}
    assert HOLDS not in {one.verdict for name, one in own.items() if "release" not in name}


@pytest.mark.slow
def test_a_rival_without_its_filter_is_called_so(published):
    assert all("without its filter" in name for name in published if "FedPG-BR" in name)


@pytest.mark.slow
def test_the_speed_up_is_judged_once(published):
    assert len(verdicts_of(published, "linear speed-up")) == 1
    assert "its speed-up in N: Table 1" in next(
        one.found for name, one in published.items() if name.startswith("Theorem 6.5")
    )


@pytest.mark.slow
def test_rules_that_came_after_their_runs_are_marked(published):
    late = [name for name, one in published.items() if one.afterwards]
    assert sum("less variance" in name for name in late) == 4
    assert sum("Corollary 6.6" in name for name in late) == 2
    assert not any(name.startswith("Section 7") for name in late)


@pytest.mark.slow
def test_the_page_says_where_fixed_steps_come_from(tmp_path):
    """CartPole's are those that the tuning found, HalfCheetah's come from an earlier one."""
    study = prepare("momentum", "full", tmp_path, DOCS / "results" / "momentum" / "records")
    write_page(study, tmp_path / "page.md")
    text = " ".join((tmp_path / "page.md").read_text(encoding="utf-8").split())
    cartpole = text.partition("## Figure 1: CartPole")[2].partition("##")[0]
    cheetah = text.partition("## Figure 1: HalfCheetah")[2].partition("##")[0]
    assert "η as its tuning found it" in cartpole
    assert "η by an earlier, smaller tuning" in cheetah
    assert "tuned alike" not in text
    assert (
        "*less variance* (a mean over β, which it had asked for, hid that one β has more; then"
        in text
    )
    assert "0.333 (an end)" in text


@pytest.mark.slow
def test_statements_are_those_of_the_pages_table(tmp_path):
    study = prepare("momentum", "full", tmp_path, tmp_path / "records")
    for part in ("table2", "kernels", "regimes", "speedup", "theorems"):
        fake(study, part, lambda cell: 8.0 - 2 * ("kappa=1.0" in cell.name))
    said = statements(study)
    assert {one.verdict for one in said} <= set(WORDS)
    assert len({(one.where, one.claim) for one in said}) == len(said)
    flat = next(one for one in said if one.claim.startswith("flat in κ, Bern"))
    assert flat.verdict == FAILS
    assert flat.seeds == 1000
    assert flat.records
    places = {one.where for one in said}
    contents = {"Table 1", "Theorem 6.4", "Theorem 6.5", "Corollary 6.6", "Table 2", "Figure 1",
                "Figure 2", "Table 3", "Section 5.1", "Section 7"}  # fmt: skip
    assert places == contents
    write_page(study, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    for one in said:
        assert f"| {one.found} |" in text


# Tuning


@pytest.mark.slow
def test_tuning_settles_the_steps_of_what_follows(tmp_path):
    """η first, then λ with that η, then the rows that are reported; nothing before all is there."""
    study = prepare("momentum", "full", tmp_path, tmp_path / "records")
    pavg = [cell for cell in study.grid.cells["tune_cartpole"] if cell.name.startswith("pavg,")]
    rated = {cell.labels["rate"]: cell for cell in pavg}
    for rate, cell in list(rated.items())[1:]:
        fake_cell(study, cell, np.full(8, 90.0 if rate == "0.016" else 50.0))
    assert Tuning(study).choice("tune_cartpole", "pavg") is None
    assert not tasks(study, ["lambda_cartpole", "best_cartpole"])
    fake_cell(study, rated["0.0005"], np.full(8, 10.0))
    tuning = Tuning(study)
    assert tuning.choice("tune_cartpole", "pavg").steps == {"algorithm.lr": 0.016}
    found = {task.name for task in tasks(study, ["lambda_cartpole", "best_cartpole"])}
    assert found == {"pavg,lambda=0.333", "pavg,lambda=3.0"}
    settled = tuning.settled().grid.cells["lambda_cartpole"]
    longer = {cell.name: cell for cell in settled}
    assert longer["pavg,lambda=3.0"].recipe["algorithm"]["server_lr"] == pytest.approx(0.48)
    fake_cell(study, longer["pavg,lambda=3.0"], np.full(8, 95.0))
    fake_cell(study, longer["pavg,lambda=0.333"], np.full(8, 20.0))
    now = {cell.name: cell for cell in Tuning(study).settled().grid.cells["best_cartpole"]}
    chosen = now["pavg"].recipe["algorithm"]
    assert (chosen["lr"], chosen["server_lr"]) == (0.016, pytest.approx(0.48))
    assert "lr" not in now["scaffold"].recipe["algorithm"]
    assert [task.name for task in tasks(study, ["best_cartpole"])] == ["pavg"]
    other = {c.name: c for c in Tuning(study).settled().grid.cells["unequal_cartpole"]}
    assert other["fednova"].recipe["algorithm"]["lr"] == 0.016  # tuned as PAvg, which it would be


def test_what_is_worth_the_most_comes_first():
    grid = read_grid(MOMENTUM / "grid.toml", "full")
    first = worth(grid, "tuning_halfcheetah", "pavg,rate=0.001-seed10000")
    later = worth(grid, "long_halfcheetah", "pavg-seed3")
    assert first > later > worth(grid, "long_walker2d", "fedhapg-m beta=0.2-seed3") > 0
    assert worth(grid, "table2", "beta=0.1,kappa=0.0") == 0


@pytest.mark.slow
def test_the_theorems_cells_have_the_theorems_parameters(tmp_path):
    study = prepare("momentum", "full", tmp_path, tmp_path / "records")
    cells = {cell.name: cell for cell in Tuning(study).settled().grid.cells["theorems"]}
    one, eight = (cells[f"fedsvrpg-m,N={n},R=6400"].recipe["algorithm"] for n in (1, 8))
    assert one["beta"] / eight["beta"] == pytest.approx(8 ** (-1 / 3), rel=0.02)  # N^{1/3}
    known = measured_constants(cells["fedsvrpg-m,N=1,R=6400"].resolved().world, 8, 20, 0.05)
    for n, chosen in ((1, one), (8, eight)):
        found = known.prescribed(n, 2, 6400)
        assert chosen["server_lr"] == pytest.approx(found.server_lr, rel=0.01)
        assert chosen["lr"] == pytest.approx(found.lr, rel=0.01)
        assert chosen["initial_trajectories"] == found.initial_trajectories


def test_runs_of_their_own_are_read_as_far_as_they_are_whole(tmp_path):
    study = prepare("momentum", "smoke", tmp_path, tmp_path / "records")
    cell = study.grid.cells["long_halfcheetah"][0]
    fake_cell(study, cell, np.array([5.0, 7.0]))
    found = {seed: study.place.store.read(cell.part, f"{cell.name}-seed{seed}", cell.digest(seed))
             for seed in cell.seeds}  # fmt: skip
    half = {**found[1], "rounds": cell.rounds - 1}
    half["metrics"] = {"eval/return": [[0, 1], [1.0, 4.0]]}
    runs = {s: as_run(cell, s, record, tmp_path) for s, record in {0: found[0], 1: half}.items()}
    one = Separate(Trained(cell, runs))
    assert list(one.finals()) == [0]
    assert one.areas() == {0: pytest.approx((3 + 5) / 2)}
    whole = Part(study.grid, study.seeds(), study.runs(), "long_halfcheetah")
    a, b = whole.pair(cell.name, cell.name)
    np.testing.assert_allclose(a, b)
    assert len(a) == 2


@pytest.mark.slow
def test_less_variance_is_judged_by_resampling(tmp_path):
    study = prepare("momentum", "full", tmp_path, tmp_path / "records")
    noise = np.random.default_rng(0).standard_normal(24)
    for cell in study.grid.cells["figure1_cartpole"]:
        narrow = 1.0 if cell.name.startswith("fedhapg") else 5.0
        fake_cell(study, cell, 50 + narrow * noise)
    part = Part(study.grid, study.seeds(), study.runs(), "figure1_cartpole")
    pairs = {"0.2": ("fedhapg-m beta=0.2", "fedsvrpg-m beta=0.2")}
    assert less_variance(part, pairs, 24).startswith("**holds** (β = 0.2: ratio 0.20, 0.20 to 0.20")
    turned = {"0.2": ("fedsvrpg-m beta=0.2", "fedhapg-m beta=0.2")}
    assert less_variance(part, turned, 24).startswith("**does not hold** (β = 0.2: ratio 5.00")


def test_margins_and_seeds_are_those_of_the_rules():
    grid = read_grid(MOMENTUM / "grid.toml", "full")
    seeds = RULES["seeds"]
    for part, count in (("table2", "table2"), ("kernels", "table2"), ("theorems", "theorems"),
                        ("best_cartpole", "cartpole"), ("paper_steps", "cartpole"),
                        ("release", "release"), ("long_halfcheetah", "mujoco"),
                        ("long_walker2d", "mujoco"), ("regimes", "tabular")):  # fmt: skip
        assert all(len(cell.seeds) == seeds[count] for cell in grid.cells[part]), part
    for part, count in (("tune_cartpole", "cartpole"), ("tuning_halfcheetah", "mujoco")):
        assert all(len(cell.seeds) == RULES["tuning"][count] for cell in grid.cells[part]), part
    assert all(cell.rounds == 150 for cell in grid.cells["long_walker2d"])


def test_a_record_says_where_it_comes_from_and_is_small(tmp_path):
    study = prepare("momentum", "full", tmp_path, tmp_path / "records")
    fake(study, "figure1_cartpole", lambda cell: 50.0)
    paths = sorted((tmp_path / "records" / "figure1_cartpole").glob("*.json"))
    assert len(paths) == 7
    cell = study.grid.cells["figure1_cartpole"][0]
    record = Store(tmp_path / "records").read("figure1_cartpole", "pavg", cell.digest(0))
    assert record is not None
    assert record["settings"]["algorithm.lr"] == 0.008
    for key in ("commit", "command", "date", "hardware", "versions", "seconds", "seeds", "rounds"):
        assert key in record
    assert all(path.stat().st_size < 8_000 for path in paths)


def test_records_of_another_setting_are_not_read(tmp_path):
    study = prepare("momentum", "smoke", tmp_path, tmp_path / "records")
    fake(study, "figure2", lambda cell: 50.0)
    other = prepare("momentum", "small", tmp_path, tmp_path / "records")
    assert study.seeds()["figure2"]
    assert not other.seeds()["figure2"]


def test_an_analysis_without_records_has_no_claims(tmp_path):
    study = prepare("momentum", "smoke", tmp_path, tmp_path / "records")
    page = Page.of(MOMENTUM, tmp_path / "page.md", published=False)
    assert Analysis(study, page).claims == {}
