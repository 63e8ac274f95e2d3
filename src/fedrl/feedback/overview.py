"""What whoever runs the page sees: how far people are, how far they agree, and their notes.

People are told that notes are read here. Answers are shown only where they differ, by name: to
settle that somebody has to talk to somebody.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedrl.feedback import agreement as agreeing
from fedrl.feedback.answer_log import FolderView
from fedrl.feedback.export import said
from fedrl.feedback.http_server import Json

DISPUTED, NOTES = 20, 50


def overview(views: Mapping[str, FolderView], no_longer: Mapping[str, int]) -> dict[str, Json]:
    """Of one client's people. What those have said who are `no_longer` asked still counts."""
    answers: dict[str, dict[str, float]] = {}
    for name, view in views.items():
        for answer in view.log.answers:
            answers.setdefault(answer.question, {})[name] = answer.value
    found = agreeing.agreement(answers)
    return {
        "people": [_person(name, view) for name, view in views.items()],
        "no_longer": dict(no_longer),
        "agreement": found._asdict(),
        "pairs": [
            {"people": list(pair), "both": both, "same": same}
            for pair, (both, same) in agreeing.pairwise(answers).items()
        ],
        "disputed": [
            _disputed(name, answers[name], views) for name in agreeing.disputed(answers, DISPUTED)
        ],
        "notes": _notes(views),
    }


def _person(name: str, view: FolderView) -> dict[str, Json]:
    times = [entry.time for _, entry in view.history]
    return {"name": name, "last": max(times, default=None), **view.progress._asdict()}


def _disputed(
    name: str, values: Mapping[str, float], views: Mapping[str, FolderView]
) -> dict[str, Json]:
    query = next(view.queries[name] for view in views.values())
    told = {person: said(query, value) for person, value in values.items()}
    return {"items": query.items, "prompt": query.prompt, "said": told}


def _notes(views: Mapping[str, FolderView]) -> list[Json]:
    notes = [
        (entry.time, name, entry.comment, query)
        for name, view in views.items()
        for query, entry in view.history
        if entry.comment
    ]
    return [
        {"person": name, "note": note, "items": query.items, "prompt": query.prompt}
        for _, name, note, query in sorted(notes, reverse=True)[:NOTES]
    ]
