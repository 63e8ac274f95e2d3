"""What one person has said to one client, and what still waits: all of it follows from the lines.

Every answer, "cannot say", skip and undo is a line of the private folder (`store`). "Cannot say"
closes a question and is no answer: no learner hears of it, and no count of answers holds it. A
skipped question still waits, behind all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from fedrl.feedback.records import Answer, Question

Act = Literal["answer", "skip", "undo"]


class Given(NamedTuple):
    """A person's entry: an answer (`value` None: cannot say), a skip, or the last entry undone.

    An undo that names a question does nothing unless the last entry is about that question.
    """

    question: str
    value: float | None = None
    once: str = ""
    act: Act = "answer"


class Said(NamedTuple):
    """An entry that stands: an answer, "cannot say" (`value` None) or a skip."""

    question: str
    value: float | None
    skip: bool = False


class Progress(NamedTuple):
    """`sitting` counts the answers since the person last sat down (see `Folder.sit`).

    `unsure` are the questions of which the person cannot say anything: they are no answers.
    """

    answered: int
    pending: int
    sitting: int
    unsure: int = 0


@dataclass
class Told:
    """The answers' file, read from its start: what stands after all undos."""

    said: list[Said] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)  # whose questions come first, the last undone
    seen: set[str] = field(default_factory=set)  # the words `once`
    seated: int = 0  # entries that stood when the person sat down

    def take(self, entry: dict[str, Any]) -> None:
        """One line of the file."""
        self.seen.add(entry.get("once", ""))
        if "sit" in entry:
            self.seated = len(self.said)
        elif "undo" in entry:
            self._undo(entry["undo"])
        elif "skip" in entry:
            self._say(Said(entry["skip"], None, skip=True))
        else:
            self._say(Said(entry["question"], entry["value"]))

    def _say(self, said: Said) -> None:
        self.said.append(said)
        self.undone = [name for name in self.undone if name != said.question]

    def _undo(self, name: str) -> None:
        """By name: somebody may have removed a damaged line before it."""
        places = [at for at, one in enumerate(self.said) if one.question == name]
        if places:
            del self.said[places[-1]]
            self.undone.insert(0, name)
            self.seated -= places[-1] < self.seated

    @property
    def standing(self) -> list[Answer]:
        """The answers, in the order in which they were given."""
        return _answers(self.said)

    @property
    def closed(self) -> set[str]:
        """Questions that wait no longer: answered, or nothing can be said of them."""
        return {one.question for one in self.said if not one.skip}


def _answers(said: Iterable[Said]) -> list[Answer]:
    return [Answer(one.question, one.value) for one in said if one.value is not None]


@dataclass(frozen=True)
class View:
    """The folder at one moment."""

    questions: dict[str, Question]
    told: Told

    @property
    def pending(self) -> list[Question]:
        """In a person's order: what was undone, then the newest, then what was skipped."""
        waiting = self.questions.keys() - self.told.closed
        skips = [one.question for one in self.told.said if one.skip]
        last = list(dict.fromkeys(skips[::-1]))[::-1]  # by when each was skipped last
        new = [name for name in self.questions if name not in skips]
        order = dict.fromkeys([*self.told.undone, *new, *last])
        return [self.questions[name] for name in order if name in waiting]

    @property
    def progress(self) -> Progress:
        said, seated = self.told.said, self.told.seated
        unsure = sum(one.value is None and not one.skip for one in said)
        answered, sitting = len(_answers(said)), len(_answers(said[seated:]))
        return Progress(answered, len(self.pending), sitting, unsure)

    @property
    def entries(self) -> list[Said]:
        """Those that can be taken back: a skipped question may have been dropped since."""
        return [one for one in self.told.said if one.question in self.questions]

    def recent(self, count: int) -> list[tuple[Question, Said]]:
        """The last entries, newest first, with their questions."""
        return [(self.questions[one.question], one) for one in self.entries[-count:][::-1]]
