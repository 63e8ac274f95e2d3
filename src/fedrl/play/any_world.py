"""Any text world in the terminal: read, type a command, see the answer and what it was paid.

The household has a page of its own (`terminal.py`), with an expert who gives hints; here everything
comes from the interface of text worlds. An empty line and the words of this page cost no step.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from fedrl.core.number_format import counted
from fedrl.core.types import UserError
from fedrl.envs.text import Demonstrates, TextWorld, Turn
from fedrl.play.terminal import Left, Screen, numbered, typed_line

INTRODUCTION = """\
Type a command. These words cost no step:
  ?     commands that do something now, where the world says
  hint  what the expert does in this task, where there is one
  next  leave this task for another one
  quit  leave (or Ctrl-D)
"""


def play(
    world: TextWorld, split: str, task: str | None, ask: Callable[[str], str] | None = None
) -> int:
    """Tasks until the player leaves: `task` first if given, then any of the split."""
    tasks = world.tasks(split)
    if not len(tasks):
        raise UserError(f"the split {split} has no tasks; --split names another")
    player = Player(world, ask or input)
    try:
        while True:
            player.episode(task or tasks[random.randrange(len(tasks))].id)
            task = None
    except Left as left:
        return left.code


class Player:
    """One person at the keyboard, through one task after the other."""

    def __init__(self, world: TextWorld, ask: Callable[[str], str]) -> None:
        self.world, self._ask, self._screen = world, ask, Screen()
        self._greeted = False

    def episode(self, task: str) -> None:
        """One task to its end; returns when the player wants another."""
        episode, turn = self.world.start(task)
        show, steps, paid = self._screen.show, 0, 0.0
        if not self._greeted:  # now that there is such a task
            show(INTRODUCTION)
            self._greeted = True
        show(f"task {task}\n", "dim")
        if episode.goal not in turn.observation:
            show(episode.goal, "bold")
        show(turn.observation)
        while not turn.done and steps < self.world.max_steps:
            command = self._command(f"[{steps + 1}/{self.world.max_steps}] > ", task, turn)
            if command == "next":
                show(f"left after {counted(steps, 'step')}\n")
                return
            if command:
                turn = episode.step(command)
                steps, paid = steps + 1, paid + turn.reward
                show(turn.observation)
        outcome = "Won" if turn.info["won"] else "Not won"
        show(f"{outcome} after {counted(steps, 'step')}: reward {paid:g}.", "bold")
        if typed_line(self._ask, self._screen, "another task? [y/N] ").lower() not in (
            "y",
            "yes",
            "next",
        ):
            raise Left(0)

    def _command(self, prompt: str, task: str, turn: Turn) -> str:
        """What goes to the world, or "next"; nothing where the line was answered here."""
        typed = typed_line(self._ask, self._screen, prompt)
        if typed.lower() in ("quit", "exit"):
            raise Left(0)
        if typed == "?":
            known = list(turn.admissible)
            self._screen.show(numbered(known) if known else "the world lists no commands")
        elif typed == "hint":
            self._screen.show(self._hint(task))
        else:
            return "next" if typed.lower() == "next" else typed
        return ""

    def _hint(self, task: str) -> str:
        if not isinstance(self.world, Demonstrates):
            return "this world has no expert"
        return " ; ".join(self.world.demonstrate(task))
