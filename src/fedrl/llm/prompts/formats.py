"""How an agent is told its situation, and how its words become a command.

A `Format` keeps notes of an episode (`begin`, `observe`), writes the prompt, and reads the answer.
`answer` is the inverse of `command`: how a demonstration's command would be said, for imitation.
Small models get a compact format, made for one world; instruction-tuned ones get `chat`, which
knows nothing but the interface of text worlds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from fedrl.core.registry import suggestion
from fedrl.core.types import UserError
from fedrl.envs.text import Turn

NAMES = ("compact", "chat")
COMPACT = ("household", "webshop")
"""The worlds that a compact format exists for."""


class Format(Protocol):
    def begin(self, goal: str, turn: Turn) -> Any:
        """Notes of a new episode."""
        ...

    def observe(self, notes: Any, command: str, turn: Turn, said: str = "") -> None:
        """Write down what the command did; `said` is the answer that it was read from."""
        ...

    def prompt(self, notes: Any) -> str: ...

    def encode(self, tokenizer: Any, notes: Sequence[Any], limit: int) -> list[list[int]]:
        """The prompts as tokens, each of at most `limit`; what is too long is shortened."""
        ...

    def command(self, notes: Any, answer: str) -> tuple[str, bool]:
        """The command in the answer ("" where there is none), and whether it was well formed."""
        ...

    def answer(self, notes: Any, command: str) -> str: ...


def choose(name: str, world: str, thinking: bool = True) -> Format:
    """The format called `name` for the world called `world`.

    `thinking` is for chat: whether an answer carries its reasoning before the choice.
    """
    if name not in NAMES:
        raise UserError(f"algorithm.format is {name!r}; {suggestion(name, list(NAMES))}")
    if name == "chat":
        from fedrl.llm.prompts.chat import Chat

        return Chat(thinking)
    if world == "household":
        from fedrl.llm.prompts.compact_household import CompactHousehold

        return CompactHousehold()
    if world == "webshop":
        from fedrl.llm.prompts.compact_webshop import CompactWebShop

        return CompactWebShop()
    raise UserError(
        f'algorithm.format is "compact", which exists for {" and ".join(COMPACT)} only; '
        f'use "chat" for the world {world!r}'
    )


def tokenize(tokenizer: Any, texts: Sequence[str], limit: int) -> list[list[int]]:
    """The last `limit` tokens of each text: prompts end with what is new and with the question."""
    if not texts:
        return []
    rows = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    return [row[max(len(row) - limit, 0) :] for row in rows]
