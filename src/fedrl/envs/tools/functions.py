"""Typed Python functions as tools: their schema for the model, their calls, their results as text.

The schema is transformers' own, from type hints and a docstring in Google's form:

    def price(item: str) -> float:
        \"\"\"What an item costs.

        Args:
            item: the name of the item
        \"\"\"

Whatever is wrong with a call, and whatever a function raises, is a text that the agent reads on its
next turn: a tool never ends an episode, nor a run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedrl.core.registry import Table, label, load
from fedrl.core.types import Json, UserError
from fedrl.envs.side_by_side import run_all
from fedrl.envs.tools.calls import Call

KEY = "world.tools"
TOOLS = Table("tools", KEY, {}, by_place=False)
LONGEST = 10_000
"""Characters of a result that the agent is told."""
Tool = Callable[..., Any]
"""Somebody else's; what it returns becomes text."""

KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
    "array": (list,), "object": (dict,), "null": (type(None),),
}  # fmt: skip


@dataclass(frozen=True)
class Tools:
    """The functions of a recipe by their own names, with the schemas that templates show."""

    functions: Mapping[str, Tool]
    schemas: tuple[Json, ...]

    @classmethod
    def find(cls, names: Sequence[str]) -> Tools:
        if not names:
            raise UserError(f"{KEY} is empty; it names functions, such as package.module:function")
        functions, schemas = {}, []
        for name in names:
            function = load(TOOLS.find(name), KEY, name)
            schema = _schema(name, function)
            if function.__name__ in functions:
                raise UserError(f"{KEY} has two functions called {function.__name__}")
            functions[function.__name__] = function
            schemas.append(schema)
        return cls(functions, tuple(schemas))

    def call(self, call: Call) -> str:
        """What the function returns, or what is wrong, in words for the agent."""
        if call.name not in self.functions:
            return f"Error: there is no tool {call.name!r}; there are {', '.join(self.functions)}."
        function = self.functions[call.name]
        schema = next(s["function"] for s in self.schemas if s["function"]["name"] == call.name)
        if wrong := _mistake(schema["parameters"], call.arguments):
            return f"Error: {wrong}"
        try:
            result = function(**call.arguments)
            if inspect.isawaitable(result):
                result = run_all([_awaited(result)])[0]
            text = str(result)
        except Exception as error:  # noqa: BLE001 - code of others may fail in any way
            text = f"Error: {type(error).__name__}: {error}"
        return text[:LONGEST]


async def _awaited(result: Any) -> Any:
    return await result


def _schema(name: str, function: Tool) -> Json:
    from transformers.utils.chat_template_utils import (
        DocstringParsingException,
        TypeHintParsingException,
        get_json_schema,
    )

    if not inspect.isroutine(function):
        raise UserError(f"{KEY} = {name!r} is no function")
    try:
        schema: Json = get_json_schema(function)
    except (DocstringParsingException, TypeHintParsingException) as error:
        why = " ".join(str(error).split())
        raise UserError(f"{KEY} = {label(name)!r} cannot be shown to a model: {why}") from error
    return schema


def _mistake(parameters: Json, arguments: Json) -> str:
    """What of the arguments is not as the schema says, for the agent."""
    known: Json = parameters.get("properties", {})
    if missing := [key for key in parameters.get("required", ()) if key not in arguments]:
        return f"the argument {missing[0]!r} is missing."
    for key, value in arguments.items():
        if key not in known:
            return f"there is no argument {key!r}; there are {', '.join(known) or 'none'}."
        kinds = known[key].get("type", ())
        kinds = [kinds] if isinstance(kinds, str) else list(kinds)
        allowed = tuple(kind for name in kinds for kind in KINDS.get(name, (object,)))
        strange = isinstance(value, bool) and bool not in allowed
        if allowed and (strange or not isinstance(value, allowed)) and value is not None:
            return f"{key} must be of the type {' or '.join(kinds)}."
        if "enum" in known[key] and value not in known[key]["enum"]:
            return f"{key} must be one of {', '.join(map(str, known[key]['enum']))}."
    return ""
