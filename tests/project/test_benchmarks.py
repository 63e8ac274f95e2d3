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


def test_forced_answers_have_the_stated_lengths(monkeypatch):
    """Geometric and cut, by the answer's seed; episodes uniform, by their number."""
    np = pytest.importorskip("numpy")
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(FOLDER))
    from language.forced import Lengths

    lengths = Lengths(mean=100, most=512, steps=(5, 50))
    said = np.array([lengths.tokens(seed) for seed in range(20_000)])
    assert said.min() == 1
    assert said.max() == 512
    assert abs(said.mean() - lengths.mean_tokens()) < 4 * said.std() / len(said) ** 0.5
    for n in (1, 30, 200, 511):
        share = 0.99**n
        assert abs((said > n).mean() - share) < 4 * (share * (1 - share) / len(said)) ** 0.5
    steps = np.array([lengths.episode(number) for number in range(20_000)])
    counts = np.bincount(steps, minlength=51)[5:]
    assert counts.sum() == len(steps)
    assert ((counts - len(steps) / 46) ** 2).sum() / (len(steps) / 46) < 87  # χ² of 45, 0.9998


def test_forced_lengths_do_not_depend_on_who_is_done_when(monkeypatch):
    """Few rows at a time or all, asked in either order: each answer is as long as its seed says."""
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(FOLDER))
    from types import SimpleNamespace

    import torch
    from language.forced import ForcedSampler, Lengths
    from language.models import SHAPES, built

    from fedrl.llm.generation.sampler import Answer, Request

    model = built(SHAPES["qwen2.5-1.5b"], torch.float32)
    lengths = Lengths(mean=5, most=9)
    sampler = ForcedSampler(SimpleNamespace(model=model, pad=0), lengths)

    def played(order: list[int], rows: int | None) -> dict[tuple[int, int], list[int]]:
        turns = dict.fromkeys(order, 0)
        told: dict[tuple[int, int], list[int]] = {}

        def request(key: int) -> Request:
            return Request(key, [3 + key, 7, 9], 100 * turns[key] + key)

        def answered(answers: list[Answer]) -> list[Request]:
            for answer in answers:
                told[answer.key, turns[answer.key]] = answer.tokens
                turns[answer.key] += 1
            return [request(answer.key) for answer in answers if turns[answer.key] < 3]

        sampler.stream([request(key) for key in order], 9, 1.0, answered, rows)
        return told

    first = played(list(range(6)), None)
    assert {at: len(said) for at, said in first.items()} == {
        (key, turn): lengths.tokens(100 * turn + key) for key in range(6) for turn in range(3)
    }
    assert len(set(map(len, first.values()))) > 3
    assert played([5, 3, 1, 0, 2, 4], 2) == first


def test_forced_episodes_end_where_they_are_drawn_to(monkeypatch):
    """And commands are those that the world offers; none ends a game at once."""
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(FOLDER))
    from language.forced import DrawnCommands, DrawnEpisodes, Lengths

    from fedrl.envs.webshop.settings import Settings
    from fedrl.envs.webshop.shop import WebShop
    from fedrl.llm.prompts.chat import Chat

    lengths = Lengths(steps=(3, 15))
    world, format = DrawnEpisodes(WebShop(Settings()), lengths), DrawnCommands(Chat())
    task = world.tasks("train")[0].id
    for number in range(1, 6):
        episode, turn = world.start(task)
        notes, steps = format.start(episode.goal, turn), 0
        while not turn.done:
            command, valid = format.parse(notes, "nonsense")
            assert valid
            assert "[<tex" not in command.lower()
            turn = episode.step(command)
            assert not turn.info.get("failed"), command
            format.observe(notes, command, turn)
            steps += 1
        assert steps == lengths.episode(number)


def test_hours_are_told_from_parts_of_a_round_that_come_one_after_the_other(monkeypatch):
    """Fewer clients and epochs are a share of a round, and what comes once per client does not
    come once per epoch; fewer episodes side by side are no share."""
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(FOLDER))
    from language.recipe import Share, Size, Spent, part_of_round

    import fedrl

    def part(*flags: str, **size: int) -> Share | None:
        asked = fedrl.configure("fedagent/webshop", flags)
        return part_of_round(asked, fedrl.configure("fedagent/webshop"), Size(**size))

    assert part() == Share(1, 1)
    share = part("--federation.cohort", "1", "--algorithm.local_epochs", "1")
    assert share == Share(1 / 2, 1 / 3)
    one = Spent(playing=20, learning=30, seconds=57)
    assert share.whole(one) == pytest.approx(2 * (3 * 50 + 7))
    assert part("--algorithm.tasks", "4") is part(steps=8) is part(mean=20) is None


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
        ("llm.py", "recipe", "--rounds", "2"),
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
