"""A household game in the terminal: read, type a command or its number, see what is missing."""

from __future__ import annotations

import sys
from collections.abc import Callable

from fedrl.envs.household.expert import Expert
from fedrl.envs.household.game import NOTHING, Game
from fedrl.envs.household.world import Household

INTRODUCTION = """\
Type a command or its number (Tab completes). Besides the game's own commands:
  ?      the commands that do something now      hint   what the expert would do
  goal   the task and which parts of it hold     quit   leave (or Ctrl-D)
"""


class Completer:
    """Tab completion over the commands that are possible now."""

    def __init__(self, game: Game) -> None:
        self.game = game

    def __call__(self, text: str, state: int) -> str | None:
        matches = [c for c in (*self.game.admissible, "hint", "goal") if c.startswith(text)]
        return matches[state] if state < len(matches) else None


def play(world: Household, split: str, task: str | None, ask: Callable[[str], str] = input) -> int:
    """One game from start to end; the exit code is 0 whether it is won or left."""
    chosen = task or world.tasks(split)[0].id
    episode, turn = world.start(chosen)
    game = episode.game
    expert = Expert(game, search=True)
    _complete(game)
    print(INTRODUCTION)
    print(f"task {chosen}\n")
    print(turn.observation)
    steps = 0
    while not game.won and steps < world.max_steps:
        command = _ask(ask, f"\n[{steps + 1}/{world.max_steps}] > ", game)
        if command is None:
            print(f"left after {steps} steps")
            return 0
        if command == "?":
            print(_numbered(game.admissible))
        elif command == "hint":
            print(expert.advise())
        elif command == "goal":
            print(_goal(game))
        else:
            steps += 1
            observation = episode.step(command).observation
            expert.watch(command)
            print(observation)
            if observation == NOTHING:
                print("(? lists what is possible)")
    print()
    print(_goal(game))
    print(f"{'Won' if game.won else 'Not won'} after {steps} steps: reward {int(game.won)}.")
    return 0


def _ask(ask: Callable[[str], str], prompt: str, game: Game) -> str | None:
    try:
        words = ask(prompt).strip()
    except EOFError:
        return None
    if words in ("quit", "exit"):
        return None
    if words.isascii() and words.isdigit() and 0 < int(words) <= len(game.admissible):
        return game.admissible[int(words) - 1]
    return words


def _numbered(commands: list[str]) -> str:
    return "\n".join(f"{i:>4}  {command}" for i, command in enumerate(commands, 1))


def _goal(game: Game) -> str:
    lines = [f"Your task is to: {game.layout.problem.task}."]
    lines += [f"  [{'x' if holds else ' '}] {part}" for part, holds in game.goal_parts().items()]
    return "\n".join(lines)


def _complete(game: Game) -> None:
    if not sys.stdin.isatty():
        return
    try:
        import readline
    except ModuleNotFoundError:  # Windows: plain typing works as well
        return
    readline.set_completer(Completer(game))
    readline.set_completer_delims("\n")
    readline.parse_and_bind("tab: complete")
