"""What one person has said to one client, and what still waits: all of it follows from the lines.

Every answer, "cannot say", skip, change, undo and deletion is a line of the private folder
(`store`). "Cannot say" closes a query and is no answer: no learner hears of it, and no count of
answers holds it. A skipped query still waits, behind all others. A deleted answer leaves a line
that says only which query is not to be asked again.

Every query has a version, the number of things that were done about it: whoever changes an answer
says which version he saw, so that two open pages cannot overwrite each other unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypedDict

from fedrl.feedback.queries import Answer, Query

Act = Literal["answer", "skip", "undo", "change", "forget"]


class Line(TypedDict, total=False):
    """A line of the answers' file: of `sit`, `undo`, `skip`, `change`, `forget` and `question` it
    has one."""

    time: float
    once: str
    sit: int
    undo: str
    skip: str
    change: str
    forget: str
    question: str
    value: float | None
    comment: str
    version: int


class Entry(NamedTuple):
    """A person's entry: an answer (`value` None: cannot say), a skip, a change or deletion of an
    earlier answer, or the last entry undone.

    An undo that names a query does nothing unless the last entry is about that query. `version` is
    what the person saw of the query; None where nobody else can have written. A change without a
    comment leaves the comment as it is.
    """

    question: str
    value: float | None = None
    once: str = ""
    act: Act = "answer"
    version: int | None = None
    comment: str | None = None


class StandingEntry(NamedTuple):
    """An entry that was not undone: an answer, "cannot say" (`value` None) or a skip."""

    question: str
    value: float | None
    skip: bool = False
    comment: str = ""
    time: float = 0.0


class Progress(NamedTuple):
    """`sitting` counts the answers since the person last sat down (see `Folder.sit`).

    `unsure` are the queries of which the person cannot say anything: they are no answers.
    """

    answered: int
    pending: int
    sitting: int
    unsure: int = 0

    @property
    def kept(self) -> str:
        """In words, for whoever runs it."""
        unsure = f" and {self.unsure} “cannot say”" if self.unsure else ""
        return f"{self.answered} answer{'s' * (self.answered != 1)}{unsure} kept"


@dataclass
class AnswerLog:
    """The answers' file, read from its start: what stands after all undos."""

    entries: list[StandingEntry] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)  # whose queries come first, the last undone
    seen: set[str] = field(default_factory=set)  # the words `once`
    seated: int = 0  # entries that stood when the person sat down
    versions: dict[str, int] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)  # answered once, deleted, not asked again

    def apply(self, line: Line) -> None:
        """One line of the file."""
        self.seen.add(line.get("once", ""))
        if "sit" in line:
            self.seated = len(self.entries)
            return
        name = about(line)
        self.versions[name] = line.get("version", self.version(name) + 1)
        if "undo" in line:
            self._undo(name)
        elif "forget" in line:
            self._forget(name)
        elif "change" in line:
            self._change(name, line)
        else:
            said = None if "skip" in line else line["value"]
            comment, time = line.get("comment", ""), line.get("time", 0.0)
            self._add(StandingEntry(name, said, "skip" in line, comment, time))

    def version(self, name: str) -> int:
        return self.versions.get(name, 0)

    def standing(self, name: str) -> StandingEntry | None:
        """The last entry about a query."""
        return next((entry for entry in self.entries[::-1] if entry.question == name), None)

    def _add(self, entry: StandingEntry) -> None:
        self.entries.append(entry)
        self.undone = [name for name in self.undone if name != entry.question]

    def _undo(self, name: str) -> None:
        """By name: somebody may have removed a damaged line before it."""
        places = [at for at, entry in enumerate(self.entries) if entry.question == name]
        if places:
            del self.entries[places[-1]]
            self.undone.insert(0, name)
            self.seated -= places[-1] < self.seated

    def _change(self, name: str, line: Line) -> None:
        """In its place: the order of answers is the order in which they were first given."""
        for at, entry in enumerate(self.entries):
            if entry.question == name and not entry.skip:
                comment = line.get("comment", entry.comment)
                time = line.get("time", entry.time)
                self.entries[at] = entry._replace(value=line["value"], comment=comment, time=time)

    def _forget(self, name: str) -> None:
        self.seated -= sum(entry.question == name for entry in self.entries[: self.seated])
        self.entries = [entry for entry in self.entries if entry.question != name]
        self.undone = [other for other in self.undone if other != name]
        self.forgotten.add(name)

    @property
    def answers(self) -> list[Answer]:
        """Those that stand, in the order in which they were given."""
        return _answers(self.entries)

    @property
    def closed(self) -> set[str]:
        """Queries that wait no longer: answered, or nothing can be said of them."""
        return {entry.question for entry in self.entries if not entry.skip}


def about(line: Line) -> str:
    """The query that a line is about."""
    for name in (line.get("undo"), line.get("skip"), line.get("change"), line.get("forget")):
        if name is not None:
            return name
    return line["question"]


def _answers(entries: Iterable[StandingEntry]) -> list[Answer]:
    return [Answer(entry.question, entry.value) for entry in entries if entry.value is not None]


@dataclass(frozen=True)
class FolderView:
    """A client's private folder at one moment, as one person sees it."""

    queries: dict[str, Query]
    log: AnswerLog

    @property
    def pending(self) -> list[Query]:
        """In a person's order: what was undone, then the newest, then what was skipped.

        Of a guess and the one that replaced it one waits: the new one, unless the person has dealt
        with the other. It stays behind all others if that was skipped.
        """
        waiting = self.queries.keys() - self.log.closed - self.log.forgotten
        skips = [entry.question for entry in self.log.entries if entry.skip]
        last = list(dict.fromkeys(skips[::-1]))[::-1]  # by when each was skipped last
        replaced = {name for name, query in self.queries.items() if query.stale == "replaced"}
        back = replaced & set(self.log.undone)
        done = {self.queries[name].keys for name in replaced - waiting | back}
        waiting = {
            name for name in waiting
            if name in back or not (name in replaced or self.queries[name].keys in done)
        }  # fmt: skip
        later = {self.queries[name].keys for name in replaced & set(skips)}
        new = [name for name in self.queries if name not in skips]
        new.sort(key=lambda name: self.queries[name].keys in later)
        order = dict.fromkeys([*self.log.undone, *new, *last])
        return [self.queries[name] for name in order if name in waiting]

    def replaced(self, name: str) -> Query | None:
        """This query, if it was made anew and can be answered all the same."""
        query = self.queries.get(name)
        dealt = name in self.log.closed | self.log.forgotten
        return query if query and query.stale == "replaced" and not dealt else None

    @property
    def progress(self) -> Progress:
        entries, seated = self.log.entries, self.log.seated
        unsure = sum(entry.value is None and not entry.skip for entry in entries)
        answered, sitting = len(_answers(entries)), len(_answers(entries[seated:]))
        return Progress(answered, len(self.pending), sitting, unsure)

    @property
    def undoable(self) -> list[StandingEntry]:
        """Entries that can be taken back: a skipped query may have been dropped since."""
        return [entry for entry in self.log.entries if entry.question in self.queries]

    def recent(self, count: int) -> list[tuple[Query, StandingEntry]]:
        """The last entries, newest first, with their queries."""
        return [(self.queries[entry.question], entry) for entry in self.undoable[-count:][::-1]]

    @property
    def history(self) -> list[tuple[Query, StandingEntry]]:
        """All that stands but skips, newest first."""
        said = [entry for entry in self.undoable[::-1] if not entry.skip]
        return [(self.queries[entry.question], entry) for entry in said]
