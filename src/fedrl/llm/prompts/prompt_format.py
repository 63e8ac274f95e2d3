"""How an agent is told its situation, and how its completion becomes a command.

A `PromptFormat` keeps notes of an episode (`start`, `observe`), writes the prompt, and parses the
completion. `render` is the inverse of `parse`: how a demonstration's command would be said, for
imitation. Small models get a compact format, made for one world or for any; instruction-tuned ones
get `chat`, which knows nothing but the interface of text worlds. A world may bring a compact format
of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from fedrl.core.registry import suggestion
from fedrl.core.types import Shareable, UserError
from fedrl.envs.text import TextWorld, Turn
from fedrl.llm.model_types import Tokenizer

NAMES = ("compact", "chat")
USUAL = -1
"""A history of as many turns as the format shows by itself."""
COMPACT = ("household", "webshop")
"""The worlds of ours that have a compact format to themselves."""

CONVERSATIONS = ("tools", "verifiers")
"""The worlds whose turns are chat messages."""

Notes = TypeVar("Notes")
"""What a format remembers of one episode."""


class PromptFormat(Protocol[Notes]):
    def start(self, goal: str, turn: Turn, /) -> Notes:
        """Notes of a new episode."""
        ...

    def observe(self, notes: Notes, command: str, turn: Turn, said: str = "", /) -> None:
        """Write down what the command did; `said` is the completion that it was parsed from."""
        ...

    def prompt(self, notes: Notes, /) -> str: ...

    def encode(
        self, tokenizer: Tokenizer, notes: Sequence[Notes], limit: int, /
    ) -> list[list[int]]:
        """The prompts as tokens, each of at most `limit`; what is too long is shortened."""
        ...

    def parse(self, notes: Notes, completion: str, /) -> tuple[str, bool]:
        """The command in a completion ("" where there is none), and whether that is well formed."""
        ...

    def render(self, notes: Notes, command: str, /) -> str:
        """The completion that says this command."""
        ...


@runtime_checkable
class OwnFormat(Protocol):
    """A world with a compact format of its own: a method, or the format's class as an attribute."""

    def prompt_format(self) -> PromptFormat[Any]: ...


def world_format(
    name: str,
    world: TextWorld,
    thinking: bool = True,
    history: int = USUAL,
    template: str = "",
) -> PromptFormat[Any]:
    """The format called `name` for this world: for `compact` its own, if it brings one."""
    if name == "compact" and isinstance(world, OwnFormat):
        if history != USUAL:
            raise UserError(
                f"algorithm.history is {history}, but the world {world.name!r} brings a compact "
                'format of its own, which says what is shown; leave it out, or set format = "chat"'
            )
        _refuse_template(template, world.name)
        return world.prompt_format()
    return prompt_format(name, world.name, thinking, history, template)


def prompt_format(
    name: str, world: str, thinking: bool = True, history: int = USUAL, template: str = ""
) -> PromptFormat[Any]:
    """The format called `name` for the world called `world`.

    `thinking` is for chat: whether an answer carries its reasoning before the choice. `history` is
    how many turns before the present one are shown, `template` a file with words of one's own.
    """
    if name not in NAMES:
        raise UserError(f"algorithm.format is {name!r}; {suggestion(name, list(NAMES))}")
    shown = None if history == USUAL else history
    if world in CONVERSATIONS:
        from fedrl.llm.prompts.conversation import Conversation

        _refuse_template(template, world)
        return Conversation(shown)
    if world == "prompts":
        from fedrl.llm.prompts.single_turn import SingleTurn

        return SingleTurn(name == "chat", template)
    if name == "chat":
        from fedrl.llm.prompts import chat

        return chat.Chat(thinking, chat.HISTORY if shown is None else shown, template)
    if world in COMPACT:
        _refuse_template(template, world)
    if world == "household":
        from fedrl.llm.prompts.compact_household import CompactHousehold

        return CompactHousehold() if shown is None else CompactHousehold(shown)
    if world == "webshop":
        from fedrl.llm.prompts.compact_webshop import CompactWebShop

        return CompactWebShop() if shown is None else CompactWebShop(shown)
    from fedrl.llm.prompts.compact import Compact

    return Compact(shown, template)


def _refuse_template(template: str, world: str) -> None:
    """For formats whose words are their own."""
    if template:
        other = "leave it out" if world in CONVERSATIONS else 'set algorithm.format = "chat"'
        raise UserError(
            f"algorithm.template is {template!r}, but how {world} is told has words of its own: "
            f"{other}"
        )


def require_tokens(rows: Sequence[Sequence[int]], places: Sequence[str]) -> None:
    """A model goes on from a token at least; of some texts a tokenizer makes none: of characters
    that it drops, or of words that it does not know. `places` say where each prompt lies."""
    for row, place in zip(rows, places, strict=True):
        if not row:
            raise UserError(
                Shareable(
                    f"{place}: algorithm.model's tokenizer makes no token of this prompt, so that "
                    "there is nothing to answer: change the prompt, or leave it out"
                )
            )


def tokenize(tokenizer: Tokenizer, texts: Sequence[str], limit: int) -> list[list[int]]:
    """The last `limit` tokens of each text: prompts end with what is new and with the question."""
    if not texts:
        return []
    rows = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    return [row[max(len(row) - limit, 0) :] for row in rows]
