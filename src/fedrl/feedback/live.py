"""A person as the source of feedback: questions wait in the client's folder, answers come later.

Training never waits. A round publishes its questions and takes what has been answered by then;
`fedrl feedback` shows the questions on a page, or here in the terminal, at any time.
"""

from __future__ import annotations

import sys
import termios
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrl.feedback.records import Answer, Question, Source
from fedrl.feedback.store import Folder, Given, View, client_folder

QUIET = "nothing to answer yet: the run will ask in its next round (Ctrl-C leaves)"
CHOICES = {
    "rate": "1 too high   2 right   3 too low",
    "compare": "1 the first is better   2 the same   3 the second is better",
}
OTHERWISE = "0 cannot say   s skip"
VALUES = {"1": -1.0, "2": 0.0, "3": 1.0, "0": None}
WAIT = 1.0  # seconds between two looks into a folder without questions


@dataclass(frozen=True)
class Person:
    """A `Source` whose answers are what a person has given so far."""

    folder: Folder

    def answers(self, questions: Sequence[Question], seed: int) -> list[Answer]:
        """`seed` is not read: people have their own."""
        self.folder.ask(questions)
        given = {answer.question: answer.value for answer in self.folder.answers()}
        return [Answer(one.id, given[one.id]) for one in questions if one.id in given]


def source(folder: Path | str, client: int) -> Source:
    """The person at this client; `folder` is where all clients' private folders are simulated."""
    return Person(Folder(client_folder(folder, client)))


# In the terminal


def converse(
    folder: Folder,
    limit: int,
    ask: Callable[[str], str] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Questions and answers in the terminal, at most `limit` of them; the exit code."""
    print("Type 1, 2 or 3 and Enter; 0 if you cannot say, s to be asked later.")
    print("u takes the last one back, q leaves.")
    view = folder.sit(limit)
    try:
        while view.progress.sitting < limit:
            view = _waited(folder, sleep)
            word = _asked(view, limit, ask or _typed)
            if word == "q":
                break
            entry = _entry(view.pending[0], word)
            view = folder.give([entry])
    except (KeyboardInterrupt, EOFError):
        print()
    count = view.progress.answered
    print(f"thank you: {count} answer{'s' * (count != 1)} kept in {folder.path}")
    return 0


def _waited(folder: Folder, sleep: Callable[[float], None]) -> View:
    """The folder once it has a question."""
    view, told = folder.view(), False
    while not view.pending:
        if not told:
            print(QUIET, flush=True)
            told = True
        sleep(WAIT)
        view = folder.view()
    return view


def _asked(view: View, limit: int, ask: Callable[[str], str]) -> str:
    """What a person types at the first question, once it is something that is understood."""
    question = view.pending[0]
    print(f"\n{view.progress.sitting + 1} of {limit}")
    for line in _shown(question):
        print(line)
    while (word := ask("> ").strip().lower()) not in (*VALUES, "s", "u", "q"):
        print("1, 2 or 3; 0 cannot say, s skips, u takes the last one back, q leaves")
    return word


def _typed(prompt: str) -> str:
    """A line that is typed now: what was typed before a question was there does not answer it."""
    if sys.stdin.isatty():
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    return input(prompt)


def _entry(question: Question, word: str) -> Given:
    if word == "u":
        return Given("", act="undo")
    return Given(question.id, act="skip") if word == "s" else Given(question.id, VALUES[word])


def _shown(question: Question) -> list[str]:
    lines = []
    for place, item in enumerate(question.items):
        head = f"{place + 1}. " if question.kind == "compare" else ""
        lines += textwrap.wrap(head + _printable(item), 96) or [head]
    if question.kind == "rate":
        lines.append(f"the model's score: {question.scores[0]:.3g}")
    return [*lines, CHOICES[question.kind], OTHERWISE]


def _printable(text: str) -> str:
    """A generated text must not steer the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)
