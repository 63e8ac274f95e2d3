"""A run says who is not in it: why when it first happens, and who it was when it finishes."""

from __future__ import annotations

import json
from pathlib import Path

import fedrl
from fedrl.federation.round_loop import Round
from fedrl.runs import failed_clients
from fedrl.runs.absent_clients import MOST_LINES, absent_clients
from fedrl.runs.error_log import ErrorLog
from fedrl.runs.failed_clients import FailureReasons


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


def test_clients_of_a_simulation_have_the_names_of_their_folders(tmp_path: Path):
    names, said = ["north", "south", "2"], list[str]()
    FailureReasons(said.append, names=names)(failures(1, "", "late", "late"))
    assert said == ["round 1: client 1 (south), client 2 gave no update: late"]
    away = logged(tmp_path, (1, 0, ""), (1, 1, "late"))
    assert absent_clients(away, 1, names=names) == ["client 1 (south) took part in no round: late"]
    assert absent_clients(away, 1, Named(), ["x", "y"])[0].startswith("client 1 (south)")
    shown: list[str] = []
    ErrorLog(said.append, shown.append, names).failed(1, "Traceback\nValueError")
    assert said[-1].startswith("client 1 (south) failed:")
    assert shown[0].startswith("client 1 (south) failed (log.txt")


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


def test_a_reason_is_said_when_it_first_comes_and_not_at_the_end_only(tmp_path: Path, capfd):
    done = fedrl.run(
        {
            "rounds": 3, "federation": {"clients": 3, "retries": 0},
            "world": {"name": "random_mdp", "horizon": 5},
            "algorithm": {"name": "pavg", "local_steps": 1},
            "faults": {"clients": [1], "kind": "raise"},
        },
        out=tmp_path, progress=True,
    )  # fmt: skip
    for place in (capfd.readouterr().err, (done.path / "log.txt").read_text()):
        assert place.count("round 1: client 1 gave no update: ") == 1
        assert place.count("gave no update") == 1
        assert place.index("gave no update") < place.index("round 3/3")


def failures(round: int, *reasons: str) -> Round:
    """Of clients 0, 1, …; an empty reason for one that did its part."""
    told = [
        {"client": client, "status": "failed" if reason else "ok", "reason": reason}
        for client, reason in enumerate(reasons)
    ]
    return Round(round, 9, {}, told, {})


def test_only_another_reason_is_news():
    said: list[str] = []
    observe = FailureReasons(said.append, Named())
    observe(failures(1, "", "refused", "late by 3.2 s"))
    observe(failures(2, "", "refused", "late by 4 s"))
    assert said == [
        "round 1: client 1 (south) gave no update: refused",
        "round 1: client 2 gave no update: late by 3.2 s",
    ]
    observe(failures(3, "gone", "gone", ""))
    observe(failures(4, "", "refused", ""))  # as before
    assert said[2:] == ["round 3: client 0, client 1 (south) gave no update: gone"]


def test_what_was_said_of_a_given_up_attempt_is_not_said_again():
    said: list[str] = []
    observe = FailureReasons(said.append)
    given_up, kept = failures(1, "gone", "", "late"), failures(1, "gone", "away", "")
    again = [record | {"attempt": 2} for record in kept.clients]
    observe(Round(1, 9, {}, [*given_up.clients, *again], {}))
    assert said == ["round 1: client 1 gave no update: away"]
    observe(failures(2, "gone", "away", "late"))
    assert len(said) == 1


def test_many_that_fail_are_not_a_line_each():
    said: list[str] = []
    observe = FailureReasons(said.append)
    observe(failures(1, *["away"] * (failed_clients.MOST_CLIENTS + 5)))
    assert len(said) == 1
    assert said[0].endswith("client 9 and 5 more gave no update: away")
    for round in range(2, 100):
        observe(failures(round, *[chr(ord("a") + round)] * 2))
    assert len(said) == failed_clients.MOST + 1
    assert said[-1].endswith("more clients fail; clients.jsonl says why")
