"""The situation in sentences: for instruction-tuned models, in any text world.

The prompt carries the task, the last turns (two, unless told otherwise), what the agent sees now
and the commands that the world offers, in our words or in those of a `template`. The answer reasons
between <think> tags and chooses between <action> tags. A choice without the reasoning is played and
counts as not well formed; without a choice nothing is done. A command that did nothing is named
where the world's own words do not say so (the shop's pages).
Small models may leave the reasoning out (`thinking=False`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fedrl.core.types import UserError
from fedrl.envs.text import Turn
from fedrl.llm.model_types import Tokenizer
from fedrl.llm.prompts.prompt_format import tokenize
from fedrl.llm.prompts.template import KEY, read_template

HISTORY = 2
"""Turns before the present one that a prompt shows, as in the paper."""

CUT = " […] "
"""Stands where a prompt had to be shortened."""

KEPT_COMMANDS = 2
"""Of a list that is too long: they show how a command looks."""

LONG_GOAL = 40
"""Characters from which a goal is worth replacing where an observation repeats it, as every page
of a shop does."""

FIELDS, NEEDED = ("goal", "history", "observation", "commands", "answer"), ("goal", "observation")
"""Of a template."""

TAG = re.compile(r"(</?(?:think|action)>)", re.IGNORECASE)
BLANK = re.compile(r"<[^<>]*>")
REASONING = re.compile(r"<think>.*?</think>", re.IGNORECASE | re.DOTALL)
THOUGHT = re.compile(r"(?:(?!</?(?:think|action)>).)*" + REASONING.pattern, REASONING.flags)
LONE_END = re.compile(r"</think>", re.IGNORECASE)
"""Of reasoning that the prompt may have begun."""


@dataclass
class Notes:
    goal: str
    observation: str
    admissible: Sequence[str]
    history: list[tuple[str, str]] = field(default_factory=list)  # what was seen, then done


@dataclass(frozen=True)
class Shortened:
    """How much of the notes is shown: turns, commands and characters of the observation."""

    history: int | None = None  # all that the notes have
    commands: int | None = None  # all
    characters: int | None = None  # all


WHOLE = Shortened()


class Chat:
    """See the module's docstring."""

    def __init__(self, thinking: bool = True, history: int = HISTORY, template: str = "") -> None:
        self.thinking, self.history = thinking, history
        self.template = read_template(template, FIELDS, NEEDED) if template else None
        if self.template and not self.template.says("answer", "<action>"):
            raise UserError(
                f"{KEY}: {template} does not say how to answer: name the field {{answer}}, or "
                "<action>"
            )

    def start(self, goal: str, turn: Turn) -> Notes:
        return Notes(goal, turn.observation, turn.admissible)

    def observe(self, notes: Notes, command: str, turn: Turn, said: str = "") -> None:
        seen = [*notes.history, (notes.observation, command)]
        notes.history = seen[max(len(seen) - self.history, 0) :]
        notes.observation, notes.admissible = turn.observation, turn.admissible
        if turn.info.get("failed"):
            notes.observation += f"\n\n{_failed(command)}"

    def prompt(self, notes: Notes, shown: Shortened = WHOLE) -> str:
        if self.template is not None:
            return self.template.fill(self._fields(notes, shown))
        parts = [
            "You are an agent in a world of text. Each turn you give one command, and the world "
            f"answers with what you see next.\n\nYour task: {notes.goal}",
            _past(notes, shown.history),
            f"Now you see:\n{_cut(_without_goal(notes, notes.observation), shown.characters)}",
            _offer(notes.admissible, shown.commands),
            self._how,
        ]
        return "\n\n".join(part for part in parts if part)

    @property
    def _how(self) -> str:
        return REASONED if self.thinking else DIRECT

    def _fields(self, notes: Notes, shown: Shortened) -> dict[str, str]:
        return {
            "goal": notes.goal,
            "history": _past(notes, shown.history),
            "observation": _cut(_without_goal(notes, notes.observation), shown.characters),
            "commands": "\n".join(_listed(notes.admissible, shown.commands)),
            "answer": self._how,
        }

    def encode(self, tokenizer: Tokenizer, notes: Sequence[Notes], limit: int) -> list[list[int]]:
        texts = [with_template(tokenizer, self.prompt(each)) for each in notes]
        rows = tokenize(tokenizer, texts, limit + 1)
        return [
            row if len(row) <= limit else self.fit(tokenizer, each, limit)
            for row, each in zip(rows, notes, strict=True)
        ]

    def fit(self, tokenizer: Tokenizer, notes: Notes, limit: int) -> list[int]:
        """The prompt in at most `limit` tokens.

        First the turns before this one go, then commands from the end of the list (what is seen
        names them too), then the middle of the observation; where even that is too long, only the
        last tokens stay, which ask for the answer.
        """

        def row(shown: Shortened) -> list[int]:
            text = with_template(tokenizer, self.prompt(notes, shown))
            return tokenize(tokenizer, [text], limit + 1)[0]

        stages: tuple[tuple[int, Callable[[int], list[int]]], ...] = (
            (self.history, lambda n: row(Shortened(n))),
            (len(notes.admissible), lambda n: row(Shortened(0, max(n, KEPT_COMMANDS)))),
            (len(notes.observation), lambda n: row(Shortened(0, KEPT_COMMANDS, n))),
        )
        for size, shortened in stages:
            shortest = shortened(0)
            if len(shortest) <= limit:
                return _longest(shortened, size, limit) or shortest
        return shortest[1:]

    def parse(self, notes: Notes, completion: str) -> tuple[str, bool]:
        """Exactly one choice, after the reasoning where that is asked for.

        One without reasoning is taken too, but is not well formed. What stands within the
        reasoning, or after reasoning that does not end, is a thought and no choice.
        """
        if self.thinking:
            thought = THOUGHT.match(completion)
            choice = _choice(completion[thought.end() :]) if thought else ""
        else:
            choice = _choice(completion)
        valid = bool(choice)
        if self.thinking and not valid:
            choice = _choice(LONE_END.sub("", REASONING.sub("", completion)))
        return meant(choice, notes.admissible) if choice else "", valid

    def render(self, notes: Notes, command: str) -> str:
        reasons = f"<think>The next step is: {command}</think>\n" if self.thinking else ""
        return f"{reasons}<action>{command}</action>"


REASONED = (
    "Think step by step about what to do next, and put your reasoning between <think> and "
    "</think>. Then put the one command that you choose between <action> and </action>."
)
DIRECT = (
    "Answer with the one command that you choose, between <action> and </action>, and nothing else."
)


def _choice(completion: str) -> str:
    """What stands between the only tags, which are those of a choice."""
    pieces = TAG.split(completion)
    tags = [tag.lower() for tag in pieces[1::2]]
    return " ".join(pieces[2].split()) if tags == ["<action>", "</action>"] else ""


def with_template(tokenizer: Tokenizer, text: str) -> str:
    """As a user's message in the model's own form; plain text for a model that has none."""
    if not getattr(tokenizer, "chat_template", None):
        return text + "\n\n"
    messages = [{"role": "user", "content": text}]
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def _longest(row: Callable[[int], list[int]], size: int, limit: int) -> list[int] | None:
    """The row for the largest number up to `size` that fits, found by halving."""
    best, low, high = None, 1, size
    while low <= high:
        middle = (low + high) // 2
        tried = row(middle)
        if len(tried) <= limit:
            best, low = tried, middle + 1
        else:
            high = middle - 1
    return best


def _failed(command: str) -> str:
    """A page that comes back unchanged would be answered as before."""
    if not command:
        return "Your last answer held no command that could be read: nothing was done."
    return f"Your last command, {command}, did nothing."


def _past(notes: Notes, turns: int | None) -> str:
    past = notes.history
    recent = past if turns is None else past[max(len(past) - turns, 0) :]
    return "\n".join(
        f"{'Then' if i else 'Earlier'} you saw:\n{_without_goal(notes, seen)}\n"
        f"and gave the command: {done or '(none that could be read)'}"
        for i, (seen, done) in enumerate(recent)
    )


def _offer(admissible: Sequence[str], shown: int | None) -> str:
    lines = _listed(admissible, shown)
    if not lines:
        return ""
    blank = any(BLANK.search(command) for command in admissible[:shown])
    how = " (with words of your own in place of <…>)" if blank else ""
    return f"Commands that do something now{how}:\n" + "\n".join(lines)


def _listed(admissible: Sequence[str], shown: int | None) -> list[str]:
    commands = list(admissible[:shown])
    more = [CUT.strip()] if commands and len(commands) < len(admissible) else []
    return [*(f"- {command}" for command in commands), *more]


def _cut(text: str, characters: int | None) -> str:
    """The beginning and the end; a page's title and price stand last."""
    if characters is None or characters >= len(text):
        return text
    tail = characters // 3
    return text[: characters - tail] + CUT + text[len(text) - tail :]


def _without_goal(notes: Notes, text: str) -> str:
    return text.replace(notes.goal, "(your task)") if len(notes.goal) >= LONG_GOAL else text


def meant(text: str, admissible: Sequence[str]) -> str:
    """The world's own spelling, where only case and blanks differ."""
    if text in admissible:
        return text
    folded = text.lower()
    for command in admissible:
        if folded == " ".join(command.lower().split()):
            return command
    for command in admissible:
        if blank := BLANK.search(command):
            before, after = command[: blank.start()], command[blank.end() :]
            if folded.startswith(before.lower()) and folded.endswith(after.lower()):
                return before + text[len(before) : len(text) - len(after)].strip() + after
    return text
