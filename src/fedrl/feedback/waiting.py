"""What waits for the people of a run, for whoever has run it.

20 questions wait for each of 2 people: fedrl feedback RUN --client 0; learned from 3 answers so far
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from fedrl.feedback import effect
from fedrl.feedback.links import last_address
from fedrl.feedback.store import Folder, client_folder


class Waiting(NamedTuple):
    """For one person of a client; `people` are all of this client's, if they have names."""

    questions: int
    client: int
    people: list[str]


def waiting_line(run: Path, private: Path, clients: Iterable[int]) -> str:
    """Empty where nobody was asked on this machine."""
    found: list[Waiting] = []
    learned = stand = 0
    taken_back = False
    for client in clients:
        place = client_folder(private, client)
        if place.is_dir():
            folder = Folder(place)
            people = _counted(folder)
            found += [
                Waiting(len(folder.of(name).pending()), client, people) for name in people or [""]
            ]
            stand += len(folder.answers())
            taken_back |= _taken_back(folder)
            last = effect.read(folder)
            learned += sum(heard.answers for heard in last.people.values()) if last else 0
    if not found:
        return ""
    so_far = f"learned from {learned} answer{'s' * (learned != 1)} so far"
    if taken_back:  # it may have learned from more than that
        so_far = f"{stand} answer{'s stand' if stand != 1 else ' stands'} now"
    asked = [one for one in found if one.questions]
    return f"{_wait(asked, run) if asked else 'no questions wait'}; {so_far}"


def _taken_back(folder: Folder) -> bool:
    """Whether something that was said is deleted or undone."""
    logs = [folder.of(name).view().log for name in ["", *folder.people]]
    return any(log.forgotten or log.undone for log in logs)


def _counted(folder: Folder) -> list[str]:
    """Who has a name here, but for those who never said anything and are no longer served: a name
    that was mistyped once would be asked for ever."""
    served = last_address(folder).people
    return [
        name
        for name in folder.people
        if served is None or name in served or folder.of(name).view().log.closed
    ]


def _wait(asked: list[Waiting], run: Path) -> str:
    most, least = (extreme(one.questions for one in asked) for extreme in (max, min))
    some = f"{'up to ' if least < most else ''}{most} question{'s wait' if most > 1 else ' waits'}"
    whom = "one person" if len(asked) == 1 else f"each of {len(asked)} people"
    first = asked[0]
    command = ["fedrl", "feedback", str(run), "--client", str(first.client)]
    command += ["--people", ",".join(first.people)] if first.people else []
    return f"{some} for {whom}: {shlex.join(command)}"
