"""The household in about forty words: for small models, where every token counts.

Everything in the prompt was told to the agent before; the notes only keep what matters: the task,
which receptacles it has not looked into, what it holds and in what state, where it saw things that
the task names, its last command (or the last so many, `history`) and the answer to it ("nothing
happens"). Entities ("fridge 1") are
single tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from fedrl.envs.text import Turn
from fedrl.llm.model_types import Tokenizer
from fedrl.llm.prompts.prompt_format import tokenize

ENTITY = re.compile(r"\b([a-z]+ \d+)\b")
TAKEN = re.compile(r"You pick up the (.+?) from the (.+?)\.")
PUT = re.compile(r"You (?:move|put) the (.+?) (?:to|in/on) the (.+?)\.")
TREATED = re.compile(r"You (heat|cool|clean) the (.+?) using the (.+?)\.")
CARRIED = re.compile(r"You are (?:carrying: a (.+?)|not carrying anything)\.")
EXAMINED = re.compile(r"This is a ((?:(?:hot|cool|cold|clean|sliced|and) )+)(.+?)\.")
PLAIN = re.compile(r"There's nothing special about (.+?)\.")
CONTENT = re.compile(r"(?:On the|The) (.+?)(?: is open\. In it)?, you see (.+?)\.")
NUMBERED_PLACE = re.compile(r"You arrive at loc \d+\. ?")

STATES = {"heat": "hot", "cool": "cool", "clean": "clean"}
SAME_STATE = {"hot": "hot", "cool": "cool", "cold": "cool", "clean": "clean"}
OPPOSITE = {"hot": "cool", "cool": "hot"}

REMEMBERED = 4
"""Things of one name that are kept in mind. A task needs two at most, a lamp among many pencils
must not be forgotten, and a dozen pens would fill the prompt."""

KEPT_TEXTS = 4096
"""Observations whose short form is kept: a group of episodes hears the same sentences."""

PUNCTUATION = str.maketrans(dict.fromkeys(".,:!=-", " "))
SMALL_WORDS = frozenset(("a", "the", "and", "you"))


@dataclass
class Notes:
    task: str  # in short form
    wanted: frozenset[str]  # words of the task: things called so are worth remembering
    places: list[str]  # receptacles that have not been looked into, as the room listed them
    known: dict[str, str] = field(default_factory=dict)  # wanted thing: where it was seen last
    held: str = ""
    states: dict[str, tuple[str, ...]] = field(default_factory=dict)
    last: str = ""
    answer: str = ""
    earlier: list[tuple[str, str]] = field(default_factory=list)  # commands before, and answers


class CompactHousehold:
    """See the module's docstring."""

    def __init__(self, history: int = 1) -> None:
        self.history = history

    def start(self, goal: str, turn: Turn) -> Notes:
        room = turn.observation.partition("you see")[2].partition("Your task")[0]
        task = plain(goal)
        return Notes(task, frozenset(task.split()), ENTITY.findall(room))

    def observe(self, notes: Notes, command: str, turn: Turn, said: str = "") -> None:
        text = turn.observation
        if notes.answer and self.history > 1:
            notes.earlier = [*notes.earlier, (notes.last, notes.answer)][1 - self.history :]
        notes.last, notes.answer = command, text
        if "you see " in text and (content := CONTENT.search(text)):
            _look_into(notes, content[1], ENTITY.findall(content[2]))
        elif taken := TAKEN.match(text):
            notes.held = taken[1]
            notes.known.pop(taken[1], None)
        elif put := PUT.match(text):
            notes.held = ""
            _remember(notes, put[1], put[2])
        elif treated := TREATED.match(text):
            _treat(notes, treated[2], STATES[treated[1]])
        elif carried := CARRIED.match(text):
            notes.held = carried[1] or ""
        elif examined := EXAMINED.match(text):
            words = (SAME_STATE.get(word) for word in examined[1].split())
            notes.states[examined[2]] = tuple(word for word in words if word)
        elif nothing := PLAIN.match(text):
            notes.states.pop(nothing[1], None)

    def prompt(self, notes: Notes) -> str:
        held = _with_state(notes, notes.held) if notes.held else "nothing"
        known = " ".join(
            f"{_with_state(notes, thing)} at {place}"
            for thing, place in notes.known.items()
            if thing != notes.held  # some are listed in two receptacles, and stay in the second
        )
        turns = [*notes.earlier, (notes.last, notes.answer)]
        told = [f"did {plain(command)} ; {plain(answer)}" for command, answer in turns]
        if not self.history:
            told = [plain(notes.answer)]
        return (
            f"task {notes.task} ; new {' '.join(notes.places)} ; know {known} ; hold {held} ; "
            f"{' ; '.join(told)} >"
        )

    def encode(self, tokenizer: Tokenizer, notes: Sequence[Notes], limit: int) -> list[list[int]]:
        return tokenize(tokenizer, [self.prompt(each) for each in notes], limit)

    def parse(self, notes: Notes, completion: str) -> tuple[str, bool]:
        command = " ".join(completion.split())
        return command, bool(command)

    def render(self, notes: Notes, command: str) -> str:
        return command


def _look_into(notes: Notes, place: str, content: list[str]) -> None:
    """The place is new no longer, and what is not in its list is not there."""
    if place in notes.places:
        notes.places.remove(place)
    gone = [thing for thing, where in notes.known.items() if where == place]
    for thing in gone:
        del notes.known[thing]
    for thing in content:
        _remember(notes, thing, place)


def _remember(notes: Notes, thing: str, place: str) -> None:
    """As the latest of its name; the oldest is forgotten."""
    noun = thing.partition(" ")[0]
    if noun not in notes.wanted:
        return
    notes.known.pop(thing, None)
    alike = [other for other in notes.known if other.partition(" ")[0] == noun]
    if len(alike) >= REMEMBERED:
        del notes.known[alike[0]]
    notes.known[thing] = place


def _treat(notes: Notes, thing: str, state: str) -> None:
    """Hot and cool undo each other; clean stays clean."""
    replaced = (state, OPPOSITE.get(state))
    before = tuple(word for word in notes.states.get(thing, ()) if word not in replaced)
    notes.states[thing] = (*before, state)


def _with_state(notes: Notes, thing: str) -> str:
    return " ".join((*notes.states.get(thing, ()), thing))


@lru_cache(KEPT_TEXTS)
def plain(text: str) -> str:
    """Lower case, no punctuation, no articles: fewer tokens and nothing lost.

    The older texts' "You arrive at loc 12." goes too: no command ever names such a place.
    """
    words = NUMBERED_PLACE.sub("", text).lower().translate(PUNCTUATION).split()
    return " ".join(word for word in words if word not in SMALL_WORDS)
