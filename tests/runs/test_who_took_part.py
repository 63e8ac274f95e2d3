"""A run that finishes says who was not in it."""

from __future__ import annotations

import json
from pathlib import Path

import fedrl
from fedrl.runs.absent_clients import MOST_LINES, absent_clients


def logged(folder: Path, *lines: tuple[object, ...]) -> Path:
    """Round, client, why it failed and the attempt."""
    keys = ("round", "client", "reason", "attempt")
    records = [dict(zip(keys, line, strict=False)) for line in lines]
    told = [r | {"status": "failed" if r["reason"] else "ok"} for r in records]
    (folder / "clients.jsonl").write_text("".join(json.dumps(r) + "\n" for r in told))
    return folder


class Named:
    def label(self, client: int) -> str:
        return {1: "client 1 (south)"}.get(client, f"client {client}")


def test_who_gave_nothing_comes_first_and_each_has_the_last_reason(tmp_path: Path):
    first = [(1, 0, ""), (1, 1, "refused"), (1, 2, "")]
    second = [(2, 0, ""), (2, 1, "still refused"), (2, 2, "late")]
    assert absent_clients(logged(tmp_path, *first, *second), 2, Named()) == [
        "client 1 (south) took part in no round: still refused",
        "client 2 took part in 1 of 2 rounds: late",
    ]
    assert absent_clients(logged(tmp_path, (1, 0, "")), 1) == []


def test_an_attempt_that_was_given_up_is_no_round(tmp_path: Path):
    first, again = [(1, 0, ""), (1, 1, "gone")], [(1, 0, "", 2), (1, 1, "", 2)]
    assert absent_clients(logged(tmp_path, *first, *again), 1) == []


def test_many_are_counted(tmp_path: Path):
    all_away = logged(tmp_path, *((1, client, "away") for client in range(MOST_LINES + 5)))
    lines = absent_clients(all_away, 1)
    assert len(lines) == MOST_LINES + 1
    assert lines[-1] == "5 more clients missed rounds (clients.jsonl)"


def test_a_run_ends_with_it(tmp_path: Path, capfd):
    done = fedrl.run(
        {
            "rounds": 2, "federation": {"clients": 3, "retries": 0},
            "world": {"name": "random_mdp", "horizon": 5},
            "algorithm": {"name": "pavg", "local_steps": 1},
            "faults": {"clients": [1], "kind": "raise"},
        },
        out=tmp_path, progress=True,
    )  # fmt: skip
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("client 1 took part in no round: ")
    assert last in (done.path / "log.txt").read_text()
