"""A run's episodes.jsonl as it grows: which rounds it has is kept, their texts stay in the file.

A run of 500 rounds has tens of megabytes of episodes, of which a person reads a few.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fedrl.core.types import Json
from fedrl.llm.transcripts import Episode, from_record
from fedrl.report.episodes_section import episode_html
from fedrl.report.watch.following import Tail

UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""What `from_record` raises of a line that no run of ours has written."""


class Place(NamedTuple):
    """Where an episode's line lies, and how the episode ended."""

    at: int
    size: int
    won: bool


class EpisodeLog:
    """`edition` is another one where the file was cut back or replaced: all is to be told anew."""

    def __init__(self, path: Path) -> None:
        self.tail = Tail(path)
        self.edition = 0
        self.rounds: dict[int, list[Place]] = {}

    def read(self) -> None:
        """Take what is new."""
        if self.tail.restarted():
            self.edition += 1
            self.rounds.clear()
        for at, line in self.tail.whole_lines():
            if (found := parsed(line)) is not None:
                number, episode = found
                self.rounds.setdefault(number, []).append(Place(at, len(line), episode.won))

    def counts(self) -> dict[int, tuple[int, int]]:
        """By round, how many of how many episodes were won."""
        return {
            number: (sum(place.won for place in places), len(places))
            for number, places in self.rounds.items()
        }

    def news(self, edition: int, told: Mapping[int, tuple[int, int]]) -> Json | None:
        """What somebody does not know who was told so much; None if that is nothing. `anew`: what
        was told before counts no more."""
        anew = edition != self.edition
        known = {} if anew else told
        rounds = [[n, *count] for n, count in self.counts().items() if known.get(n) != count]
        return {"anew": anew, "rounds": rounds} if anew or rounds else None

    def shown(self, number: int) -> list[Json]:
        """A round's episodes for the page; a line that is another one by now is left out."""
        shown: list[Json] = []
        try:
            with self.tail.path.open("rb") as file:
                for place in self.rounds.get(number, []):
                    file.seek(place.at)
                    found = parsed(file.read(place.size))
                    if found is not None and found[0] == number:
                        shown.append({"task": found[1].task, "html": episode_html(found[1])})
        except OSError:
            return []
        return shown


def parsed(line: bytes) -> tuple[int, Episode] | None:
    """The round and the episode of a line; None if it holds none."""
    try:
        record = json.loads(line)
        number = record["round"]
        return (number, from_record(record)) if type(number) is int else None
    except UNREADABLE:
        return None
