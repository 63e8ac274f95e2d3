"""FedAgent's statements in the index of results, by records alone."""

from __future__ import annotations

from reproductions.fedagent.claims import Claim, claims
from reproductions.fedagent.environment import worlds_differ
from reproductions.statements import Statement, judged, records_of
from reproductions.study import Study


def statements(study: Study) -> list[Statement]:
    """Of one scale. What earlier runs left without a record is no part of it."""
    parts = study.runs()
    names = study.grid.tables["parts"]
    found = [*claims(parts, [names], lambda part: True), *worlds_differ(parts)]
    return [statement(one) for one in found]


def statement(one: Claim) -> Statement:
    text = None if one.word is None else f"{one.word} ({one.said})"
    cells = [cell for cell in one.cells if cell.runs]
    return judged(one.source, f"{one.claim}: {one.where}", text, records_of(cells), one.seeds)
