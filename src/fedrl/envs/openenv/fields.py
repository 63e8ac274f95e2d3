"""Between text and OpenEnv's typed actions and observations, by the schemas that a server tells.

    an action with one field that must be given    the agent's text is that field, as its type
    another action                                 the agent's text is the action, as a JSON object
    an observation with one field                  its value is what the agent sees
    another observation                            a line "field: value" for each

Settings name other fields where that is not what is meant.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedrl.core.registry import suggestion
from fedrl.core.types import Json, JsonValue, UserError

NOT_THE_AGENTS = ("metadata",)
"""Of an action: for programs."""
NOT_SHOWN = ("metadata", "done", "reward")
BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class NoAction(Exception):
    """A text that is no action; the message is for the agent."""


def _json(text: str) -> JsonValue:
    """Without NaN and infinity, which Python's reader takes and a server may not."""
    value: JsonValue = json.loads(text)
    json.dumps(value, allow_nan=False)
    return value


def _number(text: str) -> JsonValue:
    return _json(str(float(text)))


READERS: Mapping[str, Callable[[str], JsonValue]] = {
    "integer": int, "number": _number, "array": _json, "object": _json,
}  # fmt: skip


@dataclass(frozen=True)
class ActionFields:
    """How a text becomes an action: the value of `field`, or a JSON object of `kinds`."""

    field: str
    kinds: Mapping[str, str]  # JSON types, by fields

    @property
    def hint(self) -> str:
        """What the agent is told of it."""
        if self.field:
            return ""
        listed = ", ".join(f'"{name}" ({kind})' for name, kind in self.kinds.items())
        return f"Each command is a JSON object with the fields {listed}."

    def action(self, text: str) -> Json:
        if not self.field:
            return _object(text)
        kind = self.kinds.get(self.field, "string")
        if kind == "boolean":
            if text.strip().lower() not in BOOLEANS:
                raise NoAction(f"Error: {self.field} must be true or false.")
            return {self.field: BOOLEANS[text.strip().lower()]}
        if kind not in READERS:
            return {self.field: text}
        try:
            return {self.field: READERS[kind](text)}
        except (ValueError, RecursionError) as error:
            raise NoAction(f"Error: {self.field} must be of the type {kind}.") from error


def _object(text: str) -> Json:
    try:
        value = _json(text)
    except (ValueError, RecursionError) as error:
        raise NoAction("Error: a command must be a JSON object.") from error
    if not isinstance(value, dict):
        raise NoAction("Error: a command must be a JSON object.")
    return value


def action_fields(schema: Json | None, chosen: str) -> ActionFields:
    """By the server's schema of actions, None where it tells none, and the setting."""
    if schema is None:
        if not chosen:
            raise UserError(
                "world.action is empty, and the OpenEnv server tells no schema: name the field of "
                "an action that gets the agent's text"
            )
        return ActionFields(chosen, {})
    properties = schema.get("properties")
    kinds = {
        name: _kind(field)
        for name, field in (properties.items() if isinstance(properties, Mapping) else ())
        if name not in NOT_THE_AGENTS
    }
    if chosen and chosen not in kinds:
        raise UserError(f"world.action is {chosen!r}; {suggestion(chosen, list(kinds))}")
    needed = [name for name in kinds if name in schema.get("required", ())] or list(kinds)
    return ActionFields(chosen or (needed[0] if len(needed) == 1 else ""), kinds)


def _kind(field: Json) -> str:
    """The JSON type of a field; of a choice, the first that is not null."""
    options = field.get("anyOf", [field]) if isinstance(field, Mapping) else []
    kinds = [str(option["type"]) for option in options if "type" in option]
    return next((kind for kind in kinds if kind != "null"), "string")


def shown(observation: Json, chosen: Sequence[str]) -> str:
    """What the agent sees of an observation."""
    names = chosen or [name for name in observation if name not in NOT_SHOWN]
    present = [name for name in names if observation.get(name) is not None]
    if len(names) == 1:
        return _text(observation[present[0]]) if present else ""
    return "\n".join(f"{name}: {_text(observation[name])}" for name in present)


def listed(observation: Json, field: str) -> list[str]:
    """A field of admissible commands, as texts."""
    value = observation.get(field) if field else None
    return [_text(each) for each in value] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
