"""The household in the terminal: what a person types, what it costs and what they see."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from fedrl.cli import play as playing
from fedrl.core.types import UserError
from fedrl.envs.household.world import Household, Settings
from fedrl.play import terminal
from fedrl.play.terminal import INTRODUCTION, Completer, play, random_task, wrapped

TASK = "seen/00003"


@pytest.fixture
def world() -> Household:
    return Household(Settings(size="tiny"))


def typed(*commands: str | BaseException):
    """Somebody who types these words, or presses these keys, and then Ctrl-D."""
    left = list(commands)

    def ask(prompt: str) -> str:
        print(prompt, end="")
        word = left.pop(0) if left else EOFError()
        if isinstance(word, BaseException):
            raise word
        return word

    return ask


def steps(told: str) -> int:
    """How many steps the game had counted when it was left."""
    return int(re.search(r"^left after (\d+) steps?$", told, re.MULTILINE)[1])


def test_a_person_wins_a_game_with_the_experts_hints(world, capsys):
    assert (
        play(world, "seen", TASK, typed("?", "goal", "fly", "hint", *world.demonstrate(TASK))) == 0
    )
    told = capsys.readouterr().out
    assert "Your task is to:" in told
    assert "[ ]" in told
    assert "Nothing happens." in told
    assert f"Won after {len(world.demonstrate(TASK)) + 1} steps: reward 1" in told


def test_a_person_may_type_numbers_and_leave(world, capsys):
    play(world, "seen", TASK, typed("1", "quit"))
    told = capsys.readouterr().out
    _, turn = world.start(TASK)
    assert f"\n> {turn.admissible[0]}\nYou arrive at" in told  # what the number meant
    assert told.splitlines()[-2] == "left after 1 step"


@pytest.mark.parametrize(
    "slip",
    ["", "   ", "0", "99", "-1", "+400", "9" * 5000, "HINT", "Goal", " ? ", "Hint"],
)
def test_slips_cost_no_step(world, capsys, slip):
    play(world, "seen", TASK, typed(slip, "QUIT"))
    told = capsys.readouterr().out
    assert steps(told) == 0
    assert "Nothing happens" not in told
    assert told.count("[1/50] > ") == 2


def test_a_number_out_of_range_says_how_many_there_are(world, capsys):
    _, turn = world.start(TASK)
    play(world, "seen", TASK, typed(str(len(turn.admissible) + 1)))
    assert f"there are {len(turn.admissible)} commands; ? lists them" in capsys.readouterr().out


def test_capitals_and_blanks_do_not_spoil_a_command(world, capsys):
    play(world, "seen", TASK, typed("  Go  TO sofa 1 "))
    told = capsys.readouterr().out
    assert "\n> go to sofa 1\nYou arrive at sofa 1." in told


def test_that_nonsense_costs_a_step_is_said_once(world, capsys):
    play(world, "seen", TASK, typed("fly", "dance", "next", "sing"))
    told = capsys.readouterr().out
    assert told.count("took a step") == 1
    assert told.count("(? lists what is possible)") == 2
    assert steps(told) == 2
    assert told.splitlines()[-2] == "left after 1 step"


@pytest.mark.parametrize("key, code", [(EOFError(), 0), (KeyboardInterrupt(), 130)])
def test_a_key_that_leaves_starts_a_fresh_line(world, capsys, key, code):
    assert play(world, "seen", TASK, typed("look", "look", key)) == code
    assert "[3/50] > \nleft after 2 steps\nagain: " in capsys.readouterr().out


def test_the_command_line_leaves_with_the_players_code(monkeypatch, capsys):
    def stop(prompt: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(terminal.play, "__defaults__", (stop,))
    assert playing.play(["household", "--world.size", "tiny"]) == 130
    assert "left after 0 steps" in capsys.readouterr().out


def test_games_differ_and_can_be_played_again(world, capsys):
    assert len({random_task(world, "seen") for _ in range(50)}) > 10
    assert random_task(world, "unseen").startswith("unseen/")
    play(world, "seen", None, typed("goal"))
    told = capsys.readouterr().out
    task = re.search(r"^task (seen/\d{5})$", told, re.MULTILINE)[1]
    command = told.splitlines()[-1].removeprefix("again: ").split()
    assert command == f"fedrl play household --task {task} --world.size tiny".split()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal.play, "__defaults__", (typed("goal"),))
        playing.play(command[2:])
    assert capsys.readouterr().out == told


def test_a_game_that_there_is_not_is_all_that_is_said(world, capsys):
    with pytest.raises(UserError, match="no game"):
        play(world, "seen", "seen/99999", typed())
    assert capsys.readouterr().out == ""


def test_an_empty_split_is_said():
    with pytest.raises(UserError, match="unseen has no games"):
        play(Household(Settings(unseen=0)), "unseen", None, typed())


@pytest.mark.parametrize("answer, games", [("y", 2), ("YES", 2), ("", 1), ("n", 1), ("go", 1)])
def test_after_a_game_another_one(world, capsys, answer, games):
    assert play(world, "seen", TASK, typed(*world.demonstrate(TASK), answer)) == 0
    told = capsys.readouterr().out
    assert "another game? [y/N] " in told
    assert told.count("-= Welcome") == games
    assert told.count(INTRODUCTION) == 1


def test_next_leaves_for_another_game(world, capsys):
    play(world, "seen", TASK, typed("look", "NEXT"))
    told = capsys.readouterr().out
    assert told.count("-= Welcome") == 2
    assert "left after 1 step\n" in told


def test_a_game_ends_after_its_steps(capsys):
    play(Household(Settings(size="tiny", max_steps=2)), "seen", TASK, typed("look", "look", "n"))
    assert "Not won after 2 steps: reward 0." in capsys.readouterr().out


@pytest.mark.parametrize("width", [30, 47, 80, 200])
def test_long_texts_break_between_words(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    world = Household(Settings(size="dataset"))
    play(world, "seen", TASK, typed())
    lines = capsys.readouterr().out.split("again: ")[0].splitlines()
    assert max(map(len, lines)) <= width
    assert not any(re.match(r"\d", line) for line in lines)  # "cabinet" here, "1" there
    _, turn = world.start(TASK)
    text = "\n".join(lines)
    for own in filter(None, turn.observation.split("\n")):  # nothing is lost, nothing joined
        assert re.search(r"^" + r"[ \n]".join(map(re.escape, own.split(" "))) + "$", text, re.M)


def test_wrapping_keeps_what_is_short_enough_and_names_whole():
    assert wrapped("  look:      around", 20) == "  look:      around"
    assert wrapped("see the bathtubbasin 1, a bed 12", 20) == "see\nthe bathtubbasin 1,\na bed 12"
    assert wrapped("x" * 30, 10) == "x" * 30


def test_the_command_to_play_again_is_one_line_to_copy(world, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    play(world, "seen", TASK, typed())
    assert (
        f"\nagain: fedrl play household --task {TASK} --world.size tiny\n"
        in capsys.readouterr().out
    )


def test_the_list_fits_the_width_and_reads_downwards(monkeypatch):
    commands = [f"go to shelf {i}" for i in range(1, 31)]
    monkeypatch.setenv("COLUMNS", "80")
    rows = terminal.numbered(commands).splitlines()
    assert len(rows) == 10
    assert max(map(len, rows)) <= 80
    assert re.findall(r"(\d+)  go to shelf (\d+)", rows[1]) == [
        ("2",) * 2,
        ("12",) * 2,
        ("22",) * 2,
    ]
    monkeypatch.setenv("COLUMNS", "20")
    assert len(terminal.numbered(commands).splitlines()) == 30


def test_tab_completes_the_words_of_the_page_too(world):
    complete = Completer(world.start(TASK)[0].game)

    def matches(text: str) -> list[str]:
        found = (complete(text, state) for state in range(100))
        return [match for match in found if match is not None]

    assert matches("hi") == ["hint"]
    assert matches("goa") == ["goal"]
    assert matches("GO TO SO") == ["go to sofa 1"]
    assert {"hint", "goal", "next", "quit", "look"} <= set(matches(""))


@pytest.mark.slow
def test_from_a_pipe_it_is_plain_and_echoed(fedrl):
    done = fedrl("play", "household", "--task", TASK, input="look\n")
    assert "\033" not in done.stdout
    assert "[1/50] > look\nYou are in the middle" in done.stdout
    assert done.stdout.splitlines()[-2] == "left after 1 step"


class Typist:
    """A real terminal of 80 columns with the game in it."""

    def __init__(self, folder: Path) -> None:
        self.end, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        # A session's first terminal is the one whose Ctrl-C reaches it, so the shell opens it.
        opened = ("sh", "-c", 'tty=$0; exec "$@" <$tty >$tty 2>&1', os.ttyname(other))
        self.process = subprocess.Popen(
            [*opened, sys.executable, "-m", "fedrl", "play", "household", "--task", TASK],
            cwd=folder,
            start_new_session=True,
            env={**os.environ, "INPUTRC": os.devnull, "TERM": "xterm", "COLUMNS": ""},
        )
        self.other = other
        self.seen = ""

    def until(self, words: str) -> str:
        """What was shown since the last call, up to these words."""
        while words not in self.seen:
            assert select.select([self.end], [], [], 60)[0], f"no {words!r} after {self.seen!r}"
            self.seen += os.read(self.end, 4096).decode()
        shown, _, self.seen = self.seen.partition(words)
        return shown.replace("\r\n", "\n")

    def type(self, keys: str) -> None:
        os.write(self.end, keys.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.end)
        os.close(self.other)


@pytest.fixture
def player(tmp_path):
    it = Typist(tmp_path)
    yield it
    it.close()


@pytest.mark.slow
def test_in_a_real_terminal(player):
    shown = player.until("[1/50] > ")
    assert "\033[1mYour task is to: " in shown
    assert "\033[2mtask " in shown
    player.type("hi\t\n")
    assert "hint" in player.until("[1/50] > ")
    player.type("\4")
    assert player.until("left after 0 steps") == "\n"
    assert player.process.wait(60) == 0


@pytest.mark.slow
def test_ctrl_c_in_a_real_terminal(player):
    player.until("[1/50] > ")
    player.type("loo")
    player.until("loo")
    time.sleep(0.2)  # Python overlooks a Ctrl-C between two of its waits for a key
    player.type("\3")
    while not select.select([player.end], [], [], 5)[0]:
        player.type("\3")
    assert player.until("left after 0 steps").lstrip("^C") == "\n"
    assert player.process.wait(60) == 130
