"""Which of these two texts is better? What a client that writes asks its person, and hears.

Both texts go on from the same beginning, so that the answer is about what the model added. A
question is named by its texts: asked again it is the same question. Questions and answers lie in
the client's private folder (`feedback.store`) and nowhere else: not in the client's state, which a
run's checkpoints stand for. What was not answered waits there, and a round uses every answer that
stands by then, also of rounds long ago, because it is about texts and not about a model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from fedrl.core.types import Shareable, UserError
from fedrl.feedback.records import Question
from fedrl.feedback.store import Folder, client_folder

Answered = tuple[tuple[tuple[str, ...], float], ...]
"""Texts that were shown and what was said: below 0 for the first, above 0 for the second."""


def questions(texts: Sequence[str], liked: Sequence[float]) -> list[Question]:
    """About texts 0 and 1, 2 and 3, …, unless they are equal; `liked` is what the judge expects."""
    return [
        question((texts[i], texts[i + 1]), (float(liked[i]), float(liked[i + 1])))
        for i in range(0, len(texts) - 1, 2)
        if texts[i] != texts[i + 1]
    ]


def question(texts: tuple[str, str], liked: tuple[float, float]) -> Question:
    keys = _name(texts[0]), _name(texts[1])
    return Question(f"compare/{keys[0]}/{keys[1]}", "compare", keys, texts, liked)


def _name(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def ask(folder: str, client: int, asked: Sequence[Question]) -> None:
    """Put these before the client's person; those that still wait come after them."""
    Folder(client_folder(folder, client)).ask(asked)


def answered(folder: str, client: int) -> Answered:
    """All that the client's person has said so far, with the texts that it was about."""
    view = Folder(client_folder(folder, client)).view()
    return tuple((view.questions[one.question].items, one.value) for one in view.told.standing)


def require_folder(folder: str, client: int) -> None:
    """Of an earlier run; asked where it is read, because it lies with the client."""
    place = client_folder(folder, client)
    if not place.is_dir():
        raise UserError(
            Shareable(
                f"algorithm.feedback_folder is {folder!r}, which has no {place.name}: name that of "
                'a run with algorithm.feedback = "live"'
            )
        )
