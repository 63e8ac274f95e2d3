"""The commands around the text worlds, called as a user calls them."""

from __future__ import annotations

import pytest
from realdata import data, parity

from fedrl.envs.household.world import Household, Settings
from fedrl.play.terminal import play
from fedrl.types import UserError


def test_a_partition_is_measured_and_drawn(fedrl, tmp_path):
    done = fedrl(
        *"partition household --world.size tiny --world.train 300 --strategy preference".split(),
        *"--omega 0.9 --clients 12 --size 20 --plot out.png".split(),
    )
    assert "category" in done.stdout or "categories" in done.stdout
    assert (tmp_path / "out.png").stat().st_size > 5000


@pytest.mark.parametrize(
    "words, told",
    [
        ("partition household --stratgy coverage", "did you mean 'strategy'"),
        ("partition household --strategy preferences", "did you mean 'preference'"),
        ("partition household --world.siz tiny", "did you mean 'world.size'"),
        ("partition household --omega much", "omega is 'much'; it must be a number"),
        ("partition household --strategy hardness", "fedrl label"),
        ("partition houshold", "choose from"),
        ("partition household --world.train 50 --size 100", "size"),
        ("play household --split tset", "'tset'"),
        ("play household --task train/abc", "train/00042"),
        ("play household --world.size huge", "huge"),
        ("play household --world.generation 2.1.3", "2.1.2"),
        ("parity household nothing.jsonl.xz --data .", "nothing.jsonl.xz"),
        ("data mnist", "mnist"),
        ("run momentum/cartpole --world.name household", "choose from random_mdp, cartpole"),
    ],
)
def test_mistakes_are_one_line(fedrl, words, told):
    done = fedrl(*words.split(), check=False)
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.count("\n") <= 2


def test_a_damaged_transcript_is_one_line(fedrl, tmp_path):
    for name, content in (("a.jsonl", '{"id": 1}\n'), ("b.jsonl", "{"), ("c.jsonl.xz", "no xz")):
        (tmp_path / name).write_text(content)
        done = fedrl("parity", "household", name, "--data", ".", check=False)
        assert done.returncode == 2
        assert name in done.stderr


def typed(*commands: str):
    """Somebody who types these words and then leaves."""
    left = list(commands)

    def ask(prompt: str) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    return ask


def test_a_person_wins_a_game_with_the_experts_hints(capsys):
    world = Household(Settings(size="tiny"))
    task = "seen/00003"
    play(world, "seen", task, typed("?", "goal", "fly", "hint", *world.demonstrate(task)))
    told = capsys.readouterr().out
    assert "Your task is to:" in told
    assert "[ ]" in told
    assert "Nothing happens." in told
    assert "Won after" in told
    assert "reward 1" in told


def test_a_person_may_type_numbers_and_leave(capsys):
    play(Household(Settings(size="tiny")), "seen", "seen/00000", typed("1", "quit"))
    told = capsys.readouterr().out
    assert "You arrive at" in told
    assert "left after 1 steps" in told


def test_an_unknown_task_is_named():
    with pytest.raises(UserError, match="no game 'train/x'"):
        Household(Settings(size="tiny")).start("train/x")


@pytest.mark.realdata
@pytest.mark.slow
def test_parity_of_both_worlds(fedrl):
    data("alfworld")
    files = sorted(map(str, parity().glob("alfworld_2.1.*.jsonl.xz")))
    done = fedrl("parity", "household", *files)
    assert done.stdout.count(" 0 mismatches") == len(files)
    done = fedrl("parity", "webshop", str(parity()))
    assert "webshop_sessions" in done.stdout
