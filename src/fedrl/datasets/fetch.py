"""Where a data set lies, and how it gets there from its publisher.

FEDRL_DATA, when set, names the folder that holds one folder per data set; otherwise that is the
user's cache. FEDRL_MIRROR, when set, is an address that serves `FOLDER/FILE` in the publishers'
stead, for machines behind a firewall; the sha256 must be right all the same.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal

from fedrl.core.registry import suggestion
from fedrl.core.types import UserError
from fedrl.datasets import DATASETS, Dataset, File
from fedrl.datasets.download import FAILURES, disk_failure, download, failure_words, sha256_of
from fedrl.datasets.missing_data import readable

RECORD = "fedrl-sources.jsonl"
"""Beside the files: where they came from, their sums, and when."""

SLACK = 1 << 20
"""Bytes that a file may have beyond twice its known size before it is something else."""


def find(name: str) -> Dataset:
    if name not in DATASETS:
        raise UserError(f"no data set is called {name!r}; {suggestion(name, list(DATASETS))}")
    return DATASETS[name]


def place(name: str) -> Path:
    """Where the data set belongs, whether it is there or not."""
    return (_named() or _cache()) / find(name).folder


def _named() -> Path | None:
    """FEDRL_DATA, whether it is there or not."""
    named = os.environ.get("FEDRL_DATA")
    return Path(os.path.expanduser(named)) if named else None


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedrl" / "data"


def doubt() -> str | None:
    """What seems to be wrong with FEDRL_DATA: it is no folder, or one level too deep."""
    named = _named()
    if named is None:
        return None
    if not os.path.isdir(named):
        what = "no folder" if os.path.exists(named) else "not there"
        return f"FEDRL_DATA is {named}, which is {what}"
    folders = {dataset.folder for dataset in DATASETS.values()}
    outer, inner = os.path.split(os.path.abspath(named))
    if inner in folders and not any((named / folder).is_dir() for folder in folders):
        return f"FEDRL_DATA is {named}, the folder of {inner} itself; did you mean {outer}?"
    return None


def present(name: str) -> bool:
    """Whether the data set is in its place, in one of the forms that the readers know."""
    return _holds(place(name), find(name))


def _holds(folder: Path, dataset: Dataset) -> bool:
    return any(all(any(folder.glob(pattern)) for pattern in layout) for layout in dataset.layouts)


def root(name: str) -> Path:
    """The folder of a data set that is there; an empty one is not."""
    folder = place(name)
    if os.path.isdir(folder):
        with readable(name, folder):
            if any(folder.iterdir()):
                return folder
    get = f"get it with `fedrl data {name}` ({decimal(find(name).size)})"
    named = _named()
    if named is None:
        holds = f"set FEDRL_DATA to the folder that holds {folder.name}/"
        holds += ', or play what is made here: world.source = "generated"'
        raise UserError(f"{name} is not here; {get}, or {holds}")
    what = doubt() or f"FEDRL_DATA is {named}, which has no {folder.name}/ with data in it"
    raise UserError(f"{what} Otherwise {get}" if what.endswith("?") else f"{what}; {get}")


def source_folder(source: str, name: str) -> Path:
    """Of a setting `world.source`: the data set's own folder, or another one with its files."""
    folder = root(name) if source == name else Path(source)
    if not folder.is_dir():
        raise UserError(f'world.source is {source!r}; it is "generated", "{name}" or a folder')
    return folder


def fetch(name: str, yes: bool = False) -> Path:
    """Download a data set that is not there yet; `yes` agrees to its terms beforehand."""
    dataset, folder = find(name), place(name)
    console = Console(stderr=True, highlight=False)
    if present(name):
        console.print(f"{name} is here already", markup=False)
        return folder
    doubted = doubt()
    if doubted and _holds(folder.parent, dataset):  # to get it once more would be the next mistake
        raise UserError(doubted)
    mirror = _mirror()
    for line in terms(dataset, folder):
        console.print(line, markup=False, soft_wrap=True)
    if not yes:
        _agree(name)
    with _prepared(dataset, folder):
        for file in dataset.files:
            source = _get_file(name, file, folder, mirror, console)
            _record_source(folder, file, source)
    return folder


def terms(dataset: Dataset, folder: Path) -> list[str]:
    return [
        dataset.title,
        f"  publisher  {dataset.publisher}",
        f"  licence    {dataset.licence}",
        f"  size       {decimal(dataset.size)}",
        f"  goes into  {folder}",
    ]


def _agree(name: str) -> None:
    if not sys.stdin.isatty():
        raise UserError(f"agree to these terms with: fedrl data {name} --yes")
    print("download it under these terms? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UserError(f"nothing downloaded; fedrl data {name} --yes does not ask")


@contextmanager
def _prepared(dataset: Dataset, folder: Path) -> Iterator[None]:
    """A folder with enough room; the folders made for it go again when nothing comes into them."""
    made = [path for path in (folder, *folder.parents) if not os.path.exists(path)]
    try:
        _prepare(dataset, folder)
        yield
    finally:
        with suppress(OSError):  # the first that is not empty, or never came to be, ends it
            for path in made:
                path.rmdir()


def _prepare(dataset: Dataset, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise UserError(
            f"cannot make the folder {folder}: {error.strerror}; set FEDRL_DATA to a folder that "
            "you can write to"
        ) from error
    needed = sum(file.size for file in dataset.files if not (folder / file.name).exists())
    if free < needed:
        raise UserError(
            f"{folder} has {decimal(free)} free, and {decimal(needed)} are needed; set FEDRL_DATA "
            "to a folder on a larger disk"
        )


def _get_file(name: str, file: File, folder: Path, mirror: str | None, console: Console) -> str:
    """The address that a file came from; "by hand" when it was there already."""
    target = folder / file.name
    if target.is_file():
        if sha256_of(target) == file.sha256:
            return "by hand"
        raise UserError(f"{target} is not the published file (sha256 differs): move it away")
    url = f"{mirror}/{find(name).folder}/{file.name}" if mirror else file.url
    try:
        download(url, target, file.sha256, console, most=2 * file.size + SLACK)
    except FAILURES as error:
        raise UserError(_failure(name, file, target, url, error)) from error
    except KeyboardInterrupt:
        console.print("the same command goes on from here", markup=False)
        raise
    console.print(f"{file.name}  sha256 {file.sha256}", markup=False, soft_wrap=True)
    return url


def _failure(name: str, file: File, target: Path, url: str, error: Exception) -> str:
    """Two lines: what went wrong with which address, and every way on."""
    clause, again = failure_words(error, url), f"run `fedrl data {name}` again"
    if disk_failure(error):
        return f"{clause}; mend that or set FEDRL_DATA to another folder, then {again}"
    by_hand = f"save {file.url} as {target} (make its folder), then {again}"
    path = f"{find(name).folder}/{file.name}"
    if url == file.url:
        return (
            f"{clause}; try again, or {by_hand}\n"
            f"or set FEDRL_MIRROR to an address that serves {path}, or FEDRL_DATA to a folder with "
            f"{find(name).folder}/ in it"
        )
    asked = "" if url in clause else f" (asked for {url})"
    return (
        f"{clause}{asked}; FEDRL_MIRROR must be an address that serves {path}\n"
        f"mend or unset FEDRL_MIRROR, or {by_hand}"
    )


def _mirror() -> str | None:
    """FEDRL_MIRROR without a slash at its end."""
    mirror = os.environ.get("FEDRL_MIRROR")
    if mirror and not _is_address(mirror):
        raise UserError(
            f"FEDRL_MIRROR is {mirror!r}; https://HOST/PATH or file:///FOLDER is expected"
        )
    return mirror.rstrip("/") if mirror else None


def _is_address(text: str) -> bool:
    """Whether urllib can do something with it."""
    try:
        parts = urllib.parse.urlsplit(text)
        _ = parts.port
    except ValueError:  # brackets that do not close, a port that is no number
        return False
    if parts.scheme == "file":
        return parts.netloc in ("", "localhost") and parts.path.startswith("/")
    plain = text.isascii() and text.split() == [text]
    return parts.scheme in ("http", "https") and bool(parts.hostname) and plain


def _record_source(folder: Path, file: File, source: str) -> None:
    """One more line of the record."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    line = {"file": file.name, "from": source, "sha256": file.sha256, "date": now}
    try:
        with open(folder / RECORD, "a", encoding="utf-8") as record:
            record.write(json.dumps(line) + "\n")
    except OSError as error:
        raise UserError(f"cannot write {folder / RECORD}: {error.strerror}") from error
