"""A card counts who trained: what is signed of a model must not be the recipe's wish."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedrl.config.loading import resolve
from fedrl.config.schema import Config
from fedrl.runs.model_card_clients import whose


def config(**federation: object) -> Config:
    return resolve({"rounds": 2, "federation": {"clients": 3} | federation})


def logged(folder: Path, *lines: tuple[int, int, str] | tuple[int, int, str, int]) -> Path:
    keys = ("round", "client", "status", "attempt")
    records = [dict(zip(keys, line, strict=False)) for line in lines]
    (folder / "clients.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return folder


def test_who_refused_in_every_round_did_not_train_it(tmp_path: Path):
    path = logged(tmp_path, *((r, c, "failed" if c else "ok") for r in (1, 2) for c in range(3)))
    short, line = whose(path, config(), 2)
    assert short == "1 of 3 clients that were invited"
    assert line == (
        "3 invited, 3 in a round; 1 trained in every round (client 0), 2 trained in none "
        "(clients 1, 2)"
    )


def test_all_who_were_invited(tmp_path: Path):
    path = logged(tmp_path, *((r, c, "ok") for r in (1, 2) for c in range(3)))
    assert whose(path, config(), 2) == (
        "3 clients", "3 invited, 3 in a round; 3 trained in every round"
    )  # fmt: skip


def test_rounds_after_the_models_and_attempts_that_failed_do_not_count(tmp_path: Path):
    first = [(1, 0, "ok"), (1, 1, "failed"), (1, 2, "failed")]  # less than the quorum
    again = [(1, 0, "failed", 2), (1, 1, "ok", 2), (1, 2, "ok", 2)]
    path = logged(tmp_path, *first, *again, (2, 0, "ok"))
    assert whose(path, config(), 1)[0] == "2 of 3 clients that were invited"
    _, line = whose(path, config(), 2)
    assert line.endswith("3 trained in some rounds (clients 0, 1, 2)")


def test_of_cohorts_answers_are_counted(tmp_path: Path):
    path = logged(tmp_path, (1, 0, "ok"), (1, 2, "failed"), (2, 0, "ok"), (2, 1, "ok"))
    short, line = whose(path, config(cohort=2), 2)
    assert short == "2 of 3 clients that were invited"
    assert line.endswith("2 in a round; 2 trained; 1 of 4 answers did not come, or not count")


def test_cohorts_that_are_a_secret_stay_one(tmp_path: Path):
    pytest.importorskip("dp_accounting", reason="ε needs the extra privacy")
    path = logged(tmp_path, (1, 0, "ok"), (1, 2, "failed"))
    private = {"clip": 1.0, "noise": 1.0}
    made = resolve(
        {"rounds": 2, "federation": {"clients": 3, "cohort": 2}, "privacy": private}
    )  # fmt: skip
    short, line = whose(path, made, 2)
    assert (short, "secret" in line) == ("3 clients", True)
    assert "1 of" not in line
