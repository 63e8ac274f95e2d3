"""Any text world in few words, for small models: the goal, what was seen and done, what is seen.

    task GOAL ; saw FIRST ; did COMMAND ; saw ANSWER ; … >

The completion is the command itself, as the world spells it. All turns before this one are told, or
the last so many (`history`); where a prompt is too long, the oldest go first. A `template` says it
in words of one's own. The household and the shop have compact formats of their own, which know what
matters there; a world of one's own may bring one (`prompt_format.OwnFormat`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fedrl.envs.text import Turn
from fedrl.llm.model_types import Tokenizer
from fedrl.llm.prompts.chat import meant
from fedrl.llm.prompts.prompt_format import tokenize
from fedrl.llm.prompts.template import read_template

FIELDS, NEEDED = ("goal", "history", "observation", "commands"), ("goal", "observation")
"""Of a template."""


@dataclass
class Notes:
    goal: str
    observation: str
    admissible: Sequence[str]
    history: list[tuple[str, str]] = field(default_factory=list)  # what was seen, then done


class Compact:
    """See the module's docstring."""

    def __init__(self, history: int | None = None, template: str = "") -> None:
        self.history = history
        self.template = read_template(template, FIELDS, NEEDED) if template else None

    def start(self, goal: str, turn: Turn) -> Notes:
        return Notes(goal, turn.observation, turn.admissible)

    def observe(self, notes: Notes, command: str, turn: Turn, said: str = "") -> None:
        notes.history.append((notes.observation, command))
        if self.history is not None:
            del notes.history[: max(len(notes.history) - self.history, 0)]
        notes.observation, notes.admissible = turn.observation, turn.admissible

    def prompt(self, notes: Notes, turns: int | None = None) -> str:
        """With the last `turns` before the present one; None is all."""
        recent = notes.history[len(notes.history) - turns :] if turns is not None else notes.history
        seen = [part for saw, did in recent for part in (f"saw {saw}", f"did {did or 'nothing'}")]
        if self.template is None:
            return " ; ".join((f"task {notes.goal}", *seen, f"saw {notes.observation}")) + " >"
        commands = " , ".join(notes.admissible)
        return self.template.fill(
            {
                "goal": notes.goal,
                "history": " ; ".join(seen),
                "observation": notes.observation,
                "commands": commands,
            }
        )

    def encode(self, tokenizer: Tokenizer, notes: Sequence[Notes], limit: int) -> list[list[int]]:
        rows = tokenize(tokenizer, [self.prompt(each) for each in notes], limit + 1)
        return [
            row if len(row) <= limit else self.fit(tokenizer, each, limit)
            for row, each in zip(rows, notes, strict=True)
        ]

    def fit(self, tokenizer: Tokenizer, notes: Notes, limit: int) -> list[int]:
        """With as many of the last turns as `limit` tokens hold; then the last tokens alone."""
        for turns in reversed(range(len(notes.history))):
            (row,) = tokenize(tokenizer, [self.prompt(notes, turns)], limit + 1)
            if len(row) <= limit:
                return row
        return tokenize(tokenizer, [self.prompt(notes, 0)], limit)[0]

    def parse(self, notes: Notes, completion: str) -> tuple[str, bool]:
        words = " ".join(completion.split())
        return meant(words, notes.admissible) if words else "", bool(words)

    def render(self, notes: Notes, command: str) -> str:
        return command
