"""Prompts whose answers may call tools: typed Python functions, over several turns.

    [world]
    name = "tools"
    source = "questions.jsonl"
    tools = ["package.module:price"]
    reward = ["package.module:right"]

The world `prompts` with more than one turn. An answer that calls functions is run and gets their
results, as messages of the role `tool`; one that calls nothing is the final answer and is scored by
the reward functions, in TRL's signature: with prompts of chat messages they get the whole
completion, calls and results included, with prompts of text the last answer. An episode that has
used up `max_steps` answers is scored as it is.

What tools are there is told by the model's own chat template (`llm.prompts.conversation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedrl.core.limits import at_least_one
from fedrl.core.types import CodeName, Json, Word
from fedrl.envs.prompts import settings as prompts
from fedrl.envs.prompts.records import Row
from fedrl.envs.prompts.rewards import Answer, Prompt
from fedrl.envs.prompts.world import Prompts, readable
from fedrl.envs.text import Episode, Turn
from fedrl.envs.tools.calls import Parsed, message, parse_calls
from fedrl.envs.tools.functions import Tools


@dataclass(frozen=True)
class Settings(prompts.Settings):
    """Those of `prompts`, and the tools."""

    name: Word = "tools"
    # Functions that the agent may call: package.module:function or ./file.py:function. Type hints
    # and a docstring in Google's form describe them to the model.
    tools: tuple[CodeName, ...] = ()
    # Most answers of an episode, calls and the final one.
    max_steps: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(self, "world.", "max_steps")


class ToolEpisode:
    """One prompt, and what was said and done since."""

    def __init__(self, world: ToolWorld, row: Row) -> None:
        self.world, self.row, self.steps, self.done = world, row, 0, False
        prompt: Prompt = row[world.settings.prompt]  # type: ignore[assignment]
        self.prompt, self.goal = prompt, readable(prompt)
        self.messages: list[Json] = (
            [{"role": "user", "content": prompt}]
            if isinstance(prompt, str)
            else [dict(each) for each in prompt]
        )
        self.asked = len(self.messages)
        self.tokens: list[int] = []

    def step(self, command: str) -> Turn:
        return self.world.step_many([self], [command], [()])[0]

    def take(self, command: str, tokens: Sequence[int]) -> Turn | None:
        """What the calls of an answer gave; None where it is the last."""
        self.steps += 1
        self.tokens += tokens
        parsed = parse_calls(command)
        self.messages.append(message(parsed))
        last = self.steps >= self.world.max_steps
        if last or not (parsed.calls or parsed.problem):
            self.done = True
            return None
        results = self._results(parsed)
        self.messages += results
        return self.turn("\n".join(str(result["content"]) for result in results))

    def _results(self, parsed: Parsed) -> list[Json]:
        if parsed.problem:
            return [{"role": "user", "content": parsed.problem}]
        return [
            {"role": "tool", "name": call.name, "content": self.world.tools.call(call)}
            for call in parsed.calls
        ]

    def turn(self, observation: str) -> Turn:
        info = {"won": False, "messages": tuple(self.messages), "tools": self.world.tools.schemas}
        return Turn(observation, 0.0, False, (), info)

    def answer(self) -> Answer:
        """For the reward functions."""
        said = self.messages[self.asked :]
        key = self.world.settings.prompt
        columns = {name: value for name, value in self.row.items() if name != key}
        text = str(said[-1]["content"])
        return Answer(self.prompt, text, self.tokens, columns, said)


class ToolWorld(Prompts):
    """See the module's docstring."""

    name = "tools"
    settings: Settings

    def __init__(self, settings: Settings, own: bool = False) -> None:
        super().__init__(settings, own)
        self.tools = Tools.find(settings.tools)
        self.max_steps = settings.max_steps

    def start(self, task: str, seed: int = 0) -> tuple[Episode, Turn]:  # type: ignore[override]
        episode = ToolEpisode(self, self.row(task))
        return episode, episode.turn(episode.goal)

    def step_many(
        self,
        episodes: Sequence[Episode],
        commands: Sequence[str],
        tokens: Sequence[Sequence[int]],
    ) -> list[Turn]:
        """Those that end are scored together."""
        playing = [episode for episode in episodes if isinstance(episode, ToolEpisode)]
        turns = [
            episode.take(command, ids)
            for episode, command, ids in zip(playing, commands, tokens, strict=True)
        ]
        ended = [episode.answer() for episode, turn in zip(playing, turns) if turn is None]
        scored = iter(self.scored(ended) if ended else ())
        return [next(scored) if turn is None else turn for turn in turns]

    def demonstrate(self, task: str, seed: int = 0) -> list[str]:
        """The column `answer`: the final answer, or a list of answers whose last it is."""
        (told,) = super().demonstrate(task, seed)
        value = self.row(task)[self.settings.answer]
        return [str(each) for each in value] if isinstance(value, list) else [told]


def World(settings: Settings, clients: int, seed: int) -> ToolWorld:
    """What a recipe builds."""
    return ToolWorld(settings)


def OwnWorld(settings: Settings, clients: int, seed: int) -> ToolWorld:
    """Of a client's own folder, or nobody's."""
    return ToolWorld(settings, own=True)
