"""One client's private folder: what it has asked and what a person has answered.

    FOLDER/client-0003/     mode 0700, its files 0600
      questions.jsonl       what may be answered and what was: the learner rewrites it, whole
      answers.jsonl         what a person did, with its time: only ever appended to
      .lock                 held for an instant by whoever reads or writes

The learner and the page are two processes, and either may be killed at any moment. The questions
are written beside and renamed. An answer counts once its line is on the disk with its end; half a
line that a kill left behind is not read, and is cut off before the next one is added. An entry may
carry a word of its own (`once`): sent a second time, it does nothing.

In a deployment this folder lives on the client's own machine. Nothing in it is ever sent.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fedrl.core.types import UserError
from fedrl.feedback.records import Answer, Question
from fedrl.feedback.transcript import Given, Progress, Told, View

MOST = 200
"""Questions that may wait for an answer; of more, the last in a person's order are dropped."""
QUESTIONS, ANSWERS, LOCK = "questions.jsonl", "answers.jsonl", ".lock"
COUNTS = {"rate": 1, "compare": 2}
"""Items of a question."""
Line = TypeVar("Line")


def client_folder(folder: Path | str, client: int) -> Path:
    """Where this client's questions and answers are, below everybody's folder."""
    return Path(folder) / f"client-{client:04d}"


class Folder:
    """One client's questions and answers, for as many processes as like to use them."""

    def __init__(self, path: Path, most: int = MOST) -> None:
        self.path, self.most = path, most
        with self._trouble():
            for folder in (path.parent, path):
                if not folder.is_dir():
                    folder.parent.mkdir(parents=True, exist_ok=True)
                    folder.mkdir(mode=0o700, exist_ok=True)
            path.chmod(0o700)

    # The learner's side --------------------------------------------------------------------------

    def ask(self, questions: Sequence[Question]) -> None:
        """Put these in front of those that wait; known ones keep the wording that was shown.

        Of more than `most`, the last are dropped; those can be asked again.
        """
        with self._locked():
            view = self._view()
            asked = {one.id: view.questions.get(one.id, one) for one in questions}
            after = View(asked | view.questions, view.told)
            dropped = {one.id for one in after.pending[self.most :]}
            kept = [one for name, one in after.questions.items() if name not in dropped]
            if kept != list(view.questions.values()):
                lines = "".join(_line(one._asdict()) for one in kept)
                self.replace(QUESTIONS, lines.encode())

    def answers(self) -> list[Answer]:
        """Those that stand, in the order in which they were given; "cannot say" is none."""
        return self.view().told.standing

    # The person's side ---------------------------------------------------------------------------

    def view(self) -> View:
        with self._locked():
            return self._view()

    def pending(self) -> list[Question]:
        return self.view().pending

    def progress(self) -> Progress:
        return self.view().progress

    def answer(self, question: str, value: float | None, once: str = "") -> bool:
        """Whether it was taken: the question was waiting, and this was not said before.

        `value` None is "cannot say".
        """
        return bool(self._write([Given(question, value, once)])[1])

    def skip(self, question: str, once: str = "") -> bool:
        """Whether it was taken; the question waits behind all others."""
        return bool(self._write([Given(question, None, once, "skip")])[1])

    def undo(self, question: str = "", once: str = "") -> Question | None:
        """Take the last entry back (if it is about `question`); the question that waits again."""
        view, lines = self._write([Given(question, None, once, "undo")])
        return view.questions[lines[0]["undo"]] if lines else None

    def give(self, entries: Iterable[Given]) -> View:
        """Write a person's entries in their order, in one go; the folder after it.

        What no longer fits (a question that was dropped or is answered, an entry that came twice)
        does nothing.
        """
        return self._write(entries)[0]

    def _write(self, entries: Iterable[Given]) -> tuple[View, list[dict[str, Any]]]:
        with self._locked():
            view = self._view()
            lines = [line for entry in entries if (line := _taken(view, entry))]
            self._append(lines)
            return view, lines

    def sit(self, limit: int) -> View:
        """Begin a sitting of `limit` answers, unless the last one is unfinished: then go on."""
        with self._locked():
            view = self._view()
            if view.progress.sitting >= limit:
                line = {"time": _now(), "sit": limit}
                self._append([line])
                view.told.take(line)
            return view

    # Files ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(
                f"cannot use the private folder {self.path}: {error.strerror or error}"
            ) from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone with the files. The lock is opened each time: it holds between threads too."""
        with self._trouble(), _opened(self.path / LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _view(self) -> View:
        questions = {one.id: one for one in self._lines(QUESTIONS, _question)}
        told = Told()
        for line in self._lines(ANSWERS, _entry):
            told.take(line)
        if not told.closed <= questions.keys():
            raise UserError(
                f"{self.path / QUESTIONS} is damaged: it lacks a question that was answered; put "
                f"it back, or move {ANSWERS} away to begin anew"
            )
        return View(questions, told)

    def _lines(self, name: str, read: Callable[[Any], Line]) -> list[Line]:
        """Whole lines; what follows the last line's end was never finished."""
        try:
            data = (self.path / name).read_bytes()
        except FileNotFoundError:
            return []
        found = []
        for number, line in enumerate(data.split(b"\n")[:-1], start=1):
            try:
                found.append(read(json.loads(line)))
            except (ValueError, KeyError, TypeError, AttributeError):
                raise UserError(
                    f"{self.path / name}, line {number} is damaged; remove this line to go on"
                ) from None
        return found

    def _append(self, entries: list[dict[str, Any]]) -> None:
        if not entries:
            return
        with _opened(self.path / ANSWERS) as file:
            end = os.lseek(file, 0, os.SEEK_END)
            whole = os.pread(file, end, 0).rfind(b"\n") + 1
            os.ftruncate(file, whole)
            data = "".join(map(_line, entries)).encode()
            while data:
                written = os.pwrite(file, data, whole)
                data, whole = data[written:], whole + written
            os.fsync(file)

    def replace(self, name: str, data: bytes) -> None:
        """Write a file of this folder: all of it or nothing, also if the power goes."""
        beside = self.path / f".{name}.part"
        with _opened(beside) as file, os.fdopen(os.dup(file), "wb") as out:
            out.truncate(0)
            out.write(data)
            out.flush()
            os.fsync(file)
        beside.replace(self.path / name)
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)  # or answers might outlive the questions that they belong to
        finally:
            os.close(folder)


def _question(line: Any) -> Question:
    """A line of the questions, if it is one."""
    keys, items, scores = (tuple(line[name]) for name in ("keys", "items", "scores"))
    if {len(keys), len(items), len(scores)} != {COUNTS[line["kind"]]}:
        raise ValueError
    return Question(str(line["id"]), line["kind"], keys, items, scores)


def _entry(line: Any) -> dict[str, Any]:
    """A line of the answers, if it is one."""
    entry: dict[str, Any] = dict(line.items())
    for act in ("undo", "skip"):
        if act in entry:
            return entry | {act: str(entry[act])}
    if "sit" in entry:
        return entry
    value = entry["value"]
    if value is not None and not -1 <= float(value) <= 1:
        raise ValueError
    said = None if value is None else float(value)
    return entry | {"question": str(entry["question"]), "value": said}


def _taken(view: View, entry: Given) -> dict[str, Any] | None:
    """The line of an entry that does something; the view is brought up to date with it."""
    told = view.told
    if entry.once and entry.once in told.seen:
        return None
    line: dict[str, Any] = {"time": _now()} | ({"once": entry.once} if entry.once else {})
    if entry.act == "undo":
        last = view.entries[-1].question if view.entries else ""
        if not last or entry.question not in ("", last):
            return None
        line["undo"] = last
    elif all(entry.question != one.id for one in view.pending):
        return None
    elif entry.act == "skip":
        line["skip"] = entry.question
    else:
        line |= {"question": entry.question, "value": _value(entry.value)}
    told.take(line)
    return line


def _value(value: float | None) -> float | None:
    """None is "cannot say"."""
    if value is None:
        return None
    if not (math.isfinite(value) and -1 <= value <= 1):
        raise UserError(f"an answer is a number from -1 to 1, not {value}")
    return float(value)


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry) + "\n"


def _now() -> float:
    return round(time.time(), 3)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A file of this client's, for nobody else; made if it is missing."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield file
    finally:
        os.close(file)
