"""An environment of verifiers as a text world: https://github.com/PrimeIntellect-ai/verifiers.

    [world]
    name = "verifiers"
    environment = "wordle"             # what vf.load_environment takes; or package.module:function
    arguments = ["max_turns=4"]        # of load_environment

Rows of its dataset are the tasks, its evaluation dataset is held out, its own loop plays the turns
and its rubric scores them (`rollout`). Environments of one turn, of several, and with tools; those
whose rubric compares rollouts of a group with each other are refused, since FedAgent does that.

The classic interface, `Environment.run_rollout`, which verifiers 0.2 to 0.3 have. Environments
are code of others: on one's own machine any that can be imported, on a node packages that its owner
has allowed.
"""

from __future__ import annotations

import json
import signal
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fedrl.core.limits import above_zero, not_negative, one_of
from fedrl.core.registry import Table, load
from fedrl.core.types import Assignment, CodeName, Json, UserError
from fedrl.envs.side_by_side import StepsTogether, run_all
from fedrl.envs.text import Episode, Task, Turn, spaced

if TYPE_CHECKING:
    import verifiers as vf

    from fedrl.envs.verifiers.rollout import Outcome, Question, Rollout

KEY = "world.environment"
ENVIRONMENTS = Table("environments", KEY, {})
SPLITS = ("train", "unseen")
TURNS = 20
"""Of an environment that sets no limit itself."""


@dataclass(frozen=True)
class Settings:
    """Which environment, and what of it is held out."""

    name: Literal["verifiers"] = "verifiers"
    # The id of an installed environment, as load_environment takes it; or its function,
    # package.module:load_environment or ./file.py:load_environment.
    environment: CodeName = ""
    # Arguments of load_environment: name=value, the value in JSON or a plain word.
    arguments: tuple[Assignment, ...] = ()
    # Share of the rows that is only evaluated on, where the environment has no evaluation dataset.
    held_out: float = 0.1
    # Most answers of an episode; 0 is the environment's own limit, or 20 where it has none.
    max_steps: int = 0
    # An episode whose reward is at least this is won; none: the environment's own threshold.
    win: float | None = None
    # Seconds that the environment may take for a turn.
    patience: float = 60.0

    def __post_init__(self) -> None:
        if not self.environment:
            raise UserError(f"{KEY} is empty; name an installed environment of verifiers")
        if not 0 < self.held_out < 1:
            raise UserError(f"world.held_out is {self.held_out}; it is a share between 0 and 1")
        not_negative(self, "world.", "max_steps")
        above_zero(self, "world.", "patience")
        read_arguments(self.arguments)


class World(StepsTogether):
    """A `TextWorld` whose turns are conversations (`llm.prompts.conversation`)."""

    name = "verifiers"
    splits = SPLITS
    graded = True

    def __init__(self, settings: Settings, clients: int = 1, seed: int = 0) -> None:
        self.settings = settings
        with _own_signals():
            self.environment = load_environment(settings)
        own = getattr(self.environment, "max_turns", 1)
        self.max_steps = settings.max_steps or (own if own > 0 else TURNS)
        threshold = float(getattr(self.environment, "pass_threshold", 0.5))
        self.win = threshold if settings.win is None else settings.win
        self._rows = dict(_split(self.environment, settings.held_out))

    def tasks(self, split: str) -> list[Task]:
        one_of("split", split, self.splits)
        return [
            Task(id, category if isinstance(category := row.get("task"), str) else "task")
            for id, row in self._rows.items()
            if id.startswith(f"{split}-")
        ]

    def start(self, task: str, seed: int = 0) -> tuple[Episode, Turn]:
        return self.start_many([task], seed)[0]

    def start_many(self, tasks: Sequence[str], seed: int = 0) -> list[tuple[Episode, Turn]]:
        from fedrl.envs.verifiers.rollout import Rollout

        rollouts = [
            Rollout(self.environment, self._row(task), self.settings.patience) for task in tasks
        ]
        begun = run_all(rollout.begin() for rollout in rollouts)
        return [self._episode(rollout, first) for rollout, first in zip(rollouts, begun)]

    def _row(self, task: str) -> Json:
        if task not in self._rows:
            raise UserError(f"the world has no task {task!r}")
        return self._rows[task]

    def _episode(self, rollout: Rollout, first: Question | Outcome) -> tuple[Episode, Turn]:
        episode = VerifiersEpisode(rollout, self.max_steps, self.win)
        weakref.finalize(episode, rollout.drop).atexit = False
        turn = episode.turn(first)
        episode.goal = turn.observation
        return episode, turn

    def __reduce__(self) -> tuple[type[World], tuple[Settings]]:
        """To another process as its settings."""
        return World, (self.settings,)


class VerifiersEpisode:
    """One rollout; its reward comes at the end, from the rubric."""

    goal = ""

    def __init__(self, rollout: Rollout, limit: int, win: float) -> None:
        self.rollout, self.limit, self.win = rollout, limit, win
        self.steps = self.seen = 0

    def step(self, command: str) -> Turn:
        return run_all([self.take(command)])[0]

    async def take(self, command: str) -> Turn:
        from fedrl.envs.verifiers.rollout import Question

        self.steps += 1
        answer = await self.rollout.answer(command)
        if isinstance(answer, Question) and self.steps >= self.limit:
            answer = await self.rollout.answer(None)
        return self.turn(answer)

    def turn(self, answer: Question | Outcome) -> Turn:
        from fedrl.envs.verifiers.rollout import Question

        if isinstance(answer, Question):
            new = answer.messages[self.seen :]
            self.seen = len(answer.messages) + 1  # and the answer to it
            info: Json = {"won": False, "messages": answer.messages, "tools": answer.tools}
            return Turn(_shown(new), 0.0, False, (), info)
        won = answer.scored and answer.reward >= self.win
        end: Json = {"won": won, "scored": answer.scored, "rewards": answer.metrics}
        return Turn(_shown(answer.last), answer.reward, True, (), end)


def _shown(messages: Sequence[Json]) -> str:
    return "\n".join(message["content"] for message in messages)


def load_environment(settings: Settings) -> vf.Environment:
    """As `vf.load_environment` does, if this machine's owner lets it be imported."""
    import verifiers as vf

    if not hasattr(vf, "Environment"):
        raise UserError(
            f"{KEY}: verifiers {getattr(vf, '__version__', '')} has another interface; those from "
            '0.2 on and below 0.4 can be played: pip install "fedrl[verifiers]"'
        )
    arguments, name = read_arguments(settings.arguments), settings.environment
    module = name.split("/")[-1].replace("-", "_")
    place = name if ":" in name else f"{module}:load_environment"
    make: Callable[..., vf.Environment] = load(ENVIRONMENTS.find(place), KEY, place)
    try:
        environment = make(**arguments)
    except Exception as error:  # code of others may fail in any way
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
        raise UserError(f"{KEY} = {name!r} cannot be loaded: {why}") from error
    if not isinstance(environment, vf.Environment):
        raise UserError(f"{KEY} = {name!r} gives no Environment of verifiers")
    if getattr(environment, "requires_group_rollouts", False):
        raise UserError(
            f"{KEY} = {name!r}: its rubric scores rollouts of a group together, which FedAgent "
            "does itself; leave these reward functions out"
        )
    return environment


def read_arguments(assignments: Sequence[str]) -> dict[str, Any]:
    """`["n=3", "level=easy"]` → {"n": 3, "level": "easy"}."""
    found = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UserError(f"world.arguments: {text!r} is not name=value")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _split(environment: vf.Environment, held_out: float) -> Iterator[tuple[str, Json]]:
    """Rows by task ids; those of the evaluation dataset, or a share of all, are unseen."""
    rows = list(environment.get_dataset())
    environment.build_eval_dataset()
    if environment.eval_dataset is not None:
        unseen = list(environment.eval_dataset)
    else:
        count = max(round(held_out * len(rows)), 1)
        places = set(spaced(range(len(rows)), count))
        unseen = [row for i, row in enumerate(rows) if i in places]
        rows = [row for i, row in enumerate(rows) if i not in places]
    known = {_content(row) for row in rows}
    if shared := sum(_content(row) in known for row in unseen):
        raise UserError(
            f"{KEY}: {shared} rows of its evaluation dataset are in its dataset, too: nothing may "
            "be trained on that is evaluated"
        )
    if not rows:
        raise UserError(f"{KEY}: its dataset holds too few rows to train on")
    for split, part in zip(SPLITS, (rows, unseen)):
        yield from ((f"{split}-{i:07d}", dict(row)) for i, row in enumerate(part))


def _content(row: Json) -> str:
    """What makes two rows the same task; numbers of rows do not."""
    return json.dumps({k: v for k, v in row.items() if k != "example_id"}, default=str)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Environments take Ctrl-C and SIGTERM for themselves; a run has its own ways to end."""
    if threading.current_thread() is not threading.main_thread():
        raise UserError(f"{KEY}: verifiers loads environments in a process's main thread only")
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
