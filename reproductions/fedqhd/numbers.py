"""Returns by seed, the paper's own numbers, and the rules by which the two are compared."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np

from fedrl.report import plots
from fedrl.runs.grid import Trained
from fedrl.runs.read import Run
from reproductions.fedagent.numbers import above
from reproductions.markdown import number

BySeed = Mapping[int, float]
Found = Mapping[str, Trained]

RETURN = "train/return_last100"
"""The paper's figure of merit: the last 100 episodes of training, mean over clients."""

TABLE1: Mapping[str, Mapping[str, Sequence[float | None]]] = {
    "independent": {"shared": (26.1, -306.1, -187.3, -200.0), "own": (24.0, -495.4, -174.6, -200)},
    "truncate": {"shared": (230.8, -106.5, 65.0, -148.3), "own": (112.6, -280.8, -24.8, -172.9)},
    "feddqn": {"shared": (120.8, -85.3, 200.9, -167.8), "own": (None, None, None, None)},
    "distill": {"shared": (169.9, -87.5, 122.5, -156.0), "own": (149.4, -89.2, 131.4, -174.3)},
    "fedqhd": {"shared": (466.3, -105.0, 224.1, -143.7), "own": (351.1, -102.5, 101.5, -162.3)},
    "oracle-qhd": {"shared": (373.2, -93.6, 87.6, -141.3), "own": (458.5, -101.2, 232.9, -140.0)},
    "oracle-dqn": {"shared": (139.1, -75.3, 183.5, -125.7), "own": (204.4, -79.8, 202.6, -122.8)},
}
"""Means over the paper's three seeds; columns as in `fedqhd_methods.TASKS`."""
SPREAD: Mapping[str, Sequence[float]] = {
    "shared": (1.1, 17.1, 6.4, 0.0),
    "own": (1.1, 0.4, 5.6, 0.0),
}
"""The standard deviations of its Independent QHD over seeds."""
TABLE2: Mapping[str, Mapping[str, Sequence[float | None]]] = {
    "independent": {"shared": (1.7, 9.6, 2.8, 12.7), "own": (0.1, 5.0, 0.8, 1.4)},
    "truncate": {"shared": (3.5, 5.6, 15.5, 7.6), "own": (0.3, 2.1, 2.9, 1.7)},
    "feddqn": {"shared": (25.9, 22.8, 36.8, 85.6), "own": (None, None, None, None)},
    "distill": {"shared": (12.4, 21.6, 31.3, 28.1), "own": (10.3, 19.7, 35.2, 52.9)},
    "fedqhd": {"shared": (7.8, 5.6, 15.5, 17.2), "own": (1.6, 1.9, 5.9, 1.4)},
    "oracle-qhd": {"shared": (6.1, 4.9, 15.3, 7.7), "own": (6.1, 6.3, 14.8, 8.5)},
    "oracle-dqn": {"shared": (8.9, 15.2, 24.9, 67.8), "own": (64.1, 77.3, 130.4, 101.5)},
}
"""Minutes per run."""
SLOPE = -0.525
GAIN = {"cartpole": 30.6, "lunarlander": 29.5}
"""What N = 20 gains over N = 1 in the paper's Figure 4, in percent."""


def last(one: Trained | None, metric: str = RETURN) -> dict[int, float]:
    """By seed, the metric in the last round, for the runs that reached it."""
    if one is None:
        return {}
    ends = {seed: run.rounds.get(one.cell.rounds, {}) for seed, run in one.runs.items()}
    return {seed: end[metric] for seed, end in ends.items() if metric in end}


def late(one: Trained, metric: str, rounds: int) -> dict[int, float]:
    """By seed, the mean over the last so many rounds that have the metric."""
    done = set(last(one, metric))
    return {
        seed: float(np.mean([m[metric] for m in run.rounds.values() if metric in m][-rounds:]))
        for seed, run in one.runs.items()
        if seed in done
    }


def minutes(one: Trained | None) -> dict[int, float]:
    """By seed, what clients and server took to train, without evaluations and checkpoints."""
    return {} if one is None else {s: training_minutes(one.runs[s]) for s in last(one)}


def training_minutes(run: Run) -> float:
    lines = (run.path / "timings.jsonl").read_text(encoding="utf-8").splitlines()
    timed = [json.loads(line) for line in lines if line.endswith("}")]
    return sum(line.get("broadcast", 0.0) + line.get("clients", 0.0) for line in timed) / 60


def prose(text: str) -> str:
    """Paragraphs in lines of a page's width, however long the numbers in them are."""
    return "\n\n".join(textwrap.fill(" ".join(p.split()), 100) for p in text.split("\n\n"))


def shown(values: BySeed, digits: int = 1) -> str:
    return number(np.array(list(values.values())), digits) if values else "not measured"


def gap(ours: BySeed, base: BySeed) -> tuple[float, float] | None:
    """The mean difference over common seeds and the half width of its interval."""
    seeds = sorted(set(ours) & set(base))
    if not seeds:
        return None
    mean, half = plots.interval(np.array([ours[seed] - base[seed] for seed in seeds]))
    return float(mean), float(half)


def told(difference: tuple[float, float], digits: int = 1) -> str:
    mean, half = difference
    if half != half:
        return f"{mean:+.{digits}f} (one seed)"
    return f"{mean:+.{digits}f} ± {half:.{digits}f}"


def judged(ours: BySeed, base: BySeed) -> str:
    """Whether ours is better, in words and numbers."""
    difference = gap(ours, base)
    if difference is None:
        return "not measured"
    return f"**{above(difference)}** ({told(difference)})"


def reaches(ours: BySeed, paper: float) -> str:
    """The paper's mean against our interval."""
    difference = gap(ours, dict.fromkeys(ours, paper))
    if difference is None:
        return "not measured"
    mean, half = difference
    word = "yes" if mean >= 0 else "within the interval" if mean + half >= 0 else "no"
    return f"**{word}** ({told(difference)})"


def reproduced(ours: BySeed, paper: float, spread: float) -> str:
    """Whether a number of the paper is ours, within its deviation over seeds and our interval."""
    difference = gap(ours, dict.fromkeys(ours, paper))
    if difference is None:
        return "not measured"
    mean, half = difference
    same = abs(mean) <= spread + (half if half == half else 0.0)
    return f"**{'yes' if same else 'no'}** ({told(difference)})"
