"""The template of an exported agent makes of a message the tokens that its format makes."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the extra llm is not installed")

from transformers import AutoTokenizer, PreTrainedTokenizerFast

from fedrl.envs.text import Turn
from fedrl.llm.builtin_tokenizers import bpe_tokenizer, word_tokenizer
from fedrl.llm.prompts import chat_template as templates
from fedrl.llm.prompts.chat import Chat
from fedrl.llm.prompts.compact import Compact
from fedrl.llm.prompts.compact_household import CompactHousehold
from fedrl.llm.prompts.conversation import Conversation, plain
from fedrl.llm.prompts.outline import messages, prompt_outline
from fedrl.llm.prompts.prompt_format import prompt_format
from fedrl.llm.prompts.single_turn import SingleTurn

OWN = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "
SEEN = Turn("You see a “mug” & <b>3</b> {{ pens }}.\nNext line. ", 0.0, False, ("go", "look"), {})
TOOL = {"type": "function", "function": {"name": "price", "parameters": {"é": ["<b>"]}}}
CALL = {"type": "function", "function": {"name": "price", "arguments": {"item": "naïve"}}}
SAID = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": "what of “it”?\n"},
    {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]},
    {"role": "tool", "content": "3"},
    {"role": "assistant", "content": "so", "tool_calls": [CALL]},
    {"role": "user", "content": ""},
]
BYTES = bpe_tokenizer((), 258)


def tokenizer(template: str = "") -> PreTrainedTokenizerFast:
    made = bpe_tokenizer((), 258)
    made.chat_template = template or None
    return made


def asked(words: PreTrainedTokenizerFast, conversation: Any, tools: Any = None) -> list[int]:
    """As a server asks a model."""
    return words.apply_chat_template(
        list(conversation), tools=tools, add_generation_prompt=True, tokenize=True, return_dict=True
    )["input_ids"]


@pytest.mark.parametrize("template", ["", OWN])
@pytest.mark.parametrize("format", [Chat(), Chat(False), Compact(), CompactHousehold()])
def test_a_message_becomes_what_evaluation_tokenizes(format, template: str, tmp_path) -> None:
    words = tokenizer(template)
    notes = format.start(" put a mug in {{ it }} ", SEEN)
    format.observe(notes, "look", SEEN)
    (row,) = format.encode(words, [notes], 10_000)
    templates.keep_template(words, templates.chat_template(format, words))
    words.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert asked(again, messages(format, notes)) == row
    own = OWN in again.decode(row) or "[assistant]" in again.decode(row)
    assert own == (bool(template) and isinstance(format, Chat))


def test_the_models_own_template_can_still_be_named(tmp_path) -> None:
    words = tokenizer(OWN)
    templates.keep_template(words, templates.chat_template(Compact(), words))
    words.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again.get_chat_template() == templates.TEXT
    assert again.get_chat_template(templates.OWN) == OWN
    assert templates.chat_template(Compact(), again) == templates.TEXT


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("prompt", ["2 + 2 =", [{"role": "user", "content": "2 + 2?"}]])
def test_prompts_of_the_data(chat: bool, prompt: Any) -> None:
    format, words = SingleTurn(chat), tokenizer(OWN)
    notes = format.start("in words", Turn("in words", 0.0, False, (), {"prompt": prompt}))
    (row,) = format.encode(words, [notes], 1000)
    spoken = not isinstance(prompt, str)
    templates.keep_template(words, templates.chat_template(format, words, spoken))
    assert asked(words, messages(format, notes)) == row


@pytest.mark.parametrize("tools", [[], [TOOL]])
@pytest.mark.parametrize("count", range(1, len(SAID) + 1))
def test_a_conversation_without_a_template_is_written_line_by_line(tools, count: int) -> None:
    words = tokenizer()
    template = templates.chat_template(Conversation(), words)
    assert templates.written(words, template, SAID[:count], tools) == plain(SAID[:count], tools)


def test_a_text_begins_with_what_the_model_expects() -> None:
    words = tokenizer()
    assert templates.beginning_template(words) == templates.TEXT
    words.add_special_tokens({"bos_token": "<begin>"})
    assert templates.beginning_template(words) == templates.TEXT  # it has one and writes none
    from tokenizers.processors import TemplateProcessing

    begin = words.bos_token_id
    words.backend_tokenizer.post_processor = TemplateProcessing(
        "<begin> $A", None, [("<begin>", begin)]
    )
    template = templates.beginning_template(words)
    words.chat_template = template
    assert asked(words, [{"role": "user", "content": "so it"}]) == words("so it")["input_ids"]
    assert words("so it")["input_ids"][0] == begin


@pytest.mark.parametrize(
    "said", ["<think>a\n</think>\n go ", " x\n", "", '<tool_call>{"a": 1}</tool_call>']
)
@pytest.mark.parametrize("whole_words", [False, True])
def test_a_server_leaves_an_answer_in_one_piece(said: str, whole_words: bool) -> None:
    """Cut where evaluation cuts it, whether the tokenizer joins its tokens with blanks or not."""
    words = word_tokenizer([said, "other"]) if whole_words else tokenizer()
    row = words(said, add_special_tokens=False)["input_ids"]
    evaluated = words.decode([*row, words.eos_token_id], skip_special_tokens=True)
    templates.keep_whole_answers(words, [words.eos_token_id])
    for ended in filter(None, ([*row, words.eos_token_id], row)):
        parsed = words.parse_response(ended, prefix="p <think> <end>")
        assert parsed.get("content", "") == evaluated
        assert parsed.keys() <= {"role", "content"}


def test_outlines_show_the_form_and_stand_for_words() -> None:
    assert prompt_outline(Compact()) == (
        "task TASK ; saw WHAT WAS SEEN FIRST ; did A COMMAND ; saw WHAT IS SEEN NOW >"
    )
    chat = prompt_outline(Chat())
    assert "Your task: TASK" in chat
    assert "- ANOTHER COMMAND" in chat
    for world in ("household", "webshop", "prompts", "tools", "word_game"):
        for name in ("compact", "chat"):
            assert prompt_outline(prompt_format(name, world))
    assert prompt_outline(json) == ""  # of a format that is none of ours nothing is known
