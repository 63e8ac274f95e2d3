"""A person as the source of feedback: queries wait in the client's folder, answers come later.

Training never waits. A round publishes its queries and takes what has been answered by then;
`fedrl feedback` shows them on a page (`page`) or in the terminal (`terminal`), at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrl.feedback.queries import Answer, FeedbackSource, Query
from fedrl.feedback.store import Folder, Given, client_folder


@dataclass(frozen=True)
class LivePerson:
    """A `FeedbackSource` whose answers are what a person has given so far."""

    folder: Folder

    def answers(self, queries: Sequence[Query], seed: int) -> list[Answer]:
        """`seed` is not read: people have their own."""
        self.folder.ask(queries)
        given = {answer.question: answer.value for answer in self.folder.answers()}
        return [Answer(query.id, given[query.id]) for query in queries if query.id in given]

    def given(self) -> Given:
        """What stands, by person and query."""
        return self.folder.given()

    def still_asked(self) -> set[str]:
        """Names of the queries that stay: guesses that are none of today's are dropped here."""
        return self.folder.drop_stale()

    def answered_late(self) -> list[Query]:
        """Queries that were asked anew, with another guess, before their answer came."""
        return self.folder.answered_late()

    def declined(self) -> set[str]:
        """Queries that stay without an answer: nobody can say, or what was said is deleted."""
        return self.folder.declined()


def source(folder: Path | str, client: int) -> FeedbackSource:
    """The person at this client; `folder` is where all clients' private folders are simulated."""
    return LivePerson(Folder(client_folder(folder, client)))
