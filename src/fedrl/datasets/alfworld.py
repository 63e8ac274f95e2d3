"""ALFWorld's text games, from the repacked files, the published tree or the published archive.

The tree is `json_2.1.1/SPLIT/TASK/TRIAL/game.tw-pddl`, as all releases name it; each game file is
JSON with the problem, whether the expert solved it, and a grammar that holds the task's sentence.
A task's folder is named TYPE-OBJECT-MOVABLE-RECEPTACLE-SCENE, so the floor plan needs no
trajectory file. As in ALFWorld, games with sliced objects or movable receptacles are left out.
"""

from __future__ import annotations

import json
import lzma
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from fedrl.core.registry import suggestion
from fedrl.core.types import UserError
from fedrl.datasets.missing_data import missing, readable

SPLITS = ("train", "valid_seen", "valid_unseen", "valid_train")

_TREE = "json_2.1.1"
_GAME = "game.tw-pddl"
_TASK = re.compile(r'"task"\s*:\s*\[\s*\{\s*"rhs"\s*:\s*("(?:[^"\\]|\\.)*")')


class GameRecord(NamedTuple):
    """One solvable game. The id is the same whatever form it was read from."""

    id: str  # SPLIT/TASK/TRIAL
    task_type: str
    task: str  # "Your task is to: …"
    floor_plan: str
    pddl_problem: str
    generation: str  # of the published texts: 2.1.1, or 2.1.2 with its `help`


def games(folder: Path, split: str, name: str = "alfworld") -> Iterator[GameRecord]:
    """The games of a split in ascending order of their ids, one at a time: a split is 184 MB.

    `name` is empty for games of one's own, of which nothing can be got anew.
    """
    if split not in SPLITS:
        raise UserError(f"split is {split!r}; {suggestion(split, list(SPLITS))}")
    packed = folder / f"{split}.jsonl.xz"
    if packed.is_file():
        return _from_lines(packed, name)
    for tree in (folder / _TREE / split, folder / split):
        if tree.is_dir():
            return _from_tree(tree, split, name)
    archives = sorted(folder.glob("*tw-pddl.zip"))
    if archives:
        return _from_archive(archives[-1], split, name)
    raise missing(name, f"{packed.name}, {_TREE}/{split}/ or *tw-pddl.zip", folder)


def has(folder: Path, split: str) -> bool:
    """Whether a folder of one's own has games of a split."""
    trees = (folder / _TREE / split, folder / split)
    packed = (folder / f"{split}.jsonl.xz").is_file() or any(folder.glob("*tw-pddl.zip"))
    return packed or any(any(tree.glob(f"*/*/{_GAME}")) for tree in trees)


def require_some(folder: Path) -> None:
    """Whether a folder of one's own has games at all."""
    if not any(has(folder, split) for split in SPLITS):
        raise missing("", f"{_TREE}/train/TASK/TRIAL/{_GAME} or train/TASK/TRIAL/{_GAME}", folder)


def _from_lines(path: Path, name: str) -> Iterator[GameRecord]:
    last = ""
    with readable(name, path), lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            game = json.loads(line)
            record = GameRecord(
                game["id"],
                game["task_type"],
                game["task"],
                game["floor_plan"],
                game["pddl_problem"],
                "2.1.1",
            )
            if record.id <= last:
                raise ValueError(f"{record.id} does not come after {last}")
            last = record.id
            yield record


def _from_tree(tree: Path, split: str, name: str) -> Iterator[GameRecord]:
    trials = (path.parent.relative_to(tree) for path in tree.glob(f"*/*/{_GAME}"))
    ids = [f"{split}/{trial.as_posix()}" for trial in trials]
    if not ids:
        raise missing(name, f"TASK/TRIAL/{_GAME}", tree)

    def where(id: str) -> Path:
        return tree.parent / id / _GAME

    return _select(ids, where, lambda id: where(id).read_bytes(), name)


def _from_archive(path: Path, split: str, name: str) -> Iterator[GameRecord]:
    with readable(name, path), zipfile.ZipFile(path) as archive:
        start, end = f"{_TREE}/{split}/", f"/{_GAME}"
        ids = [
            file.removeprefix(f"{_TREE}/").removesuffix(end)
            for file in archive.namelist()
            if file.startswith(start) and file.endswith(end)
        ]
        if not ids:
            raise missing(name, f"{start}TASK/TRIAL{end}", path)
        yield from _select(
            ids, lambda id: path, lambda id: archive.read(f"{_TREE}/{id}{end}"), name
        )


def _select(
    ids: Iterable[str], where: Callable[[str], Path], read: Callable[[str], bytes], name: str
) -> Iterator[GameRecord]:
    for id in sorted(ids):
        if "movable" in id or "Sliced" in id:
            continue
        with readable(name, where(id)):
            game = json.loads(read(id))
            # A game that was never checked counts as unsolvable, as in ALFWorld.
            record = _record(id, game) if game.get("solvable") else None
        if record is not None:
            yield record


def _record(id: str, game: dict[str, str]) -> GameRecord:
    _, folder, _ = id.split("/")
    parts = folder.split("-")
    grammar = game["grammar"]
    task = _TASK.search(grammar)
    if task is None:
        raise ValueError(f"the grammar of {id} has no task")
    return GameRecord(
        id,
        parts[0],
        json.loads(task[1]),
        f"FloorPlan{parts[-1]}",
        game["pddl_problem"],
        "2.1.2" if "action help" in grammar else "2.1.1",
    )
