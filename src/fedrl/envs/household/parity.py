"""Replays transcripts of the real ALFWorld engine: every sentence and every command must agree.

A record names a genuine game and lists what was typed and what the engine answered; the game itself
comes from the ALFWorld data. `score`, `done` and `won` are the same thing in this world.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from fedrl.core.types import UserError
from fedrl.datasets import alfworld
from fedrl.envs.household.game import Game
from fedrl.envs.household.layout import Layout
from fedrl.envs.household.pddl import parse
from fedrl.envs.household.problem import Problem
from fedrl.envs.parity import Line, Record, records, transcript

KEYS = {"id", "generation", "reset", "steps"}
"""What a record of a transcript has at least."""


def replay(files: Sequence[Path], data: Path) -> list[Line]:
    """One line per file; `data` is the folder with the ALFWorld games."""
    transcripts = {path: list(records(path)) for path in _files(files)}
    for path, recorded in transcripts.items():
        if not recorded or any(KEYS - record.keys() for record in recorded):
            raise UserError(f"{path} holds no household transcripts ({', '.join(sorted(KEYS))})")
    ids = {str(record["id"]) for recorded in transcripts.values() for record in recorded}
    games = _games(ids, data)
    lines = []
    for path, recorded in transcripts.items():
        with transcript(path):
            lines.append(_file(path.name, recorded, games))
    return lines


def _files(paths: Sequence[Path]) -> list[Path]:
    """A folder stands for the transcripts in it: other files that may lie there are passed over."""
    files: list[Path] = []
    for path in paths:
        inside = [path] if not path.is_dir() else sorted(path.glob("alfworld_2*.jsonl*"))
        if not inside:
            raise UserError(f"{path} has no files alfworld_2….jsonl.xz")
        files += inside
    return files


def _games(ids: Iterable[str], data: Path) -> dict[str, Problem]:
    wanted = set(ids)
    games = {
        game.id: parse(game.pddl_problem, game.id, game.task)
        for split in sorted({id.partition("/")[0] for id in wanted})
        for game in alfworld.games(data, split)
        if game.id in wanted
    }
    if lacking := sorted(wanted - games.keys()):
        raise UserError(f"{data} lacks {len(lacking)} games of the transcripts: {lacking[0]} …")
    return games


def _file(name: str, transcripts: list[Record], games: dict[str, Problem]) -> Line:
    line = Line(name, note=f"{len(transcripts)} games")
    for record in transcripts:
        game = Game(Layout(games[record["id"]], record["generation"]))
        _compare(line, record, "reset", record["reset"], game, game.reset())
        for step in record["steps"]:
            observation = game.step(step["command"])
            _compare(line, record, step["command"], step, game, observation)
    return line


def _compare(line: Line, record: Record, what: str, step: Record, game: Game, seen: str) -> None:
    got = {
        "observation": seen,
        "admissible": game.admissible,
        "score": int(game.won),
        "done": game.won,
        "won": game.won,
    }
    expected = {key: step[key] for key in got if key in step}
    line.compare(f"{record['id']} {what!r}", expected, got)
