"""The benchmark scripts run and end with their RESULT lines; what they measure is not asserted."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.repository import ROOT

pytestmark = pytest.mark.slow

FOLDER = ROOT / "benchmarks"


def test_our_dqn_is_not_judged_by_fewer_seeds_than_were_said(monkeypatch, capsys):
    """And beside the verdict stands how often the rule would fail what is the same."""
    np = pytest.importorskip("numpy")
    monkeypatch.syspath_prepend(str(FOLDER))
    import dqn_sb3

    def records(scores: list[float]) -> list[dict[str, float]]:
        return [{"score": score, "train_last100": 0.0, "updates": 1.0} for score in scores]

    task, good = dqn_sb3.TASKS["cartpole"], records([500.0] * 10)
    assert dqn_sb3.table("cartpole", task, {"sb3": good[:9], "fedrl": good}) is None
    assert dqn_sb3.table("cartpole", task, {"sb3": good, "fedrl": good}, seeds=30) is None
    assert dqn_sb3.table("cartpole", task, {"fedrl": good}) is None
    assert "no verdict" in capsys.readouterr().out
    assert dqn_sb3.table("cartpole", task, {"sb3": good, "fedrl": good}) is True
    assert "against itself in 0% of cases" in capsys.readouterr().out
    assert dqn_sb3.table("cartpole", task, {"sb3": good, "fedrl": records([400.0] * 10)}) is False
    scattered = np.array([100.0] * 3 + [500.0] * 7)
    assert dqn_sb3.failing(task, scattered) > 0.15
    assert dqn_sb3.failing(task, np.repeat(scattered, 30)) < 0.1


def test_a_time_within_the_clocks_noise_gives_no_rate(monkeypatch, capsys):
    """A token's time is a difference of two calls' times: on a busy machine it may be nothing."""
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(FOLDER))
    from types import SimpleNamespace

    import llm

    told: list[str] = []
    bench = SimpleNamespace(results=SimpleNamespace(add=lambda name, *_: told.append(name)))
    llm.Bench.tell_bound(bench, "decode_4", 0.0, 1.0, 1.0, 1.0, 1.0)
    assert told == []
    assert "noise" in capsys.readouterr().out
    llm.Bench.tell_bound(bench, "decode_4", 0.5, 1.0, 1.0, 1.0, 1.0)
    assert told


@pytest.mark.parametrize(
    "words",
    [
        ("rounds.py",),
        ("mujoco_worlds.py",),
        ("momentum.py", "tabular"),
        ("momentum.py", "growth"),
        ("gym.py", "household"),
        ("gym.py", "webshop"),
        ("gym.py", "million", "partition"),
        ("llm.py",),
        ("discrete_worlds.py",),
        ("gymnasium_worlds.py",),
        ("fedqhd.py",),
        ("dqn_sb3.py", "fedrl"),
        ("fedrlhf.py",),
        ("asynchrony.py",),
        ("secure.py", "sum"),
        ("precision.py", "fedrlhf/movielens"),
        pytest.param(("flower.py",), marks=pytest.mark.machines),
        pytest.param(("secure.py", "flower"), marks=pytest.mark.machines),
        pytest.param(("waiting.py", "idle"), marks=pytest.mark.machines),
        pytest.param(("load.py",), marks=pytest.mark.machines),
    ],
    ids=" ".join,
)
def test_quick_benchmarks(tmp_path, words):
    command = [sys.executable, str(FOLDER / words[0]), *words[1:], "--quick", "--json", "out.json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    names = [x.split()[1] for x in done.stdout.splitlines() if x.startswith("RESULT")]
    assert names
    assert names == list(json.loads((tmp_path / "out.json").read_text())["results"])
