"""Runs that take a second, in folders that tests damage: finished, half finished, and another."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedrl.cli import call
from fedrl.runs.progress import Progress

ROUNDS, STOPPED = 6, 3
SMALL = (
    "run", "momentum/random_mdp", "--world.horizon", "5", "--federation.clients", "4",
    "--algorithm.initial_trajectories", "2",
)  # fmt: skip


def make_runs(root: Path) -> dict[str, Path]:
    """A finished run, the same stopped half-way, and one of another seed to take files from."""
    made = {"whole": ("0", ROUNDS), "half": ("0", ROUNDS), "other": ("1", 4)}
    for name, (seed, rounds) in made.items():
        words = [*SMALL, "--rounds", str(rounds), "--seed", seed, "--out", str(root / name)]
        with pytest.MonkeyPatch.context() as patch:
            if name == "half":
                patch.setattr(Progress, "round_done", _stop)
            assert call(words) == (130 if name == "half" else 0)
    return {name: next((root / name).glob("*/*")) for name in made}


def _stop(_: Progress, done) -> None:
    if done.round == STOPPED:
        raise KeyboardInterrupt
