"""Prompts with a reward function, as a text world whose episodes are one answer long.

Reinforcement learning with verifiable rewards on a data set of one's own: a column of prompts, a
function that says what an answer is worth, and the other columns for it to read (`rewards.py`). An
episode is one prompt; the agent's whole completion is its only command, and what it is paid comes
from the functions, which are called once for all answers of a rollout.

    train    dealt out to the clients by the partition
    test     only evaluated on
    public   nobody's, for warm starts, which imitate the column `answer`

No prompt is in two of them: a share that is held out takes all rows of a prompt or none. Ids are
numbers of rows: they say nothing of the content, and a row keeps its id in another split.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedrl.core.limits import one_of
from fedrl.core.types import UserError
from fedrl.envs.prompts.records import SPLITS, Row, combined_digest, require_train
from fedrl.envs.prompts.rewards import Answer, Prompt, Rewards
from fedrl.envs.prompts.settings import Settings
from fedrl.envs.prompts.table import Table, split
from fedrl.envs.text import Episode, Task, Turn

__all__ = ["Prompts", "Settings", "World"]


class PromptEpisode:
    """One prompt, until it is answered."""

    __slots__ = ("done", "prompt", "row", "world")

    def __init__(self, world: Prompts, row: Row) -> None:
        self.world, self.row, self.done = world, row, False
        self.prompt: Prompt = row[world.settings.prompt]  # type: ignore[assignment]

    @property
    def goal(self) -> str:
        return readable(self.prompt)

    def step(self, command: str) -> Turn:
        return self.world.step_many([self], [command], [()])[0]


class Prompts:
    """The world of a recipe's [world] section; see the module's docstring."""

    name = "prompts"
    splits = SPLITS
    max_steps = 1
    graded = True

    def __init__(self, settings: Settings, own: bool = False) -> None:
        """`own`: the data is all of a client's own, whose only prompt is trained on, or nobody's,
        who may have none to train on."""
        self.settings, self.own = settings, own
        self.rewards = Rewards.find(settings.reward, settings.weights)
        source = settings.open()
        if settings.digest and settings.digest != combined_digest(source):
            raise UserError(
                "world.source: the data is not what the run began with (world.digest); put it "
                "back, or begin a new run"
            )
        self.tables = {
            name: Table(name if len(source) > 1 else "row", rows, settings)
            for name, rows in source.items()
        }
        for column, function in self.rewards.columns().items():
            for table in self.tables.values():
                table.require_column(column, f"world.reward {function!r} reads the column")
        for table in self.tables.values():
            self.rewards.require_arguments((table.columns or frozenset()) - {settings.prompt})
        self._tasks = split(self.tables, settings, own)

    def tasks(self, split: str) -> Sequence[Task]:
        one_of("split", split, self.splits)
        found = self._tasks[split]
        if split == "train" and not found and not self.own:
            require_train(self.settings.source, self.tables)
            count = len(self.tables["train"])
            raise UserError(f"world.source has {count} prompts, and none is left to train on")
        return found

    def start(self, task: str, seed: int = 0) -> tuple[PromptEpisode, Turn]:
        """The seed changes nothing here: a prompt is what it is."""
        episode = PromptEpisode(self, self.row(task))
        info = {"won": False, "prompt": episode.prompt}
        return episode, Turn(episode.goal, 0.0, False, (), info)

    def step_many(
        self,
        episodes: Sequence[Episode],
        commands: Sequence[str],
        tokens: Sequence[Sequence[int]],
    ) -> list[Turn]:
        """Answers to many prompts at once, with their tokens where they are known."""
        answers = []
        for episode, command, ids in zip(episodes, commands, tokens, strict=True):
            assert isinstance(episode, PromptEpisode)
            if episode.done:
                raise UserError("a prompt is answered once: start another episode")
            episode.done = True
            columns = {k: v for k, v in episode.row.items() if k != self.settings.prompt}
            answers.append(Answer(episode.prompt, command, ids, columns))
        return self.scored(answers)

    def scored(self, answers: Sequence[Answer]) -> list[Turn]:
        """The last turns of episodes, with what their answers are worth."""
        return [
            Turn(
                f"reward {scored.reward:g}",
                scored.reward,
                True,
                (),
                {
                    "won": scored.reward > self.settings.success,
                    "scored": scored.known,
                    "rewards": scored.parts,
                },
            )
            for scored in self.rewards(answers)
        ]

    def demonstrate(self, task: str, seed: int = 0) -> list[str]:
        if not self.settings.answer:
            raise UserError(
                "world.answer is empty; a warm start imitates the right answers in the column that "
                "it names"
            )
        return [str(self.row(task)[self.settings.answer])]

    def fingerprints(self, tasks: Sequence[str]) -> set[str]:
        """Of their prompts, however the rows are numbered."""
        return {f"{table.digests[number]:016x}" for table, number in map(self._place, tasks)}

    def place(self, task: str) -> str:
        """ "world.source, line 4": nothing of the row, and no name of a file, leaves a client."""
        table, number = self._place(task)
        split = f", {table.name}" if len(self.tables) > 1 else ""
        return f"world.source{split}, {table.rows.where(number).rpartition(', ')[2]}"

    def row(self, task: str) -> Row:
        table, number = self._place(task)
        return table.rows[number]

    def _place(self, task: str) -> tuple[Table, int]:
        name, _, number = task.rpartition("-")
        for table in self.tables.values():
            known = table.name == name and number.isascii() and number.isdigit()
            if known and int(number) < len(table) and table.id(int(number)) == task:
                return table, int(number)
        like = next(iter(self.tables.values())).id(0)
        raise UserError(f"no prompt {task!r}; they are called like {like}")

    def __reduce__(self) -> tuple[Any, ...]:
        """To another process as its settings: open files and functions of files do not travel."""
        return type(self), (self.settings, self.own)


def readable(prompt: Prompt) -> str:
    """A prompt for people: messages by their roles."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{message['role']}: {message['content']}" for message in prompt)


def World(settings: Settings, clients: int, seed: int) -> Prompts:
    """What a recipe builds. Clients differ in their tasks, which the partition deals out."""
    return Prompts(settings)


def OwnWorld(settings: Settings, clients: int, seed: int) -> Prompts:
    """Of a client's own folder, or nobody's."""
    return Prompts(settings, own=True)
