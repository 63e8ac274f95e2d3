"""Rows of a data set of prompts, by number: lines of JSONL files, or a Hugging Face dataset.

A file is read once when it is opened, line by line: what is wrong with a line is said then, with
its number. Kept of each row are some bytes (where its line begins, digests of its prompt, its
type), so a million rows take some megabytes; the rows themselves stay on the disk until one is
asked for. A file that is no longer what it was when it was opened is refused.
"""

from __future__ import annotations

import json
import os
import re
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fedrl.core.registry import missing_extra
from fedrl.core.types import JsonValue, Shareable, UserError

if TYPE_CHECKING:
    from datasets import Dataset

Row = Mapping[str, JsonValue]
"""One line of the data: its columns by their names."""

CHANGED = "world.source: the data has changed since it was opened; put it back, or begin a new run"
BLOCK = 1 << 20


class Rows(Protocol):
    """A table on the disk. `where` names row i for people, `digest` is the content's."""

    digest: str

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> Row: ...

    def __iter__(self) -> Iterator[Row]:
        """All of them in their order, one after the other."""
        ...

    def where(self, number: int) -> str: ...


class JsonLines:
    """The lines of one or several files, as one table; empty lines do not count."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = [_File(path) for path in files]
        self._ends = np.cumsum([len(file.starts) for file in self.files])
        total = blake2b(digest_size=16)
        for file in self.files:
            total.update(file.digest)
        self.digest = total.hexdigest()

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, number: int) -> Row:
        file, line = self._place(number)
        return file.row(line)

    def __iter__(self) -> Iterator[Row]:
        for file in self.files:
            yield from file.rows()

    def where(self, number: int) -> str:
        file, line = self._place(number)
        return f"{file.path}, line {file.line_number(line)}"

    def _place(self, number: int) -> tuple[_File, int]:
        which = int(np.searchsorted(self._ends, number, side="right"))
        return self.files[which], number - (int(self._ends[which - 1]) if which else 0)


class _File:
    """One file, and where its lines begin."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.starts = array("q")
        try:
            self._file = path.open("rb")
            self._state = _state(path)
            self.digest = self._index()
        except OSError as error:
            raise UserError(f"world.source: {path} cannot be read: {error.strerror}") from error

    def _index(self) -> bytes:
        """Fill `starts`; the digest of the whole file."""
        total, at = blake2b(digest_size=16), 0
        self._file.seek(0)
        for line in self._file:
            total.update(line)
            if not line.isspace():
                self.starts.append(at)
            at += len(line)
        return total.digest()

    def row(self, line: int) -> Row:
        self._require_unchanged()
        self._file.seek(self.starts[line])
        return self._parsed(self._file.readline(), line)

    def rows(self) -> Iterator[Row]:
        with self.path.open("rb") as file:
            lines = (text for text in file if not text.isspace())
            for line, text in enumerate(lines):
                yield self._parsed(text, line)

    def line_number(self, line: int) -> int:
        """As an editor counts them, from 1."""
        self._file.seek(0)
        left, count = self.starts[line], 1
        while left:
            block = self._file.read(min(left, BLOCK))
            count, left = count + block.count(b"\n"), left - len(block)
        return count

    def _parsed(self, text: bytes, line: int) -> Row:
        try:
            row = json.loads(text)
        except ValueError as error:
            raise UserError(f"{self._named(line)} is no JSON: {_cause(error)}") from error
        if not isinstance(row, dict):
            raise UserError(f'{self._named(line)} is no JSON object {{"prompt": …}}')
        return row

    def _named(self, line: int) -> str:
        return f"world.source: {self.path}, line {self.line_number(line)}"

    def _require_unchanged(self) -> None:
        """Whether the file is as it was; one that was only touched, or copied back, is."""
        try:
            now = _state(self.path)
            if now == self._state:
                return
            again = _File(self.path)
        except (OSError, UserError) as error:
            raise UserError(Shareable(CHANGED)) from error
        if again.digest != self.digest:
            raise UserError(Shareable(CHANGED))
        self._file.close()
        self._file, self._state = again._file, again._state


def _state(path: Path) -> tuple[int, int, int]:
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _cause(error: ValueError) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else "it is not UTF-8"


class ArrowRows:
    """A split of a Hugging Face dataset, which lies in memory-mapped files."""

    def __init__(self, dataset: Dataset, name: str) -> None:
        self._dataset, self._name = dataset, name
        total = blake2b(dataset._fingerprint.encode(), digest_size=16)
        for cached in dataset.cache_files:
            with open(cached["filename"], "rb") as file:
                while block := file.read(BLOCK):
                    total.update(block)
        self.digest = total.hexdigest()

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, number: int) -> Row:
        row: Row = self._dataset[number]
        return row

    def __iter__(self) -> Iterator[Row]:
        yield from self._dataset

    def where(self, number: int) -> str:
        return f"{self._name}, row {number}"


SPLITS = ("train", "test", "public")


def combined_digest(splits: Mapping[str, Rows]) -> str:
    parts = "".join(f"{name}:{rows.digest} " for name, rows in splits.items())
    return blake2b(parts.encode(), digest_size=16).hexdigest()


def open_source(source: str, subset: str = "") -> dict[str, Rows]:
    """The splits that the source has, by their names."""
    if not source:
        raise UserError(
            "world.source is empty; it names a JSONL file, a folder with train.jsonl, or a "
            "Hugging Face dataset"
        )
    path = Path(source)
    if path.is_file():
        return {"train": JsonLines([path])}
    if path.is_dir() and not _saved_to_disk(path):
        return _folder(path)
    if not path.exists() and (path.suffix in (".jsonl", ".json") or not _hub_name(source)):
        raise UserError(f"world.source: there is no file or folder {source}")
    return _hugging_face(source, subset, path.is_dir())


def _folder(path: Path) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for split in SPLITS:
        files = [path / f"{split}.jsonl"] if (path / f"{split}.jsonl").is_file() else []
        if files := files or sorted((path / split).glob("*.jsonl")):
            found[split] = JsonLines(files)
    if not found:
        require_train(str(path), found)
    return {split: rows for split, rows in found.items() if len(rows)} or found


def require_train(source: str, found: Collection[str]) -> None:
    """Whether there is something to train on."""
    if "train" in found:
        return
    if Path(source).is_dir() and not _saved_to_disk(Path(source)):
        raise UserError(
            f"world.source: {source} has no train.jsonl with prompts, no folder train with .jsonl "
            "files, and is no dataset of save_to_disk"
        )
    raise UserError(f"world.source: {source} has no split train; it has {', '.join(found)}")


def _saved_to_disk(path: Path) -> bool:
    return any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))


def _hub_name(source: str) -> bool:
    """`organisation/name` or `name`, as Hugging Face has them."""
    return re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", source) is not None


def _hugging_face(source: str, subset: str, local: bool) -> dict[str, Rows]:
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise missing_extra(error, f"world.source = {source!r}, a dataset", "") from error
    try:
        found = (
            datasets.load_from_disk(source)
            if local
            else datasets.load_dataset(source, subset or None)
        )
    except (OSError, ValueError, RuntimeError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"world.source is {source!r}, which cannot be opened: {first}") from error
    splits = found if isinstance(found, dict) else {"train": found}
    if not set(splits) & set(SPLITS):
        raise UserError(
            f"world.source: {source} has no split train; it has {', '.join(map(str, splits))}"
        )
    return {name: ArrowRows(splits[name], f"{source}, {name}") for name in SPLITS if name in splits}
