"""The game's rules by hand, and all that fedrl does with a text world."""

from __future__ import annotations

from pathlib import Path

import pytest
from fedrl_word_game import GameSettings, WordGame

import fedrl

WORLD = {"name": "fedrl_word_game:WordGame", "train": 60, "test": 12, "public": 40}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It has seen some games of the expert."""
    how = {"tasks": 40, "steps": 60, "batch": 32, "width": 32, "layers": 1, "lr": 1e-2}
    return fedrl.warm_start(WORLD, tmp_path_factory.mktemp("models") / "tiny", **how)


def recipe(model: Path, **algorithm: object) -> dict[str, object]:
    return {
        "rounds": 2,
        "federation": {"clients": 4, "cohort": 2},
        "algorithm": {
            "name": "fedagent", "model": str(model), "local_epochs": 1, "tasks": 4, "group": 3,
            "lr": 1e-3, "kl": 0.0, "answer_tokens": 4, "eval_split": "test", "device": "cpu",
            **algorithm,
        },
        "world": WORLD,
        "partition": {"strategy": "preference", "size": 8, "omega": 0.9},
    }  # fmt: skip


def test_hints_are_true_and_halving_finds_every_number():
    world = WordGame(GameSettings(), 0, 0)
    episode, turn = world.start("3-17-12")
    assert turn.observation == "from 3 to 17"
    assert episode.step("guess 10").observation == "higher from 11 to 17"
    assert episode.step("guess 14").observation == "lower from 11 to 13"
    assert episode.step("sing").observation == "what from 11 to 13"
    done = episode.step("guess 12")
    assert (done.reward, done.done, done.info["won"]) == (1.0, True, True)
    seen: set[str] = set()
    for split in world.splits:
        ids = {task.id for task in world.tasks(split)}
        assert len(ids) == getattr(world.settings, split)
        assert not ids & seen
        seen |= ids
        assert all(len(world.demonstrate(task)) <= world.max_steps for task in ids)


@pytest.mark.parametrize("format", ["compact", "chat"])
def test_it_is_trained_evaluated_and_reported(model: Path, tmp_path: Path, format: str):
    answers = {"format": format, "thinking": False, "answer_tokens": 6 if format == "chat" else 4}
    run = fedrl.run(recipe(model, **answers), out=tmp_path)
    assert run.status == "finished"
    assert set(run.clients["status"]) == {"ok"}
    assert {"eval/success_narrow", "eval/success_wide"} <= run.rounds[2].keys()
    assert run.rounds[2]["env/steps"] > 2 * 2 * 4 * 3  # of several turns
    assert len(run.evaluate_split("test", 0).won) == 12
    assert "uess my number" in Path(run.report()).read_text(encoding="utf-8")


def test_its_tasks_are_dealt_out():
    found = fedrl.partition_tasks(WORLD, 4, strategy="preference", size=8, omega=0.9)
    assert found.measures.clients == 4


def test_a_person_plays_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    typed = iter(["?", "hint", "", "guess 10", "guess 14", "guess 12", "n"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    assert fedrl.play_world(WORLD, task="3-17-12") == 0
    told = capsys.readouterr().out
    assert "lower from 11 to 13" in told
    assert "guess 10 ; guess 14 ; guess 12" in told
    assert "Won after 3 steps: reward 1." in told
