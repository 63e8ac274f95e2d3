"""A prompt in a person's own words: a text file with named fields in braces.

    You keep house. Your errand: {goal}

    {history}
    This is before you: {observation}
    What can be done:
    {commands}
    {answer}

The fields are filled in anew for every prompt (a brace itself is written twice: {{ or }}). A line
of fields alone, all of which are empty, is left out, as {history} is before the first turn.

    chat       goal, observation; history (the turns before, in our words), commands (one a line),
               answer (our sentence on how to answer)
    compact    goal, observation; history and commands, on one line each
    prompts    prompt: the data's own

Those before the semicolon must be there. Formats that are made for one world (the compact household
and shop), that a world brings, or that are conversations have no fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter

from fedrl.core.registry import suggestion
from fedrl.core.types import UserError

KEY = "algorithm.template"

Piece = tuple[str, str | None]
"""Words, and the field after them, if any."""


@dataclass(frozen=True)
class Template:
    lines: tuple[tuple[Piece, ...], ...]

    def fill(self, values: Mapping[str, str]) -> str:
        """The prompt; fields that the file does not name are not asked for."""
        return "\n".join(
            "".join(words + (values[name] if name else "") for words, name in line)
            for line in self.lines
            if not _empty(line, values)
        )

    def names(self) -> set[str]:
        return {name for line in self.lines for _, name in line if name}

    def says(self, field: str, words: str) -> bool:
        """Whether it has this field, or these words."""
        said = [text for line in self.lines for text, _ in line]
        return field in self.names() or any(words in text for text in said)


def _empty(line: Sequence[Piece], values: Mapping[str, str]) -> bool:
    """Nothing but fields that are empty; a line that is empty in the file stays."""
    fields = [name for _, name in line if name]
    blank = not any(words.strip() for words, _ in line)
    return bool(fields) and blank and not any(values[name] for name in fields)


def read_template(path: str, known: Sequence[str], needed: Sequence[str]) -> Template:
    """The file's, of whose fields every one is known and none that is needed is missing."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{KEY}: cannot read {path} ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{KEY}: {path} is no text in UTF-8") from error
    lines = text.rstrip("\n").split("\n")
    template = Template(
        tuple(_pieces(line, f"{KEY}: {path}, line {n}") for n, line in enumerate(lines, 1))
    )
    for name in sorted(template.names()):
        if name not in known:
            raise UserError(
                f"{KEY}: {path} has an unknown field {{{name}}}; {suggestion(name, list(known))}"
            )
    for name in needed:
        if name not in template.names():
            raise UserError(f"{KEY}: {path} lacks the field {{{name}}}, which a prompt must tell")
    return template


def _pieces(line: str, place: str) -> tuple[Piece, ...]:
    try:
        found = list(Formatter().parse(line))
    except ValueError as error:
        raise UserError(f"{place}: {error}; a brace itself is written twice, {{{{") from error
    for _, name, how, conversion in found:
        if name == "" or how or conversion:
            raise UserError(f"{place}: a field is a name in braces, such as {{goal}}")
    return tuple((words, name) for words, name, _, _ in found)
