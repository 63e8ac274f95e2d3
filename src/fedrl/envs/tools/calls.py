"""Calls of tools in a model's answer, in the forms that chat templates teach.

    <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>        Hermes, Qwen, SmolLM
    <tool_call><function=add><parameter=a>1</parameter></function></tool_call>      Qwen3-Coder
    <function=add>{"a": 1}</function>                                    Llama 3
    [TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}]                Mistral
    {"name": "add", "parameters": {"a": 1}}                              Llama 3, alone or in a list

What stands between <think> tags is thought, not called. Decoders leave special tokens out, so those
that announce a call ([TOOL_CALLS], <|python_tag|>) may be missing.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from fedrl.core.types import Json, JsonValue

TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
FUNCTION = re.compile(r"<function=([\w.-]+)>(.*?)</function>", re.DOTALL)
PARAMETER = re.compile(r"<parameter=([\w.-]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
ANNOUNCED = re.compile(r"\s*(?:\[TOOL_CALLS\]|<\|python_tag\|>|```(?:json)?\n)", re.IGNORECASE)
FENCE = re.compile(r"\n```\s*\Z")

PROBLEM = (
    'Error: a call must be a JSON object with a "name" and "arguments", as the tools are described.'
)


class Call(NamedTuple):
    name: str
    arguments: Json


class Parsed(NamedTuple):
    """An answer: its words, its calls, and what is wrong with one that cannot be read."""

    content: str
    calls: tuple[Call, ...] = ()
    problem: str = ""


class NoCall(Exception):
    """Something that looks like a call, and is none."""


def parse_calls(text: str) -> Parsed:
    said = THOUGHT.sub("", text)
    try:
        if "<tool_call>" in said:
            calls = [call for body in TAGGED.findall(said) for call in _within(body)]
            return Parsed(TAGGED.sub("", text).strip(), tuple(calls))
        if functions := FUNCTION.findall(said):
            return Parsed(FUNCTION.sub("", text).strip(), tuple(_functions(functions)))
        announced = ANNOUNCED.match(said)
        body = FENCE.sub("", said[announced.end() :] if announced else said).strip()
        if not announced and not body.startswith(("{", "[")):
            return Parsed(text)
        try:
            calls = _calls(_json(body))
        except NoCall:
            if announced and "TOOL_CALLS" in announced[0].upper():
                raise
            return Parsed(text)  # JSON, or not quite, that is the answer itself
        return Parsed("", tuple(calls))
    except NoCall:
        return Parsed(text, (), PROBLEM)


def _within(body: str) -> list[Call]:
    functions = FUNCTION.findall(body)
    return _functions(functions) if functions else _calls(_json(body))


def _functions(found: list[tuple[str, str]]) -> list[Call]:
    calls = []
    for name, body in found:
        if parameters := PARAMETER.findall(body):
            calls.append(Call(name, {key: _loose(value) for key, value in parameters}))
        else:
            calls.append(Call(name, _arguments(_json(body) if body.strip() else {})))
    return calls


def _calls(value: JsonValue) -> list[Call]:
    return [_call(each) for each in value] if isinstance(value, list) and value else [_call(value)]


def _call(value: JsonValue) -> Call:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]  # OpenAI's form
    if not isinstance(value, dict) or not isinstance(name := value.get("name"), str):
        raise NoCall
    if "arguments" not in value and "parameters" not in value:
        raise NoCall
    return Call(name, _arguments(value.get("arguments", value.get("parameters"))))


def _arguments(value: JsonValue) -> Json:
    if isinstance(value, str):
        value = _json(value)
    if not isinstance(value, dict):
        raise NoCall
    return value


def _json(text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NoCall from error
    return value


def _loose(text: str) -> JsonValue:
    """A parameter without quotes: a number, a list, or else a text."""
    try:
        return _json(text)
    except NoCall:
        return text


def message(parsed: Parsed, ids: bool = False) -> Json:
    """The answer as a message for chat templates; `ids` are for those that number calls."""
    said: Json = {"role": "assistant", "content": parsed.content}
    if parsed.calls:
        said["tool_calls"] = [
            {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            | ({"id": f"call{i:05d}"} if ids else {})
            for i, call in enumerate(parsed.calls)
        ]
    return said
