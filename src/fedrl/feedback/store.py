"""One client's private folder: its queries and what a person has answered.

    FOLDER/client-0003/     mode 0700, its files 0600
      questions.jsonl       what may be answered and what was: the learner rewrites it, whole
      answers.jsonl         what a person did, with its time: only a deletion takes lines away
      people/NAME/          where several people answer for one client: the answers.jsonl of each
      effect.json           what the answers changed (`effect`)
      .lock                 held for an instant by whoever reads or writes

The learner and the page are two processes, and either may be killed at any moment. The queries
are written beside and renamed. An answer counts once its line is on the disk with its end; half a
line that a kill left behind is not read, and is cut off before the next one is added. An entry may
carry a word of its own (`once`): sent a second time, it does nothing. What a person deletes is gone
from the disk, with every earlier line about it.

Where several people answer, all are asked the same, and the learner hears the mean of what they say
to a query.

In a deployment this folder lives on the client's own machine. Nothing in it is ever sent.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fedrl.core import file_locks
from fedrl.core.atomic_files import OWNER_ONLY, write_atomically
from fedrl.core.types import UserError
from fedrl.feedback import entries as rules
from fedrl.feedback import folder_lines, stale_guesses
from fedrl.feedback.answer_log import AnswerLog, Entry, FolderView, Line, Progress, about
from fedrl.feedback.effect_rest import after_deletion
from fedrl.feedback.entries import Conflict
from fedrl.feedback.queries import Answer, Query

MOST = 200
"""Queries that may wait for an answer; of more, the last in a person's order are dropped."""
QUESTIONS, ANSWERS, EFFECT, LOCK = "questions.jsonl", "answers.jsonl", "effect.json", ".lock"
PEOPLE = "people"
PERSON = re.compile(r"\w[\w .-]{0,39}")
Given = Mapping[str, Mapping[str, float]]
"""Answers by person and query."""


def client_folder(folder: Path | str, client: int) -> Path:
    """Where this client's queries and answers are, below everybody's folder."""
    return Path(folder) / f"client-{client:04d}"


class Taken(NamedTuple):
    """The folder after some entries, and those that were not written."""

    view: FolderView
    conflicts: list[Conflict]


class Folder:
    """One client's queries and answers, for as many processes as like to use them.

    `person` is whose answers these are, where several people answer for one client.
    """

    def __init__(self, path: Path, most: int = MOST, person: str = "") -> None:
        self.path, self.most, self.person = path, most, person
        if person and not PERSON.fullmatch(person):
            raise UserError(
                f"{person!r} is no name for a person: letters, digits, _, . and -, at most 40"
            )
        self.answers_file = f"{PEOPLE}/{person}/{ANSWERS}" if person else ANSWERS
        with self._trouble():
            mine = (path / PEOPLE, path / PEOPLE / person) if person else ()
            for folder in (path.parent, path, *mine):
                if not folder.is_dir():
                    folder.parent.mkdir(parents=True, exist_ok=True)
                    folder.mkdir(mode=0o700, exist_ok=True)
            path.chmod(0o700)

    @property
    def people(self) -> list[str]:
        """Those who have a place of their own here."""
        place = self.path / PEOPLE
        return sorted(one.name for one in place.iterdir()) if place.is_dir() else []

    def of(self, person: str) -> Folder:
        """The same client, for one of its people."""
        return Folder(self.path, self.most, person)

    # The learner's side --------------------------------------------------------------------------

    def ask(self, queries: Sequence[Query]) -> None:
        """Put these in front of those that wait; known ones keep the wording that was shown.

        Of more than `most`, the last are dropped; those can be asked again.
        """
        with self._locked():
            view = self._view()
            answered = {name for log in self._logs() for name in log.closed}
            known = {
                name: query for name, query in view.queries.items()
                if query.stale != "replaced" or name in answered
            }  # fmt: skip
            asked = {query.id: known.get(query.id, query) for query in queries}
            after = FolderView(asked | view.queries | asked, view.log)
            waiting = [query.id for query in after.pending if query.id not in answered]
            dropped = set(waiting[self.most :])
            kept = [query for name, query in after.queries.items() if name not in dropped]
            if kept != list(view.queries.values()):
                self.replace(QUESTIONS, folder_lines.json_lines(query._asdict() for query in kept))

    def answers(self) -> list[Answer]:
        """Those that stand, in the order in which they were given; "cannot say" is none.

        Of several people's answers to one query it is the mean.
        """
        return [Answer(query.id, value) for query, value in self.heard()]

    def heard(self) -> list[tuple[Query, float]]:
        """The same with their queries."""
        with self._locked():
            queries, logs = self._view().queries, self._logs()
        given: dict[str, list[float]] = {}
        for log in logs:
            for answer in log.answers:
                given.setdefault(answer.question, []).append(answer.value)
        return [(queries[name], sum(values) / len(values)) for name, values in given.items()]

    def declined(self) -> set[str]:
        """Queries that are closed and that no answer stands to: "cannot say", or deleted."""
        with self._locked():
            logs = self._logs()
        given = {answer.question for log in logs for answer in log.answers}
        return {name for log in logs for name in log.closed | log.forgotten} - given

    def drop_stale(self) -> set[str]:
        """Drop guesses that nobody has dealt with and that are none of today's; the queries that
        stay.

        One that somebody has deleted stays: it is what is not to be asked again.
        """
        with self._locked():
            dealt = self._dealt()
            kept = self._replace_queries(
                lambda queries: stale_guesses.in_next_round(queries, dealt, self.most)
            )
            return {one.id for one in kept if one.id in dealt or not one.stale}

    def answered_late(self) -> list[Query]:
        """Guesses that were made anew while somebody looked at them, and have an answer."""
        return [query for query, _ in self.heard() if query.stale == "replaced"]

    def given(self) -> Given:
        """What each has answered, by query; a person without a name is ""."""
        with self._locked():
            return self._given()

    def write_effect(self, data: bytes, heard: Given, learned: bool) -> bool:
        """What the answers changed, unless somebody has taken one of them back meanwhile.

        Where the model has `learned` something new, guesses that wait are from before that.
        """
        with self._locked():
            given = self._given()
            stands = all(said.keys() <= given.get(who, {}).keys() for who, said in heard.items())
            if stands and learned:
                self._replace_queries(stale_guesses.after_learning)
            if stands:
                self.replace(EFFECT, data)
            return stands

    def untouched(self) -> bool:
        """Whether nobody has said anything here yet, nor taken it back."""
        with self._locked():
            return not any(log.versions for log in self._logs())

    def _given(self) -> Given:
        logs = dict(zip(["", *self.people], self._logs(), strict=True))
        return {name: dict(log.answers) for name, log in logs.items() if log.answers}

    def _logs(self) -> list[AnswerLog]:
        """Of everybody who answers here."""
        names = ["", *self.people]
        return [self._log(f"{PEOPLE}/{name}/{ANSWERS}" if name else ANSWERS) for name in names]

    def _dealt(self) -> set[str]:
        """Queries that somebody has closed or deleted."""
        return {name for log in self._logs() for name in log.closed | log.forgotten}

    def _replace_queries(self, changed: Callable[[list[Query]], list[Query]]) -> list[Query]:
        queries = self._parsed(QUESTIONS, folder_lines.query)
        kept = changed(queries)
        if kept != queries:
            self.replace(QUESTIONS, folder_lines.json_lines(one._asdict() for one in kept))
        return kept

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

    def change(
        self, question: str, value: float | None, version: int | None = None, once: str = "",
        comment: str | None = None,
    ) -> bool:  # fmt: skip
        """Whether an answer that stands was changed."""
        entry = Entry(question, value, once, "change", version, comment)
        return bool(self._write([entry])[1])

    def forget(self, question: str) -> bool:
        """Delete what was said to a query, from the disk; whether there was anything."""
        return bool(self._write([Entry(question, act="forget")])[1])

    def forget_all(self) -> FolderView:
        """Delete all that this person ever said, and what was made of it; nothing of it is asked
        again. What was skipped or taken back waits, and leaves that something was done about it:
        a round may have learned from it."""
        with self._locked():
            log = self._view().log
            deleted, time = log.closed | log.forgotten, rules.now()
            lines = [
                Line(time=time, version=version + 1)
                | (Line(forget=name) if name in deleted else Line(undo=name))
                for name, version in sorted(log.versions.items())
            ]
            self.replace(self.answers_file, folder_lines.json_lines(lines))
            self._strip_learned()
            return self._view()

    def skip(self, question: str, once: str = "") -> bool:
        """Whether it was taken; the query waits behind all others."""
        return bool(self._write([Entry(question, None, once, "skip")])[1])

    def undo(self, question: str = "", once: str = "") -> Query | None:
        """Take the last entry back (if it is about `question`); the query that waits again."""
        view, lines, _ = self._write([Entry(question, None, once, "undo")])
        return view.queries[lines[0]["undo"]] if lines else None

    def give(self, entries: Iterable[Entry]) -> FolderView:
        """Write a person's entries in their order, in one go; the folder after it.

        What no longer fits (a query that was dropped or is answered, an entry that came twice)
        does nothing.
        """
        return self._write(entries)[0]

    def take(self, entries: Iterable[Entry]) -> Taken:
        """As `give`; says which entries were not written because of what was done elsewhere."""
        view, _, conflicts = self._write(entries)
        return Taken(view, conflicts)

    def _write(self, entries: Iterable[Entry]) -> tuple[FolderView, list[Line], list[Conflict]]:
        with self._locked():
            view = self._view()
            found = [rules.apply(view, entry) for entry in entries]
            lines = [one for one in found if one is not None and not isinstance(one, Conflict)]
            conflicts = [one for one in found if isinstance(one, Conflict)]
            deleted = {line["forget"] for line in lines if "forget" in line}
            if deleted:
                self._erase(deleted, lines)
            else:
                self._append(lines)
            return view, lines, conflicts

    def _erase(self, deleted: set[str], lines: Sequence[Line]) -> None:
        """Add the lines, and leave of all about these queries only that they were deleted."""
        before = self._parsed(self.answers_file, folder_lines.answer_line)
        kept = [
            line for line in (*before, *lines)
            if "sit" in line or "forget" in line or about(line) not in deleted
        ]  # fmt: skip
        self.replace(self.answers_file, folder_lines.json_lines(kept))
        self._strip_learned()

    def _strip_learned(self) -> None:
        """What the answers changed follows from them, as do guesses that wait: these say so."""
        dealt = self._dealt()
        self._replace_queries(lambda queries: stale_guesses.after_deletion(queries, dealt))
        path = self.path / EFFECT
        rest = after_deletion(path.read_bytes()) if path.exists() else b""
        if rest:
            self.replace(EFFECT, rest)
        else:
            path.unlink(missing_ok=True)

    def sit(self, limit: int) -> FolderView:
        """Begin a sitting of `limit` answers, unless the last one is unfinished: then go on."""
        with self._locked():
            view = self._view()
            if view.progress.sitting >= limit:
                line = Line(time=rules.now(), sit=limit)
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
        with self._trouble(), folder_lines.opened(self.path / LOCK) as lock:
            file_locks.lock(lock)
            yield

    def _view(self) -> FolderView:
        queries = {one.id: one for one in self._parsed(QUESTIONS, folder_lines.query)}
        log = self._log(self.answers_file)
        lacking = {name for one in (log, *self._logs()) for name in one.closed} - queries.keys()
        if lacking:
            raise UserError(
                f"{self.path / QUESTIONS} is damaged: it lacks a question that was answered; put "
                f"it back, or move {self.answers_file} away to begin anew"
            )
        return FolderView(queries, log)

    def _log(self, name: str) -> AnswerLog:
        log = AnswerLog()
        for line in self._parsed(name, folder_lines.answer_line):
            log.apply(line)
        return log

    def _parsed(
        self, name: str, parse: Callable[[bytes], folder_lines.Parsed]
    ) -> list[folder_lines.Parsed]:
        return folder_lines.whole_lines(self.path / name, parse)

    def _append(self, lines: Sequence[Line]) -> None:
        if lines:
            folder_lines.append(self.path / self.answers_file, folder_lines.json_lines(lines))

    def replace(self, name: str, data: bytes) -> None:
        """Write a file of this folder: all of it or nothing, also if the power goes; otherwise
        answers might outlive the queries that they belong to."""
        with self._trouble():
            write_atomically(self.path / name, data, OWNER_ONLY)
