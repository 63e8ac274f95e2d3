"""Calls that models' own chat templates write are read back: templates as TRL has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

trl = pytest.importorskip("trl", reason="trl is not installed")

from fedrl.envs.tools.calls import Call, Parsed, message, parse_calls
from fedrl.llm.builtin_tokenizers import bpe_tokenizer
from fedrl.llm.prompts.conversation import Conversation, Notes, written

pytestmark = pytest.mark.slow

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
CALL = Call("price", {"item": "green tea", "count": 2})
SCHEMA = {
    "type": "function",
    "function": {
        "name": "price",
        "description": "What items cost.",
        "parameters": {
            "type": "object",
            "properties": {
                "item": {"type": "string", "description": "the item"},
                "count": {"type": "integer", "description": "how many"},
            },
            "required": ["item"],
        },
    },
}
ASKED = {"role": "user", "content": "What do two green teas cost?"}
RESULT = {"role": "tool", "name": "price", "content": "8.5"}


def tokenizer(template: str):
    made = bpe_tokenizer((), 258)
    made.chat_template = (TEMPLATES / f"{template}.jinja").read_text()
    made.bos_token = made.eos_token
    return made


@pytest.mark.parametrize(
    "template", ["qwen2_5", "qwen3", "llama3_1", "llama3_2", "qwen3_5_nothink", "nemotron_3_nano"]
)
def test_a_call_that_a_template_writes_is_read_back(template: str) -> None:
    model = tokenizer(template)
    before = written(model, [ASKED], [SCHEMA])
    assert "What items cost." in before
    whole = model.apply_chat_template(
        [ASKED, message(Parsed("", (CALL,)))], tools=[SCHEMA], tokenize=False
    )
    same = next(i for i, (a, b) in enumerate(zip(before + "\0", whole)) if a != b)
    said = re.split(r"<\|(?:im_end|eot_id|eom_id)\|>", whole[same:])
    assert parse_calls(said[0]).calls == (CALL,)


@pytest.mark.parametrize("template", ["qwen2_5", "qwen3", "llama3_1"])
def test_results_come_back_through_the_template(template: str) -> None:
    model, format = tokenizer(template), Conversation()
    messages = [ASKED, message(Parsed("", (CALL,))), RESULT]
    text = written(model, messages, [SCHEMA])
    assert text.index("two green teas") < text.index('"green tea"') < text.index("8.5")
    (row,) = format.encode(model, [Notes(messages, [SCHEMA])], 10_000)
    assert model.decode(row) == text
