"""An audit log: what is done to it shows, refusals do not fill it, words tell all of it."""

from __future__ import annotations

import json
import threading
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

import fedrl
from fedrl.cli import call
from fedrl.core.chained_lines import Tail
from fedrl.core.private_files import StateError
from fedrl.engines.flower import audit_log, audit_story
from fedrl.engines.flower.audit_log import AuditLog


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    found = AuditLog(tmp_path)
    for number in range(6):
        found.add("update", run="run", recipe="r" * 64, round=number, attempt=0, sent=10)
    return found


def lines_of(log: AuditLog) -> list[bytes]:
    return (log.folder / "audit.jsonl").read_bytes().splitlines(keepends=True)


def put(log: AuditLog, lines: list[bytes]) -> list[str]:
    """What is found of such a log; nothing may be added to it then."""
    (log.folder / "audit.jsonl").write_bytes(b"".join(lines))
    _, damage, _ = audit_log.read(log.folder)
    if damage:
        for one in (log, AuditLog(log.folder)):
            for _ in range(2):
                with pytest.raises(StateError, match="its audit log is damaged: "):
                    one.add("update")
    return [audit_log.in_words(one) for one in damage]


def test_entries_have_numbers_and_times_and_are_private(log: AuditLog):
    entries, damage, head = audit_log.read(log.folder)
    assert [entry["n"] for entry in entries] == list(range(7))
    assert entries[0]["event"] == "begin"
    assert all(entry["time"].endswith("Z") for entry in entries)
    assert damage == []
    assert audit_log.holds(log.folder, head)
    assert all(path.stat().st_mode & 0o077 == 0 for path in log.folder.iterdir())


def test_no_two_logs_begin_alike(tmp_path: Path):
    """Who is told a hash of a log must not be able to try out what it is of."""
    for name in "ab":
        (tmp_path / name).mkdir()
        AuditLog(tmp_path / name).add("x")
    one, other = (audit_log.read(tmp_path / name)[0][0]["log"] for name in "ab")
    assert one != other


def test_a_changed_entry(log: AuditLog):
    lines = lines_of(log)
    lines[3] = lines[3].replace(b'"round": 2', b'"round": 9')
    assert put(log, lines) == [
        "line 4 does not follow from those before it: changed, removed, added or moved"
    ]


def test_a_changed_entry_with_its_hash_made_anew(log: AuditLog):
    """The next one no longer follows from it."""
    entries, _, _ = audit_log.read(log.folder)
    other = AuditLog(log.folder / "other")
    (log.folder / "other").mkdir()
    lines = lines_of(log)
    tail = Tail()
    for entry in [*entries[:3], entries[3] | {"round": 9}]:
        other._lines.append(entry, tail)
    lines[3] = lines_of(other)[3]
    assert [line.split(" does")[0] for line in put(log, lines)] == ["line 5"]


def test_an_entry_that_is_no_more_what_was_written(log: AuditLog):
    lines = lines_of(log)
    assert put(log, [*lines[:2], b"\0" * 80 + b"\n", *lines[3:]])[0] == (
        "line 3 is not as it was written"
    )
    assert put(log, [*lines[:2], lines[2].replace(b": ", b":"), *lines[3:]]) == [
        "line 3 is not as it was written"
    ]


def test_removed_entries(log: AuditLog):
    lines = lines_of(log)
    assert put(log, lines[:2] + lines[3:])[0] == "line 3 entry 2 is missing before it"
    assert put(log, lines[:2] + lines[5:])[0] == "line 3 entries 2 to 4 are missing before it"
    assert "line 1 entry 0 is missing before it" in put(log, lines[1:])


def test_a_truncated_log(log: AuditLog):
    lines = lines_of(log)
    assert put(log, lines[:-2]) == ["2 lines are missing at the end"]
    assert put(log, []) == ["7 lines are missing at the end"]


def test_moved_and_repeated_entries(log: AuditLog):
    lines = lines_of(log)
    moved = put(log, [*lines[:2], lines[3], lines[2], *lines[4:]])
    assert moved[:2] == [
        "line 3 entry 2 is missing before it",
        "line 4 has the number 2: moved, or put in again",
    ]
    assert "line 4 has the number 2: moved, or put in again" in put(log, [*lines[:3], *lines[2:]])


def test_what_a_kill_left_is_gone_with_the_next_entry(log: AuditLog):
    whole = lines_of(log)
    (log.folder / "audit.jsonl").write_bytes(b"".join(whole) + b'{"n": 7, "ti')
    assert audit_log.read(log.folder)[1] == []
    AuditLog(log.folder).add("start")
    assert lines_of(log)[:7] == whole
    assert json.loads(lines_of(log)[7])["event"] == "start"


def test_several_processes_and_threads_write_one_log(log: AuditLog):
    """`fedrl flower approve` does while the node runs; the file's lock keeps all apart."""
    gate = threading.Barrier(4)

    def write(name: int) -> None:
        gate.wait()
        own = log if name == 0 else AuditLog(log.folder)
        for number in range(5):
            own.add("x", writer=name, number=number)

    with ThreadPool(4) as pool:
        pool.map(write, range(4), 1)
    entries, damage, _ = audit_log.read(log.folder)
    assert damage == []
    for writer in range(4):
        assert [e["number"] for e in entries if e.get("writer") == writer] == list(range(5))


def test_refusals_do_not_fill_the_disk(log: AuditLog, monkeypatch: pytest.MonkeyPatch):
    now = 1000.0
    monkeypatch.setattr(audit_log.time, "monotonic", lambda: now)
    for number in range(audit_log.REFUSALS + 500):
        log.refuse("refused", reason=f"{number}")
    entries, _, _ = audit_log.read(log.folder)
    assert sum(entry["event"] == "refused" for entry in entries) == audit_log.REFUSALS
    now += 61
    log.refuse("refused", reason="later")
    last = audit_log.read(log.folder)[0][-1]
    assert (last["reason"], last["untold"]) == ("later", 500)


def test_the_largest_number_of_a_key(log: AuditLog):
    assert log.highest("charges") == 0
    for number in (1, 2, 7, 3):
        log.add("update", charges=number)
    assert AuditLog(log.folder).highest("charges") == 7


def test_a_damaged_log_is_not_gone_on_with(log: AuditLog):
    put(log, lines_of(log)[:-1])
    with pytest.raises(StateError):
        AuditLog(log.folder).highest("charges")


# In words -----------------------------------------------------------------------------------------


def test_the_command_verifies_and_tells(log: AuditLog, capsys: pytest.CaptureFixture[str]):
    log.add("refused", run="a\nb", recipe="r" * 64, reason="\x1b[2J no")
    assert call(["flower", "audit", str(log.folder)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 9
    assert "sent an update of 10 bytes: run run, recipe rrrrrrrrrrrrrrrr, round 5" in told[6]
    assert all(line.isprintable() for line in told)
    head = fedrl.flower.audit(log.folder).head
    assert told[-1] == f"whole: {head}"
    assert call(["flower", "audit", str(log.folder), "--head", head, "--last", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert call(["flower", "audit", str(log.folder), "--head", f"3:{'0' * 64}"]) == 1
    assert "written anew" in capsys.readouterr().out
    lines = lines_of(log)
    put(log, [*lines[:3], lines[3].replace(b"10", b"11"), *lines[4:]])
    assert call(["flower", "audit", str(log.folder)]) == 1
    assert "DAMAGED: line 4 does not follow" in capsys.readouterr().out
    assert call(["flower", "audit", str(log.folder), "--json"]) == 1
    rows = capsys.readouterr().out.splitlines()
    assert json.loads(rows[3])["sent"] == 11


def test_a_folder_without_a_log_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert call(["flower", "audit", str(tmp_path)]) != 0
    assert "has no audit log" in capsys.readouterr().err


ROUND = {"run": "a", "recipe": "r", "attempt": 0}


def test_two_logs_that_tell_the_same_and_where_they_do_not():
    hub = [
        {"event": "round", "round": 1, "answered": [0, 1], "failed": {}, **ROUND},
        {"event": "round", "round": 2, "answered": [1], "failed": {"0": "no (secure)"}, **ROUND},
        {"event": "round", "round": 3, "answered": [], **ROUND,
         "failed": {"0": "no answer within the deadline of 3 s"}},
    ]  # fmt: skip
    node = [
        {"event": "start", "client": 0},
        {"event": "update", "round": 1, **ROUND},
        {"event": "refused", "round": 2, "reason": "no (secure)", **ROUND},
        {"event": "update", "round": 3, **ROUND},  # came too late
    ]
    assert audit_story.differences(hub, node, 0) == []
    assert audit_story.differences(hub, node[:1] + node[2:], 0) == [
        "run a, round 1, attempt 1: the coordinator has an answer, the node gave none"
    ]
    (line,) = audit_story.differences(hub, node[:2] + node[3:], 0)
    assert "round 2, attempt 1: the coordinator has a refusal, the node none: no (secure)" in line
    more = [*node, {"event": "masked", "round": 4, **ROUND}]
    missing = "run a, round 4, attempt 1: the node gave an answer, the coordinator's log has none"
    stopped = [f"{missing} (by it, the run was stopped in this round)"]
    assert audit_story.differences(hub, more, 0) == stopped
    assert audit_story.differences([*hub, {"event": "ended", **ROUND}], more, 0) == stopped
    completed = {"event": "ended", "completed": True, **ROUND}
    assert audit_story.differences([*hub, completed], more, 0) == [missing]


def test_every_event_has_words():
    """Of both sides, from the pages of the modules that write them."""
    from fedrl.engines.flower import coordinator_audit, node_audit

    for module in (node_audit, coordinator_audit):
        names = [
            name.strip()
            for line in str(module.__doc__).splitlines()
            if line.startswith("    ")
            for name in line.strip().split("  ")[0].split(",")
        ]
        assert len(names) >= 8
        for name in names:
            entry = {"event": name, "n": 1, "time": "t", "run": "a", "answered": [1], "failed": {}}
            assert audit_story.sentence(entry).split("  ")[-1] not in ("", name), name


def test_one_client_is_and_several_are():
    ready = {"event": "ready", "run": "r", "recipe": "0" * 64, "failed": {}}
    assert audit_story.sentence(ready | {"answered": [1]}).endswith(": client 1 is ready")
    assert audit_story.sentence(ready | {"answered": [0, 1]}).endswith(": clients 0, 1 are ready")
    assert "said that it is ready: run r" in audit_story.sentence(ready)
