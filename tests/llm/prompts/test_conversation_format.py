"""Conversations through the model's own template, or line by line where it has none."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers", reason="the extra llm is not installed")

from fedrl.core.types import UserError
from fedrl.envs.text import Turn
from fedrl.llm.builtin_tokenizers import bpe_tokenizer
from fedrl.llm.prompts.conversation import Conversation, Notes, plain, written
from fedrl.llm.prompts.prompt_format import prompt_format

TOOL = {"type": "function", "function": {"name": "price", "parameters": {}}}
MESSAGES = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": "first"},
    {"role": "user", "content": "go on"},
    {"role": "assistant", "content": "second"},
    {"role": "user", "content": "and?"},
]


def turn(messages, tools=()) -> Turn:
    return Turn("", 0.0, False, (), {"won": False, "messages": messages, "tools": tools})


@pytest.mark.parametrize("name", ["compact", "chat"])
@pytest.mark.parametrize("world", ["tools", "verifiers"])
def test_worlds_that_converse_have_this_format(name: str, world: str) -> None:
    assert isinstance(prompt_format(name, world), Conversation)


def test_notes_follow_the_worlds_own_conversation() -> None:
    format = Conversation()
    notes = format.start("", turn(MESSAGES[:2], [TOOL]))
    format.observe(notes, "first", turn(MESSAGES[:4], [TOOL]))
    assert notes == Notes(MESSAGES[:4], [TOOL])
    format.observe(notes, "second", Turn("", 1.0, True, (), {"won": True}))
    assert notes == Notes(MESSAGES[:4], [TOOL])


def test_lines_without_a_template() -> None:
    call = {"type": "function", "function": {"name": "price", "arguments": {"item": "tea"}}}
    asked = [MESSAGES[1], {"role": "assistant", "content": "", "tool_calls": [call]}]
    assert plain(asked) == (
        'user: q\nassistant: {"name": "price", "arguments": {"item": "tea"}}\nassistant:'
    )
    assert written(bpe_tokenizer((), 258), MESSAGES[:2], ()) == "system: s\nuser: q\nassistant:"


def test_a_template_that_shows_no_tools_is_refused() -> None:
    tokenizer = bpe_tokenizer((), 258)
    tokenizer.chat_template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}>"
    assert written(tokenizer, MESSAGES[:2], ()) == "[system] s[user] q>"
    with pytest.raises(UserError, match="shows no tools"):
        written(tokenizer, MESSAGES[:2], [TOOL])
    tokenizer.chat_template = "{{ raise_exception('no system message') }}"
    with pytest.raises(UserError, match="cannot write this world's conversation"):
        written(tokenizer, MESSAGES[:2], ())


def test_the_oldest_turns_after_the_question_go_first() -> None:
    tokenizer, format = bpe_tokenizer((), 258), Conversation()
    whole = "system: s\nuser: q\nassistant: first\nuser: go on\nassistant: second\nuser: and?\n"
    (row,) = format.encode(tokenizer, [Notes(MESSAGES, ())], 1000)
    assert tokenizer.decode(row) == f"{whole}assistant:"
    (row,) = format.encode(tokenizer, [Notes(MESSAGES, ())], len(whole))
    assert tokenizer.decode(row) == "system: s\nuser: q\nassistant: second\nuser: and?\nassistant:"
    (row,) = format.encode(tokenizer, [Notes(MESSAGES, ())], 12)
    assert tokenizer.decode(row) == "?\nassistant:"


def test_only_with_tools_is_a_broken_call_ill_formed() -> None:
    format = Conversation()
    broken = "<tool_call>price</tool_call>"
    assert format.parse(Notes([], [TOOL]), broken) == (broken, False)
    assert format.parse(Notes([], ()), broken) == (broken, True)
    assert format.parse(Notes([], ()), " ") == (" ", False)
