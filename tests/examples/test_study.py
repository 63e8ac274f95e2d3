"""The examples' study: what is chosen and reported, and that READMEs say what the records say."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra llm")

from examples.study import tables
from examples.study.studies import EXAMPLES, SEEDS, STUDIES, TUNING, Cell, cells, chosen, reported
from reproductions.records import Store

pytestmark = pytest.mark.slow

RECORDS = EXAMPLES / "records"


def record(folder: Path, cell: Cell, before: float, after: float) -> None:
    curve = {"eval/success": [[0, 24], [before, after]], "env/episodes": [[24], [6144]]}
    told = {"commit": "abc", "hardware": {"cpu": "one", "cores": 2}, "failures": 0, "seconds": 90}
    data = {"settings": cell.settings(), "metrics": curve, **told}
    Store(folder).write(cell.study, cell.name, cell.digest, data)


def test_a_rate_is_chosen_once_all_were_run_on_other_seeds(tmp_path: Path):
    rates = STUDIES["sort_digits"].rates
    ends = {rate: 0.7 if rate == rates[1] else 0.1 + 0.05 * at for at, rate in enumerate(rates)}
    todo = [cell for cell in cells("sort_digits", tmp_path) if cell.method == "local"]
    assert [(c.rate, c.seed) for c in todo] == [(r, s) for r in rates for s in TUNING]
    for cell in todo:
        assert chosen("sort_digits", "local", tmp_path) is None
        assert reported("sort_digits", "local", tmp_path) == []
        record(tmp_path, cell, 0.3, ends[cell.rate] + (0.15 if cell.seed == TUNING[1] else 0))
    assert chosen("sort_digits", "local", tmp_path) == rates[1]
    assert not set(TUNING) & set(SEEDS)
    assert {c.seed for c in reported("sort_digits", "local", tmp_path)} == set(SEEDS)
    assert chosen("sort_digits", "federated", tmp_path) is None


def test_a_row_has_the_paired_gain_with_its_interval(tmp_path: Path):
    assert tables.row("prices", "federated", tmp_path)[1:] == ["not measured"] * 7
    pairs = ((0.20, 0.70), (0.30, 0.90), (0.25, 0.75))
    for seed, pair in zip(SEEDS, pairs):
        record(tmp_path, Cell("prices", "federated", seed), *pair)
    row = tables.row("prices", "federated", tmp_path)
    assert row[1:4] == ["20 → 70%", "30 → 90%", "25 → 75%"]
    gains = np.array([50.0, 60.0, 50.0])
    half = 4.302653 * gains.std(ddof=1) / np.sqrt(3)  # Student's t with two degrees of freedom
    assert row[4] == f"**+{gains.mean():.1f} ± {half:.1f}**"
    assert row[5:] == ["6,144", "0.001", "1.5"]


def test_other_settings_have_another_record(tmp_path: Path):
    cells = [Cell("sort_digits", method, 0, rate) for method in ("federated", "local")
             for rate in (1e-3, 2e-3)] + [Cell("sort_digits", "local", 1, 2e-3)]  # fmt: skip
    assert len({cell.digest for cell in cells}) == len(cells)


def test_readmes_say_what_the_records_say(tmp_path: Path):
    for folder in {study.folder for study in STUDIES.values()}:
        (tmp_path / folder).mkdir()
        shutil.copy(EXAMPLES / folder / "README.md", tmp_path / folder)
    tables.write(RECORDS, tmp_path)
    for folder in {study.folder for study in STUDIES.values()}:
        ours = (EXAMPLES / folder / "README.md").read_text(encoding="utf-8")
        assert (tmp_path / folder / "README.md").read_text(encoding="utf-8") == ours
