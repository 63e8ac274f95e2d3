"""The momentum page: verdicts as they say, published numbers kept, the constants of the theory."""

from __future__ import annotations

import math
import tomllib

import numpy as np
import pytest

pytest.importorskip("jax", reason="the momentum methods need jax")

from support.result_pages import row

from reproductions.grid import SCALES, read_grid
from reproductions.momentum.analysis import Analysis, best
from reproductions.momentum.theory import Constants
from reproductions.pages import MARK, Page
from reproductions.records import Store, of_seeds
from reproductions.study import FOLDER, prepare, wanted, write_page
from reproductions.verdicts import number, slope, verdict

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


def test_slope_of_a_power_law():
    x = np.array([1.0, 2, 4, 8])
    assert slope(x, 3 / x) == pytest.approx(-1)


@pytest.mark.parametrize("scale", SCALES)
def test_cells_of_a_scale_have_names_and_settings_of_their_own(scale):
    for part, cells in read_grid(MOMENTUM / "grid.toml", scale).cells.items():
        assert len({cell.name for cell in cells}) == len(cells), part
        assert len({cell.digest(0) for cell in cells}) == len(cells), part


def test_tuning_prefers_the_best_and_never_a_diverged_run():
    assert best({"0.1": float("nan"), "0.2": 3.0, "0.3": 5.0, "0.4": float("nan")}) == "0.3"


def test_figures_use_the_step_sizes_that_the_published_tuning_chose():
    grid = read_grid(MOMENTUM / "grid.toml", "full")
    said = tomllib.loads((MOMENTUM / "published.toml").read_text(encoding="utf-8"))["tables"]
    assert len(said["tuning"]) == 21
    for task, learner, scores in said["tuning"]:
        by_rate = dict(pair.split(": ") for pair in scores.split(", "))
        chosen = best({rate: float(score) for rate, score in by_rate.items()})
        cells = {cell.name.replace("beta=", "β="): cell for cell in grid.cells[f"figure1_{task}"]}
        assert cells[learner].recipe["algorithm"]["lr"] == float(chosen)


def test_tuning_seeds_are_reported_nowhere():
    for part, cells in read_grid(MOMENTUM / "grid.toml", "full").cells.items():
        assert (min(cells[0].seeds) >= 10_000) == part.startswith("tune_")


def test_parts_are_asked_for_by_their_names_or_their_tasks():
    grid = read_grid(MOMENTUM / "grid.toml", "smoke")
    assert wanted(grid, ("table2",)) == ["table2"]
    assert wanted(grid, ("cartpole",)) == ["tune_cartpole", "figure1_cartpole"]
    assert wanted(grid, ()) == list(grid.cells)


# A page of records that never were


def fake(study, part: str, level) -> None:
    """Records of a part whose returns go from 1 to `level(cell)`, a little by seed."""
    for cell in study.grid.cells[part]:
        at = np.arange(3)
        ends = level(cell) + 0.1 * np.arange(len(cell.seeds))
        returns = 1 + (ends[:, None] - 1) * at / 2
        weights = np.full((len(cell.seeds), 2), 0.5)
        curves = {"eval/return": returns, "eval/grad_norm_sq": returns, "env/steps": returns,
                  "eval/direction_error": returns, "train/weight_mean": weights,
                  "train/weight_clipped": weights, "train/weight_var": weights}  # fmt: skip
        rounds = {name: at if values.shape[1] == 3 else at[1:] for name, values in curves.items()}
        record = of_seeds(cell, curves, rounds, 2.0)
        study.place.store.write(part, cell.name, cell.digest(0), record)


def test_the_page_says_what_the_records_say(tmp_path):
    study = prepare("momentum", "smoke", tmp_path, tmp_path / "records")
    fake(study, "table2", lambda cell: 8.0 if "beta=0.2" in cell.name else 7.0)
    fake(study, "figure1_cartpole", lambda cell: {"pavg": 50.0}.get(cell.name, 40.0))
    page = tmp_path / "page.md"
    write_page(study, page)
    text = page.read_text(encoding="utf-8")
    assert "| Table 2: a small β beats β = 1 | **holds** at the paper's settings" in text
    assert "β = 0.2 is 1.00 above β = 1 on average" in text
    assert "**holds**: the largest move of a row away from κ = 0 is 0.000" in text
    learner = row(text, "fedsvrpg-m β=0.2")
    assert learner[5] == "worse (-10.0 ± 0.0)"
    assert learner[7:9] == ["0.50", "50%"]
    assert "## Figure 2: the number of agents\n\nNot measured at this scale yet." in text
    assert (tmp_path / "page" / "table2.png").is_file()
    assert MARK not in text
    assert "- figure2: 4 of 4 records are missing" in text


def test_every_part_has_a_section_and_every_figure_is_drawn(tmp_path):
    study = prepare("momentum", "smoke", tmp_path, tmp_path / "records")
    for part in study.grid.cells:
        fake(study, part, lambda cell: 5.0)
    write_page(study, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "Not measured" not in text
    drawn = {path.stem for path in (tmp_path / "page").glob("*.png")}
    assert drawn == {"table2", "speedup", "equal_step", "figure2", "figure1_cartpole",
                     "figure1_halfcheetah", "figure1_walker2d"}  # fmt: skip
    assert "records are missing" not in text


def test_what_was_published_before_records_stands_in_for_what_has_none(tmp_path):
    """No number of the earlier page is lost, and each is marked; a record replaces it."""
    study = prepare("momentum", "full", tmp_path, tmp_path / "records")
    page = tmp_path / "page.md"
    write_page(study, page, published=True)
    text = page.read_text(encoding="utf-8")
    said = tomllib.loads((MOMENTUM / "published.toml").read_text(encoding="utf-8"))
    for rows in said["tables"].values():
        for cells in rows:
            for cell in cells[2:]:
                assert f"| {cell} " in text
    assert row(text, "β = 0.1")[1] == f"7.958 ± 0.044 (8.013 ✓) {MARK}"
    assert "29 of 30 agree†" in text
    fake(study, "equal_step", lambda cell: 50.0)
    write_page(study, page, published=True)
    replaced = page.read_text(encoding="utf-8").partition("## CartPole at one small step size")[2]
    assert row(replaced, "pavg")[4].startswith("51.2")
    assert MARK not in replaced.partition("## Figure 1")[0]


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
    assert Analysis(study.grid, study.seeds(), page).claims == ""
