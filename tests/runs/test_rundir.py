"""Run directories: checkpoints come back whole, damage is found out, logs are cut to fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.same_runs import equal

from fedrl.core import tree
from fedrl.core.types import UserError
from fedrl.federation.round_loop import Round, Snapshot
from fedrl.runs import checkpoint
from fedrl.runs.checkpoint import pack
from fedrl.runs.read import load
from fedrl.runs.run_dir import RunDir, read_checkpoint

ARRAYS = hnp.arrays(
    st.sampled_from([np.float32, np.float64, np.int64, np.uint8, np.bool_]),
    hnp.array_shapes(min_dims=0, max_dims=3, max_side=4),
)
LEAVES = ARRAYS | st.integers(-(2**50), 2**50) | st.floats(allow_nan=False) | st.text(max_size=5)
NAMES = st.text("abc_.0", min_size=1, max_size=4)
STATES = st.dictionaries(
    NAMES, LEAVES | st.dictionaries(NAMES, LEAVES, min_size=1, max_size=2), max_size=3
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(STATES, min_size=1, max_size=3), st.dictionaries(st.integers(0, 99), STATES))
def test_a_checkpoint_comes_back_as_it_was(tmp_path_factory, states, clients):
    folder = tmp_path_factory.mktemp("run")
    # A client without a tensor or a scalar has nothing to keep.
    clients = {i: s for i, s in clients.items() if tree.flatten(s)}
    run = RunDir(folder)
    (folder / "checkpoints").mkdir()
    run.load()
    before = Snapshot(7, states, clients, {"env/steps": 3.0})
    run.log(Round(7, 7, {}, [], {}))
    run.checkpoint(before)
    run.close()
    after, _ = read_checkpoint(run.checkpoints()[0])
    assert (after.round, after.totals) == (7, {"env/steps": 3.0})
    assert after.clients.keys() == clients.keys()
    for a, b in zip(states, after.states):
        equal(a, b)
    for i, state in clients.items():
        equal(state, after.clients[i])


def written(folder: Path, rounds: int, warn=print) -> RunDir:
    (folder / "checkpoints").mkdir(exist_ok=True)
    run = RunDir(folder, warn=warn)
    run.load()
    for number in range(rounds):
        snapshot = Snapshot(number, [{"x": np.array([float(number)])}])
        clients = [{"round": number, "client": 0, "status": "ok"}]
        run.log(Round(number, 99, {"eval/return": number / 2}, clients, {"all": 0.1}))
        run.checkpoint(snapshot)
    return run


def test_only_the_newest_checkpoints_stay(tmp_path):
    run = written(tmp_path, 6)
    names = [p.name[:12] for p in run.checkpoints()]
    assert names == ["round-000005", "round-000004", "round-000003"]


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(tmp_path, damage):
    written(tmp_path, 5).close()
    newest = RunDir(tmp_path).checkpoints()[0]
    data = bytearray(newest.read_bytes())
    if damage == "truncate":
        data = data[: len(data) // 2]
    elif damage == "flip":
        data[-1] ^= 1
    else:
        data = bytearray()
    newest.write_bytes(data)
    said: list[str] = []
    run = RunDir(tmp_path, warn=said.append)
    snapshot = run.load()
    assert snapshot.round == 3
    assert "round-000004" in said[0]
    assert "damaged" in said[0]
    assert "before it" in said[0]
    rounds = [json.loads(x)["round"] for x in (tmp_path / "metrics.jsonl").open()]
    assert rounds == [0, 1, 2, 3]  # what came after is done again, and logged once


def test_a_torn_log_line_is_cut_off(tmp_path):
    written(tmp_path, 3).close()
    with (tmp_path / "metrics.jsonl").open("a") as log:
        log.write('{"round": 3, "eval/ret')
    with (tmp_path / "clients.jsonl").open("a") as log:
        log.write('{"round": 3, "client": 0, "status": "ok"}\n')
    RunDir(tmp_path).load()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3
    assert len((tmp_path / "clients.jsonl").read_text().splitlines()) == 3


def test_a_half_written_checkpoint_is_not_one(tmp_path):
    run = written(tmp_path, 3)
    (tmp_path / "checkpoints" / ".round-000003.0123456789abcdef.safetensors.part").write_bytes(b"x")
    assert run.load().round == 2


def test_one_process_per_run(tmp_path):
    first = RunDir.create(tmp_path, "toy", 0, "rounds = 1\n")
    with pytest.raises(UserError, match="in use"):
        RunDir.open(first.path)
    first.close()
    RunDir.open(first.path).close()


def test_numbers_that_json_does_not_know_become_null(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    run = RunDir(tmp_path)
    run.load()
    run.log(Round(0, 1, {"a/b": float("inf"), "a/c": np.float32(1.5)}, [], {}))
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert line == {"round": 0, "a/b": None, "a/c": 1.5}


def test_packing_does_not_depend_on_the_order_of_clients():
    """The file's name is its hash: the same state must give the same bytes."""
    state = {"b": np.ones(2), "a": {"y": 1, "x": np.zeros(1)}}
    one, two = {"n": np.array([1.0])}, {"n": np.array([2.0])}
    a = pack(Snapshot(1, [state], {3: one, 8: two}), {})
    b = pack(Snapshot(1, [state], {8: two, 3: one}), {})
    assert a == b


def test_checkpoints_are_ordered_by_number(tmp_path):
    run = RunDir(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    for number in (-1, 999_999, 1_000_000):
        run.checkpoint(Snapshot(number, [{}]))
    assert [p.name.split(".")[0] for p in run.checkpoints()] == [
        "round-1000000", "round-999999", "start"
    ]  # fmt: skip


def test_a_log_shorter_than_the_checkpoint_remembers(tmp_path):
    """It is no damaged checkpoint: the run does not go back for it."""
    written(tmp_path, 5).close()
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:4]))
    with pytest.raises(UserError, match=r"metrics\.jsonl has 132 of the 165 bytes"):
        RunDir(tmp_path).load()
    said: list[str] = []
    run = RunDir(tmp_path, warn=said.append)
    run.recall(without_lost_lines=True)
    assert run.load().round == 4
    assert "metrics.jsonl has 132 of the 165 bytes" in said[0]
    assert not list(tmp_path.rglob("*.damaged"))


@pytest.mark.parametrize("log", ["clients.jsonl", "timings.jsonl"])
def test_a_run_goes_on_without_lines_that_nothing_depends_on(tmp_path, log):
    written(tmp_path, 5).close()
    (tmp_path / log).write_text('{"round": 0}\n{"round": 1, "cli')
    said: list[str] = []
    run = RunDir(tmp_path, warn=said.append)
    assert run.load().round == 4
    assert [line.split()[0] for line in said] == [log]
    run.log(Round(5, 99, {}, [{"round": 5}], {}))
    assert [json.loads(line)["round"] for line in (tmp_path / log).open()] == [0, 5]
    assert (tmp_path / f"{log}.damaged").read_text() == '{"round": 0}\n{"round": 1, "cli'


@pytest.mark.slow
@pytest.mark.parametrize("log", ["metrics.jsonl", "clients.jsonl", "timings.jsonl"])
def test_a_changed_bit_in_a_log_is_found_out(tmp_path, log):
    written(tmp_path, 5).close()
    data = bytearray((tmp_path / log).read_bytes())
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        (tmp_path / log).write_bytes(data)
        run = RunDir(tmp_path)
        if log == "metrics.jsonl":
            with pytest.raises(UserError, match="has other bytes than those"):
                run.recall()
        else:
            assert [name for name, _ in run.recall().lost] == [log]
        data[bit // 8] ^= 1 << bit % 8


def test_nothing_is_thrown_away_when_every_checkpoint_is_damaged(tmp_path):
    written(tmp_path, 5).close()
    for path in RunDir(tmp_path).checkpoints():
        path.write_bytes(b"x")
    for _ in range(2):  # the second time it started over
        with pytest.raises(UserError, match="no checkpoint of its rounds that can be read"):
            RunDir(tmp_path, warn=lambda line: None).load()
        assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 5
        assert len(RunDir(tmp_path).checkpoints()) == 3


def test_a_full_disk_is_a_sentence(tmp_path, monkeypatch):
    run = written(tmp_path, 2)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_atomically", full)
    with pytest.raises(UserError, match="No space left on device"):
        run.checkpoint(Snapshot(2, [{}]))
    monkeypatch.undo()
    assert RunDir(tmp_path).load().round == 1


def test_cpu_seconds_stand_beside_the_clocks_and_are_not_added_to_them(tmp_path):
    run = written(tmp_path, 1)
    run.log(Round(1, 99, {"eval/return": 1.0}, [], {"clients": 2.0}, {"clients": 1.5}))
    line = json.loads((tmp_path / "timings.jsonl").read_text().splitlines()[-1])
    assert line == {"round": 1, "clients": 2.0, "cpu": {"clients": 1.5}}
    (tmp_path / "config.toml").write_text("")
    assert load(tmp_path).seconds == pytest.approx(2.1)
