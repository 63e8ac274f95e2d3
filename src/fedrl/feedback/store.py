"""One client's private folder: its queries and what a person has answered.

    FOLDER/client-0003/     mode 0700, its files 0600
      questions.jsonl       what may be answered and what was: the learner rewrites it, whole
      answers.jsonl         what a person did, with its time: only ever appended to
      .lock                 held for an instant by whoever reads or writes

The learner and the page are two processes, and either may be killed at any moment. The queries
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from fedrl.core.types import UserError
from fedrl.feedback.answer_log import AnswerLog, Entry, FolderView, Line, Progress
from fedrl.feedback.queries import Answer, Query

MOST = 200
"""Queries that may wait for an answer; of more, the last in a person's order are dropped."""
QUESTIONS, ANSWERS, LOCK = "questions.jsonl", "answers.jsonl", ".lock"
ITEMS = {"rate": 1, "compare": 2}
"""How many items a query is about."""
Parsed = TypeVar("Parsed")


def client_folder(folder: Path | str, client: int) -> Path:
    """Where this client's queries and answers are, below everybody's folder."""
    return Path(folder) / f"client-{client:04d}"


class Folder:
    """One client's queries and answers, for as many processes as like to use them."""

    def __init__(self, path: Path, most: int = MOST) -> None:
        self.path, self.most = path, most
        with self._trouble():
            for folder in (path.parent, path):
                if not folder.is_dir():
                    folder.parent.mkdir(parents=True, exist_ok=True)
                    folder.mkdir(mode=0o700, exist_ok=True)
            path.chmod(0o700)

    # The learner's side --------------------------------------------------------------------------

    def ask(self, queries: Sequence[Query]) -> None:
        """Put these in front of those that wait; known ones keep the wording that was shown.

        Of more than `most`, the last are dropped; those can be asked again.
        """
        with self._locked():
            view = self._view()
            asked = {query.id: view.queries.get(query.id, query) for query in queries}
            after = FolderView(asked | view.queries, view.log)
            dropped = {query.id for query in after.pending[self.most :]}
            kept = [query for name, query in after.queries.items() if name not in dropped]
            if kept != list(view.queries.values()):
                self.replace(QUESTIONS, _json_lines(query._asdict() for query in kept))

    def answers(self) -> list[Answer]:
        """Those that stand, in the order in which they were given; "cannot say" is none."""
        return self.view().log.answers

    # The person's side ---------------------------------------------------------------------------

    def view(self) -> FolderView:
        with self._locked():
            return self._view()

    def pending(self) -> list[Query]:
        return self.view().pending

    def progress(self) -> Progress:
        return self.view().progress

    def answer(self, question: str, value: float | None, once: str = "") -> bool:
        """Whether it was taken: the query was waiting, and this was not said before.

        `value` None is "cannot say".
        """
        return bool(self._write([Entry(question, value, once)])[1])

    def skip(self, question: str, once: str = "") -> bool:
        """Whether it was taken; the query waits behind all others."""
        return bool(self._write([Entry(question, None, once, "skip")])[1])

    def undo(self, question: str = "", once: str = "") -> Query | None:
        """Take the last entry back (if it is about `question`); the query that waits again."""
        view, lines = self._write([Entry(question, None, once, "undo")])
        return view.queries[lines[0]["undo"]] if lines else None

    def give(self, entries: Iterable[Entry]) -> FolderView:
        """Write a person's entries in their order, in one go; the folder after it.

        What no longer fits (a query that was dropped or is answered, an entry that came twice)
        does nothing.
        """
        return self._write(entries)[0]

    def _write(self, entries: Iterable[Entry]) -> tuple[FolderView, list[Line]]:
        with self._locked():
            view = self._view()
            lines = [line for entry in entries if (line := _applied(view, entry))]
            self._append(lines)
            return view, lines

    def sit(self, limit: int) -> FolderView:
        """Begin a sitting of `limit` answers, unless the last one is unfinished: then go on."""
        with self._locked():
            view = self._view()
            if view.progress.sitting >= limit:
                line = Line(time=_now(), sit=limit)
                self._append([line])
                view.log.apply(line)
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

    def _view(self) -> FolderView:
        queries = {query.id: query for query in self._parsed(QUESTIONS, _query)}
        log = AnswerLog()
        for line in self._parsed(ANSWERS, _answer_line):
            log.apply(line)
        if not log.closed <= queries.keys():
            raise UserError(
                f"{self.path / QUESTIONS} is damaged: it lacks a question that was answered; put "
                f"it back, or move {ANSWERS} away to begin anew"
            )
        return FolderView(queries, log)

    def _parsed(self, name: str, parse: Callable[[bytes], Parsed]) -> list[Parsed]:
        """Whole lines; what follows the last line's end was never finished."""
        try:
            data = (self.path / name).read_bytes()
        except FileNotFoundError:
            return []
        parsed = []
        for number, line in enumerate(data.split(b"\n")[:-1], start=1):
            try:
                parsed.append(parse(line))
            except (ValueError, KeyError, TypeError, AttributeError):
                raise UserError(
                    f"{self.path / name}, line {number} is damaged; remove this line to go on"
                ) from None
        return parsed

    def _append(self, lines: Sequence[Line]) -> None:
        if not lines:
            return
        with _opened(self.path / ANSWERS) as file:
            end = os.lseek(file, 0, os.SEEK_END)
            whole = os.pread(file, end, 0).rfind(b"\n") + 1
            os.ftruncate(file, whole)
            data = _json_lines(lines)
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
            os.fsync(folder)  # or answers might outlive the queries that they belong to
        finally:
            os.close(folder)


def _query(line: bytes) -> Query:
    """A line of the queries, if it is one."""
    fields = json.loads(line)
    keys, items, scores = (tuple(fields[name]) for name in ("keys", "items", "scores"))
    if {len(keys), len(items), len(scores)} != {ITEMS[fields["kind"]]}:
        raise ValueError
    return Query(str(fields["id"]), fields["kind"], keys, items, scores)


def _answer_line(line: bytes) -> Line:
    """A line of the answers, if it is one."""
    parsed = Line(**json.loads(line))
    if "undo" in parsed:
        return parsed | Line(undo=str(parsed["undo"]))
    if "skip" in parsed:
        return parsed | Line(skip=str(parsed["skip"]))
    if "sit" in parsed:
        return parsed
    value = parsed["value"]
    if value is not None and not -1 <= float(value) <= 1:
        raise ValueError
    said = None if value is None else float(value)
    return parsed | Line(question=str(parsed["question"]), value=said)


def _applied(view: FolderView, entry: Entry) -> Line | None:
    """The line of an entry that does something; the view is brought up to date with it."""
    if entry.once and entry.once in view.log.seen:
        return None
    line = Line(time=_now(), once=entry.once) if entry.once else Line(time=_now())
    if entry.act == "undo":
        last = view.undoable[-1].question if view.undoable else ""
        if not last or entry.question not in ("", last):
            return None
        line["undo"] = last
    elif all(entry.question != query.id for query in view.pending):
        return None
    elif entry.act == "skip":
        line["skip"] = entry.question
    else:
        line |= Line(question=entry.question, value=_checked(entry.value))
    view.log.apply(line)
    return line


def _checked(value: float | None) -> float | None:
    """None is "cannot say"."""
    if value is None:
        return None
    if not (math.isfinite(value) and -1 <= value <= 1):
        raise UserError(f"an answer is a number from -1 to 1, not {value}")
    return float(value)


def _json_lines(rows: Iterable[Mapping[str, object]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


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
