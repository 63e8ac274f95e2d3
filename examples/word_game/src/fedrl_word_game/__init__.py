"""Guess my number: the world says higher or lower, and a good guesser halves what is left.

A text world of one's own: tasks, episodes of several turns, and an expert. Everything else, from
partitions to reports, comes with fedrl.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from fedrl.core.limits import at_least_one
from fedrl.envs.text import Task, Turn

SPLITS = ("train", "test", "public")


@dataclass(frozen=True)
class GameSettings:
    """How large the numbers are, and how many tasks there are of each sort."""

    # Numbers are from 1 to this.
    highest: int = 40
    # Guesses after which an episode ends.
    max_steps: int = 4
    # Tasks for training, shared out among the clients.
    train: int = 1200
    # Tasks for evaluation only.
    test: int = 200
    # Tasks of nobody, for warm starts.
    public: int = 400

    def __post_init__(self) -> None:
        at_least_one(self, "world.", "max_steps", *SPLITS)


class Guessing:
    """One number to be found; `low` and `high` are what the guesser may know by now."""

    def __init__(self, low: int, high: int, secret: int) -> None:
        self.low, self.high, self.secret = low, high, secret
        self.goal = "guess my number"

    def turn(self, said: str, won: bool = False) -> Turn:
        guesses = [f"guess {n}" for n in range(self.low, self.high + 1)]
        seen = f"{said} from {self.low} to {self.high}".strip()
        return Turn("right" if won else seen, float(won), won, guesses, {"won": won})

    def step(self, command: str) -> Turn:
        number = command.removeprefix("guess ")
        if not number.isascii() or not number.isdigit():
            return self.turn("what")
        guess = int(number)
        if guess == self.secret:
            return self.turn("right", won=True)
        if guess < self.secret:
            self.low = max(self.low, guess + 1)
            return self.turn("higher")
        self.high = min(self.high, guess - 1)
        return self.turn("lower")


class WordGame:
    """guess my number in a few turns, with hints"""

    Settings, kinds = GameSettings, ("text",)
    name, splits = "word-game", SPLITS

    def __init__(self, settings: GameSettings, clients: int, seed: int) -> None:
        self.settings, self.max_steps = settings, settings.max_steps
        widest = 2**settings.max_steps - 1  # what halving can always find in so many guesses
        games = [
            f"{low}-{high}-{secret}"
            for low in range(1, settings.highest + 1)
            for high in range(low + widest // 2, min(low + widest, settings.highest + 1))
            for secret in range(low, high + 1)
        ]
        random.Random(0).shuffle(games)  # the same tasks whatever the run's seed
        self._tasks, begin = {}, 0
        for split in SPLITS:
            end = begin + getattr(settings, split)
            self._tasks[split], begin = [self._task(game) for game in games[begin:end]], end

    def _task(self, game: str) -> Task:
        low, high, _ = map(int, game.split("-"))
        return Task(game, "narrow" if high - low < 11 else "wide")

    def tasks(self, split: str) -> list[Task]:
        return self._tasks[split]

    def start(self, task: str, seed: int = 0) -> tuple[Guessing, Turn]:
        episode = Guessing(*map(int, task.split("-")))
        return episode, episode.turn("")

    def demonstrate(self, task: str, seed: int = 0) -> list[str]:
        """Halve what is left."""
        episode, turn = self.start(task)
        commands = []
        while not turn.done:
            commands.append(f"guess {(episode.low + episode.high) // 2}")
            turn = episode.step(commands[-1])
        return commands
