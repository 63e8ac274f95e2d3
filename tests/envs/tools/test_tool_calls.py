"""Calls are read in the forms that models write them in, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrl.envs.tools.calls import PROBLEM, Call, Parsed, message, parse_calls

ADD = Call("add", {"a": 1, "b": [2]})
JSON = '{"name": "add", "arguments": {"a": 1, "b": [2]}}'


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{JSON}</tool_call>",
        f"<tool_call>\n{JSON}\n</tool_call>\n",
        f"<tool_call>{JSON}",  # the closing tag was the answer's last token
        f"<think><tool_call>no</tool_call></think>\n<tool_call>{JSON}</tool_call>",
        '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1, \\"b\\": [2]}"}</tool_call>',
        "<tool_call><function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>[2]</parameter>"
        "</function></tool_call>",
        '<function=add>{"a": 1, "b": [2]}</function>',
        f"[TOOL_CALLS] [{JSON}]",
        f"[{JSON}]",
        '{"name": "add", "parameters": {"a": 1, "b": [2]}}',
        '<|python_tag|>{"name": "add", "parameters": {"a": 1, "b": [2]}}',
        f"```json\n{JSON}\n```",
        f'{{"type": "function", "function": {JSON}}}',
    ],
)
def test_forms_of_one_call(text: str) -> None:
    found = parse_calls(text)
    assert found.calls == (ADD,)
    assert not found.problem


def test_words_around_calls_are_the_content() -> None:
    text = f"I add.\n<tool_call>{JSON}</tool_call><tool_call>{JSON}</tool_call> Done."
    assert parse_calls(text) == Parsed("I add.\n Done.", (ADD, ADD))


def test_text_parameters_need_no_quotes() -> None:
    text = "<tool_call><function=say><parameter=words>good day</parameter></function></tool_call>"
    assert parse_calls(text).calls == (Call("say", {"words": "good day"}),)


@pytest.mark.parametrize(
    "text", ["12", "The answer is {4}.", '{"answer": 12}', "[1, 2]", "", "{not json", '"name"']
)
def test_answers_that_call_nothing(text: str) -> None:
    assert parse_calls(text) == Parsed(text)


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>add 1 and 2</tool_call>",
        '<tool_call>{"name": "add"}</tool_call>',
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "add", "arguments": [1]}</tool_call>',
        "<function=add>1, 2</function>",
        "[TOOL_CALLS] add(1, 2)",
        "<tool_call>" + "[" * 100_000 + "</tool_call>",
    ],
)
def test_calls_that_cannot_be_read_are_told_to_the_agent(text: str) -> None:
    assert parse_calls(text) == Parsed(text, (), PROBLEM)


@given(st.text(alphabet='<>/{}[]":,=tol_cafuncinparmetrhk \n1', max_size=80))
def test_any_text_is_read(text: str) -> None:
    found = parse_calls(text)
    assert not (found.calls and found.problem)


def test_an_answer_becomes_a_message_for_templates() -> None:
    said = message(parse_calls(f"So: <tool_call>{JSON}</tool_call>"))
    assert said == {
        "role": "assistant",
        "content": "So:",
        "tool_calls": [
            {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": [2]}}}
        ],
    }
    assert message(parse_calls("3")) == {"role": "assistant", "content": "3"}
