"""A node's clock steps to and fro while a driver is killed and resumed: no state is ever missed.

A driver remembers the tags of its checkpoint and goes back to them when it is killed. The search
plays drivers against a node's disk, with any clock and any times of files, and an account of its
own of which states may be asked for.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from fedrl.core.private_files import StateError
from fedrl.engines.flower.client_state_store import ClientStateStore

GAMES = 40


class Clock:
    """The time of day of a machine whose clock nobody keeps; files are stamped with it."""

    def __init__(self, draw: random.Random, folder: Path) -> None:
        self.draw, self.folder, self.now = draw, folder, 1_700_000_000_000_000_000

    def step(self) -> None:
        size = self.draw.choice([1, 10**9, 3600 * 10**9, 30 * 86_400 * 10**9])
        self.now = max(0, self.now + self.draw.choice([-1, -1, 0, 1]) * size)

    def stamp(self, before: set[Path]) -> None:
        for path in set(self.folder.rglob("*.safetensors")) - before:
            os.utime(path, ns=(self.now, self.now))

    def shuffle(self) -> None:
        """As after a backup that was copied back."""
        for path in self.folder.rglob("*.safetensors"):
            moment = self.draw.randrange(2 * 10**18)
            os.utime(path, ns=(moment, moment))


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Power stays on here, and disks are slow."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def play(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    clock = Clock(draw, folder)
    monkeypatch.setattr(time, "time_ns", lambda: clock.now)
    monkeypatch.setattr(time, "time", lambda: clock.now / 1e9)
    every, retries = draw.randint(1, 3), draw.randint(0, 2)
    keep = (every + 1) * (retries + 1) + 1  # what a driver asks for
    checkpoint: str | None = None
    current, since, number = checkpoint, 0, 0
    for _ in range(40):
        clock.step()
        if draw.random() < 0.05:
            clock.shuffle()
        if draw.random() < 0.25:  # the driver is killed, and goes on from its checkpoint
            current, since = checkpoint, 0
        states = ClientStateStore(folder)  # the node is restarted between any two jobs
        for attempt in range(draw.randint(1, retries + 1)):
            if current is not None:
                assert int(states.load("run", current)["x"]) == int(current.split("-")[0])
            number += 1
            tag = f"{number}-{attempt}"
            before = set(folder.rglob("*.safetensors"))
            states.save("run", tag, {"x": np.array(number)}, keep, current)
            clock.stamp(before)
        current, since = tag, since + 1
        if since == every:
            checkpoint, since = current, 0
        assert len(list(folder.rglob("*.safetensors"))) <= keep + 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(GAMES))
def test_no_clock_loses_a_state_that_a_driver_needs(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    play(seed, tmp_path, monkeypatch)


@pytest.mark.parametrize("step", [-86_400, 86_400])
def test_a_clock_that_steps_once(step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The checkpoint's state was written before the clock was set; then come more rounds."""
    states = ClientStateStore(tmp_path)
    now = time.time_ns()
    for number in range(8):
        states.save("run", f"t{number}", {"x": np.array(number)}, 3, f"t{number - 1}")
        moment = now + number + (step * 10**9 if number > 3 else 0)
        os.utime(tmp_path / "run" / f"t{number}.safetensors", ns=(moment, moment))
    assert [int(states.load("run", f"t{number}")["x"]) for number in (5, 6, 7)] == [5, 6, 7]


def test_without_its_list_a_folder_loses_nothing_that_may_be_needed(tmp_path: Path):
    """Of a version before, or damaged: all is kept until enough newer states are there."""
    states = ClientStateStore(tmp_path)
    for number in range(4):
        states.save("run", f"old{number}", {"x": np.array(number)}, 4, None)
    for damage in (b"\xff\xfe\x00", b"old9\n\n../../x\n", b""):
        (tmp_path / "run" / "order.txt").write_bytes(damage)
        states.save("run", "new", {"x": np.array(9)}, 4, None)
        assert [int(states.load("run", f"old{number}")["x"]) for number in range(4)] == [0, 1, 2, 3]
    (tmp_path / "run" / "order.txt").unlink()
    for number in range(4):
        states.save("run", f"new{number}", {"x": np.array(number)}, 4, None)
    with pytest.raises(StateError, match="not on its disk"):
        states.load("run", "old0")
