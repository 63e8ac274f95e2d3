"""What a page is told of a folder, and what it sends: JSON on one side, entries on the other."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from fedrl.feedback.answer_log import Entry, FolderView, StandingEntry
from fedrl.feedback.effect import LISTS, Effect
from fedrl.feedback.entries import LONGEST_COMMENT, Conflict
from fedrl.feedback.http_server import Json, Refused
from fedrl.feedback.queries import Query

AHEAD = 40
"""Queries that the page holds ready: a quick person never waits for the server."""
BEHIND = 30
"""Entries that the page knows: as many can be undone in one go."""
MOST_ENTRIES = 200
LONGEST_NAME = 100
"""Characters of the word that makes an entry count once; it is kept on the disk."""


def state(view: FolderView, seen: str = "") -> dict[str, Json]:
    """What waits, what was said last, and how far the person is.

    What the person has `seen` is there as long as it can be answered, also where more than a page
    holds came before it, and where its guess was made anew.
    """
    waiting = view.pending
    if (looked := view.replaced(seen)) and looked not in waiting:
        waiting = [looked, *(one for one in waiting if one.keys != looked.keys)]
    questions = [*waiting[:AHEAD], *(one for one in waiting[AHEAD:] if one.id == seen)]
    return {
        "progress": view.progress._asdict(),
        "questions": [_shown(view, query) for query in questions],
        "recent": [_said(view, query, entry) for query, entry in view.recent(BEHIND)],
    }


def history(view: FolderView) -> dict[str, Json]:
    """All that stands, and whether there is anything to delete: what was taken back is kept, too,
    until it is deleted."""
    said = [_said(view, query, entry) for query, entry in view.history]
    return {"history": said, "kept": bool(view.log.entries or view.log.undone)}


def conflicts(view: FolderView, found: Sequence[Conflict]) -> list[Json]:
    """What was not written, with what stands instead."""
    return [_conflict(view, entry, why) for entry, why in found]


def _conflict(view: FolderView, entry: Entry, why: str) -> Json:
    told: dict[str, Json] = {
        "once": entry.once, "why": why, "mine": entry.value, "skip": entry.act == "skip",
        "note": entry.comment or "",
    }  # fmt: skip
    if why == "gone":
        return told
    standing = view.log.standing(entry.question)
    waits = standing is None or standing.skip
    deleted = entry.question in view.log.forgotten
    told["stands"] = "deleted" if deleted else "waits" if waits else "answered"
    told["theirs"] = standing.value if standing else None
    return told | {"query": _shown(view, view.queries[entry.question])}


def effect(found: Effect | None, person: str, deleted: bool = False) -> dict[str, Json]:
    """As this person is told it; nothing where nobody was heard, or an answer was `deleted`."""
    if found is None or not found.answers:
        return {"effect": None, "deleted": deleted}
    sides: dict[str, Json] = {
        side: [one._asdict() for one in getattr(found, side)] for side in LISTS
    }
    about = {
        "kind": found.kind, "answers": found.answers, "time": found.time,
        "mine": found.of(person), "several": found.several(person), "films": found.films,
    }  # fmt: skip
    return {"effect": about | sides, "deleted": False}


def learned(found: Effect | None, person: str) -> Json:
    """The first round that has learned from what this person said last; None before it."""
    heard = found.people.get(person) if found else None
    return heard._asdict() if heard and heard.answers else None


def _said(view: FolderView, query: Query, entry: StandingEntry) -> dict[str, Json]:
    about = {"value": entry.value, "skip": entry.skip, "note": entry.comment, "time": entry.time}
    return _shown(view, query) | about


def _shown(view: FolderView, query: Query) -> dict[str, Json]:
    """Without the keys: they say nothing to a person."""
    return {
        "id": query.id, "kind": query.kind, "items": query.items, "scores": query.scores,
        "prompt": query.prompt, "guessed": query.guessed, "stale": query.stale,
        "version": view.log.version(query.id),
    }  # fmt: skip


def parse_entries(body: Json) -> list[Entry | None]:
    """The page's entries; None is "go on"."""
    match body:
        case {"entries": [*entries]} if len(entries) <= MOST_ENTRIES:
            return [_entry(entry) for entry in entries]
    raise unreadable()


def _entry(entry: Json) -> Entry | None:
    match entry:
        case {"more": True}:
            return None
        case {"once": str(once)} if len(once) > LONGEST_NAME:
            raise unreadable()
        case {"undo": str(question), "once": str(once)} if question and once:
            return Entry(question, None, once, "undo")
        case {"forget": str(question), "once": str(once)} if question and once:
            return Entry(question, None, once, "forget")
        case {"skip": str(question), "once": str(once)} if once:
            return Entry(question, None, once, "skip", *_about(entry))
        case {"change": str(question), "value": None | -1 | 0 | 1 as value, "once": str(once)}:
            if question and once:
                return Entry(question, _number(value), once, "change", *_about(entry))
        case {"question": str(question), "value": None | -1 | 0 | 1 as value, "once": str(once)}:
            if once:
                return Entry(question, _number(value), once, "answer", *_about(entry))
    raise unreadable()


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _about(entry: Json) -> tuple[int | None, str | None]:
    """The version that the person saw, and the note."""
    assert isinstance(entry, dict)
    version, comment = entry.get("version"), entry.get("note")
    if not (version is None or (type(version) is int and version >= 0)):
        raise unreadable()
    if not (comment is None or (isinstance(comment, str) and len(comment) <= LONGEST_COMMENT)):
        raise unreadable()
    return version, comment


def unreadable() -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, "The request could not be read.")
