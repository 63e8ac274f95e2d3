"""`fedrl feedback --terminal`: one client's queries, one at a time, for the person at it."""

from __future__ import annotations

import contextlib
import sys
import textwrap
import time
from collections.abc import Callable

from fedrl.feedback.answer_log import Entry, FolderView
from fedrl.feedback.queries import Query
from fedrl.feedback.store import Folder

QUIET = "nothing to answer now: if a later round asks more, it is shown here (Ctrl-C leaves)"
CHOICES = {
    "rate": "1 too high   2 right   3 too low",
    "compare": "1 the first is better   2 the same   3 the second is better",
}
START = "1 fewer stars   2 about that   3 more stars"
OTHERWISE = "0 cannot say   s skip"
VALUES = {"1": -1.0, "2": 0.0, "3": 1.0, "0": None}
WAIT = 1.0  # seconds between two looks into a folder without queries


def converse(
    folder: Folder,
    limit: int,
    ask: Callable[[str], str] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Queries and answers in the terminal, at most `limit` of them; the exit code."""
    print("Type 1, 2 or 3 and Enter; 0 if you cannot say, s to be asked later.")
    print("u takes the last one back, q leaves.")
    view = folder.sit(limit)
    try:
        while view.progress.sitting < limit:
            view = _wait_for_query(folder, sleep)
            word = _typed_choice(view, limit, ask or _typed)
            if word == "q":
                break
            view = folder.give([_entry(view.pending[0], word)])
    except (KeyboardInterrupt, EOFError):
        print()
    print(f"thank you: {view.progress.kept} in {folder.path}")
    return 0


def _wait_for_query(folder: Folder, sleep: Callable[[float], None]) -> FolderView:
    """The folder once it has a query."""
    view, announced = folder.view(), False
    while not view.pending:
        if not announced:
            print(QUIET, flush=True)
            announced = True
        sleep(WAIT)
        view = folder.view()
    return view


def _typed_choice(view: FolderView, limit: int, ask: Callable[[str], str]) -> str:
    """What a person types at the first query, once it is something that is understood."""
    query = view.pending[0]
    print(f"\n{min(limit - view.progress.sitting, view.progress.pending)} left")
    for line in _shown(query):
        print(line)
    while (word := ask("> ").strip().lower()) not in (*VALUES, "s", "u", "q"):
        print("1, 2 or 3; 0 cannot say, s skips, u takes the last one back, q leaves")
    return word


def _typed(prompt: str) -> str:
    """A line that is typed now: what was typed before a query was there does not answer it."""
    if sys.stdin.isatty():
        with contextlib.suppress(ModuleNotFoundError):  # Windows has none
            import termios

            termios.tcflush(sys.stdin, termios.TCIFLUSH)
    return input(prompt)


def _entry(query: Query, word: str) -> Entry:
    if word == "u":
        return Entry("", act="undo")
    return Entry(query.id, act="skip") if word == "s" else Entry(query.id, VALUES[word])


def _shown(query: Query) -> list[str]:
    lines = []
    for place, item in enumerate(query.items):
        head = f"{place + 1}. " if query.kind == "compare" else ""
        lines += textwrap.wrap(head + _printable(item), 96) or [head]
    if not query.guessed:
        lines.append(f"the model has no guess: would you give it {query.scores[0]:.3g} stars?")
        return [*lines, START, OTHERWISE]
    if query.kind == "rate":
        lines.append(f"the model's score: {query.scores[0]:.3g}")
    return [*lines, CHOICES[query.kind], OTHERWISE]


def _printable(text: str) -> str:
    """A generated text must not steer the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)
