"""Worlds that speak in chat messages, with tools or without: the model's own template writes them.

A turn of such a world says the whole conversation (`info["messages"]`) and the tools
(`info["tools"]`, JSON schemas); the answer is taken as it is, and what it calls is for the world to
read. A model without a template, such as a small one of one's own, gets a line for each message. In
a conversation that is too long, the oldest turns after the first question go, and beyond a number
of turns (`history`) always.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedrl.core.types import Json, Shareable, UserError
from fedrl.envs.text import Turn
from fedrl.envs.tools.calls import parse_calls
from fedrl.llm.model_types import Tokenizer
from fedrl.llm.prompts.prompt_format import tokenize


@dataclass
class Notes:
    messages: Sequence[Json]
    tools: Sequence[Json]


class Conversation:
    """See the module's docstring."""

    def __init__(self, history: int | None = None) -> None:
        if history == 0:
            raise UserError(
                "algorithm.history is 0, but a conversation shows at least its last turn: what "
                "was answered to it"
            )
        self.history = history

    def start(self, goal: str, turn: Turn) -> Notes:
        return Notes(turn.info["messages"], turn.info.get("tools", ()))

    def observe(self, notes: Notes, command: str, turn: Turn, said: str = "") -> None:
        notes.messages = turn.info.get("messages", notes.messages)
        notes.tools = turn.info.get("tools", notes.tools)

    def prompt(self, notes: Notes) -> str:
        return plain(self.shown(notes), notes.tools)

    def shown(self, notes: Notes) -> Sequence[Json]:
        """The messages without turns that are too old: the first that has few enough."""
        if self.history is None:
            return notes.messages
        return next(
            messages
            for messages in _shortened(notes.messages)
            if sum(message["role"] == "assistant" for message in messages) <= self.history
        )

    def encode(self, tokenizer: Tokenizer, notes: Sequence[Notes], limit: int) -> list[list[int]]:
        return [self._row(tokenizer, each, limit) for each in notes]

    def _row(self, tokenizer: Tokenizer, notes: Notes, limit: int) -> list[int]:
        row: list[int] = []
        for messages in _shortened(self.shown(notes)):
            text = written(tokenizer, messages, notes.tools)
            (row,) = tokenize(tokenizer, [text], limit + 1)
            if len(row) <= limit:
                return row
        return row[1:]

    def parse(self, notes: Notes, completion: str) -> tuple[str, bool]:
        """The answer itself; one with a call that cannot be read is not well formed."""
        readable = not notes.tools or not parse_calls(completion).problem
        return completion, readable and bool(completion.strip())

    def render(self, notes: Notes, command: str) -> str:
        return command


def written(tokenizer: Tokenizer, messages: Sequence[Json], tools: Sequence[Json]) -> str:
    """The conversation in the model's own form, ready for its next answer."""
    if not getattr(tokenizer, "chat_template", None):
        return plain(messages, tools)
    from jinja2 import TemplateError

    try:
        text = str(
            tokenizer.apply_chat_template(
                list(messages),
                tools=list(tools) or None,
                tokenize=False,
                add_generation_prompt=True,
            )
        )
    except TemplateError as error:
        why = "tools" if tools else "conversation"
        raise UserError(
            Shareable(f"algorithm.model: its chat template cannot write this world's {why}")
        ) from error
    for tool in tools:
        if tool["function"]["name"] not in text:
            raise UserError(
                Shareable(
                    "algorithm.model: its chat template shows no tools; choose a model that was "
                    "made to call them"
                )
            )
    return text


def plain(messages: Sequence[Json], tools: Sequence[Json] = ()) -> str:
    """A line for each tool and message, and the beginning of the next."""
    lines = [f"tool {json.dumps(tool['function'])}" for tool in tools]
    for message in messages:
        calls = [json.dumps(call["function"]) for call in message.get("tool_calls", ())]
        lines.append(" ".join(filter(None, (f"{message['role']}:", message["content"], *calls))))
    return "\n".join((*lines, "assistant:"))


def _shortened(messages: Sequence[Json]) -> Iterator[Sequence[Json]]:
    """All, then without the first answer and what came of it, then without the second, …"""
    roles = [message["role"] for message in messages]
    first = roles.index("assistant") if "assistant" in roles else len(roles)
    yield messages
    for place in range(first + 1, len(roles)):
        if roles[place] == "assistant":
            yield [*messages[:first], *messages[place:]]
