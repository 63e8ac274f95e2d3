"""How an agent's prompts look, with words that stand for a task's own: for its model card."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedrl.core.types import Json
from fedrl.envs.text import Turn
from fedrl.llm.prompts import conversation, single_turn
from fedrl.llm.prompts.chat import Chat
from fedrl.llm.prompts.compact import Compact
from fedrl.llm.prompts.compact_household import CompactHousehold
from fedrl.llm.prompts.compact_webshop import CompactWebShop
from fedrl.llm.prompts.prompt_format import PromptFormat

HOUSEHOLD = ("task TASK", "new PLACES", "know THING at PLACE", "hold THING")
WEBSHOP = ("task TASK", "step 1"), ("query WORDS", "results 1", "PRODUCTS")
CONVERSATION = "user: QUESTION\nassistant:"
SINGLE_TURN = "PROMPT"

GOAL, FIRST, COMMAND, SECOND = "TASK", "WHAT WAS SEEN FIRST", "A COMMAND", "WHAT IS SEEN NOW"
OFFERED = (COMMAND, "ANOTHER COMMAND")


def prompt_outline(format: PromptFormat[Any]) -> str:
    """The prompt of a second turn; "" of a format that is none of ours."""
    match format:
        case CompactHousehold(history=turns):
            past = ["did COMMAND", "ANSWER"] * turns or ["ANSWER"]
            return " ; ".join((*HOUSEHOLD, *past)) + " >"
        case CompactWebShop(history=turns):
            known, page = WEBSHOP
            return " ; ".join((*known, *["did ANSWER"] * turns, *page)) + " >"
        case conversation.Conversation():
            return CONVERSATION
        case single_turn.SingleTurn(template=template):
            return template.fill({"prompt": SINGLE_TURN}) if template else SINGLE_TURN
        case Chat() | Compact():
            notes: Any = format.start(GOAL, Turn(FIRST, 0.0, False, OFFERED, {}))
            format.observe(notes, COMMAND, Turn(SECOND, 0.0, False, OFFERED, {}))
            return format.prompt(notes)
    return ""


def messages(format: PromptFormat[Any], notes: Any) -> Sequence[Json]:
    """What an endpoint is sent where the format has these notes of an episode."""
    if isinstance(format, conversation.Conversation):
        return format.shown(notes)
    if isinstance(notes, single_turn.Notes) and not isinstance(notes.prompt, str):
        return [dict(message) for message in notes.prompt]
    text = notes.prompt if isinstance(notes, single_turn.Notes) else format.prompt(notes)
    return [{"role": "user", "content": text}]
