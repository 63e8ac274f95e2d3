"""What a client keeps on its own disk, and for how long."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import numpy as np
import pytest

from fedrl.config.loading import resolve, to_toml
from fedrl.core import serialization
from fedrl.core.private_files import StateError, write_private
from fedrl.engines.flower import client_state_store
from fedrl.engines.flower.client_state_store import (
    HISTORY,
    ClientStateStore,
    with_history,
    without_history,
)
from fedrl.privacy.secure_aggregation.protocol import NO_HISTORY


class Runs:
    def __reduce__(self) -> tuple:
        return (pytest.fail, ("a pickle was read",))


def test_a_pickle_is_refused_unread(tmp_path: Path):
    bomb = pickle.dumps(Runs())
    with pytest.raises(serialization.Damaged):
        serialization.unpack(bomb)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tag.safetensors").write_bytes(bomb)
    with pytest.raises(StateError, match="damaged"):
        ClientStateStore(tmp_path).load("run", "tag")


def test_states_are_kept_by_tag_and_old_ones_go(tmp_path: Path):
    states = ClientStateStore(tmp_path)
    for number in range(6):
        states.save("run", f"t{number}", {"x": np.array(number)}, keep=3, used="t0")
    assert {p.stem for p in tmp_path.rglob("*.safetensors")} == {"t0", "t3", "t4", "t5"}
    assert states.load("run", "t4")["x"] == 4
    assert not list(tmp_path.rglob("*.part"))
    with pytest.raises(StateError, match="not on its disk"):
        states.load("run", "t1")


def test_a_coordinator_fills_no_disk_with_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It says how many are kept, and a run of another name has others."""
    monkeypatch.setattr(client_state_store, "MOST_RUNS", 4)
    states = ClientStateStore(tmp_path / "states")
    with pytest.raises(StateError, match="keep 10001 states"):
        states.save("run", "t", {"x": 1}, 10_001, None)
    (tmp_path / "states" / "earlier").mkdir(parents=True)  # of a version without a list of runs
    for number in range(5):
        states.save(f"run-{number}", "t", {"x": 1}, 2, None)
        states.save("served", "t", {"x": 1}, 2, None)
    left = {place.name for place in (tmp_path / "states").iterdir() if place.is_dir()}
    assert left == {"served", "run-2", "run-3", "run-4"}
    assert states.load("served", "t") == {"x": 1}


def test_states_are_private_to_their_owner(tmp_path: Path):
    ClientStateStore(tmp_path).save("run", "t", {"x": 1}, 2, None)
    assert (tmp_path / "run" / "t.safetensors").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["..", "a/b", "../x", "", ".", "a\0", "x" * 101])
def test_states_have_no_names_outside_their_folder(tmp_path: Path, name: str):
    with pytest.raises(StateError):
        ClientStateStore(tmp_path).save(name, "t", {}, 2, None)
    with pytest.raises(StateError):
        ClientStateStore(tmp_path).load("run", name)


def test_a_state_that_rounds_still_start_from_is_kept(tmp_path: Path):
    """A driver that is killed between two checkpoints starts from it again and again."""
    states = ClientStateStore(tmp_path)
    states.save("run", "checkpoint", {"x": 0}, 3, None)
    for attempt in range(10):
        assert states.load("run", "checkpoint") == {"x": 0}
        for number in range(2):  # rounds after the checkpoint, until the next kill
            states.save("run", f"{attempt}-{number}", {"x": 1}, 3, None)
            time.sleep(0.002)


def test_a_history_is_that_of_all_jobs_before():
    state = {"x": 1}
    first = with_history(state, NO_HISTORY, b"a" * 32)
    assert without_history(serialization.unpack(serialization.pack(first)))[0] == state
    told = without_history(first)[1]
    for before, job in ((NO_HISTORY, b"b" * 32), (told, b"a" * 32), (b"b" * 32, b"a" * 32)):
        assert without_history(with_history(state, before, job))[1] != told
    assert without_history(None) == (None, NO_HISTORY)
    assert without_history(state)[1] != without_history(state)[1]  # nobody's
    for damaged in (1, "", "zz" * 32, np.zeros(3)):
        with pytest.raises(StateError, match="damaged"):
            without_history(state | {HISTORY: damaged})


def test_a_state_is_of_the_kind_of_run_that_left_it(tmp_path: Path):
    """Two recipes that are allowed: the plain one must not send what the private one kept."""
    store = ClientStateStore(tmp_path)
    store.save("run", "a", {"x": np.ones(2)}, 2, None, "private")
    assert set(store.load("run", "a", "private")) == {"x"}
    assert set(store.load("run", "a")) == {"x"}  # its owner's own question
    with pytest.raises(StateError, match="is of other settings"):
        store.load("run", "a", "plain")
    write_private(tmp_path / "run" / "b.safetensors", serialization.pack({"x": np.ones(2)}))
    assert set(store.load("run", "b", "plain")) == {"x"}  # of an earlier version


def test_what_a_run_is_of_is_what_it_keeps_when_resumed(tmp_path: Path):
    pytest.importorskip("flwr", reason="needs the extra flower")
    from fedrl.engines.flower import node_recipes

    def origin(**changed: object) -> str:
        tables = {"world": {"name": "random_mdp"}, "algorithm": {"name": "pavg"}, "rounds": 3}
        text = to_toml(resolve(tables | {"engine": "workers"} | changed))
        return node_recipes.plan(text, tmp_path, "", ()).origin

    private = {"clip": 1.0, "noise": 4.0, "where": "local"}
    assert origin() == origin(rounds=9) == origin(flower={"precision": "float16"})
    assert origin(privacy=private) == origin(privacy=private | {"epsilon": 8.0})
    kinds = [origin(), origin(seed=1), origin(privacy=private), origin(privacy={"clip": 1.0}),
             origin(algorithm={"name": "fedsvrpg-m"})]  # fmt: skip
    assert len(set(kinds)) == 5
