"""What tests with machines compare disturbed runs with: a run made again from its record alone."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("jax", reason="needs the extra classic")

from support.flower_runs import MOMENTUM, one_by_one, records, same_numbers, what_the_record_tells

pytestmark = pytest.mark.slow


def test_a_run_is_made_again_from_its_record(tmp_path: Path):
    faults = ("--faults.clients", "1", "--faults.kind", "nan", "--faults.rate", "0.5")
    run = one_by_one(MOMENTUM, tmp_path / "a", *faults)
    assert {record["status"] for record in records(run)} == {"ok", "failed"}
    same_numbers(run, what_the_record_tells(run, MOMENTUM, tmp_path / "b"))
