"""Household games in the terminal: read, type a command or its number, see what is missing.

A slip costs nothing: an empty line, a number that is not listed and the words of this page stay
here. Everything else goes to the game, which counts it as a step whether it does something or not.
"""

from __future__ import annotations

import dataclasses
import random
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence

from rich.console import Console

from fedrl.core.number_format import counted
from fedrl.core.types import UserError
from fedrl.envs.household.expert import Expert
from fedrl.envs.household.game import NOTHING, Game
from fedrl.envs.household.world import Household

INTRODUCTION = """\
Type a command or its number (Tab completes). These words cost no step:
  ?     the commands that do something now
  hint  what the expert would do
  goal  the task, and which parts of it hold
  next  leave this game for another one
  quit  leave (or Ctrl-D)
"""
WORDS = ("?", "hint", "goal", "next", "quit", "exit")
IN_VAIN = (
    "(no command here, yet it took a step: ? lists what is possible)",
    "(? lists what is possible)",
)
"""Said the first time that nothing happens, and later."""
STYLES = {"-= ": "dim", "Your task is to: ": "bold"}
"""How lines of the game that begin like this look on a terminal."""

GLUE = "\N{NO-BREAK SPACE}"
NAMED = re.compile(r"(?:\b(?:a|the) )?\b[a-z]+ \d+\b")


class Left(Exception):
    """The player leaves, by a word or a key; `code` is the exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Completer:
    """Tab completion over the commands that are possible now and the words of this page."""

    def __init__(self, game: Game) -> None:
        self.game = game

    def __call__(self, text: str, state: int) -> str | None:
        start = text.lower()
        matches = [c for c in (*self.game.admissible, *WORDS[1:]) if c.startswith(start)]
        return matches[state] if state < len(matches) else None


def play(world: Household, split: str, task: str | None, ask: Callable[[str], str] = input) -> int:
    """Games until the player leaves: `task` first if given, then any of the split.

    The exit code is 0 whether a game is won or left, and 130 after Ctrl-C.
    """
    player = Player(world, ask)
    try:
        while True:
            player.game(task or random_task(world, split))
            task = None
    except Left as left:
        return left.code


def random_task(world: Household, split: str) -> str:
    """The id of any game of the split."""
    tasks = world.tasks(split)
    if not tasks:
        raise UserError(f"the split {split} has no games; --split names another")
    return tasks[random.randrange(len(tasks))].id


class Screen:
    """Prints for a person: wrapped to the width, bold and dim where a terminal shows it."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)

    def show(self, text: str, style: str | None = None) -> None:
        width = shutil.get_terminal_size().columns
        for line in text.split("\n"):
            begun = (look for start, look in STYLES.items() if line.startswith(start))
            self._console.print(wrapped(line, width), style=style or next(begun, None))

    def whole(self, line: str) -> None:
        """A line that somebody may copy: the terminal breaks it, not a newline in it."""
        self._console.print(line, style="dim")


def typed_line(ask: Callable[[str], str], screen: Screen, prompt: str) -> str:
    """What was typed, stripped; Ctrl-D and Ctrl-C leave."""
    screen.show("")
    try:
        typed = ask(prompt).strip()
    except (EOFError, KeyboardInterrupt) as end:
        screen.show("")  # neither key ends the line of the prompt
        raise Left(0 if isinstance(end, EOFError) else 130) from None
    if not sys.stdin.isatty():  # from a file or pipe nothing is echoed
        screen.show(typed)
    return typed


class Player:
    """One person at the keyboard, through one game after the other."""

    def __init__(self, world: Household, ask: Callable[[str], str]) -> None:
        self.world, self._ask, self._screen = world, ask, Screen()
        self._greeted = self._warned = False

    def game(self, task: str) -> None:
        """One game to its end; returns when the player wants another."""
        episode, turn = self.world.start(task)
        game, show = episode.game, self._screen.show
        expert = Expert(game, search=True)
        complete(game)
        if not self._greeted:  # now that there is such a game
            show(INTRODUCTION)
            self._greeted = True
        show(f"task {task}\n", "dim")
        show(turn.observation)
        steps = 0
        try:
            while not game.won and steps < self.world.max_steps:
                command = self._command(f"[{steps + 1}/{self.world.max_steps}] > ", game, expert)
                if command is None:
                    continue
                if command == "next":
                    show(f"left after {counted(steps, 'step')}\n")
                    return
                steps += 1
                observation = episode.step(command).observation
                expert.watch(command)
                show(observation.rstrip())
                self._warn(observation)
        except Left:
            show(f"left after {counted(steps, 'step')}")
            self._screen.whole(replay_command(self.world, task))
            raise
        show("")
        show(goal(game))
        outcome = "Won" if game.won else "Not won"
        show(f"{outcome} after {counted(steps, 'step')}: reward {int(game.won)}.", "bold")
        self._screen.whole(replay_command(self.world, task))
        self._another()

    def _command(self, prompt: str, game: Game, expert: Expert) -> str | None:
        """What goes to the game, or "next"; None when the line was answered here."""
        show, possible = self._screen.show, game.admissible
        typed = self._line(prompt)
        words = " ".join(typed.lower().split())
        if words in ("quit", "exit"):
            raise Left(0)
        if not words or words == "next":
            return words or None
        if words in WORDS:
            show({"?": numbered(possible), "hint": expert.advise(), "goal": goal(game)}[words])
            return None
        meant = dict(zip(map(str, range(1, len(possible) + 1)), possible)).get(words.lstrip("0"))
        if meant is None and words.lstrip("+-").isdecimal():
            show(f"there are {len(possible)} commands; ? lists them")
            return None
        if meant is None and words in possible:
            meant = words  # typed in capitals, or with two spaces
        if meant is not None and meant != typed:
            show(f"> {meant}", "dim")
        return meant or typed

    def _line(self, prompt: str) -> str:
        return typed_line(self._ask, self._screen, prompt)

    def _warn(self, observation: str) -> None:
        if observation == NOTHING:
            self._screen.show(IN_VAIN[self._warned], "dim")
            self._warned = True

    def _another(self) -> None:
        if self._line("another game? [y/N] ").lower() not in ("y", "yes", "next"):
            raise Left(0)
        self._screen.show("")


def wrapped(line: str, width: int) -> str:
    """The line in lines no longer than the width; "a cabinet 1" stays together."""
    glued = NAMED.sub(lambda name: name[0].replace(" ", GLUE), line)
    rows = textwrap.wrap(glued, width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(rows).replace(GLUE, " ")


def numbered(commands: Sequence[str]) -> str:
    """As many columns as fit, to be read downwards: a screen has more width than height."""
    cells = [f"{i:>4}  {command}" for i, command in enumerate(commands, 1)]
    widest = max(map(len, cells)) + 2
    columns = max(1, shutil.get_terminal_size().columns // widest)
    height = -(-len(cells) // columns)
    rows = (cells[row::height] for row in range(height))
    return "\n".join("".join(f"{cell:<{widest}}" for cell in row).rstrip() for row in rows)


def goal(game: Game) -> str:
    lines = [f"Your task is to: {game.layout.problem.task}."]
    lines += [f"  [{'x' if holds else ' '}] {part}" for part, holds in game.goal_parts().items()]
    return "\n".join(lines)


def replay_command(world: Household, task: str) -> str:
    """The command that plays this very game once more."""
    words = ["fedrl", "play", "household", "--task", task]
    for field in dataclasses.fields(world.settings):
        value = getattr(world.settings, field.name)
        if value != field.default:
            words += [f"--world.{field.name}", str(value)]
    return f"again: {shlex.join(words)}"


def complete(game: Game) -> None:
    if not sys.stdin.isatty():
        return
    try:
        import readline
    except ModuleNotFoundError:  # Windows: plain typing works as well
        return
    readline.set_completer(Completer(game))
    readline.set_completer_delims("\n")
    libedit = "libedit" in (readline.__doc__ or "")  # macOS, and many other builds of Python
    readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
    if not libedit:
        readline.parse_and_bind("set show-all-if-ambiguous on")  # one Tab lists, not two
