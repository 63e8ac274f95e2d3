"""The household as a text world: generated games by default, the genuine ALFWorld ones by setting.

Both come in the original's splits: `seen` has new tasks in scenes of the training tasks, `unseen`
has scenes that no training task plays in, and `public` has tasks that nobody trains or evaluates
on, for warm starts.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fedrl.core.limits import at_least_one, not_negative, one_of
from fedrl.core.types import FilePath, UserError, Word
from fedrl.datasets import alfworld
from fedrl.datasets.fetch import root
from fedrl.envs.household import expert, generate
from fedrl.envs.household.game import Game
from fedrl.envs.household.layout import GENERATIONS, Layout
from fedrl.envs.household.pddl import parse
from fedrl.envs.household.problem import FOLDERS, Problem
from fedrl.envs.household.rooms import SIZES
from fedrl.envs.text import Task, Turn

SPLITS = {"train": "train", "seen": "valid_seen", "unseen": "valid_unseen", "public": "valid_train"}
"""Our splits, and what ALFWorld calls them; its valid_train shares no game with train."""

WITHHELD = "withheld"
"""Training tasks in scenes that `world.withheld` sets aside."""

OPEN = {"won": False}
WON = {"won": True}


@dataclass(frozen=True)
class Settings:
    name: Word = "household"
    # "generated", "alfworld" (the games of `fedrl data alfworld`), or a folder with ALFWorld games
    source: FilePath = "generated"
    # of the generated games: tiny, small, medium, or dataset (like ALFWorld's own)
    size: Word = "small"
    # wording of the engine: "2.1.2" (move X to Y) or the older "2.1.1" (put X in/on Y)
    generation: Word = "2.1.2"
    # generated tasks for training, shared out among the clients
    train: int = 3553
    # generated tasks in scenes of the training tasks, for evaluation
    seen: int = 140
    # generated tasks in scenes that no training task plays in, for evaluation
    unseen: int = 134
    # generated tasks that nobody trains or evaluates on, for warm starts
    public: int = 300
    # which family of generated games; runs with other seeds still play the same games
    games: int = 0
    # scenes whose training tasks nobody trains on: these are the split "withheld", for evaluation
    withheld: tuple[Word, ...] = ()
    # steps after which an episode is cut off
    max_steps: int = 50

    def __post_init__(self) -> None:
        one_of("world.size", self.size, SIZES)
        one_of("world.generation", self.generation, GENERATIONS)
        not_negative(self, "world.", *SPLITS, "games")
        at_least_one(self, "world.", "max_steps")


class HouseholdEpisode:
    """One game under way, behind the interface of all text worlds."""

    __slots__ = ("done", "game")

    def __init__(self, layout: Layout) -> None:
        self.game = Game(layout)
        self.done = self.game.won

    @property
    def goal(self) -> str:
        return self.game.layout.problem.task

    def step(self, command: str) -> Turn:
        game = self.game
        if self.done:  # nothing happens after the end, and it is not paid twice
            return Turn("The game is over.", 0.0, True, (), WON)
        observation = game.step(command)
        if game.won:
            self.done = True
            return Turn(observation, 1.0, True, game.admissible, WON)
        return Turn(observation, 0.0, False, game.admissible, OPEN)


class Household:
    """The world of a recipe's [world] section; see `Settings`."""

    name = "household"

    def __init__(self, settings: Settings | None = None, own: bool = False) -> None:
        """`own`: the games are a client's own, or nobody's, who may lack any of the splits."""
        self.settings = settings = settings or Settings()
        self.max_steps = settings.max_steps
        generated = settings.source == "generated"
        self._games: _Generated | _Genuine = (
            _Generated(settings) if generated else _genuine(_folder(settings.source), own)
        )
        # A compiled game is some 50 KB: keep those of a few rounds, not of a whole split.
        self._layout = lru_cache(maxsize=1024)(self._compile)

    @property
    def splits(self) -> tuple[str, ...]:
        return (*SPLITS, WITHHELD) if self.settings.withheld else tuple(SPLITS)

    def tasks(self, split: str) -> Sequence[Task]:
        one_of("split", split, self.splits)
        withheld = self.settings.withheld
        if not withheld or split not in ("train", WITHHELD):
            return self._games.tasks(split)
        tasks = self._games.tasks("train")
        if unknown := set(withheld) - {task.scene for task in tasks}:
            raise UserError(f"world.withheld: no training task plays in scene {min(unknown)!r}")
        return [task for task in tasks if (task.scene in withheld) == (split == WITHHELD)]

    def start(self, task: str, seed: int = 0) -> tuple[HouseholdEpisode, Turn]:
        """The seed changes nothing here: a household game has no chance in it."""
        layout = self._layout(task)
        episode = HouseholdEpisode(layout)
        info = WON if episode.done else OPEN
        return episode, Turn(layout.intro(), 0.0, episode.done, episode.game.admissible, info)

    def demonstrate(self, task: str, seed: int = 0, search: bool = False) -> list[str]:
        return expert.demonstrate(Game(self._layout(task)), search, limit=10 * self.max_steps)

    def problem(self, task: str) -> Problem:
        return self._games.problem(task)

    def _compile(self, task: str) -> Layout:
        return Layout(self._games.problem(task), self.settings.generation)


class _Generated:
    """Games made when they are asked for: a task is its split and a number."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def tasks(self, split: str) -> list[Task]:
        count = getattr(self.settings, split)
        return generate.task_list(split, count, self.settings.games, self.settings.size)

    def problem(self, task: str) -> Problem:
        split, _, number = task.partition("/")
        if split not in SPLITS or not number.isascii() or not number.isdigit():
            raise UserError(f"no game {task!r}; the generated ones are called like train/00042")
        count = getattr(self.settings, split)
        if int(number) >= count or number != f"{int(number):05d}":
            raise UserError(
                f"no game {task!r}; world.{split} = {count} games are called {split}/00000 to "
                f"{split}/{max(count - 1, 0):05d}"
            )
        return generate.task(split, int(number), self.settings.games, self.settings.size)


class _Genuine:
    """ALFWorld's own games, kept compressed: a split is 184 MB of PDDL."""

    def __init__(self, folder: Path, own: bool = False) -> None:
        self.folder, self.own = folder, own
        if own:
            alfworld.require_some(folder)
        self._splits: dict[str, list[Task]] = {}
        self._records: dict[str, tuple[bytes, str, str]] = {}
        self._games: dict[bytes, str] = {}  # of own folders: which one has this content

    def tasks(self, split: str) -> list[Task]:
        if split not in self._splits:
            self._splits[split] = []
            if self.own and not alfworld.has(self.folder, SPLITS[split]):
                return []
            name = "" if self.own else "alfworld"
            for game in alfworld.games(self.folder, SPLITS[split], name):
                kind = FOLDERS.get(game.task_type, game.task_type)
                self._splits[split].append(Task(game.id, kind, game.floor_plan))
                packed = zlib.compress(game.pddl_problem.encode(), 1)
                self._records[game.id] = packed, game.task, game.floor_plan
                if self.own:
                    self._require_apart(split, game.id, packed)
        return self._splits[split]

    def _require_apart(self, split: str, task: str, packed: bytes) -> None:
        """A game that is trained on may not be held out under another name."""
        known = self._games.setdefault(packed, task)
        if "train" in {split, known.partition("/")[0]} and known.partition("/")[0] != SPLITS[split]:
            raise UserError(
                f"{self.folder}: {task} is the same game as {known}: nothing may be trained on "
                "that is held out"
            )

    def problem(self, task: str) -> Problem:
        ours = {theirs: split for split, theirs in SPLITS.items()}
        split = ours.get(task.partition("/")[0])
        if split is not None and task not in self._records:
            self.tasks(split)
        if task not in self._records:
            raise UserError(f"no game {task!r} in {self.folder}")
        packed, sentence, scene = self._records[task]
        return parse(zlib.decompress(packed).decode(), task, sentence, scene)


_genuine = lru_cache(maxsize=2)(_Genuine)
"""One per folder and process: environments are made by the hundred, the games are read once."""


def _folder(source: str) -> Path:
    if source == "alfworld":
        return root("alfworld")
    if not Path(source).is_dir():
        raise UserError(
            f'world.source is {source!r}; choose "generated", "alfworld", or a folder with games'
        )
    return Path(source)


def World(settings: Settings, clients: int, seed: int) -> Household:
    """What a recipe builds. Clients differ in their tasks, which the partition deals out."""
    return Household(settings)


def OwnWorld(settings: Settings, clients: int, seed: int) -> Household:
    """Of a client's own games, or nobody's."""
    return Household(settings, own=True)
